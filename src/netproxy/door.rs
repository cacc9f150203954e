//! The ways by which streams come in.

/// The way by which a stream came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// A connect to the destination itself.
    Transparent,
    /// A request to the proxy's own port.
    Proxy,
    /// CONNECT on the proxy's own port.
    Connect,
    /// SOCKS on the proxy's own port.
    Socks,
    /// A loopback port that stands for the host's.
    Loopback,
    /// A Unix socket that stands for the host's.
    Unix,
    /// A port of the host's loopback that stands for one inside.
    Listen,
}

impl Door {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Transparent => "transparent",
            Self::Proxy => "proxy",
            Self::Connect => "connect",
            Self::Socks => "socks",
            Self::Loopback => "loopback",
            Self::Unix => "unix",
            Self::Listen => "listen",
        }
    }
}
