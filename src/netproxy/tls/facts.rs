//! What is recorded about the TLS that an origin was reached over.

use rustls::pki_types::CertificateDer;
use rustls::{CommonState, ProtocolVersion};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use webpki::EndEntityCert;

use super::super::authority::normalize;
use crate::trace::{Members, canonical};

/// What was agreed on with an origin, and what it proved.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Other names of its certificate's, a few.
    pub(crate) names: Vec<String>,
    /// Who it proved to be.
    pub(crate) name: String,
    /// The protocol that the origin chose.
    pub(crate) protocol: Option<Vec<u8>>,
    /// It asked for a certificate of the client's.
    pub(crate) wants_certificate: bool,
    /// As the record says it.
    pub(crate) record: Value,
    /// The same as canonical text, for every exchange says it. None of those that a stranger may have written.
    text: Option<String>,
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
        let leaf = state.peer_certificates().and_then(|chain| chain.first());
        let names = leaf.map(names_of).unwrap_or_default();
        let certificate = leaf
            .map(|leaf| Sha256::digest(leaf).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let record = json!({
            "version": version,
            "cipher": cipher,
            "alpn": protocol.as_deref().map(String::from_utf8_lossy),
            "sni": name,
            "certificate_sha256": certificate,
            "verified": true,
        });
        let text = Some(canonical::to_string(&record));
        Self { names, name: name.to_owned(), protocol, wants_certificate, record, text }
    }

    /// Says it in the result of an exchange.
    pub(crate) fn describe(&self, result: &mut Members) {
        match &self.text {
            Some(text) => result.write("tls", |out| out.push_str(text)),
            None => result.value("tls", &self.record),
        }
    }

    /// As a replay needs them: besides what is recorded, the names that the client is shown.
    pub(crate) fn stored(&self, with_names: bool) -> Value {
        let mut stored = self.record.clone();
        stored["names"] = if with_names { self.names.clone() } else { Vec::new() }.into();
        stored["wants_certificate"] = self.wants_certificate.into();
        stored
    }

    /// Those that were stored. None when that is something else.
    pub(crate) fn restored(stored: &Value) -> Option<Self> {
        let mut record = stored.as_object()?.clone();
        let names = record.remove("names")?;
        let names = names.as_array()?.iter().filter_map(|name| name.as_str().and_then(normalize)).collect();
        let wants_certificate = record.remove("wants_certificate")?.as_bool()?;
        let protocol = record.get("alpn")?.as_str().map(|protocol| protocol.as_bytes().to_vec());
        let name = record.get("sni")?.as_str()?.to_owned();
        let record = Value::Object(record);
        Some(Self { names, name, protocol, wants_certificate, record, text: None })
    }
}

/// Names that are looked at in one certificate.
const MAX_NAMES: usize = 16;

/// The names of a certificate that are names of hosts (a `*` is none).
fn names_of(leaf: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(leaf) else { return Vec::new() };
    certificate.valid_dns_names().take(MAX_NAMES).filter_map(normalize).collect()
}
