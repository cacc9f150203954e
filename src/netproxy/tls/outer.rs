//! TLS with an origin: verified against the host's roots, always.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::ahead::Ahead;
use super::super::authority::Host;
use super::super::error::NetproxyError;
use super::facts::Facts;
use super::provider;
use super::verify::{Verifier, is_own_authority};

/// How long an origin's handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Origins whose sessions are kept for resumption.
const SESSIONS: usize = 256;

/// What is said of an origin that wants to know who the client is.
pub(crate) const WANTS_CERTIFICATE: &str =
    "it wants a certificate of the client's, which only a `tunnel` rule lets through";

/// A verified stream to an origin.
pub(crate) type OuterStream = TlsStream<Ahead<TcpStream>>;

/// The outer side's TLS.
pub(crate) struct Outer {
    added: Vec<CertificateDer<'static>>,
    /// Made at the first use: most short runs need none of the host's roots.
    connector: OnceLock<Result<TlsConnector, String>>,
    certificates: Arc<NoCertificate>,
}

impl Outer {
    pub(crate) fn new(added: Vec<CertificateDer<'static>>) -> Self {
        Self { added, connector: OnceLock::new(), certificates: Arc::default() }
    }

    /// Agrees with the origin at `address` on one of `protocols`, and demands that it proves to be
    /// `host`.
    pub(crate) async fn connect(
        &self,
        host: &Host,
        address: SocketAddr,
        protocols: Vec<Vec<u8>>,
        stream: TcpStream,
    ) -> Result<(OuterStream, Facts), NetproxyError> {
        let failed = |reason: String, source: Option<io::Error>| NetproxyError::Tls {
            name: host.to_string(),
            address,
            reason,
            source,
        };
        let connector = self
            .connector
            .get_or_init(|| self.connector())
            .as_ref()
            .map_err(|why| failed(why.clone(), None))?;
        let name = match host {
            Host::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|error| failed(error.to_string(), None))?
            }
            Host::Address(address) => ServerName::from(*address),
        };
        let mut handshake = pin!(connector.with_alpn(protocols).connect(name, Ahead::new(stream)));
        let mut wants_certificate = false;
        let watched = poll_fn(|cx| {
            // All connections share the resolver and this thread: what it says within one turn
            // of this handshake is said by this origin.
            self.certificates.asked.store(false, Ordering::Relaxed);
            let polled = handshake.as_mut().poll(cx);
            wants_certificate |= self.certificates.asked.load(Ordering::Relaxed);
            polled
        });
        match timeout(HANDSHAKE_TIMEOUT, watched).await {
            Ok(Ok(stream)) => {
                let facts = Facts::of(stream.get_ref().1, &host.to_string(), wants_certificate);
                Ok((stream, facts))
            }
            Ok(Err(error)) => Err(failed(explain(&error, wants_certificate), Some(error))),
            Err(_) => {
                let reason = format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs());
                Err(failed(reason, Some(io::ErrorKind::TimedOut.into())))
            }
        }
    }

    fn connector(&self) -> Result<TlsConnector, String> {
        let verifier = Verifier::new(&self.added)?;
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous() // It is stricter than its name says: see `Verifier`.
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::clone(&self.certificates) as Arc<dyn ResolvesClientCert>);
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// One phrase that says why a handshake failed, and what would help.
fn explain(error: &io::Error, wants_certificate: bool) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "its certificate is signed by no authority that this host trusts (`--upstream-ca FILE` adds one)"
                .to_owned()
        }
        Some(error) if is_own_authority(error) => {
            "its certificate is one of an authority, as servers have that sign their own (`--upstream-ca FILE` adds it)"
                .to_owned()
        }
        Some(Error::InvalidCertificate(reason)) => format!("its certificate is refused: {reason}"),
        Some(Error::AlertReceived(alert))
            if wants_certificate || *alert == AlertDescription::CertificateRequired =>
        {
            WANTS_CERTIFICATE.to_owned()
        }
        _ => error.to_string(),
    }
}

/// We have no certificate to show, and note that one was asked for.
#[derive(Debug, Default)]
struct NoCertificate {
    asked: AtomicBool,
}

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}
