//! Where the messages of a stream end: nothing of one waits for the next, for its reader may answer before there is one.

use std::task::Context;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::fragments::Fragments;
use super::mask::Mask;

/// A flag and the length.
const ENVELOPE: usize = 5;

/// The messages of one direction.
pub(super) enum Messages {
    /// Those of a WebSocket.
    WebSocket(Box<Fragments>),
    /// Those of gRPC, gRPC-Web and Connect ("Length-Prefixed-Message").
    Grpc(Enveloped),
}

/// Messages behind their lengths.
#[derive(Default)]
pub(super) struct Enveloped {
    head: [u8; ENVELOPE],
    filled: usize,
    left: u64,
}

impl Messages {
    /// Those of a body; none where it is not known to have any.
    pub(super) fn of_body(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
        let is_enveloped = kind.starts_with("application/grpc") || kind.starts_with("application/connect+");
        is_enveloped.then(|| Self::Grpc(Enveloped::default()))
    }
}

impl Enveloped {
    /// Takes bytes up to the end of a message at most.
    fn take(&mut self, bytes: &mut &[u8]) {
        while self.filled < ENVELOPE {
            let Some((first, rest)) = bytes.split_first() else { return };
            self.head[self.filled] = *first;
            self.filled += 1;
            *bytes = rest;
            let [_, length @ ..] = self.head;
            self.left = u32::from_be_bytes(length).into();
        }
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        *bytes = &bytes[length..];
        self.left -= length as u64;
        if self.left == 0 {
            self.filled = 0;
        }
    }

    fn pass(&mut self, mask: &mut Mask, bytes: Bytes) -> Bytes {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            self.take(&mut rest);
        }
        mask.pass(bytes)
    }
}

/// What of these bytes may pass now.
pub(super) fn pass(mask: &mut Mask, messages: Option<&mut Messages>, bytes: Bytes) -> Bytes {
    match messages {
        None => mask.pass(bytes),
        Some(Messages::Grpc(enveloped)) => enveloped.pass(mask, bytes),
        Some(Messages::WebSocket(fragments)) => fragments.pass(mask, bytes),
    }
}

/// The same as [`Mask::has_worked`] of what searches beside it.
pub(super) fn have_worked(messages: Option<&mut Messages>, cx: &Context<'_>) -> bool {
    match messages {
        Some(Messages::WebSocket(fragments)) => fragments.controls().has_worked(cx),
        _ => false,
    }
}

/// Whether what came is no message any more.
pub(super) fn is_broken(messages: Option<&Messages>) -> bool {
    matches!(messages, Some(Messages::WebSocket(fragments)) if fragments.is_broken())
}

/// Nothing comes at the moment: what waited, where the last message has ended. Else an origin that copies what it is sent
/// could be made to say that one ends within a value.
pub(super) fn pause(mask: &mut Mask, messages: Option<&mut Messages>) -> Bytes {
    match messages {
        Some(Messages::Grpc(enveloped)) if enveloped.filled == 0 => mask.finish(),
        _ => Bytes::new(),
    }
}

/// Nothing comes any more: what waited.
pub(super) fn finish(mask: &mut Mask, messages: Option<&mut Messages>) -> Bytes {
    match messages {
        Some(Messages::WebSocket(fragments)) => fragments.finish(mask),
        _ => mask.finish(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::needle::forms;
    use super::*;

    const VALUE: &[u8] = b"ghp_0123456789";

    fn mask() -> Mask {
        Mask::new(forms(VALUE, b"ghp_XXXXXXXXXX").into())
    }

    /// Passes messages, in pieces of any length.
    fn check(head: impl Fn(usize) -> Vec<u8>, messages: impl Fn() -> Messages) {
        let payloads = [&b"hello"[..], b"", VALUE, b"a token ghp_0123456789abc", b"ghp_0"];
        let bytes = payloads.map(|payload| [&head(payload.len())[..], payload].concat()).concat();
        for cut in [1, 2, 3, 7, bytes.len()] {
            let mut mask = mask();
            let mut messages = messages();
            let mut passed = Vec::new();
            for piece in bytes.chunks(cut) {
                passed.extend(pass(&mut mask, Some(&mut messages), Bytes::copy_from_slice(piece)));
                passed.extend(pause(&mut mask, Some(&mut messages)));
            }
            assert!(mask.is_empty() && passed.len() == bytes.len());
            let text = String::from_utf8_lossy(&passed).into_owned();
            assert!(text.contains("hello") && text.ends_with("ghp_0"), "{text:?}");
            assert!(text.contains("token ghp_XXXXXXXXXXabc") && !text.contains("0123456789"), "{text:?}");
        }
    }

    #[test]
    fn a_message_does_not_wait_for_the_next() {
        check(
            |length| vec![0x81, u8::try_from(length).unwrap()],
            || Messages::WebSocket(Box::new(Fragments::new(&mask()))),
        );
        check(
            |length| vec![0, 0, 0, 0, u8::try_from(length).unwrap()],
            || Messages::Grpc(Enveloped::default()),
        );
    }

    #[test]
    fn an_end_within_a_value_is_none() {
        let bytes = [&b"\0\0\0\0\x0fzzzzz"[..], VALUE, b" and more"].concat();
        let (mut mask, mut messages) = (mask(), Messages::Grpc(Enveloped::default()));
        let mut passed = pass(&mut mask, Some(&mut messages), bytes.clone().into()).to_vec();
        passed.extend(finish(&mut mask, Some(&mut messages)));
        assert!(passed.ends_with(b"zzzzzghp_XXXXXXXXXX and more"), "{}", String::from_utf8_lossy(&passed));
        // Where the origin rests there, the rest does not pass.
        let (mut mask, mut messages) = (self::mask(), Messages::Grpc(Enveloped::default()));
        let mut passed = Vec::new();
        for piece in [&bytes[..20], &bytes[20..]] {
            passed.extend(pass(&mut mask, Some(&mut messages), Bytes::copy_from_slice(piece)));
            passed.extend(pause(&mut mask, Some(&mut messages)));
        }
        passed.extend(finish(&mut mask, Some(&mut messages)));
        assert!(passed.ends_with(b"zzzzzghp_012345XXXX and more"), "{}", String::from_utf8_lossy(&passed));
    }

    #[test]
    fn bodies_of_grpc_and_connect_have_messages() {
        let of = |kind: &str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
            Messages::of_body(&headers).is_some()
        };
        assert!(
            ["application/grpc", "application/GRPC+proto", "application/connect+json"].map(of) == [true; 3]
        );
        assert!(!of("application/json") && Messages::of_body(&HeaderMap::new()).is_none());
    }
}
