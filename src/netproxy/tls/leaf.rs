//! What clients are shown: a certificate for each name, made when it is first asked for.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rcgen::KeyPair;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, Ticketer, sign::any_ecdsa_type};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use rustls::server::ProducesTickets;
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::{CipherSuite, ServerConfig, SignatureAlgorithm, SignatureScheme};
use serde::{Deserialize, Serialize};

use super::super::authority::Host;
use super::super::ca::RunAuthority;
use super::super::error::NetproxyError;
use crate::trace::{hex, unhex};

/// Certificates that are kept; a program that asks for names without end gets the oldest made anew.
const MAX_LEAVES: usize = 1024;

/// The certificate of one list of names, and the protocol that goes with it.
type Key = (Vec<Host>, Option<Vec<u8>>);

/// A certificate as it is kept for a replay, with its key: for private blobs alone.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoredLeaf {
    /// Whom a client asked for, and what else it is good for.
    pub(crate) names: Vec<String>,
    /// What was agreed on.
    pub(crate) protocol: Option<String>,
    /// In DER, in hex.
    certificate: String,
    /// PKCS #8 in DER, in hex.
    key: String,
}

/// How a client is answered.
pub(crate) struct Leaf {
    pub(crate) config: Arc<ServerConfig>,
    /// It was made just now.
    pub(crate) made: Option<StoredLeaf>,
}

/// The certificates of one run.
pub(crate) struct Leaves {
    authority: RunAuthority,
    /// Those of the recorded run.
    stored: Vec<StoredLeaf>,
    /// Made at the first use: most runs start without.
    keys: OnceLock<Result<Keys, String>>,
    made: Mutex<Made>,
}

/// Signatures that are made for one of the usual length: two are on the average.
const SIGNATURES: usize = 64;

/// What signs with a key of P-256, always in as many bytes: in DER a signature has two fewer or one more at random, and
/// with it all that a client reads.
#[derive(Debug)]
struct Even(Arc<dyn SigningKey>);

#[derive(Debug)]
struct EvenSigner(Box<dyn Signer>);

impl SigningKey for Even {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(EvenSigner(self.0.choose_scheme(offered)?)))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl Signer for EvenSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let mut signature = self.0.sign(message)?;
        for _ in 1..SIGNATURES {
            if signature.len() == USUAL_LENGTH {
                break;
            }
            signature = self.0.sign(message)?;
        }
        Ok(signature)
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

/// That of half of all signatures: two numbers of 32 bytes, one of them behind a zero (X.690 section 8.3).
const USUAL_LENGTH: usize = 71;

/// The key in PKCS #8.
fn signer(key: PrivatePkcs8KeyDer<'static>) -> Result<Arc<dyn SigningKey>, String> {
    let key = any_ecdsa_type(&PrivateKeyDer::Pkcs8(key)).map_err(|error| error.to_string())?;
    Ok(Arc::new(Even(key)))
}

/// What all of them share.
struct Keys {
    pair: KeyPair,
    signer: Arc<dyn SigningKey>,
    provider: Arc<CryptoProvider>,
    /// Sessions may be resumed for the name that they were made for (rustls compares it).
    ticketer: Arc<dyn ProducesTickets>,
}

impl Keys {
    fn generate() -> Result<Self, String> {
        let pair = KeyPair::generate().map_err(|error| error.to_string())?;
        let signer = signer(pair.serialize_der().into())?;
        let ticketer = Ticketer::new().map_err(|error| error.to_string())?;
        Ok(Self { pair, signer, provider: provider(), ticketer })
    }
}

/// With the cheapest cipher first: what clients hear stays on this machine.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

#[derive(Default)]
struct Made {
    configs: HashMap<Key, Arc<ServerConfig>>,
    order: VecDeque<Key>,
}

impl Leaves {
    pub(crate) fn new(authority: RunAuthority, stored: Vec<StoredLeaf>) -> Self {
        Self { authority, stored, keys: OnceLock::new(), made: Mutex::default() }
    }

    /// How a client that asked for the first of `names` is answered, when `protocol` was agreed on.
    pub(crate) fn config(&self, names: Vec<Host>, protocol: Option<&[u8]>) -> Result<Leaf, NetproxyError> {
        let key = (names, protocol.map(<[u8]>::to_vec));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = made.configs.get(&key) {
            return Ok(Leaf { config: Arc::clone(config), made: None });
        }
        let (config, stored) = self.make(&key.0, protocol)?;
        let config = Arc::new(config);
        if made.order.len() >= MAX_LEAVES
            && let Some(oldest) = made.order.pop_front()
        {
            made.configs.remove(&oldest);
        }
        made.order.push_back(key.clone());
        made.configs.insert(key, Arc::clone(&config));
        Ok(Leaf { config, made: Some(stored) })
    }

    fn make(
        &self,
        names: &[Host],
        protocol: Option<&[u8]>,
    ) -> Result<(ServerConfig, StoredLeaf), NetproxyError> {
        let failed = |reason: String| NetproxyError::Certificate { what: "its key cannot be made", reason };
        let keys = self.keys.get_or_init(Keys::generate).as_ref().map_err(|reason| failed(reason.clone()))?;
        let name = |protocol: &[u8]| String::from_utf8_lossy(protocol).into_owned();
        let (names_shown, protocol_name) = (names.iter().map(Host::to_string).collect(), protocol.map(name));
        let stored = self.stored.iter().find(|one| one.names == names_shown && one.protocol == protocol_name);
        let (leaf, signer, stored) = match stored {
            Some(stored) => {
                let (leaf, signer) = stored.restore().map_err(failed)?;
                (leaf, signer, stored.clone())
            }
            None => {
                let leaf = self.authority.mint(names, &keys.pair)?;
                let (certificate, key) = (hex(&leaf), hex(&keys.pair.serialize_der()));
                let stored = StoredLeaf { names: names_shown, protocol: protocol_name, certificate, key };
                (leaf, Arc::clone(&keys.signer), stored)
            }
        };
        let chain = vec![leaf, CertificateDer::from(self.authority.certificate_der().to_vec())];
        let certified = CertifiedKey::new(chain, signer);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&keys.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?;
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
        config.ticketer = Arc::clone(&keys.ticketer);
        config.send_tls13_tickets = 1;
        config.ignore_client_order = true; // See `provider`.
        Ok((config, stored))
    }
}

impl StoredLeaf {
    fn restore(&self) -> Result<(CertificateDer<'static>, Arc<dyn SigningKey>), String> {
        let certificate = unhex(&self.certificate).ok_or("it is not in hex")?;
        let key = PrivatePkcs8KeyDer::from(unhex(&self.key).ok_or("it is not in hex")?);
        Ok((certificate.into(), signer(key)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_have_one_length() {
        let keys = Keys::generate().unwrap();
        let signer = keys.signer.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]).unwrap();
        let lengths: Vec<usize> = (0..200_u8).map(|at| signer.sign(&[at]).unwrap().len()).collect();
        assert!(lengths.iter().all(|length| *length == USUAL_LENGTH), "{lengths:?}");
    }
}
