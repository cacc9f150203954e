//! What clients are shown: a certificate for each name, made when it is first asked for.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, sign::any_ecdsa_type};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ProducesTickets;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};

use super::super::authority::Host;
use super::super::ca::RunAuthority;
use super::super::error::NetproxyError;
use super::provider;

/// Certificates that are kept; a program that asks for names without end gets the oldest made anew.
const MAX_LEAVES: usize = 1024;

/// The certificate of one list of names, and the protocol that goes with it.
type Key = (Vec<Host>, Option<Vec<u8>>);

/// The certificates of one run.
pub(crate) struct Leaves {
    authority: RunAuthority,
    /// One key for all of them.
    pair: KeyPair,
    signer: Arc<dyn SigningKey>,
    provider: Arc<CryptoProvider>,
    /// Sessions may be resumed for the name that they were made for (rustls compares it).
    ticketer: Arc<dyn ProducesTickets>,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    configs: HashMap<Key, Arc<ServerConfig>>,
    order: VecDeque<Key>,
}

impl Leaves {
    pub(crate) fn new(authority: RunAuthority) -> Result<Self, NetproxyError> {
        let failed = |what: &'static str, reason: String| NetproxyError::Certificate { what, reason };
        let pair =
            KeyPair::generate().map_err(|error| failed("its key cannot be made", error.to_string()))?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let signer =
            any_ecdsa_type(&der).map_err(|error| failed("its key cannot be used", error.to_string()))?;
        let ticketer = Ticketer::new().map_err(|error| failed("no key for tickets", error.to_string()))?;
        Ok(Self { authority, pair, signer, provider: provider(), ticketer, made: Mutex::default() })
    }

    /// How a client that asked for the first of `names` is answered, when `protocol` was agreed on.
    pub(crate) fn config(
        &self,
        names: Vec<Host>,
        protocol: Option<&[u8]>,
    ) -> Result<Arc<ServerConfig>, NetproxyError> {
        let key = (names, protocol.map(<[u8]>::to_vec));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = made.configs.get(&key) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make(&key.0, protocol)?);
        if made.order.len() >= MAX_LEAVES
            && let Some(oldest) = made.order.pop_front()
        {
            made.configs.remove(&oldest);
        }
        made.order.push_back(key.clone());
        made.configs.insert(key, Arc::clone(&config));
        Ok(config)
    }

    fn make(&self, names: &[Host], protocol: Option<&[u8]>) -> Result<ServerConfig, NetproxyError> {
        let leaf = self.authority.mint(names, &self.pair)?;
        let chain = vec![leaf, CertificateDer::from(self.authority.certificate_der().to_vec())];
        let certified = CertifiedKey::new(chain, Arc::clone(&self.signer));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| NetproxyError::Certificate {
                what: "no version of TLS is known",
                reason: error.to_string(),
            })?;
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
        config.ticketer = Arc::clone(&self.ticketer);
        config.send_tls13_tickets = 1;
        Ok(config)
    }
}
