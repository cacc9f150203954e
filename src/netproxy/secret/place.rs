//! One host that gets secrets: what goes into requests to it, and what is taken out of its answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE, TRANSFER_ENCODING,
};
use memchr::memmem;

use super::coding::Decoder;
use super::mask::{Mask, Needles, replace};
use super::needle::{Needle, forms};
use super::watch::decoded;
use super::{Placeholder, Secret, Value};
use crate::policy::Policy;

/// The fields that credentials stand in, where a rule names none.
const USUAL: [HeaderName; 5] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
    HeaderName::from_static("private-token"),
];

/// What is agreed on here may pack what a WebSocket carries.
pub(super) const EXTENSIONS: HeaderName = HeaderName::from_static("sec-websocket-extensions");

/// Who sends one of these is answered with bodies whose parts are packed each by itself: the messages of gRPC and
/// Connect, and instances (RFC 3229).
const ACCEPTS: [HeaderName; 3] =
    [GRPC_ACCEPT, HeaderName::from_static("connect-accept-encoding"), HeaderName::from_static("a-im")];
const GRPC_ACCEPT: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// And these say that they are.
const PACKED: [HeaderName; 3] = [
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("connect-content-encoding"),
    HeaderName::from_static("im"),
];

/// A host and port that `secret:` rules name.
pub(crate) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    uses: Vec<Use>,
    needles: Needles,
    /// The same in names of fields, which have no case.
    names: Needles,
}

/// A secret that goes there.
#[derive(Clone)]
struct Use {
    secret: usize,
    name: String,
    /// None: the usual ones.
    field: Option<HeaderName>,
    value: Value,
    placeholder: Placeholder,
}

/// The hosts of all rules.
pub(super) fn all(policy: &Policy, secrets: &[Secret]) -> Vec<std::sync::Arc<Place>> {
    let mut places: Vec<(String, u16, Vec<Use>)> = Vec::new();
    for (_, rule) in policy.secrets() {
        let known = secrets.iter().enumerate().find(|(_, secret)| secret.name == rule.name);
        let Some((number, secret)) = known else { continue };
        let one = Use {
            secret: number,
            name: secret.name.clone(),
            field: rule.header.as_deref().and_then(|field| field.parse().ok()),
            value: secret.value.clone(),
            placeholder: secret.placeholder.clone(),
        };
        match places.iter_mut().find(|(host, port, _)| *host == rule.host && *port == rule.port) {
            Some((_, _, uses)) => uses.push(one),
            None => places.push((rule.host.clone(), rule.port, vec![one])),
        }
    }
    places.into_iter().map(|(host, port, uses)| Place::new(host, port, uses).into()).collect()
}

impl Place {
    fn new(host: String, port: u16, uses: Vec<Use>) -> Self {
        let forms = uses.iter().flat_map(|one| forms(&one.value.0, one.placeholder.text.as_bytes()));
        let needles: Needles = forms.collect();
        let names = needles.iter().map(Needle::in_lowercase).collect();
        Self { host, port, uses, needles, names }
    }

    /// Whether the value of this secret goes into this field.
    pub(super) fn takes(&self, secret: usize, field: &HeaderName) -> bool {
        self.uses.iter().any(|one| one.secret == secret && one.is_for(field))
    }

    /// The secrets that go there in some field.
    pub(super) fn secrets(&self) -> Vec<usize> {
        self.uses.iter().map(|one| one.secret).collect()
    }

    /// What either knows.
    pub(super) fn joined(&self, other: &Self) -> Self {
        Self::new(self.host.clone(), self.port, [&self.uses[..], &other.uses].concat())
    }

    /// Asks for nothing whose answer could not be searched.
    pub(super) fn make_searchable(&self, headers: &mut HeaderMap) {
        headers.remove(RANGE);
        headers.remove(IF_RANGE);
        headers.remove(EXTENSIONS);
        // In UTF-16 no value would be found.
        headers.remove(ACCEPT_CHARSET);
        for accepted in headers.iter_mut().filter(|(name, _)| **name == ACCEPT).map(|(_, accepted)| accepted)
        {
            if let Some(without) = without_charset(accepted) {
                *accepted = without;
            }
        }
        for accepts in ACCEPTS {
            headers.remove(accepts);
        }
        let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if kind.to_ascii_lowercase().starts_with(b"application/grpc") {
            // Without it the server may pack as the client does.
            headers.insert(GRPC_ACCEPT, HeaderValue::from_static("identity"));
        }
        // How well an answer is packed tells what is in it beside a guess (BREACH, CVE-2013-3587).
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }

    /// Writes the values in; the variables whose values are there now.
    pub(super) fn fill(&self, headers: &mut HeaderMap) -> Vec<String> {
        let mut filled_in = Vec::new();
        for (name, field) in headers.iter_mut() {
            for one in self.uses.iter().filter(|one| one.is_for(name)) {
                let filled =
                    one.filled(field.as_bytes()).and_then(|filled| HeaderValue::from_bytes(&filled).ok());
                if let Some(mut filled) = filled {
                    // HTTP/2 keeps it out of its tables then (RFC 7541 section 7.1.3).
                    filled.set_sensitive(true);
                    *field = filled;
                    if !filled_in.contains(&one.name) {
                        filled_in.push(one.name.clone());
                    }
                }
            }
        }
        filled_in
    }

    /// Takes the values out of a header section or trailers.
    pub(crate) fn mask(&self, headers: &mut HeaderMap) {
        for (_, field) in headers.iter_mut() {
            let mut bytes = field.as_bytes().to_vec();
            if replace(&self.needles, &mut bytes, 0) > 0 {
                // As long as it was, and without a control character that was not there.
                *field = HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static("masked"));
            }
        }
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| self.is_named(name.as_str())).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }

    /// Whether a value stands in the name of a field.
    pub(crate) fn is_named(&self, field: &str) -> bool {
        replace(&self.names, &mut field.to_ascii_lowercase().into_bytes(), 0) > 0
    }

    /// Takes the values out of a response's head, and says what undoes the coding of its body.
    ///
    /// # Errors
    /// The coding that nothing here undoes.
    pub(crate) fn mask_head(&self, head: &mut http::response::Parts) -> Result<Decoder, String> {
        // First of all: errors name the coding.
        self.mask(&mut head.headers);
        let decoder = Decoder::of(&head.headers)?;
        let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        if !head.headers.get_all(TRANSFER_ENCODING).iter().all(is_chunked) {
            return Err("for its transfer".to_owned());
        }
        let is_identity =
            |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
        if PACKED.iter().any(|field| !head.headers.get_all(field).iter().all(is_identity)) {
            return Err("for its messages".to_owned());
        }
        if head.headers.contains_key(EXTENSIONS) {
            // None was offered.
            return Err("by an extension of its WebSocket".to_owned());
        }
        head.extensions.remove::<hyper::ext::ReasonPhrase>();
        if !decoder.is_identity() {
            head.headers.remove(CONTENT_ENCODING);
            head.headers.remove(CONTENT_LENGTH);
            // It names the coded form (RFC 9110 section 8.8.3.3).
            head.headers.remove(ETAG);
        }
        Ok(decoder)
    }

    /// Takes the values out of bytes that pass.
    pub(super) fn mask_bytes(&self) -> Mask {
        Mask::new(self.needles.clone())
    }
}

/// An Accept field without what asks for a charset; none where nothing does.
fn without_charset(accepted: &HeaderValue) -> Option<HeaderValue> {
    let names_one = |part: &str| part.to_ascii_lowercase().contains("charset");
    let text = String::from_utf8_lossy(accepted.as_bytes());
    if !names_one(&text) {
        return None;
    }
    let without = |range: &str| {
        let parts: Vec<&str> = range.split(';').filter(|part| !names_one(part)).collect();
        parts.join(";")
    };
    let ranges: Vec<String> = text.split(',').map(without).collect();
    Some(HeaderValue::from_str(&ranges.join(",")).unwrap_or(HeaderValue::from_static("*/*")))
}

impl Use {
    fn is_for(&self, field: &HeaderName) -> bool {
        match &self.field {
            Some(own) => own == field,
            None => USUAL.contains(field),
        }
    }

    /// The field with the value in it; none where the placeholder does not stand there.
    fn filled(&self, field: &[u8]) -> Option<Vec<u8>> {
        if let Some(filled) = self.swapped(field) {
            return Some(filled);
        }
        let blank = field.iter().position(|byte| *byte == b' ')?;
        let (scheme, credentials) = field.split_at(blank);
        // RFC 7617 section 2.
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return None;
        }
        let filled = self.swapped(&decoded(credentials)?)?;
        Some([scheme, b" ", STANDARD.encode(filled).as_bytes()].concat())
    }

    fn swapped(&self, text: &[u8]) -> Option<Vec<u8>> {
        let placeholder = self.placeholder.text.as_bytes();
        let mut out = Vec::new();
        let mut rest = text;
        while let Some(at) = memmem::find(rest, placeholder) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(&self.value.0);
            rest = &rest[at + placeholder.len()..];
        }
        if out.is_empty() {
            return None;
        }
        out.extend_from_slice(rest);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(value: &[u8]) -> Place {
        let placeholder = Placeholder::random(value).unwrap();
        let value = Value(value.to_vec());
        let one = Use { secret: 0, name: "T".to_owned(), field: None, value, placeholder };
        Place::new("a.test".to_owned(), 443, vec![one])
    }

    #[test]
    fn a_websocket_has_no_extension_that_was_not_offered() {
        let head = |extension: Option<&str>| {
            let mut response = http::Response::builder().status(101).header("upgrade", "websocket");
            if let Some(extension) = extension {
                response = response.header(EXTENSIONS, extension);
            }
            response.body(()).unwrap().into_parts().0
        };
        let place = place(b"ghp_0123456789");
        assert!(place.mask_head(&mut head(None)).is_ok());
        assert!(place.mask_head(&mut head(Some("permessage-deflate"))).is_err());
    }

    #[test]
    fn a_value_is_found_in_the_name_of_a_field_in_any_form() {
        let value = b"wJalrXUtnFEMI/K7MDENG";
        let place = place(value);
        for name in ["X-wJalrXUtnFEMI%2FK7MDENG", "x-wjalrxutnfemi%2fk7mdeng"] {
            assert!(place.is_named(name), "{name}");
        }
        for before in ["", "a", "ab"] {
            let name = STANDARD.encode([before.as_bytes(), value].concat()).replace('=', "");
            assert!(place.is_named(&format!("X-{name}")) && place.is_named(&name.to_lowercase()), "{name}");
        }
        assert!(!place.is_named("x-wjalrxutnfemi"));
    }
}
