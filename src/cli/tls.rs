//! The options of `run` about TLS.

use std::path::PathBuf;

use super::Failure;
use rustls::pki_types::CertificateDer;

use crate::netproxy::ca::AuthorityName;
use crate::netproxy::tls::{Intention, check_host_roots, read_roots};
use crate::plan::intercepts;
use crate::policy::Policy;

/// How TLS is treated.
#[derive(Debug, clap::Args)]
pub(super) struct TlsArguments {
    /// Relay TLS unread, as if every `net:` rule said `tunnel`
    #[arg(long)]
    no_intercept: bool,
    /// A file of certificates (PEM) that servers are verified with, besides the host's own roots
    #[arg(long, value_name = "FILE")]
    upstream_ca: Vec<PathBuf>,
}

/// The certificates in these files.
pub(super) fn roots(files: &[PathBuf]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let mut roots = Vec::new();
    for file in files {
        roots.extend(read_roots(file).map_err(|error| Failure::usage(format!("--upstream-ca: {error}")))?);
    }
    Ok(roots)
}

/// Whether the host's roots are where the user says.
pub(super) fn check_host() -> Result<(), Failure> {
    check_host_roots().map_err(|error| {
        Failure::usage(format!("SSL_CERT_FILE: {error}; name a file that can be read, or unset it"))
    })
}

impl TlsArguments {
    /// What reads the run's TLS; none when it is not read.
    pub(super) fn interception(&self, policy: &Policy, enforce: bool) -> Result<Option<Intention>, Failure> {
        let upstream_roots = roots(&self.upstream_ca)?;
        if self.no_intercept {
            policy.check_unread()?;
        }
        if self.no_intercept || !intercepts(policy, enforce) {
            return Ok(None);
        }
        check_host()?;
        let name = AuthorityName::make().map_err(|error| Failure::launcher(error.to_string()))?;
        Ok(Some(Intention { name, upstream_roots, stored: None }))
    }
}
