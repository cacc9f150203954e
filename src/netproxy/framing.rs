//! Requests that could be read in two ways are refused (RFC 9112 sections 3.2, 6.1 and 6.3).

use http::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, Version, request};

use super::authority::Authority;
use super::error::NetproxyError;

/// Fields that a server may take for those that say how long a body is.
const LOOKALIKES: [&str; 2] = ["transfer_encoding", "content_length"];

/// Refuses a request whose length is said twice. `head` holds the bytes of its head: the HTTP
/// library takes the Transfer-Encoding alone and drops the Content-Length without a word.
///
/// # Errors
/// Always `NetproxyError::Request`.
pub fn check_length(request: &request::Parts, head: &[u8]) -> Result<(), NetproxyError> {
    // Servers behind CGI do not tell `-` from `_`, and some take such a field for the length.
    if LOOKALIKES.iter().any(|name| request.headers.contains_key(*name)) {
        return Err(ambiguous("it has a field that some servers take for its length"));
    }
    if !request.headers.contains_key(TRANSFER_ENCODING) {
        return Ok(());
    }
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if !request.headers.get_all(TRANSFER_ENCODING).iter().all(is_chunked) {
        // Another one ends at this hop as well, and nothing here takes it off (RFC 9112 section 6.1).
        return Err(ambiguous("it has a transfer coding other than `chunked`"));
    }
    if request.headers.get_all(TRANSFER_ENCODING).iter().nth(1).is_some() {
        // Never applied twice (RFC 9112 section 6.1).
        return Err(ambiguous("it says `chunked` twice"));
    }
    if request.version < Version::HTTP_11 {
        return Err(ambiguous("it is of HTTP/1.0, which knows no Transfer-Encoding"));
    }
    let start = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let head = &head[start..];
    if request.headers.contains_key(CONTENT_LENGTH) || names_length(head) {
        return Err(ambiguous("it has both a Content-Length and a Transfer-Encoding"));
    }
    if !head.starts_with(request.method.as_str().as_bytes()) {
        // The head came in one piece with the body before it.
        return Err(ambiguous("it is chunked and was sent before the answer to the one before it"));
    }
    Ok(())
}

/// Writes a length that has been read as it is usually written: one with zeros before it may be read as octal.
pub(super) fn write_length(headers: &mut HeaderMap) {
    let length =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.trim().parse::<u64>().ok());
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
}

/// Whom the request is for: the target's authority, else the Host field. None for HTTP/1.0
/// requests that name nobody.
///
/// # Errors
/// `NetproxyError::Request` when it names nobody, or somebody in two ways.
pub fn authority(request: &request::Parts) -> Result<Option<Authority>, NetproxyError> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(ambiguous("it has more than one Host field"));
    }
    if let Some(authority) = request.uri.authority() {
        // The target counts and Host does not (RFC 9112 section 3.2.2); Host is rewritten.
        return match Authority::parse(authority.as_str()) {
            Some(authority) => Ok(Some(authority)),
            None => Err(ambiguous("its target's host cannot be read")),
        };
    }
    match host.map(|host| host.to_str().ok().and_then(Authority::parse)) {
        Some(Some(authority)) => Ok(Some(authority)),
        Some(None) => Err(ambiguous("its Host field cannot be read")),
        None if request.version == Version::HTTP_10 => Ok(None),
        None => Err(ambiguous("it has no Host field")),
    }
}

/// The target in origin form, as an origin server wants it.
#[must_use]
pub fn origin_form(method: &Method, uri: &Uri) -> Uri {
    match uri.path_and_query() {
        // OPTIONS * travels through a proxy as a target without a path (RFC 9112 section 3.2.4).
        None if method == Method::OPTIONS => Uri::from_static("*"),
        None => Uri::from_static("/"),
        // The path of `http://a.test#x` is empty, and would be written so.
        Some(path) if path.as_str() == "/" => Uri::from_static("/"),
        Some(path) => Uri::from(PathAndQuery::clone(path)),
    }
}

fn names_length(head: &[u8]) -> bool {
    const FIELD: &[u8] = b"content-length";
    let lines = head.split(|&byte| byte == b'\n').skip(1);
    lines.take_while(|line| !line.trim_ascii().is_empty()).any(|line| {
        line.get(..FIELD.len()).is_some_and(|name| name.eq_ignore_ascii_case(FIELD))
            && line[FIELD.len()..].trim_ascii_start().starts_with(b":")
    })
}

fn ambiguous(reason: &str) -> NetproxyError {
    NetproxyError::Request { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(build: request::Builder) -> request::Parts {
        build.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_target_counts_before_host() {
        let request = parts(http::Request::get("http://a.test:8080/x").header(HOST, "b.test"));
        let authority = authority(&request).unwrap().unwrap();
        assert_eq!(authority.host.to_string(), "a.test");
        assert_eq!(authority.port, Some(8080));
    }

    #[test]
    fn a_target_is_never_empty() {
        let targets = [
            ("http://a.test", "/"),
            ("http://a.test#x", "/"),
            ("http://a.test?q#x", "/?q"),
            ("http://a.test/b?q", "/b?q"),
            ("/b#x", "/b"),
            ("a.test:80", "/"),
            ("*", "*"),
        ];
        for (target, expected) in targets {
            let uri: Uri = target.parse().unwrap();
            assert_eq!(origin_form(&Method::GET, &uri).to_string(), expected, "{target}");
        }
    }

    #[test]
    fn two_hosts_are_none() {
        let request = parts(http::Request::get("/").header(HOST, "a.test").header(HOST, "a.test"));
        assert!(authority(&request).is_err());
    }

    #[test]
    fn only_old_requests_may_name_nobody() {
        assert!(authority(&parts(http::Request::get("/"))).is_err());
        let old = parts(http::Request::get("/").version(Version::HTTP_10));
        assert_eq!(authority(&old).unwrap(), None);
    }

    #[test]
    fn a_length_beside_chunks_is_refused() {
        let request = parts(http::Request::post("/").header(TRANSFER_ENCODING, "chunked"));
        let head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(check_length(&request, head).is_ok());
        let twice = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nCONTENT-LENGTH : 3\r\n\r\n";
        assert!(check_length(&request, twice).is_err());
        assert!(check_length(&request, b"").is_err());
        for coding in ["gzip, chunked", "gzip", "chunked, chunked"] {
            let request = parts(http::Request::post("/").header(TRANSFER_ENCODING, coding));
            assert!(check_length(&request, head).is_err(), "{coding}");
        }
        let old =
            parts(http::Request::post("/").version(Version::HTTP_10).header(TRANSFER_ENCODING, "chunked"));
        assert!(check_length(&old, head).is_err());
        for name in ["Transfer_Encoding", "content_length"] {
            assert!(check_length(&parts(http::Request::post("/").header(name, "chunked")), b"").is_err());
        }
    }
}
