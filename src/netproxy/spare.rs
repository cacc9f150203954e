//! What a request says about its connection to the origin: whether that can carry it, and whether another client may
//! have it later.

use hyper::body::Body;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue};
use hyper::{Method, Request};

/// Marks a request that rules judged by its method or path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ruled;

/// Whether an origin may not read the body, and takes it for the next request, which nobody has judged. It has a
/// meaning with few methods (RFC 9110 section 9.3); where rules name methods or paths no origin is trusted with one.
pub(crate) fn may_leave_its_body<B: Body>(request: &Request<B>) -> bool {
    let with = [Method::POST, Method::PUT, Method::PATCH];
    let is_ruled = request.extensions().get::<Ruled>().is_some();
    (is_ruled || !with.contains(request.method())) && !request.body().is_end_stream()
}

/// Whether the body has no length that is known beforehand: the library sends none of it in HTTP/1.0, which cannot say
/// where it ends.
pub(crate) fn needs_chunks<B: Body>(request: &Request<B>) -> bool {
    !request.headers().contains_key(CONTENT_LENGTH) && request.body().size_hint().exact().is_none()
}

/// Whether the scheme proves who the client is for all that follows (RFC 4559 section 6).
pub(crate) fn proves_a_connection(headers: &HeaderMap) -> bool {
    let scheme = |value: &HeaderValue| {
        value.as_bytes().split(|&byte| byte == b' ').next().map(<[u8]>::to_ascii_lowercase)
    };
    let mut schemes = headers.get_all(AUTHORIZATION).iter().filter_map(scheme);
    schemes.any(|scheme| scheme == b"ntlm" || scheme == b"negotiate")
}
