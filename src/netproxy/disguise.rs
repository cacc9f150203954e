//! Fields and queries by which a request asks a lenient server for another method or another path than its own.

use http::header::TRAILER;
use http::{HeaderMap, request};

use crate::policy::Conditions;

/// Servers that know these take the value for the method.
const METHOD_FIELDS: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// And these for the path, or for another path that the method is about (RFC 4918 section 10.3).
const PATH_FIELDS: [&str; 5] =
    ["x-original-url", "x-rewrite-url", "x-original-uri", "x-override-url", "destination"];

/// The name of the same in a query or a form.
const METHOD_PARAMETER: &str = "_method";

/// The methods that a lenient server could take the request for, besides its own.
///
/// # Errors
/// When they cannot be told.
pub(crate) fn methods(request: &request::Parts) -> Result<Vec<String>, String> {
    if let Some(field) = in_trailer(request, &METHOD_FIELDS) {
        return Err(format!("its trailer `{field}` may name another method"));
    }
    let mut found = Vec::new();
    for (name, value) in &request.headers {
        if let Some(name) = spelled(name.as_str(), &METHOD_FIELDS) {
            let value = value.to_str().map_err(|_| format!("its field `{name}` cannot be read"))?;
            found.extend(value.split(',').map(method));
        }
    }
    let query = request.uri.query().unwrap_or("");
    for pair in query.split(['&', ';']) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = parameter(&decoded(name));
        if name == METHOD_PARAMETER || spelled(&name, &METHOD_FIELDS).is_some() {
            found.push(method(&decoded(value)));
        }
    }
    found.retain(|method| !method.is_empty() && method != request.method.as_str());
    found.dedup();
    Ok(found)
}

/// The field by which a lenient server could take another path.
pub(crate) fn path_field(request: &request::Parts) -> Option<&'static str> {
    let named = request.headers.keys().find_map(|name| spelled(name.as_str(), &PATH_FIELDS));
    named.or_else(|| in_trailer(request, &PATH_FIELDS))
}

/// What is wrong with fields that stand behind a body.
pub(crate) fn in_trailers(fields: &HeaderMap, conditions: &Conditions) -> Option<String> {
    fields.keys().find_map(|name| {
        let is_of = |list| spelled(name.as_str(), list);
        let method = if conditions.methods { is_of(&METHOD_FIELDS) } else { None };
        let path = || if conditions.paths { is_of(&PATH_FIELDS) } else { None };
        let (name, what) = method.map(|name| (name, "method")).or_else(|| Some((path()?, "path")))?;
        Some(format!("its trailer `{name}` may name another {what}"))
    })
}

fn in_trailer(request: &request::Parts, fields: &[&'static str]) -> Option<&'static str> {
    let lists = request.headers.get_all(TRAILER).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).find_map(|name| spelled(name.trim(), fields))
}

/// Which of the fields it is: servers behind CGI do not tell `-` from `_`.
fn spelled(name: &str, fields: &[&'static str]) -> Option<&'static str> {
    let letter = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    fields.iter().copied().find(|field| name.bytes().map(letter).eq(field.bytes()))
}

fn method(value: &str) -> String {
    value.trim().to_ascii_uppercase()
}

/// PHP makes an underscore of what no variable's name can hold, and cuts blanks off in front.
fn parameter(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace([' ', '.', '['], "_")
}

/// What percent signs and `+` stand for.
pub(crate) fn decoded(text: &str) -> String {
    let mut plain = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let value = match (byte, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        rest = if value.is_some() { &after[2..] } else { after };
        plain.push(value.unwrap_or(if byte == b'+' { b' ' } else { byte }));
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, fields: &[(&str, &str)]) -> request::Parts {
        let request = fields
            .iter()
            .fold(http::Request::post(target), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn other_methods_are_found() {
        let cases = [
            ("/", None, ""),
            ("/", Some(("X-HTTP-Method-Override", "delete")), "DELETE"),
            ("/", Some(("x_http_method", " PUT ")), "PUT"),
            ("/", Some(("X-Method-Override", "POST, PATCH")), "PATCH"),
            ("/?_method=delete", None, "DELETE"),
            ("/?a=1&%5Fmetho%64=%44ELETE", None, "DELETE"),
            ("/?a;.method=PUT", None, "PUT"),
            ("/?+_METHOD=PUT", None, "PUT"),
            ("/?x-http-method-override=PUT", None, "PUT"),
            ("/?method=PUT&_methods=PUT", Some(("X-Method", "PUT")), ""),
        ];
        for (target, field, expected) in cases {
            let fields: Vec<_> = field.into_iter().collect();
            assert_eq!(methods(&request(target, &fields)).unwrap().join(","), expected, "{target} {field:?}");
        }
        assert!(methods(&request("/", &[("Trailer", "X-Sum, X-Http-Method")])).is_err());
    }

    #[test]
    fn other_paths_are_found() {
        assert_eq!(path_field(&request("/", &[("X-Original-URL", "/b")])), Some("x-original-url"));
        assert_eq!(path_field(&request("/", &[("X_Rewrite_Url", "/b")])), Some("x-rewrite-url"));
        assert_eq!(path_field(&request("/", &[("Trailer", "destination")])), Some("destination"));
        assert_eq!(path_field(&request("/", &[("X-Sum", "/b")])), None);
    }
}
