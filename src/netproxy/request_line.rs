//! Whether a line is, or could become, the first of an HTTP/1 request.

/// Methods of RFC 9110, PATCH, and WebDAV: a client that begins with one means HTTP.
const METHODS: [&[u8]; 20] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"PATCH",
    b"TRACE",
    b"CONNECT",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"SEARCH",
    b"MERGE",
    b"MKCALENDAR",
];

/// A whole first line: a method and a target, and either an HTTP version or a known method with a
/// target that origins and proxies serve without one (HTTP/0.9, or a version that only a lenient origin takes).
pub(super) fn is_request_line(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Some((method, rest)) = split_method(line) else { return false };
    let versioned =
        rest.windows(6).any(|window| is_blank(window[0]) && window[1..].eq_ignore_ascii_case(b"HTTP/"));
    versioned || (known(method) && is_target(method, rest))
}

/// Whether a request may be for it: a path or a web address; by itself also any other URL, `*`, and the host and port
/// of CONNECT (RFC 9112 section 3.2). What stands behind it is another protocol's, as `RTSP/1.0`.
fn is_target(method: &[u8], rest: &[u8]) -> bool {
    let mut words = rest.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty());
    let Some(target) = words.next() else { return true };
    let begins =
        |scheme: &[u8]| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if target[0] == b'/' || begins(b"http://") || begins(b"https://") {
        return true;
    }
    let is_tunnel = method.eq_ignore_ascii_case(b"CONNECT") && target.contains(&b':');
    let is_alone = words.next().is_none();
    is_alone && (is_tunnel || target == b"*" || memchr::memmem::find(target, b"://").is_some())
}

/// Whether an unfinished line begins with a known method, or could still become one. What follows
/// the method does not matter here as it does not in a whole line: else a client could have its
/// request passed on unread by sending it in two pieces.
pub(super) fn begins_known(text: &[u8]) -> bool {
    match split_method(text) {
        Some((method, _)) => known(method),
        None => METHODS
            .iter()
            .any(|method| text.len() <= method.len() && method[..text.len()].eq_ignore_ascii_case(text)),
    }
}

pub(super) fn may_be_request(text: &[u8]) -> bool {
    match split_method(text) {
        Some(_) => true,
        None => text.iter().all(|&byte| is_token(byte)),
    }
}

fn split_method(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|byte| !is_token(*byte))?;
    let valid = end > 0 && is_blank(line[end]);
    valid.then(|| (&line[..end], &line[end..]))
}

/// The shortest line that is taken for the same as one that begins with `text`, as far as it has come.
pub(crate) fn blank_or_token(text: &[u8]) -> Vec<u8> {
    match text.iter().position(|byte| !is_blank(*byte)) {
        None => b"\t".to_vec(),
        Some(start) if is_request_line(&text[start..]) => b"GET /".to_vec(),
        Some(start) if split_method(&text[start..]).is_some() => b"X .".to_vec(),
        Some(_) => b"X".to_vec(),
    }
}

/// What lenient servers take for the blank around a method: RFC 9112 section 3, and what Python splits text at.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c | 0x1c..=0x1f | 0x85 | 0xa0)
}

fn known(method: &[u8]) -> bool {
    METHODS.iter().any(|known| known.eq_ignore_ascii_case(method))
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_no_version() {
        for line in [
            "GET /x",
            "GET http://b.test/secret",
            "get HTTPS://b.test/",
            "GET http://b.test/ FOO/1",
            "GET ftp://b.test/x",
            "OPTIONS *",
            "CONNECT b.test:80",
            "GET\thttp://b.test/\r",
        ] {
            assert!(is_request_line(line.as_bytes()), "{line}");
            let long = blank_or_token(line.as_bytes());
            assert!(is_request_line(&long), "{line}");
        }
        for line in
            ["get key", "OPTIONS rtsp://a/b RTSP/1.0", "OPTIONS * RTSP/1.0", "COPY", "COPY a:b", "BREW /"]
        {
            assert!(!is_request_line(line.as_bytes()), "{line}");
        }
    }
}
