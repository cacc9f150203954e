//! What a connection carries: one that is played takes the place of one that carried the same.

use serde_json::Value;

/// What a connection carries, as far as a replay must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Bytes that are passed on unread.
    Bytes,
    /// Nothing so far, and it is not its client's turn, or that has ended: bytes that are passed on unread, if any.
    Nothing,
    /// TLS that is passed on unread.
    Tls,
    /// TLS that is read, whatever is within.
    ReadTls,
    /// Bytes that are passed on unread, within TLS that is read.
    Within,
    /// Requests in cleartext.
    Requests,
}

impl Carries {
    /// In the words of a report.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Nothing => "nothing",
            Self::Tls => "TLS, unread",
            Self::ReadTls => "TLS, read",
            Self::Within => "bytes within TLS",
            Self::Requests => "requests",
        }
    }

    /// Whether it can do without a recorded one.
    pub(super) fn needs_none(self) -> bool {
        matches!(self, Self::Requests | Self::Nothing)
    }

    /// Whether the clients of two such connections have named whom they asked for.
    pub(super) fn is_named(self) -> bool {
        matches!(self, Self::Tls | Self::ReadTls)
    }
}

/// What a recorded connection carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    is_tls: bool,
    is_read: bool,
    is_transcribed: bool,
}

impl Carried {
    /// That of the result of a `net.stream`.
    pub(super) fn of(result: &Value, is_transcribed: bool) -> Self {
        let protocol = result.get("protocol").and_then(Value::as_str);
        let is_tls = matches!(protocol, Some("tls" | "https"));
        Self { is_tls, is_read: !is_transcribed || result.get("tls").is_some(), is_transcribed }
    }

    pub(super) fn is(self, carries: Carries) -> bool {
        match carries {
            Carries::Bytes | Carries::Nothing => !self.is_tls && self.is_transcribed,
            Carries::Tls => self.is_tls && !self.is_read,
            Carries::ReadTls => self.is_tls && self.is_read,
            Carries::Within => self.is_tls && self.is_read && self.is_transcribed,
            Carries::Requests => !self.is_tls && !self.is_transcribed,
        }
    }

    /// Whether requests were on it, or may have been: they are answered each by itself.
    pub(super) fn may_be_requests(self) -> bool {
        !self.is_transcribed
    }

    pub(super) fn as_str(self) -> &'static str {
        let all = [Carries::Within, Carries::Bytes, Carries::Tls, Carries::ReadTls, Carries::Requests];
        all.into_iter().find(|carries| self.is(*carries)).map_or("nothing", Carries::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_is_told_from_its_record() {
        for (result, is_transcribed, expected) in [
            (json!({}), true, "bytes"),
            (json!({"protocol": "http"}), false, "requests"),
            (json!({"protocol": "https", "tls": {}}), false, "TLS, read"),
            (json!({"protocol": "tls"}), true, "TLS, unread"),
            (json!({"protocol": "tls", "tls": {}}), true, "bytes within TLS"),
            (json!({"protocol": "tls"}), false, "TLS, read"),
        ] {
            assert_eq!(Carried::of(&result, is_transcribed).as_str(), expected, "{result}");
        }
        let within = Carried::of(&json!({"protocol": "tls", "tls": {}}), true);
        assert!(within.is(Carries::ReadTls) && !within.is(Carries::Tls) && !within.may_be_requests());
    }
}
