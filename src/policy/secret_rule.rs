//! `secret:` rules: a variable whose value only the proxy puts into requests, and where.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::host_fault::{HostFault, syntax};
use super::host_rule::{NetRule, NetTarget, target};
use super::key::distance;
use super::name::NamePattern;
use super::value::Value;

/// The port of `https://` targets that name none.
const HTTPS_PORT: u16 = 443;

const FORM: &str = "write `secret: NAME -> HOST`, `HOST:PORT`, or `HOST header FIELD`";

/// Fields that frame or route a message: what stands there must not depend on a secret.
const NO_CREDENTIALS: [&str; 16] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "if-range",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Variables that every command gets, and those that are set for it.
const NOT_HIDDEN: [&str; 16] = [
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
    "TMPDIR",
    "TMP",
    "TEMP",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
];

/// A rule about a secret: the process gets a placeholder, the origin the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRule {
    /// The variable of the launcher's environment.
    pub name: String,
    /// The one host that gets the value, in canonical form.
    pub host: String,
    /// At this port alone.
    pub port: u16,
    /// The header field, in lower case; none for the usual ones.
    pub header: Option<String>,
}

impl SecretRule {
    pub(super) fn parse(value: &Value) -> Result<Self, HostFault> {
        if value.quoted {
            return Err(syntax("a secret takes no quotes", FORM));
        }
        let Some((name, rest)) = value.text.split_once("->") else {
            return Err(syntax("`->` and the host are missing", FORM));
        };
        let name = variable(name.trim())?;
        let mut words = rest.split_whitespace();
        let Some(host) = words.next() else { return Err(syntax("the host is missing", FORM)) };
        let (host, port) = pinned(host)?;
        let header = match (words.next(), words.next(), words.next()) {
            (None, ..) => None,
            (Some("header"), Some(field), None) => Some(header(field)?),
            (Some("header"), None, _) => {
                return Err(syntax("the name of the header field is missing", "write `header X-Token`"));
            }
            (Some("header"), Some(_), Some(word)) => {
                return Err(syntax(
                    format!("`{word}` follows the header field"),
                    "write a rule for each field: they add up",
                ));
            }
            (Some(word), ..) => return Err(unknown_word(word)),
        };
        Ok(Self { name: name.to_owned(), host, port, header })
    }

    /// The same place as a rule about hosts.
    pub(super) fn place(&self) -> NetRule {
        let target = match NamePattern::parse(&self.host) {
            Ok(name) if !name.is_localhost() => NetTarget::Name(name),
            _ => NetTarget::Loopback,
        };
        NetRule::new(target, Some(self.port))
    }
}

impl fmt::Display for SecretRule {
    /// As it would be written, with nothing left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}:{}", self.name, self.host, self.port)?;
        match &self.header {
            Some(field) => write!(f, " header {field}"),
            None => Ok(()),
        }
    }
}

fn variable(name: &str) -> Result<&str, HostFault> {
    if let Some(bare) = name.strip_prefix('$') {
        return Err(syntax(format!("`{name}` is no name of a variable"), format!("write `{bare}`")));
    }
    if name.contains('=') {
        return Err(syntax("the value of a secret never stands in a policy", FORM));
    }
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        return Err(syntax(format!("`{name}` is no name of one variable"), FORM));
    }
    if NOT_HIDDEN.contains(&name) || name.starts_with("LC_") {
        return Err(syntax(
            format!("`{name}` is given to every command, so it hides no secret"),
            "name the variable that holds the secret",
        ));
    }
    Ok(name)
}

fn pinned(text: &str) -> Result<(String, u16), HostFault> {
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split('/').next().unwrap_or(rest);
        return Err(syntax(
            "a URL is no host",
            format!("write `-> {host}`; the value goes over https alone"),
        ));
    }
    if let Some((host, _)) = text.split_once('/') {
        return Err(syntax("a secret belongs to a host, not to a path", format!("write `-> {host}`")));
    }
    let (target, port) = target(text)?;
    let host = match target {
        NetTarget::Name(name) if name.to_string().contains('*') => {
            return Err(syntax(
                "a secret belongs to one host, and a pattern stands for many",
                "write a rule for each host",
            ));
        }
        NetTarget::Name(name) => name.to_string(),
        NetTarget::Loopback if text.starts_with("localhost") => "localhost".to_owned(),
        NetTarget::Address(_) | NetTarget::Range(_) | NetTarget::Loopback => {
            return Err(syntax("a secret belongs to a name, which a certificate proves", FORM));
        }
    };
    Ok((host, port.unwrap_or(HTTPS_PORT)))
}

/// RFC 9110 section 5.1.
fn header(field: &str) -> Result<String, HostFault> {
    let name = field.trim_end_matches(':').to_ascii_lowercase();
    let is_token = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if !is_token {
        return Err(syntax(format!("`{field}` is no name of a header field"), "write `header X-Token`"));
    }
    if NO_CREDENTIALS.contains(&name.as_str()) {
        return Err(syntax(
            format!("`{field}` is about the message itself, and holds no secret"),
            "name the field that the host reads its credential from",
        ));
    }
    Ok(name)
}

fn unknown_word(word: &str) -> HostFault {
    match word.to_lowercase() {
        lower if distance(&lower, "header") <= 2 => {
            syntax(format!("unknown word `{word}`, did you mean `header`?"), "write `header FIELD`")
        }
        lower if matches!(lower.as_str(), "tunnel" | "private") || lower.starts_with('@') => syntax(
            format!("`{word}` belongs to the `net:` rule of the host"),
            "write it there; a `secret:` rule takes `header FIELD` alone",
        ),
        _ => syntax(
            format!("`{word}` follows the host"),
            "write `header FIELD`, or a comma between two secrets",
        ),
    }
}
