//! What a `net:` rule says about requests: methods before the host, a path behind it.

use super::host_fault::{HostFault, is_suffix, syntax};
use super::key::distance;
use super::url_path::UrlPattern;

/// Allows WebSocket and other protocols that take over a connection.
pub(super) const UPGRADE: &str = "UPGRADE";

/// The registry of IANA, and what stands for a change of protocol here.
const KNOWN: [&str; 41] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
    UPGRADE,
];

/// The methods of a rule, sorted, and the words behind them.
pub(super) fn split_methods<'a, 'w>(words: &'w [&'a str]) -> Result<(Vec<String>, &'w [&'a str]), HostFault> {
    let Some((&first, rest)) = words.split_first() else { return Ok((Vec::new(), words)) };
    let host = rest.first().filter(|word| !is_suffix(word));
    let list = first.contains('|');
    let is_known = |word: &str| KNOWN.contains(&word);
    let Some(host) = host else {
        return match list || is_known(first) {
            true => Err(syntax(
                format!("`{first}` names methods and no host follows"),
                "write `net: GET|HEAD api.example.org/path/**`",
            )),
            false => Ok((Vec::new(), words)),
        };
    };
    let lower = !list && is_known(&first.to_uppercase()) && !is_known(first);
    if !list && !lower && !is_method(first) {
        return Ok((Vec::new(), words));
    }
    if host.starts_with('|') || first.ends_with('|') {
        return Err(syntax("the list of methods is broken off", "write it without blanks: `GET|HEAD`"));
    }
    let mut methods = first.split('|').map(method).collect::<Result<Vec<_>, _>>()?;
    methods.sort();
    methods.dedup();
    Ok((methods, rest))
}

fn method(word: &str) -> Result<String, HostFault> {
    if word.is_empty() {
        return Err(syntax("a method is missing beside `|`", "write `GET|HEAD`"));
    }
    if !is_method(word) {
        let upper = word.to_uppercase();
        return Err(if is_method(&upper) {
            syntax(format!("`{word}` is no method: they are written in capitals"), format!("write `{upper}`"))
        } else {
            syntax(format!("`{word}` is no method"), "write `GET|HEAD api.example.org/path/**`")
        });
    }
    if word == "CONNECT" {
        return Err(syntax(
            "CONNECT would let anything through",
            "name the host that is meant to be reached: `net: HOST:PORT`",
        ));
    }
    if !KNOWN.contains(&word)
        && let Some(near) = KNOWN.into_iter().find(|known| distance(word, known) == 1)
    {
        return Err(syntax(
            format!("unknown method `{word}`, did you mean `{near}`?"),
            format!("write `{near}`"),
        ));
    }
    Ok(word.to_owned())
}

/// Capitals, digits, `-` and `_`: other methods exist on paper alone.
fn is_method(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
}

/// `HOST[:PORT]` and the path behind it. `/**` is every path, which is what no path says.
pub(super) fn split_path(text: &str) -> Result<(&str, Option<UrlPattern>), HostFault> {
    let host = match text.strip_prefix("cidr/") {
        // `cidr/10.0.0.0/8:443/path`: the second slash belongs to the range.
        Some(range) => {
            let length = range.find('/').map_or(range.len(), |slash| slash + 1);
            let end = range[length..].find('/').map_or(range.len(), |slash| length + slash);
            "cidr/".len() + end
        }
        None => text.find('/').unwrap_or(text.len()),
    };
    let (host, path) = text.split_at(host);
    if path.is_empty() {
        return Ok((host, None));
    }
    let pattern = UrlPattern::parse(path).map_err(|fault| syntax(fault.to_string(), fault.help()))?;
    Ok((host, Some(pattern).filter(|pattern| !pattern.is_everything())))
}
