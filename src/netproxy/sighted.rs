//! What may be shown of a body that hands tokens over: it is stored as it was, and marked private.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use super::secret::Decoder;
use crate::trace::redact::Redactor;

/// So much of a body is looked at. Answers with tokens are small.
const MOST: usize = 32 << 10;

/// The beginning of a body that may hold tokens.
pub(super) struct Sighted {
    kind: Kind,
    coding: Option<HeaderValue>,
    bytes: Vec<u8>,
    is_whole: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Form,
    Json,
}

impl Sighted {
    /// None for bodies that hold neither a form nor JSON.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let media = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let media = media.split(';').next().unwrap_or("").trim();
        let is = |kind: &str| media.eq_ignore_ascii_case(kind);
        let suffix = media.rsplit_once('+').map(|(_, suffix)| suffix);
        let kind = match () {
            () if is("application/x-www-form-urlencoded") => Kind::Form,
            () if is("application/json") || suffix.is_some_and(|it| it.eq_ignore_ascii_case("json")) => {
                Kind::Json
            }
            () => return None,
        };
        let coding = headers.get(CONTENT_ENCODING).cloned();
        Some(Self { kind, coding, bytes: Vec::new(), is_whole: true })
    }

    /// Looks at what passes.
    pub(super) fn see(&mut self, bytes: &[u8]) {
        let room = MOST - self.bytes.len();
        self.is_whole &= bytes.len() <= room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Adds to a reference what may be shown instead of the body, if that is not all of it.
    pub(super) fn describe(&self, redactor: &Redactor, reference: &mut Value) {
        let (bytes, is_whole) = self.plain();
        let shown = match is_whole.then(|| std::str::from_utf8(&bytes)) {
            Some(Ok(text)) => redacted(self.kind, text, redactor),
            _ => None,
        };
        match shown {
            Some(shown) if shown.as_bytes() == bytes.as_ref() => {}
            Some(shown) => {
                reference["private"] = true.into();
                reference["redacted"] = shown.into();
            }
            None if names_one(self.kind, &String::from_utf8_lossy(&bytes), redactor) => {
                reference["private"] = true.into()
            }
            None => {}
        }
    }

    /// Without its coding, as far as it goes, and whether that is all.
    fn plain(&self) -> (Cow<'_, [u8]>, bool) {
        let Some(coding) = &self.coding else { return (Cow::Borrowed(&self.bytes), self.is_whole) };
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, coding.clone())]);
        let Ok(mut decoder) = Decoder::of(&headers) else { return (Cow::Borrowed(&[]), false) };
        let mut plain = Vec::new();
        decoder.take(Bytes::copy_from_slice(&self.bytes));
        while plain.len() < MOST {
            match decoder.step() {
                Ok(Some(bytes)) => plain.extend_from_slice(&bytes),
                Ok(None) => return (Cow::Owned(plain), self.is_whole),
                Err(_) => return (Cow::Owned(plain), false),
            }
        }
        (Cow::Owned(plain), false)
    }
}

/// The text without tokens; unchanged where there are none. None when it is not what it should be.
fn redacted(kind: Kind, text: &str, redactor: &Redactor) -> Option<String> {
    if kind == Kind::Form {
        return Some(redactor.query(text));
    }
    let before: Value = serde_json::from_str(text).ok()?;
    let mut after = before.clone();
    redactor.json(&mut after);
    Some(if after == before { text.to_owned() } else { after.to_string() })
}

/// Whether a text that cannot be read as a whole names a member or parameter that holds a secret.
fn names_one(kind: Kind, text: &str, redactor: &Redactor) -> bool {
    match kind {
        Kind::Form => text.split(['&', ';']).any(|pair| {
            pair.split_once('=')
                .is_some_and(|(name, value)| !value.is_empty() && redactor.is_secret_parameter(name))
        }),
        Kind::Json => {
            let words: Vec<&str> = text.split('"').collect();
            words
                .windows(2)
                .any(|pair| redactor.is_secret_member(pair[0]) && pair[1].trim_start().starts_with(':'))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn described(media: &'static str, coding: Option<&'static str>, pieces: &[&[u8]]) -> Option<Value> {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media))]);
        headers.extend(coding.map(|coding| (CONTENT_ENCODING, HeaderValue::from_static(coding))));
        let mut sighted = Sighted::of(&headers)?;
        pieces.iter().for_each(|piece| sighted.see(piece));
        let mut reference = json!({"blob": "0"});
        sighted.describe(&Redactor::new().unwrap(), &mut reference);
        Some(reference)
    }

    #[test]
    fn tokens_of_oauth_are_taken_out() {
        let form = b"grant_type=refresh_token&refresh_token=hunter2&client_secret=hunter2&code=hunter2&assertion=hunter2";
        let shown = described("application/x-www-form-urlencoded", None, &[form]).unwrap();
        let text = shown["redacted"].as_str().unwrap();
        assert!(shown["private"] == true && !text.contains("hunter2"), "{text}");
        assert!(text.starts_with("grant_type=refresh_token&refresh_token=redacted:"), "{text}");
        let answer =
            br#"{"access_token": "hunter2", "token_type": "bearer", "id_token": "hunter2", "expires_in": 3}"#;
        let shown =
            described("application/json; charset=utf-8", None, &[&answer[..9], &answer[9..]]).unwrap();
        let text = shown["redacted"].as_str().unwrap();
        assert!(!text.contains("hunter2") && text.contains("\"token_type\":\"bearer\""), "{text}");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(answer).unwrap();
        let shown = described("application/json", Some("gzip"), &[&encoder.finish().unwrap()]).unwrap();
        assert!(shown["private"] == true && shown["redacted"].is_string(), "{shown}");
        let request = br#"{"grant_type": "authorization_code", "code": "hunter2"}"#;
        let shown = described("application/json", None, &[request]).unwrap();
        assert!(!shown["redacted"].as_str().unwrap().contains("hunter2"), "{shown}");
    }

    #[test]
    fn other_bodies_stay_public() {
        for (media, body) in [
            ("application/json", &br#"{"code": "E1", "choices": [{"text": "access_token"}]}"#[..]),
            ("application/json", b"no JSON"),
            ("application/x-www-form-urlencoded", b"a=b&name=token"),
        ] {
            assert_eq!(described(media, None, &[body]).unwrap(), json!({"blob": "0"}));
        }
        assert!(described("text/plain", None, &[b"password=x"]).is_none());
    }

    #[test]
    fn what_is_too_large_is_private_as_a_whole() {
        let long = [br#"{"refresh_token": "hunter2", "more": ""#.to_vec(), vec![b'x'; MOST]].concat();
        let shown = described("application/json", None, &[&long, b"\"}"]).unwrap();
        assert_eq!(shown, json!({"blob": "0", "private": true}));
        let form = [b"password=hunter2&more=".to_vec(), vec![b'x'; MOST]].concat();
        let shown = described("application/x-www-form-urlencoded", None, &[&form]).unwrap();
        assert_eq!(shown, json!({"blob": "0", "private": true}));
    }
}
