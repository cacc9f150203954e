//! A request in its normal form: without what another run of the same program may well say differently.

use serde_json::{Map, Value};

use super::essence::Member;

/// Header fields that tell the time, name one request, or follow from the rest of it.
const VOLATILE: &[&str] = &[
    "date",
    "content-length",
    "grpc-timeout",
    "connect-timeout-ms",
    "idempotency-key",
    "x-request-id",
    "x-correlation-id",
    "request-id",
    "traceparent",
    "tracestate",
    "x-amz-date",
    "amz-sdk-invocation-id",
    "x-stainless-retry-count",
];
/// Header fields of which only that they are there counts.
const SECRET: &[&str] = &["authorization", "cookie", "proxy-authorization", "x-api-key"];

/// What a keyed digest of a secret begins with, and how many hex digits follow.
const REDACTED: (&str, usize) = ("redacted:", 16);

/// The normal form of the members of a request; `text` is its body's, where that is known.
pub(super) fn request(members: &[Member], text: Option<&str>) -> Vec<Member> {
    let boundary = boundary(members);
    let normal = |(name, value): &Member| {
        let value = match (name.as_str(), value) {
            ("headers", Value::Array(fields)) => headers(fields, boundary.as_deref()),
            ("url", Value::String(url)) => Value::from(by_order(&mask(url))),
            ("body", body) => match text {
                Some(text) => Value::from(content(text, boundary.as_deref())),
                None => body.clone(),
            },
            (_, value) => value.clone(),
        };
        (name.clone(), value)
    };
    members.iter().filter(|(name, _)| name != "version").map(normal).collect()
}

/// The same without durations, where the body's text is known.
pub(super) fn without_durations(mut normal: Vec<Member>) -> Vec<Member> {
    for (name, value) in &mut normal {
        if let Value::String(text) = value
            && name == "body"
        {
            *text = crate::netproxy::recorded::without_durations(text);
        }
    }
    normal
}

/// The boundary between the parts of a body (RFC 2046, section 5.1.1).
fn boundary(members: &[Member]) -> Option<String> {
    let headers = members.iter().find(|(name, _)| name == "headers")?.1.as_array()?;
    let kind = headers.iter().filter_map(field).find(|(name, _)| name == "content-type")?.1;
    let (_, rest) = kind.split_once("boundary=")?;
    let found = rest.split(';').next()?.trim().trim_matches('"');
    (!found.is_empty()).then(|| found.to_owned())
}

fn field(field: &Value) -> Option<(String, &str)> {
    let pair = field.as_array()?;
    Some((pair.first()?.as_str()?.to_ascii_lowercase(), pair.get(1)?.as_str()?))
}

fn headers(fields: &[Value], boundary: Option<&str>) -> Value {
    let mut kept: Vec<(String, String)> = fields
        .iter()
        .filter_map(field)
        .filter(|(name, _)| !VOLATILE.contains(&name.as_str()))
        .map(|(name, value)| {
            let value =
                if SECRET.contains(&name.as_str()) { String::new() } else { content(value, boundary) };
            (name, value)
        })
        .collect();
    kept.sort();
    serde_json::json!(kept)
}

/// The parameters of a URL in order.
fn by_order(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else { return url.to_owned() };
    let mut parts: Vec<&str> = query.split('&').collect();
    parts.sort_unstable();
    format!("{before}?{}", parts.join("&"))
}

/// Text without boundaries, dates, ids and secrets; JSON with its keys in order.
fn content(text: &str, boundary: Option<&str>) -> String {
    let text = boundary.map_or_else(|| text.to_owned(), |boundary| text.replace(boundary, "boundary"));
    match serde_json::from_str::<Map<String, Value>>(&text) {
        Ok(members) => mask(&Value::Object(members).to_string()),
        Err(_) => mask(&text),
    }
}

/// Replaces keyed digests, UUIDs (RFC 9562) and dates (RFC 3339) by words that say so.
pub(super) fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let masked = match first {
            'r' => redacted(rest).map(|length| (length, "redacted")),
            c if c.is_ascii_hexdigit() && !out.ends_with(|c: char| c.is_ascii_alphanumeric()) => {
                shaped(rest, UUID)
                    .map(|length| (length, "uuid"))
                    .or_else(|| shaped(rest, DATE).map(|length| (length, "date")))
            }
            _ => None,
        };
        let as_it_is = || (first.len_utf8(), &rest[..first.len_utf8()]);
        let (length, word) = masked.unwrap_or_else(as_it_is);
        out.push_str(word);
        rest = &rest[length..];
    }
    out
}

/// Replaces keyed digests, which are equal within one run alone; whether there are any.
pub(super) fn mask_secrets(value: &mut Value) -> bool {
    match value {
        Value::String(text) => match without_secrets(text) {
            Some(masked) => {
                *text = masked;
                true
            }
            None => false,
        },
        Value::Array(values) => values.iter_mut().fold(false, |any, value| mask_secrets(value) | any),
        Value::Object(members) => members.values_mut().fold(false, |any, value| mask_secrets(value) | any),
        _ => false,
    }
}

fn without_secrets(text: &str) -> Option<String> {
    let (word, _) = REDACTED;
    let mut masked = None;
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let length = redacted(&rest[at..]).unwrap_or(word.len());
        let end = at + length;
        if length > word.len() {
            let out: &mut String = masked.get_or_insert_with(|| text[..text.len() - rest.len()].to_owned());
            out.push_str(&rest[..at]);
            out.push_str("redacted");
        } else if let Some(out) = &mut masked {
            out.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    masked.map(|out| out + rest)
}

/// Letters that mkstemp(3) and its like make up at the end of a name.
const MADE_UP: usize = 6;

/// Replaces the parts of file names that look as if they were made up at random.
pub(super) fn mask_names(path: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        let is_temporary = word.starts_with("tmp") && !word.starts_with("tmp_");
        let kept = if is_temporary { "tmp".len() } else { word.len().saturating_sub(MADE_UP) };
        let (kept, made_up) = word.split_at(kept);
        out.push_str(kept);
        if made_up.len() >= MADE_UP && (is_temporary || is_mixed(made_up)) {
            out.extend(std::iter::repeat_n('?', made_up.len()));
        } else {
            out.push_str(made_up);
        }
        let next = tail.find(is_word).unwrap_or(tail.len());
        out.push_str(&tail[..next]);
        rest = &tail[next..];
    }
    out
}

/// Whether two names differ in one part of the same length alone, and that looks made up in one of them.
pub(super) fn differ_by_chance(one: &str, other: &str) -> bool {
    if one.len() != other.len() || !one.contains('/') {
        return false;
    }
    let differs = |pair: &(u8, u8)| pair.0 != pair.1;
    let pairs: Vec<(u8, u8)> = one.bytes().zip(other.bytes()).collect();
    let (Some(from), Some(to)) = (pairs.iter().position(differs), pairs.iter().rposition(differs)) else {
        return false;
    };
    // A letter at either end may be the same by chance.
    let part = |text: &str| text.get(from..=to).map(str::to_owned).unwrap_or_default();
    let (ours, theirs) = (part(one), part(other));
    let is_word = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (MADE_UP - 2..=MADE_UP * 2).contains(&ours.len())
        && is_word(&ours)
        && is_word(&theirs)
        && (is_mixed(&ours) || is_mixed(&theirs))
}

/// Whether capitals, other letters and digits alternate: hardly so in a chosen name.
fn is_mixed(word: &str) -> bool {
    let class = |byte: u8| (byte.is_ascii_uppercase(), byte.is_ascii_digit());
    let changes = word.as_bytes().windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count();
    changes > 2 || (changes > 1 && word.bytes().any(|byte| byte.is_ascii_uppercase()))
}

const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const DATE: &str = "dddd-dd-ddTdd:dd:dd";

fn redacted(text: &str) -> Option<usize> {
    let (word, digits) = REDACTED;
    let hex = text.strip_prefix(word)?.as_bytes().get(..digits)?;
    hex.iter().all(u8::is_ascii_hexdigit).then_some(word.len() + digits)
}

/// The length of what `text` begins with, if that has this shape: `x` a hex digit, `d` a digit. A date takes
/// its fraction and its zone along.
fn shaped(text: &str, shape: &str) -> Option<usize> {
    let bytes = text.as_bytes().get(..shape.len())?;
    let fits = bytes.iter().zip(shape.bytes()).all(|(byte, shape)| match shape {
        b'x' => byte.is_ascii_hexdigit(),
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        other => *byte == other,
    });
    if !fits {
        return None;
    }
    let tail = &text[shape.len()..];
    let more = |c: char| shape == DATE && (c.is_ascii_digit() || matches!(c, '.' | 'Z' | '+' | ':'));
    Some(shape.len() + tail.find(|c| !more(c)).unwrap_or(tail.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_varies_is_masked() {
        let text = "id 0190163d-8694-739b-aea5-966c26f8ad91 at 2026-11-29T21:50:06.123Z, redacted:5bdcc146bf60754e é";
        assert_eq!(mask(text), "id uuid at date, redacted é");
        for plain in ["2026-11-29", "deadbeef", "redacted:x", "r", "", "x2026-11-29T21:50:06"] {
            assert_eq!(mask(plain), plain);
        }
    }

    #[test]
    fn names_that_were_made_up_are_masked() {
        for (name, masked) in [
            (".git/objects/d0/tmp_obj_YUeJ9W", ".git/objects/d0/tmp_obj_??????"),
            ("/tmp/ccd6DVML.s", "/tmp/cc??????.s"),
            ("/tmp/cc9yg1g4.res", "/tmp/cc??????.res"),
            ("/tmp/tmpab12cd_x/é", "/tmp/tmp????????/é"),
            ("/usr/lib/python3/site-packages", "/usr/lib/python3/site-packages"),
            ("src/Makefile", "src/Makefile"),
            ("src/part12.rs", "src/part12.rs"),
            ("README1", "README1"),
        ] {
            assert_eq!(mask_names(name), masked);
        }
    }

    #[test]
    fn a_part_that_differs_may_be_made_up() {
        assert!(differ_by_chance("/tmp/ccJx93UB.s", "/tmp/ccSCFCGH.s"));
        assert!(!differ_by_chance("/tmp/one.s", "/tmp/two.s"));
        assert!(!differ_by_chance("/data/part01", "/data/part02"));
        assert!(!differ_by_chance("Jx93UB", "SCFCGH"));
        assert!(!differ_by_chance("/a/Jx93UB/b/x", "/b/Jx93UB/b/y"));
    }

    #[test]
    fn order_and_boundaries_do_not_count() {
        let with = |boundary: &str, date: &str| {
            vec![
                (
                    "url".to_owned(),
                    json!(if date == "a" { "http://h/?a=1&b=2" } else { "http://h/?b=2&a=1" }),
                ),
                (
                    "headers".to_owned(),
                    json!([
                        ["Content-Type", format!("multipart/form-data; boundary={boundary}")],
                        ["date", date]
                    ]),
                ),
                ("body".to_owned(), json!({"sha256": boundary, "size": 3})),
            ]
        };
        let (one, other) = (with("abc", "a"), with("xyz", "b"));
        assert_eq!(request(&one, Some("--abc\n")), request(&other, Some("--xyz\n")));
        assert_ne!(request(&one, None), request(&other, None));
        assert_ne!(request(&one, Some("--abc\n1")), request(&other, Some("--xyz\n2")));
        let json = |text| request(&[("body".to_owned(), json!({}))], Some(text));
        assert_eq!(json("{\"a\":1,\"b\":2}"), json("{\"b\":2, \"a\":1}"));
    }
}
