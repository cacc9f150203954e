//! Credentials among the protocols that a WebSocket asks for: a browser has no other field for them.

use super::Redactor;
use super::names::is_secret_parameter;

/// The field (RFC 6455 section 11.3.4).
pub(super) const FIELD: &str = "sec-websocket-protocol";

/// Names of protocols are not as long.
const LONGEST: usize = 48;

impl Redactor {
    /// The list without credentials: what follows the name of one, and what is too long for a name.
    pub(super) fn protocols(&self, list: &str) -> String {
        let mut is_named = false;
        let one = |part: &str| {
            let protocol = part.trim_start();
            let from = match named(protocol.trim_end()) {
                _ if std::mem::take(&mut is_named) => 0,
                Some(from) => from,
                None if protocol.len() > LONGEST => 0,
                None => return part.to_owned(),
            };
            let (name, credential) = protocol.split_at(from);
            let blank = &part[..part.len() - protocol.len()];
            if credential.trim().is_empty() {
                is_named = true;
                return part.to_owned();
            }
            format!("{blank}{name}{}", self.redacted(credential.trim()))
        };
        list.split(',').map(one).collect::<Vec<_>>().join(",")
    }
}

/// Where the name of a credential ends in `base64url.bearer.authorization.k8s.io.TOKEN`, `openai-insecure-api-key.TOKEN`
/// or `access_token`; none where there is none.
fn named(protocol: &str) -> Option<usize> {
    // Itself, its last word or its last two.
    let is_name = |word: &str| {
        let ends = word.rmatch_indices(['-', '_']).take(2).map(|(at, _)| &word[at + 1..]);
        std::iter::once(word)
            .chain(ends)
            .any(|end| is_secret_parameter(end) || matches!(end, "bearer" | "basic"))
    };
    let mut from = 0;
    let mut found = None;
    for word in protocol.split('.') {
        from = (from + word.len() + 1).min(protocol.len());
        if is_name(&word.to_ascii_lowercase()) || (found.is_some() && matches!(word, "k8s" | "io")) {
            found = Some(from);
        } else if found.is_some() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_left_out_and_names_stay() {
        let redactor = Redactor::with_key(b"key");
        let digest = redactor.redacted("hunter2");
        for (list, expected) in [
            ("access_token, hunter2", format!("access_token, {digest}")),
            ("chat,Authorization,hunter2,v2", format!("chat,Authorization,{digest},v2")),
            (
                "base64url.bearer.authorization.k8s.io.hunter2, base64.binary.k8s.io",
                format!("base64url.bearer.authorization.k8s.io.{digest}, base64.binary.k8s.io"),
            ),
            (
                "realtime, openai-insecure-api-key.hunter2, openai-beta.realtime-v1",
                format!("realtime, openai-insecure-api-key.{digest}, openai-beta.realtime-v1"),
            ),
            ("graphql-transport-ws", "graphql-transport-ws".to_owned()),
            ("com.microsoft.minecraft.wsencrypt", "com.microsoft.minecraft.wsencrypt".to_owned()),
            ("v5.channel.k8s.io, ", "v5.channel.k8s.io, ".to_owned()),
        ] {
            assert_eq!(redactor.header("Sec-WebSocket-Protocol", list.as_bytes()), expected);
        }
        let long = format!("eyJ{}", "hbGci".repeat(20));
        assert_eq!(
            redactor.protocols(&format!("mqtt, {long}")),
            format!("mqtt, {}", redactor.redacted(&long))
        );
    }
}
