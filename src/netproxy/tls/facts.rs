//! What is recorded about the TLS that an origin was reached over.

use rustls::{CommonState, ProtocolVersion};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What was agreed on with an origin, and what it proved.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Who it proved to be.
    pub(crate) name: String,
    /// The protocol that the origin chose.
    pub(crate) protocol: Option<Vec<u8>>,
    /// It asked for a certificate of the client's.
    pub(crate) wants_certificate: bool,
    /// As the record says it.
    pub(crate) record: Value,
}

impl Facts {
    /// Those of a finished and verified handshake for `name`.
    pub(crate) fn of(state: &CommonState, name: &str, wants_certificate: bool) -> Self {
        let protocol = state.alpn_protocol().map(<[u8]>::to_vec);
        let version = match state.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "unknown",
        };
        let cipher = state.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        let certificate = state
            .peer_certificates()
            .and_then(|chain| chain.first())
            .map(|leaf| Sha256::digest(leaf).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let record = json!({
            "version": version,
            "cipher": cipher,
            "alpn": protocol.as_deref().map(String::from_utf8_lossy),
            "sni": name,
            "certificate_sha256": certificate,
            "verified": true,
        });
        Self { name: name.to_owned(), protocol, wants_certificate, record }
    }
}
