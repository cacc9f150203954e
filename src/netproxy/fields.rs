//! Header fields on their way into the record: one piece of memory from the event loop to the thread that
//! stores them, which makes the many small pieces of their JSON and lets go of them.

use std::borrow::Cow;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::trace::redact::Redactor;
use crate::trace::{canonical, hex};

/// Names and values in order.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    bytes: Box<[u8]>,
    /// Where each name and each value ends.
    ends: Box<[(usize, usize)]>,
}

impl Fields {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let size = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let (mut bytes, mut ends) = (Vec::with_capacity(size), Vec::with_capacity(headers.len()));
        for (name, value) in headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            let name_ends = bytes.len();
            bytes.extend_from_slice(value.as_bytes());
            ends.push((name_ends, bytes.len()));
        }
        Self { bytes: bytes.into_boxed_slice(), ends: ends.into_boxed_slice() }
    }

    /// The most bytes that they take in an entry: escapes, names of their own, digests instead of credentials.
    pub(crate) fn bound(&self) -> u64 {
        (3 * self.bytes.len() + 128 * self.ends.len()) as u64
    }

    /// As the record has them, as canonical text: the values of credentials are redacted. Whether any stands there
    /// otherwise than it is.
    pub(crate) fn write(&self, redactor: &Redactor, out: &mut String) -> bool {
        let mut hides = false;
        out.push('[');
        for (position, (name, value)) in self.iter().enumerate() {
            let shown = redactor.header(&name, value);
            hides |= shown.as_bytes() != value;
            out.push_str(if position == 0 { "[" } else { ",[" });
            canonical::write_string(out, &name);
            out.push(',');
            canonical::write_string(out, &shown);
            out.push(']');
        }
        out.push(']');
        hides
    }

    /// The same as a value.
    pub(crate) fn value(&self, redactor: &Redactor) -> Value {
        let list = self.iter().map(|(name, value)| {
            let value = redactor.header(&name, value);
            Value::Array(vec![Value::from(name), Value::from(value)])
        });
        Value::Array(list.collect())
    }

    /// The same as pairs.
    pub(crate) fn pairs(&self, redactor: &Redactor) -> Vec<(String, String)> {
        let pair = |(name, value): (Cow<'_, str>, &[u8])| {
            let value = redactor.header(&name, value).into_owned();
            (name.into_owned(), value)
        };
        self.iter().map(pair).collect()
    }

    /// Whether the record has some otherwise than they are.
    pub(crate) fn hides(&self, redactor: &Redactor) -> bool {
        self.iter().any(|(name, value)| redactor.header(&name, value).as_bytes() != value)
    }

    /// As they are; a value that is no UTF-8 in hex.
    pub(crate) fn exact(&self) -> Value {
        let list = self.iter().map(|(name, value)| match std::str::from_utf8(value) {
            Ok(text) => json!([name, text]),
            Err(_) => json!([name, {"hex": hex(value)}]),
        });
        Value::Array(list.collect())
    }

    fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(name_ends, ends)| {
            // The name of a field is a token (RFC 9110 section 5.1).
            let name = &self.bytes[start..name_ends];
            let name =
                std::str::from_utf8(name).map_or_else(|_| String::from_utf8_lossy(name), Cow::Borrowed);
            start = ends;
            (name, &self.bytes[name_ends..ends])
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn all_stand_in_order_and_credentials_do_not() {
        let mut headers = HeaderMap::new();
        headers.append("accept", HeaderValue::from_static("*/*"));
        headers.append("x-empty", HeaderValue::from_static(""));
        headers.append("accept", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers.append("cookie", HeaderValue::from_static("sid=hunter2"));
        let redactor = Redactor::new().unwrap();
        let value = Fields::of(&headers).value(&redactor);
        let hidden = redactor.header("cookie", b"sid=hunter2");
        assert!(!hidden.contains("hunter2"));
        let accept = [json!(["accept", "*/*"]), json!(["accept", "caf\\xe9"])];
        let others = [json!(["x-empty", ""]), json!(["cookie", hidden])];
        let list = value.as_array().unwrap();
        assert_eq!(list.len(), 4);
        assert!(accept.iter().chain(&others).all(|field| list.contains(field)), "{value}");
        assert_eq!(Fields::of(&HeaderMap::new()).value(&redactor), json!([]));
        for headers in [headers, HeaderMap::new()] {
            let fields = Fields::of(&headers);
            let mut written = String::new();
            assert_eq!(fields.write(&redactor, &mut written), fields.hides(&redactor));
            assert_eq!(written, canonical::to_string(&fields.value(&redactor)));
        }
    }
}
