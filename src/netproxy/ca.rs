//! The certificate authority of one run: made when the run begins, known to its view alone, and
//! gone with it. Its key never leaves this process's memory.

use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use super::authority::Host;
use super::error::NetproxyError;

/// How long before the run its certificates begin: a client's clock may be behind ours.
const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);

/// How long after the run's start its certificates end: no run that reads TLS may last longer.
const VALID_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The authority that signs what clients of one run are shown instead of an origin's certificate.
pub struct RunAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pem: String,
    valid: (OffsetDateTime, OffsetDateTime),
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
        let AuthorityName { serial, common_name } = name;
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
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(refused("it cannot be signed"))?;
        let pem = issuer.pem();
        Ok(Self { issuer, pem, valid })
    }

    /// Its certificate, for a bundle of roots.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// The same in DER.
    #[must_use]
    pub fn certificate_der(&self) -> &[u8] {
        self.issuer.der()
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
}
