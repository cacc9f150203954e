//! Redaction: secrets stand in lines as keyed digests, equal where the values were equal.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::error::TraceError;
use super::event::hex;

mod bodies;
mod chosen;
mod names;
mod protocols;

pub use chosen::{ChosenName, ChosenNames};

/// SHA-256 hashes blocks of this many bytes (RFC 2104 calls it B).
const BLOCK: usize = 64;

/// How often escapes may stand for escapes in what is looked through.
const MOST_LAYERS: usize = 4;

/// Replaces secrets by keyed digests. The key comes from the operating system and is one run's own; only a private blob of a run that can be
/// replayed holds it.
#[derive(Clone)]
pub struct Redactor {
    key: [u8; BLOCK],
    chosen: ChosenNames,
}

impl Redactor {
    /// Makes a redactor with a fresh key.
    pub fn new() -> Result<Self, TraceError> {
        let mut key = [0; BLOCK];
        getrandom::fill(&mut key[..32]).map_err(|error| TraceError::Randomness { source: error.into() })?;
        Ok(Self { key, chosen: ChosenNames::default() })
    }

    /// The redactor of another run: what it replaces stands there in the same way. What goes beyond the first 64
    /// bytes of `key` is left out.
    #[must_use]
    pub fn with_key(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        let length = key.len().min(BLOCK);
        block[..length].copy_from_slice(&key[..length]);
        Self { key: block, chosen: ChosenNames::default() }
    }

    /// The same, which replaces the values of these names as well.
    #[must_use]
    pub fn with_names(self, chosen: ChosenNames) -> Self {
        Self { chosen, ..self }
    }

    /// Whether the values of this query parameter are secret: `accessToken` is taken as `access_token`. A name with percent signs is judged by what they stand for.
    #[must_use]
    pub fn is_secret_parameter(&self, name: &str) -> bool {
        names::is_secret_parameter(name) || self.chosen.hold(name)
    }

    /// Whether the value of this member of a JSON body is secret: `accessToken` is taken as `access_token`.
    #[must_use]
    pub fn is_secret_member(&self, name: &str) -> bool {
        names::is_secret_member(name) || self.chosen.hold(name)
    }

    /// Whether a text names anything whose value is secret: a member of JSON, a parameter, a field of a form, a header, an
    /// element of XML. It looks at names and what follows them, whatever the text is said to be, and rather sees too many.
    #[must_use]
    pub fn names_credentials(&self, text: &str) -> bool {
        bodies::names_credentials(text, &self.chosen)
    }

    /// Its key, which tells what stands behind a digest to who guesses: for private blobs alone.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns what stands for `value`: `redacted:` and 16 hex digits, equal for equal values of this run.
    pub fn redacted(&self, value: impl AsRef<[u8]>) -> String {
        format!("redacted:{}", hex(&self.digest(value.as_ref())[..8]))
    }

    /// Returns the value of a header as it may stand in a line.
    ///
    /// The scheme of `Authorization` and the names and attributes of cookies are no secrets and stay.
    pub fn header<'a>(&self, name: &str, value: &'a [u8]) -> Cow<'a, str> {
        let text = match std::str::from_utf8(value) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => super::event::display_bytes(value).into(),
        };
        if self.is_secret_header(name) {
            return self.credential(name, &text).into();
        }
        if name.eq_ignore_ascii_case(protocols::FIELD) {
            return self.protocols(&text).into();
        }
        let holds_urls = names::URL_HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known));
        if holds_urls { self.urls_in(&text).into() } else { text }
    }

    fn credential(&self, name: &str, text: &str) -> String {
        match name.to_ascii_lowercase().as_str() {
            "cookie" => text.split(';').map(|pair| self.pair(pair)).collect::<Vec<_>>().join(";"),
            "set-cookie" => match text.split_once(';') {
                Some((pair, attributes)) => format!("{};{attributes}", self.pair(pair)),
                None => self.pair(text),
            },
            "authorization" | "proxy-authorization" => match text.trim().split_once(' ') {
                Some((scheme, credential))
                    if scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') =>
                {
                    format!("{scheme} {}", self.redacted(credential.trim()))
                }
                _ => self.redacted(text.trim()),
            },
            _ => self.redacted(text.trim()),
        }
    }

    fn is_secret_header(&self, name: &str) -> bool {
        names::is_secret_header(name) || self.chosen.hold(name)
    }

    /// Returns a list of headers as it may stand in a line, each as a pair of name and value.
    pub fn headers<'a>(
        &self,
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Vec<(String, String)> {
        headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), self.header(name, value).into_owned()))
            .collect()
    }

    /// Returns a URL, or the path and query of a request line, as it may stand in a line.
    pub fn url(&self, url: &str) -> String {
        let (url, fragment) = split_keeping(url, '#');
        let (front, query) = split_keeping(url, '?');
        let mut out = self.without_user_info(front);
        if let Some(query) = query.strip_prefix('?') {
            out.push('?');
            out.push_str(&self.query(query));
        }
        if let Some(fragment) = fragment.strip_prefix('#') {
            // OAuth's implicit grant puts its token there (RFC 6749, section 4.2.2).
            out.push('#');
            out.push_str(&self.query(fragment));
        }
        out
    }

    /// Returns a query, or a body of `application/x-www-form-urlencoded`, as it may stand in a line.
    pub fn query(&self, query: &str) -> String {
        let mut out = String::with_capacity(query.len());
        let mut rest = query;
        loop {
            let end = rest.find(['&', ';']).unwrap_or(rest.len());
            let (pair, after) = rest.split_at(end);
            match pair.split_once('=') {
                Some((name, value))
                    if !value.is_empty() && (self.is_secret_parameter(name) || self.holds_secrets(value)) =>
                {
                    out.push_str(name);
                    out.push('=');
                    out.push_str(&self.redacted(value));
                }
                _ => out.push_str(pair),
            }
            let mut chars = after.chars();
            let Some(separator) = chars.next() else {
                return out;
            };
            out.push(separator);
            rest = chars.as_str();
        }
    }

    /// Whether the value of a parameter is a URL or a query with secrets of its own, escaped or not.
    fn holds_secrets(&self, value: &str) -> bool {
        if !value.contains(['=', '%']) {
            return false;
        }
        let holds = |plain: &String| {
            let mut pairs = plain.split(['?', '#', '&', ';']).filter_map(|pair| pair.split_once('='));
            pairs.any(|(name, value)| !value.is_empty() && self.is_secret_parameter(name))
        };
        // A URL within a URL within a URL is escaped once for each.
        let layers = std::iter::successors(Some(names::percent_decoded(value)), |layer| {
            layer.contains('%').then(|| names::percent_decoded(layer))
        });
        layers.take(MOST_LAYERS).any(|plain| holds(&plain))
    }

    /// Redacts the secret members of a JSON body, however deep.
    pub fn json(&self, body: &mut Value) {
        match body {
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(members) => {
                // The codes of other bodies tell errors or countries.
                let is_grant = members.contains_key("grant_type");
                for (name, value) in members.iter_mut() {
                    match value {
                        Value::String(text)
                            if self.is_secret_member(name) || (is_grant && name == "code") =>
                        {
                            *value = self.redacted(text.as_bytes()).into();
                        }
                        other => self.json(other),
                    }
                }
            }
            _ => {}
        }
    }

    fn without_user_info(&self, front: &str) -> String {
        let authority_from = match front.find("://") {
            Some(at) => at + 3,
            None if front.starts_with("//") => 2,
            None => return front.to_owned(),
        };
        let authority_to =
            front[authority_from..].find(['/', '\\']).map_or(front.len(), |at| authority_from + at);
        match front[authority_from..authority_to].rfind('@') {
            Some(at) => {
                let user_info = &front[authority_from..authority_from + at];
                format!(
                    "{}{}{}",
                    &front[..authority_from],
                    self.redacted(user_info),
                    &front[authority_from + at..]
                )
            }
            None => front.to_owned(),
        }
    }

    /// Redacts each word of a header's value that is a URL.
    fn urls_in(&self, text: &str) -> String {
        text.split(' ').map(|word| self.url(word)).collect::<Vec<_>>().join(" ")
    }

    fn pair(&self, pair: &str) -> String {
        match pair.split_once('=') {
            Some((name, value)) => format!("{name}={}", self.redacted(value.trim())),
            None if pair.trim().is_empty() => pair.to_owned(),
            None => self.redacted(pair.trim()),
        }
    }

    /// HMAC-SHA256 (RFC 2104).
    fn digest(&self, value: &[u8]) -> [u8; 32] {
        let inner =
            Sha256::new().chain_update(self.key.map(|byte| byte ^ 0x36)).chain_update(value).finalize();
        Sha256::new().chain_update(self.key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor")
    }
}

/// Splits before the first `separator`, which stays with the second part.
fn split_keeping(text: &str, separator: char) -> (&str, &str) {
    text.split_at(text.find(separator).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor() -> Redactor {
        Redactor::with_key(b"Jefe")
    }

    #[test]
    fn the_digest_is_hmac_sha256() {
        // RFC 4231, test case 2.
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&redactor().digest(b"what do ya want for nothing?")), expected);
        assert_eq!(redactor().redacted("what do ya want for nothing?"), "redacted:5bdcc146bf60754e");
    }

    #[test]
    fn two_runs_have_two_keys() {
        let (first, second) = (Redactor::new().expect("random"), Redactor::new().expect("random"));
        assert_eq!(first.redacted("x"), first.redacted("x"));
        assert_ne!(first.redacted("x"), second.redacted("x"));
    }

    #[test]
    fn credential_headers_keep_their_form_but_not_their_value() {
        let redactor = redactor();
        for (name, value) in [
            ("Authorization", "Bearer hunter2"),
            ("authorization", "hunter2"),
            ("Proxy-Authorization", "Basic hunter2"),
            ("Cookie", "a=hunter2; b=hunter2"),
            ("Set-Cookie", "sid=hunter2; Path=/; HttpOnly"),
            ("X-Api-Key", "hunter2"),
            ("X-Goog-Api-Key", "hunter2"),
            ("Private-Token", "hunter2"),
            ("X-Shopify-Access-Token", "hunter2"),
            ("CF-Access-Client-Secret", "hunter2"),
            ("X-Auth-Key", "hunter2"),
            ("apikey", "hunter2"),
            ("X-Authorization", "hunter2"),
            ("Location", "https://u:hunter2@h/cb?code=hunter2#access_token=hunter2"),
        ] {
            let shown = redactor.header(name, value.as_bytes());
            assert!(!shown.contains("hunter2") && shown.contains("redacted:"), "{name}: {shown}");
        }
        assert!(redactor.header("Authorization", b"Bearer t").starts_with("Bearer redacted:"));
        assert!(redactor.header("Set-Cookie", b"sid=1; Path=/").ends_with("; Path=/"));
        for name in ["Accept", "Anthropic-RateLimit-Tokens-Remaining", "Sec-WebSocket-Key", "Idempotency-Key"]
        {
            assert_eq!(redactor.header(name, b"1"), "1", "{name}");
        }
    }

    #[test]
    fn urls_lose_user_info_and_secret_parameters_only() {
        let redactor = redactor();
        let digest = redactor.redacted("s");
        for (url, expected) in [
            ("https://h/p?q=1", "https://h/p?q=1".to_owned()),
            ("https://s@h/p", format!("https://{digest}@h/p")),
            ("/p?a=1&token=s&b=2", format!("/p?a=1&token={digest}&b=2")),
            ("/p?API-Key=s", format!("/p?API-Key={digest}")),
            ("/p?%74oken=s", format!("/p?%74oken={digest}")),
            ("/p?accessToken=s", format!("/p?accessToken={digest}")),
            ("/p?subject_token=s&user_code=s", format!("/p?subject_token={digest}&user_code={digest}")),
            (
                "/p?to=https%3A%2F%2Fh%2F%3Faccess_token%3Ds",
                format!("/p?to={}", redactor.redacted("https%3A%2F%2Fh%2F%3Faccess_token%3Ds")),
            ),
            (
                "/p?to=h%253Fto%253Dh%25253Ftoken%25253Ds",
                format!("/p?to={}", redactor.redacted("h%253Fto%253Dh%25253Ftoken%25253Ds")),
            ),
            ("/p?to=https%3A%2F%2Fh%2F%3Fq%3Ds", "/p?to=https%3A%2F%2Fh%2F%3Fq%3Ds".to_owned()),
            ("h:443", "h:443".to_owned()),
            ("/users/@s", "/users/@s".to_owned()),
            ("/p?token=", "/p?token=".to_owned()),
        ] {
            assert_eq!(redactor.url(url), expected);
        }
    }

    #[test]
    fn token_answers_lose_their_tokens_only() {
        let redactor = redactor();
        let mut body = serde_json::json!({
            "access_token": "s", "token_type": "bearer", "expires_in": 3600, "more": [{"clientSecret": "s", "n": 1}],
        });
        redactor.json(&mut body);
        let digest = redactor.redacted("s");
        assert_eq!(
            body,
            serde_json::json!({
                "access_token": digest, "token_type": "bearer", "expires_in": 3600,
                "more": [{"clientSecret": digest, "n": 1}],
            })
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC*", bytes: Vec<u8>) {
            let redactor = redactor();
            redactor.url(&text);
            redactor.query(&text);
            for name in ["cookie", "set-cookie", "authorization", "location"] {
                redactor.header(name, &bytes);
            }
        }
    }
}
