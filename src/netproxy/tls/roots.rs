//! The roots that origins are verified against: the host's, and those that the user adds.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::super::error::NetproxyError;

/// Reads the certificates of a PEM file that the user names.
///
/// # Errors
/// When the file cannot be read, or holds no certificate.
pub fn read_roots(path: &Path) -> Result<Vec<CertificateDer<'static>>, NetproxyError> {
    let unusable = |reason: String| NetproxyError::Roots { path: path.to_owned(), reason };
    let text = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| unusable(error.to_string()))?;
    if found.is_empty() {
        return Err(unusable("it holds no certificate in PEM form".to_owned()));
    }
    let mut store = RootCertStore::empty();
    for certificate in &found {
        store.add(certificate.clone()).map_err(|error| unusable(error.to_string()))?;
    }
    Ok(found)
}

/// Whether the file can be read that SSL_CERT_FILE names, if it names one: the host's roots come from there, and without
/// it from nowhere else.
///
/// # Errors
/// When it cannot.
pub fn check_host_roots() -> Result<(), NetproxyError> {
    let Some(path) = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from) else { return Ok(()) };
    let readable = if path.is_dir() { Err(Errno::EISDIR) } else { access(&path, AccessFlags::R_OK) };
    readable.map_err(|errno| NetproxyError::Roots { path, reason: errno.desc().to_owned() })
}

/// The host's roots (those of SSL_CERT_FILE and SSL_CERT_DIR where set), and `added`.
pub(super) fn all(added: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let host = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // A bundle may hold an old certificate that cannot be used; the others count all the same.
    store.add_parsable_certificates(host.certs);
    store.add_parsable_certificates(added.iter().cloned());
    if !store.is_empty() {
        return Ok(store);
    }
    let reason = host.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
    Err(format!(
        "the host's roots cannot be read ({reason}): install its ca-certificates, or name a file by SSL_CERT_FILE or \
         --upstream-ca"
    ))
}
