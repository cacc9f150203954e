//! A request as both a recording and a replay have it, and what it is compared by.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::durations;
use super::entry::Entry;
use super::normal;
use crate::trace::{hex, unhex};

/// A request as both a recording and a replay have it: credentials are hidden in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) url: String,
    /// Names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) trailers: Vec<(String, String)>,
    /// SHA-256 of the body; none where there is none.
    pub(crate) body: Option<String>,
}

impl Asked {
    /// That of an entry.
    pub(super) fn of(entry: &Entry<'_>) -> Option<Self> {
        let body = entry.args.get("body");
        let digest = body.and_then(|body| body.get("sha256").or_else(|| body.get("blob")));
        Some(Self {
            method: entry.text("method")?.to_owned(),
            url: entry.text("url")?.to_owned(),
            headers: pairs(entry.args.get("headers")),
            trailers: pairs(entry.args.get("trailers")),
            body: digest.and_then(Value::as_str).map(str::to_owned),
        })
    }

    /// What all of it comes to.
    pub(super) fn exact(&self) -> String {
        let mut lines = vec![self.method.clone(), self.url.clone()];
        let headers = self.headers.iter().chain(&self.trailers);
        let headers = headers.filter(|(name, _)| !normal::is_hop_by_hop(name));
        lines.extend(headers.map(|(name, value)| format!("{name}:{value}")));
        lines.push(self.body.clone().unwrap_or_default());
        digest(&lines)
    }

    /// The same without what changes from call to call, and, where its body tells some, without durations; `body` as
    /// far as it could be read.
    pub(super) fn normal(&self, body: Option<&[u8]>) -> [String; 2] {
        let mut lines = vec![self.method.clone(), normal::url(&self.url)];
        lines.extend(normal::headers(&self.headers));
        lines.extend(normal::headers(&self.trailers));
        let normal = body.map(|body| normal::body(&self.headers, body));
        let timeless = normal.as_deref().and_then(|normal| std::str::from_utf8(normal).ok());
        let timeless = timeless.map(durations::without);
        let whole = |line: Option<&[u8]>| {
            let body = line.map(|line| hex(&Sha256::digest(line)));
            let body = body.or_else(|| self.body.clone()).unwrap_or_default();
            digest(lines.iter().chain([&body]))
        };
        let exact = whole(normal.as_deref());
        let timeless = timeless.map_or_else(|| exact.clone(), |text| whole(Some(text.as_bytes())));
        [exact, timeless]
    }

    /// What requests have in common that may be the same.
    pub(super) fn place(&self) -> String {
        let path = self.url.split(['?', '#']).next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

fn digest<'a>(lines: impl IntoIterator<Item = &'a String>) -> String {
    let lines: Vec<&str> = lines.into_iter().map(String::as_str).collect();
    // No part holds a newline: it would be another request.
    hex(&Sha256::digest(lines.join("\n")))
}

/// The list of an entry's headers.
pub(super) fn pairs(list: Option<&Value>) -> Vec<(String, String)> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let pair = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.as_str()?.to_owned()));
    list.iter().filter_map(pair).collect()
}

/// The same as fields.
pub(super) fn fields(list: Option<&Value>) -> HeaderMap {
    let mut fields = HeaderMap::new();
    let exact = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter().map(|pair| {
        let bytes = pair.get(1).and_then(|value| value.get("hex")).and_then(Value::as_str).and_then(unhex);
        Some((pair.get(0)?.as_str()?.to_owned(), bytes?))
    });
    let plain = pairs(list).into_iter().map(|(name, value)| (name, value.into_bytes()));
    for (name, value) in plain.chain(exact.flatten()) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(&value)) {
            fields.append(name, value);
        }
    }
    fields
}
