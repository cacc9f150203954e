//! The head of a request as its origin gets it, in the connection's version of HTTP.

use hyper::body::Body;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Uri, Version};

use super::framing::{self, origin_form};
use super::link::Wire;
use super::spare::{may_leave_its_body, needs_chunks};
use super::target::Origin;

/// Fields that belong to one connection (RFC 9110 section 7.6.1), besides those that Connection
/// names.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Makes of the client's head the one that the origin gets.
pub(super) fn prepare(
    mut head: http::request::Parts,
    origin: &Origin,
    upgrades: bool,
) -> http::request::Parts {
    let trailers = takes_trailers(&head.headers);
    let upgrade = head.headers.get(header::UPGRADE).cloned();
    strip(&mut head.headers);
    if trailers && head.version == Version::HTTP_2 {
        head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    // 100 is answered by the inner side as soon as the body is wanted.
    head.headers.remove(header::EXPECT);
    framing::write_length(&mut head.headers);
    match upgrade {
        Some(protocol) if upgrades => {
            head.headers.insert(header::UPGRADE, protocol);
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        _ => {
            head.headers.remove(header::UPGRADE);
        }
    }
    if head.uri.authority().is_some()
        && let Ok(host) = HeaderValue::try_from(origin.authority())
    {
        head.headers.insert(header::HOST, host);
    }
    head.uri = origin_form(&head.method, &head.uri);
    head
}

/// Whether the one value of TE that HTTP/2 knows is there (RFC 9113 section 8.2.2).
fn takes_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(header::TE).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// Writes the request's target as the connection's version of HTTP has it.
pub(super) fn fit<B: Body>(request: &mut Request<B>, origin: &Origin, wire: Wire) {
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    match wire {
        Wire::Http1 => {
            // What was fitted to HTTP/2 before has its name there.
            if *request.version_mut() == Version::HTTP_2
                && !request.headers().contains_key(header::HOST)
                && let Some(host) = request.uri().authority().and_then(|host| host.as_str().parse().ok())
            {
                request.headers_mut().insert(header::HOST, host);
            }
            // Only requests of HTTP/1.0 may name nobody (RFC 9112 section 3.2).
            let named = request.headers().contains_key(header::HOST);
            *request.version_mut() = if named { Version::HTTP_11 } else { Version::HTTP_10 };
            *request.uri_mut() = origin_form(request.method(), request.uri());
            if may_leave_its_body(request) {
                // Nothing that stands in the body is a request then (RFC 9112 section 9.6).
                let upgrades = request.headers().contains_key(header::UPGRADE);
                let last = HeaderValue::from_static(if upgrades { "upgrade, close" } else { "close" });
                request.headers_mut().insert(header::CONNECTION, last);
            }
            // Else the library leaves out the body of a GET or HEAD.
            if named && needs_chunks(request) && !request.body().is_end_stream() {
                let chunked = HeaderValue::from_static("chunked");
                request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
            }
        }
        Wire::Http2 => {
            *request.version_mut() = Version::HTTP_2;
            let host = request.headers_mut().remove(header::HOST);
            let host = host.and_then(|host| host.to_str().ok().map(str::to_owned));
            let authority = host.unwrap_or_else(|| origin.authority());
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            let uri =
                Uri::builder().scheme(origin.scheme()).authority(authority).path_and_query(path).build();
            if let Ok(uri) = uri {
                *request.uri_mut() = uri;
            }
        }
    }
}

/// Takes away what belongs to one connection.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let lists: Vec<HeaderValue> = headers.get_all(header::CONNECTION).iter().cloned().collect();
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    // A field that frames or names the message is never one that a connection may drop.
    let kept = [header::HOST, header::CONTENT_LENGTH, header::UPGRADE];
    let named = lists.iter().filter_map(|list| list.to_str().ok()).flat_map(|list| list.split(','));
    for name in named.map(str::trim) {
        if !kept.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_str())) {
            headers.remove(name);
        }
    }
}
