//! Requests without what changes from call to call: dates, identifiers, signatures, the order of keys.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::super::secret::Decoder;
use super::exchanges::MOST;

/// Fields of one connection (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Fields that differ in each call: times, identifiers of a call, what follows from the body.
const VOLATILE: [&str; 28] = [
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "b3",
    "baggage",
    "connect-timeout-ms",
    "content-length",
    "content-md5",
    "date",
    "expect",
    "grpc-timeout",
    "idempotency-key",
    "if-modified-since",
    "request-id",
    "sentry-trace",
    "traceparent",
    "tracestate",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amzn-trace-id",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-spanid",
    "x-b3-traceid",
    "x-client-request-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-request-id",
    "x-stainless-retry-count",
];

/// What begins the digest that stands for a credential.
const REDACTED: &str = "redacted:";

/// What stands for all boundaries of multipart bodies.
const BOUNDARY: &[u8] = b"boundary";

pub(super) fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name)
}

/// The URL with its query in order, and without the values of credentials.
pub(super) fn url(url: &str) -> String {
    let Some((place, query)) = url.split_once('?') else { return url.to_owned() };
    let mut pairs: Vec<String> = query.split('&').map(pair).collect();
    pairs.sort_unstable();
    format!("{place}?{}", pairs.join("&"))
}

fn pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, value)) if value.starts_with(REDACTED) || is_of_a_call(name) => format!("{name}="),
        _ => pair.to_owned(),
    }
}

/// A parameter that a signed URL has anew each time.
fn is_of_a_call(name: &str) -> bool {
    ["X-Amz-Date", "X-Amz-Signature", "X-Goog-Date", "X-Goog-Signature"]
        .iter()
        .any(|one| one.eq_ignore_ascii_case(name))
}

/// The fields in the order of their names, without those that differ in each call.
pub(super) fn headers(headers: &[(String, String)]) -> Vec<String> {
    let kept = headers.iter().filter(|(name, _)| !is_hop_by_hop(name) && !VOLATILE.contains(&name.as_str()));
    let mut lines: Vec<String> = kept.map(|(name, text)| format!("{name}:{}", value(name, text))).collect();
    lines.sort_unstable();
    lines
}

fn value<'a>(name: &str, text: &'a str) -> Cow<'a, str> {
    match name {
        "content-type" => match text.to_ascii_lowercase().find("boundary=") {
            Some(at) => text[..at].trim_end_matches([';', ' ']).to_owned().into(),
            None => text.into(),
        },
        "cookie" => {
            let mut names: Vec<&str> =
                text.split(';').filter_map(|pair| pair.trim().split('=').next()).collect();
            names.sort_unstable();
            names.join(";").into()
        }
        "user-agent" => products(text).into(),
        _ => match text.find(REDACTED) {
            Some(at) => text[..at].to_owned().into(),
            None => text.into(),
        },
    }
}

/// The names of the products alone, without versions and remarks (RFC 9110 section 10.1.5).
fn products(agent: &str) -> String {
    let mut depth = 0_u32;
    let outside: String = agent
        .chars()
        .filter(|letter| {
            match letter {
                '(' => depth += 1,
                ')' => {
                    depth = depth.saturating_sub(1);
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect();
    let names: Vec<&str> =
        outside.split_whitespace().filter_map(|product| product.split('/').next()).collect();
    names.join(" ")
}

/// A body as what it says: forms and JSON in order, no boundaries, no coding.
pub(super) fn body(headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let plain = decoded(headers, body);
    let media =
        headers.iter().find(|(name, _)| name == "content-type").map_or("", |(_, value)| value.as_str());
    let kind = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/x-www-form-urlencoded" => {
            let text = String::from_utf8_lossy(&plain);
            let mut pairs: Vec<&str> = text.split('&').collect();
            pairs.sort_unstable();
            pairs.join("&").into_bytes()
        }
        kind if kind.starts_with("multipart/") => match boundary(media) {
            Some(boundary) => replaced(&plain, boundary.as_bytes()),
            None => plain.into_owned(),
        },
        // Whatever it is said to be: clients send JSON under many names.
        _ => match serde_json::from_slice::<Value>(&plain) {
            // The library keeps the keys of objects in order.
            Ok(value @ (Value::Object(_) | Value::Array(_))) => value.to_string().into_bytes(),
            _ => plain.into_owned(),
        },
    }
}

/// Without its coding, where that can be undone.
fn decoded<'a>(headers: &[(String, String)], body: &'a [u8]) -> Cow<'a, [u8]> {
    let mut codings = HeaderMap::new();
    for (_, coding) in headers.iter().filter(|(name, _)| name == "content-encoding") {
        if let Ok(coding) = HeaderValue::from_str(coding) {
            codings.append(HeaderName::from_static("content-encoding"), coding);
        }
    }
    if codings.is_empty() {
        return Cow::Borrowed(body);
    }
    let Ok(mut decoder) = Decoder::of(&codings) else { return Cow::Borrowed(body) };
    decoder.take(Bytes::copy_from_slice(body));
    let mut plain = Vec::new();
    while plain.len() <= MOST {
        match decoder.step() {
            Ok(Some(bytes)) => plain.extend_from_slice(&bytes),
            Ok(None) => return Cow::Owned(plain),
            Err(_) => return Cow::Borrowed(body),
        }
    }
    Cow::Borrowed(body)
}

/// The boundary of a multipart body (RFC 2046 section 5.1.1).
fn boundary(media: &str) -> Option<&str> {
    let at = media.to_ascii_lowercase().find("boundary=")?;
    let value = &media[at + "boundary=".len()..];
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => value.split(';').next()?.trim(),
    };
    (!value.is_empty()).then_some(value)
}

fn replaced(body: &[u8], boundary: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.windows(boundary.len()).position(|window| window == boundary) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(BOUNDARY);
        rest = &rest[at + boundary.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn fields(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_changes_from_call_to_call_is_left_out() {
        let one = fields(&[
            ("accept", "*/*"),
            ("date", "Mon"),
            ("grpc-timeout", "3940m"),
            ("authorization", "Bearer redacted:0011"),
            ("cookie", "b=redacted:1; a=redacted:2"),
            ("user-agent", "curl/8.1 (linux 6.18) libx/2"),
            ("content-type", "multipart/form-data; boundary=abc"),
        ]);
        let other = fields(&[
            ("content-type", "multipart/form-data; boundary=\"x y\""),
            ("authorization", "Bearer redacted:2233"),
            ("cookie", "a=redacted:5; b=redacted:4"),
            ("user-agent", "curl/8.2 (linux 6.19) libx/3"),
            ("x-request-id", "7"),
            ("accept", "*/*"),
        ]);
        assert_eq!(headers(&one), headers(&other));
        assert_ne!(headers(&one), headers(&one[1..]));
        assert_eq!(url("http://a/b?y=2&x=1&token=redacted:1"), url("http://a/b?x=1&token=redacted:2&y=2"));
        assert_ne!(url("http://a/b?x=1"), url("http://a/b?x=2"));
    }

    #[test]
    fn bodies_are_compared_by_what_they_say() {
        let json = fields(&[("content-type", "application/json")]);
        assert_eq!(body(&json, b"{\"b\": 1, \"a\": [2]}"), body(&json, b"{\"a\":[2],\"b\":1}"));
        assert_ne!(body(&json, b"[1,2]"), body(&json, b"[2,1]"));
        let form = fields(&[("content-type", "application/x-www-form-urlencoded; charset=utf-8")]);
        assert_eq!(body(&form, b"b=1&a=2"), body(&form, b"a=2&b=1"));
        let parts = |boundary: &str| {
            let media = format!("multipart/form-data; boundary={boundary}");
            body(
                &fields(&[("content-type", &media)]),
                format!("--{boundary}\r\nx\r\n--{boundary}--").as_bytes(),
            )
        };
        assert_eq!(parts("abc"), parts("something-else"));
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(b"{\"b\":1,\"a\":2}").unwrap();
        let coded = fields(&[("content-type", "application/json"), ("content-encoding", "gzip")]);
        assert_eq!(body(&coded, &encoder.finish().unwrap()), b"{\"a\":2,\"b\":1}");
        assert_eq!(body(&[], b"\xff\x00"), b"\xff\x00");
    }

    proptest::proptest! {
        #[test]
        fn any_request_is_taken(text in "\\PC*", bytes: Vec<u8>) {
            let all = fields(&[("content-type", &text), ("user-agent", &text), ("cookie", &text)]);
            headers(&all);
            url(&text);
            body(&all, &bytes);
        }
    }
}
