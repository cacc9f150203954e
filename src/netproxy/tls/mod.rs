//! TLS of both legs: what a client asks for, what it is shown, and what an origin proves.
//!
//! A client is shown a certificate of the run's own authority; the origin's certificate is verified
//! by us instead, against the host's roots. Neither side can tell a difference in protocol: what is
//! agreed on with the origin (RFC 7301) is what the client gets.

pub(crate) mod facts;
mod hello;
mod leaf;
mod outer;
mod roots;
mod verify;

use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;

pub use self::roots::{check_host_roots, read_roots};

pub(crate) use self::facts::Facts;
pub(crate) use self::hello::Hello;
pub(crate) use self::leaf::{Leaves, StoredLeaf};
pub(crate) use self::outer::{Outer, OuterStream, WANTS_CERTIFICATE};

use super::ca::{AuthorityName, RunAuthority, StoredAuthority};
use super::error::NetproxyError;

/// The protocol identifier of HTTP/2 (RFC 9113 section 3.1).
pub(crate) const H2: &[u8] = b"h2";

/// That of HTTP/1.1 (RFC 7301 section 6).
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";

/// What reading TLS will need, its authority not made yet: its key takes as long as a part of the launch,
/// beside which it can be made.
#[derive(Debug)]
pub struct Intention {
    /// What the authority will be called.
    pub name: AuthorityName,
    /// As in [`Interception`].
    pub upstream_roots: Vec<CertificateDer<'static>>,
    /// In a replay: the authority of the recorded run.
    pub stored: Option<StoredAuthority>,
}

impl Intention {
    /// Makes the authority.
    ///
    /// # Errors
    /// When the kernel gives no randomness, or what was stored is no authority.
    pub fn carry_out(self) -> Result<Interception, NetproxyError> {
        let authority = match &self.stored {
            Some(stored) => RunAuthority::restore(stored)?,
            None => RunAuthority::generate(self.name, SystemTime::now())?,
        };
        Ok(Interception { authority, upstream_roots: self.upstream_roots })
    }
}

/// What reading TLS needs.
#[derive(Debug)]
pub struct Interception {
    /// Signs what clients are shown.
    pub authority: RunAuthority,
    /// Roots of origins besides the host's own.
    pub upstream_roots: Vec<CertificateDer<'static>>,
}

/// The TLS of one run.
pub(crate) struct Tls {
    pub(crate) leaves: Leaves,
    pub(crate) outer: Outer,
}

impl Tls {
    /// In a replay clients are shown what they were shown before: `stored`.
    pub(crate) fn new(interception: Interception, stored: Vec<StoredLeaf>) -> Self {
        Self {
            leaves: Leaves::new(interception.authority, stored),
            outer: Outer::new(interception.upstream_roots),
        }
    }
}

/// The one choice of a cryptographic library.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The protocols that are offered to the origin for a client: of an HTTP client those that we read,
/// of every other one its own.
pub(crate) fn offer(client: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let read: Vec<Vec<u8>> = client.iter().filter(|one| is_http(one)).cloned().collect();
    if read.is_empty() { client.to_vec() } else { read }
}

/// Whether a protocol is one that we read.
pub(crate) fn is_http(protocol: &[u8]) -> bool {
    protocol == H2 || protocol == HTTP_1_1
}
