//! Whether an origin proves who it is.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::{provider, roots};

/// Object identifiers in DER: `id-ce-extKeyUsage`, `id-kp-serverAuth`, `anyExtendedKeyUsage`.
const EXTENDED_KEY_USAGE: &[u8] = b"\x06\x03\x55\x1d\x25";
const SERVER_AUTH: &[u8] = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01";
const ANY_USAGE: &[u8] = b"\x06\x04\x55\x1d\x25\x00";

/// The rules of the web's authorities, and beside them certificates that the user has named one by
/// one.
#[derive(Debug)]
pub(super) struct Verifier {
    web: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Trusts the host's roots and `named`.
    pub(super) fn new(named: &[CertificateDer<'static>]) -> Result<Self, String> {
        let roots = Arc::new(roots::all(named)?);
        let web = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
        Ok(Self { web: web.map_err(|error| error.to_string())?, named: named.to_vec() })
    }

    /// A server that shows its own authority's certificate, as `openssl req -x509` makes it, is
    /// refused by the rules of the web. The user has named this very certificate.
    fn is_named(&self, end_entity: &CertificateDer<'_>, error: &Error) -> bool {
        // It is found after the times have been checked, and before anything else.
        is_own_authority(error) && self.named.iter().any(|named| named == end_entity) && may_serve(end_entity)
    }
}

/// Whether a certificate that the user has named may be a server's: it says so, or does not say what it is for (RFC 5280
/// section 4.2.1.12). The rules of the web look at that last.
fn may_serve(certificate: &[u8]) -> bool {
    let holds = |identifier: &[u8]| memchr::memmem::find(certificate, identifier).is_some();
    !holds(EXTENDED_KEY_USAGE) || holds(SERVER_AUTH) || holds(ANY_USAGE)
}

/// Whether what a server has shown is the certificate of an authority.
pub(super) fn is_own_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    matches!(other.0.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.web.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(error) if self.is_named(end_entity, &error) => {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&parsed, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.web.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.web.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.web.supported_verify_schemes()
    }
}
