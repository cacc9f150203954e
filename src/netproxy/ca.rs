//! The certificate authority of one run: made when the run begins, known to its view alone, and
//! gone with it. Its key never leaves this process's memory.

use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::authority::Host;
use super::error::NetproxyError;
use crate::trace::{hex, unhex};

/// How long before the run its certificates begin: a client's clock may be behind ours.
const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);

/// How long after the run's start its certificates end: no run that reads TLS may last longer.
const VALID_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The authority that signs what clients of one run are shown instead of an origin's certificate.
pub struct RunAuthority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
    valid: (OffsetDateTime, OffsetDateTime),
    name: AuthorityName,
}

/// An authority as it is kept for a replay, with its key: for private blobs alone.
#[derive(Clone, Serialize, Deserialize)]
pub struct StoredAuthority {
    /// In PEM.
    certificate: String,
    /// In PEM.
    key: String,
    /// Of the certificate, in hex.
    serial: String,
    common_name: String,
    /// Seconds since the epoch, from which and until which its certificates count.
    valid: (i64, i64),
}

impl StoredAuthority {
    /// What it is called.
    ///
    /// # Errors
    /// When it was not stored by [`RunAuthority::store`].
    pub fn name(&self) -> Result<AuthorityName, NetproxyError> {
        let serial = unhex(&self.serial).ok_or_else(|| unusable("its number is none"))?;
        let serial = SerialNumber::from_slice(&serial);
        Ok(AuthorityName { serial, common_name: self.common_name.clone() })
    }
}

impl std::fmt::Debug for StoredAuthority {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StoredAuthority").field("name", &self.common_name).finish_non_exhaustive()
    }
}

/// What an authority is called: known before its key is made, so that a run can be planned meanwhile.
#[derive(Debug, Clone)]
pub struct AuthorityName {
    serial: SerialNumber,
    common_name: String,
}

/// The organization in the name of every authority.
pub const ORGANIZATION: &str = "agentbox";

impl AuthorityName {
    /// Makes a name that no other run has: two authorities must not be taken for each other by a client that
    /// goes by the name.
    ///
    /// # Errors
    /// When the kernel gives no randomness.
    pub fn make() -> Result<Self, NetproxyError> {
        let serial = serial_number()?;
        let mark = serial.to_bytes().iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(Self { serial, common_name: format!("agentbox run {mark}") })
    }

    /// The common name of its certificate.
    #[must_use]
    pub fn common_name(&self) -> &str {
        &self.common_name
    }
}

/// The longest common name (RFC 5280 appendix A.1).
const LONGEST_COMMON_NAME: usize = 64;

impl RunAuthority {
    /// Makes a key (ECDSA P-256, from the kernel's randomness) and its certificate.
    ///
    /// # Errors
    /// When the kernel gives no randomness.
    pub fn generate(name: AuthorityName, now: SystemTime) -> Result<Self, NetproxyError> {
        let key = KeyPair::generate().map_err(refused("its key cannot be made"))?;
        let AuthorityName { serial, common_name } = name.clone();
        let mut params = CertificateParams::default();
        let valid = (
            OffsetDateTime::from(now.checked_sub(BACKDATED).unwrap_or(now)),
            OffsetDateTime::from(now.checked_add(VALID_FOR).unwrap_or(now)),
        );
        (params.not_before, params.not_after) = valid;
        params.serial_number = Some(serial);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(refused("it cannot be signed"))?;
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Ok(Self { issuer: Issuer::new(params, key), der, pem, valid, name })
    }

    /// The same authority as in the run that stored it.
    ///
    /// # Errors
    /// When it was not stored by [`store`](Self::store).
    pub fn restore(stored: &StoredAuthority) -> Result<Self, NetproxyError> {
        let key = KeyPair::from_pem(&stored.key).map_err(refused("its key cannot be read"))?;
        let issuer = Issuer::from_ca_cert_pem(&stored.certificate, key);
        let issuer = issuer.map_err(refused("it cannot be read"))?;
        let der = CertificateDer::from_pem_slice(stored.certificate.as_bytes());
        let der = der.map_err(|_| unusable("its certificate is none"))?;
        let time = |seconds| {
            OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| unusable("its times are none"))
        };
        let valid = (time(stored.valid.0)?, time(stored.valid.1)?);
        Ok(Self { issuer, der, pem: stored.certificate.clone(), valid, name: stored.name()? })
    }

    /// All of it, the key too.
    #[must_use]
    pub fn store(&self) -> StoredAuthority {
        StoredAuthority {
            certificate: self.pem.clone(),
            key: self.issuer.key().serialize_pem(),
            serial: hex(&self.name.serial.to_bytes()),
            common_name: self.name.common_name.clone(),
            valid: (self.valid.0.unix_timestamp(), self.valid.1.unix_timestamp()),
        }
    }

    /// Its certificate, for a bundle of roots.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// The same in DER.
    #[must_use]
    pub fn certificate_der(&self) -> &[u8] {
        &self.der
    }

    /// Signs a certificate of a server that is called by all of `names`.
    pub(crate) fn mint(
        &self,
        names: &[Host],
        key: &KeyPair,
    ) -> Result<CertificateDer<'static>, NetproxyError> {
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = self.valid;
        params.serial_number = Some(serial_number()?);
        params.distinguished_name = DistinguishedName::new();
        // Clients go by the alternative names (RFC 9525 section 6.3); the subject is for people.
        let first = names.first().map(ToString::to_string).filter(|name| name.len() <= LONGEST_COMMON_NAME);
        params.distinguished_name.push(DnType::CommonName, first.as_deref().unwrap_or("agentbox"));
        params.subject_alt_names = names.iter().map(alternative_name).collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(key, &self.issuer).map_err(refused("it cannot be signed"))?;
        Ok(leaf.der().clone())
    }
}

fn alternative_name(host: &Host) -> Result<SanType, NetproxyError> {
    match host {
        Host::Name(name) => {
            let name = Ia5String::try_from(name.as_str()).map_err(refused("its name cannot be written"))?;
            Ok(SanType::DnsName(name))
        }
        Host::Address(address) => Ok(SanType::IpAddress(*address)),
    }
}

impl std::fmt::Debug for RunAuthority {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RunAuthority").finish_non_exhaustive()
    }
}

/// Sixteen random bytes: clients of NSS refuse two certificates of one issuer with one number.
fn serial_number() -> Result<SerialNumber, NetproxyError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| NetproxyError::Certificate {
        what: "its number cannot be made",
        reason: error.to_string(),
    })?;
    // Positive and never shortened (RFC 5280 section 4.1.2.2).
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn unusable(reason: &str) -> NetproxyError {
    NetproxyError::Certificate { what: "it cannot be restored", reason: reason.to_owned() }
}

fn refused(what: &'static str) -> impl Fn(rcgen::Error) -> NetproxyError {
    move |error| NetproxyError::Certificate { what, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_another() {
        let now = SystemTime::now();
        let make = || RunAuthority::generate(AuthorityName::make().unwrap(), now).unwrap();
        let (one, other) = (make(), make());
        assert_ne!(one.certificate_der(), other.certificate_der());
        assert!(one.certificate_pem().starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(!format!("{one:?}").contains("key"));
    }

    #[test]
    fn one_is_restored_as_it_was() {
        let one = RunAuthority::generate(AuthorityName::make().unwrap(), SystemTime::now()).unwrap();
        let stored = serde_json::to_string(&one.store()).unwrap();
        let stored: StoredAuthority = serde_json::from_str(&stored).unwrap();
        assert!(!format!("{stored:?}").contains("PRIVATE"));
        let again = RunAuthority::restore(&stored).unwrap();
        assert_eq!(one.certificate_der(), again.certificate_der());
        assert_eq!(one.name.common_name(), stored.name().unwrap().common_name());
        let names = [Host::Name("a.test".to_owned())];
        let key = KeyPair::generate().unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from(one.certificate_der().to_vec())).unwrap();
        let leaf = again.mint(&names, &key).unwrap();
        let leaf = webpki::EndEntityCert::try_from(&leaf).unwrap();
        let (anchors, now) = (&roots.roots, rustls::pki_types::UnixTime::now());
        let usage = webpki::KeyUsage::server_auth();
        let all = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
        leaf.verify_for_usage(all, anchors, &[], now, usage, None, None).expect("signed by the first");
    }
}
