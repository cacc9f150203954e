//! Whom a client says it wants.

use super::authority::Host;

/// Whom the client says it wants at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim<'a> {
    /// It has said nothing yet: a fresh stream, or bytes that name nobody.
    Silent,
    /// A name: TLS server name, Host field, request target.
    Name(&'a str),
    /// The address itself.
    Literal,
}

impl<'a> Claim<'a> {
    /// The claim that a host in a request makes.
    pub(crate) fn of(host: &'a Host) -> Self {
        match host {
            Host::Name(name) => Self::Name(name),
            Host::Address(_) => Self::Literal,
        }
    }
}
