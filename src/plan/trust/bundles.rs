//! The system's bundles of roots, where distributions keep them.

use std::path::{Path, PathBuf};

use super::{Around, OWN, Trust, subject};
use crate::fsview::Content;

/// One file with all roots, see crypto/x509/root_linux.go of Go and `openssl-probe`. Most of them
/// are links to one of the others.
const BUNDLES: &[&str] = &[
    // Debian, Ubuntu, Arch, Gentoo, NixOS
    "/etc/ssl/certs/ca-certificates.crt",
    // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    // openSUSE
    "/etc/ssl/ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
    // Alpine
    "/etc/ssl/cert.pem",
    // Further names on the systems above
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.trust.crt",
    "/etc/pki/tls/certs/ca-bundle.trust.crt",
    "/etc/pki/ca-trust/extracted/openssl/ca-bundle.trust.crt",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "/etc/ca-certificates/extracted/ca-bundle.trust.crt",
    "/usr/lib/ssl/cert.pem",
    "/usr/local/ssl/cert.pem",
    "/usr/share/ssl/certs/ca-bundle.crt",
];
/// Directories with a file for each root.
const DIRECTORIES: &[&str] = &["/etc/ssl/certs", "/etc/pki/tls/certs"];
/// Directories with files of p11-kit, whom GnuTLS and NSS ask on Fedora, Arch and openSUSE.
const ANCHORS: &[&str] =
    &["/usr/share/pki/ca-trust-source", "/usr/share/ca-certificates/trust-source", "/usr/share/pki/trust"];

/// Where the host and the view have roots.
pub(super) struct Roots {
    /// Files of the host with all of its roots: its bundle, and the one that the launcher is told
    /// to use.
    pub(super) host: Vec<PathBuf>,
    /// The latter.
    told: Option<PathBuf>,
    /// The host's bundles that the view shows.
    shown: Vec<PathBuf>,
    /// The bundle that variables name.
    pub(super) bundle: Option<PathBuf>,
    /// Directories with a file for each root, ours first, as SSL_CERT_DIR has them.
    pub(super) directories: Vec<PathBuf>,
    /// A file with our certificate alone.
    pub(super) alone: Option<PathBuf>,
}

/// Looks for them.
pub(super) fn find(around: &Around<'_>) -> Roots {
    let mut host: Vec<PathBuf> = Vec::new();
    let mut shown: Vec<PathBuf> = Vec::new();
    for path in BUNDLES.iter().map(Path::new).filter(|path| around.host.exists(path)) {
        let real = around.host.resolve(path);
        if host.is_empty() && around.takes(&real) {
            host.push(real.clone());
        }
        if !shown.contains(&real) {
            shown.extend(around.coverable(&real));
        }
    }
    // The roots of whoever says so: some work behind a proxy that has an authority of its own.
    let told = around.facts.variable("SSL_CERT_FILE").map(|path| around.host.resolve(Path::new(path)));
    let told = told.filter(|path| !host.contains(path) && around.takes(path));
    host.extend(told.clone());
    let own = around.has_own_place();
    let at = |name: &str| Path::new(OWN).join(name);
    let bundle = shown.first().cloned().or_else(|| own.then(|| at("roots.pem")));
    let mut directories: Vec<PathBuf> = own.then(|| at("certs")).into_iter().collect();
    directories.extend(DIRECTORIES.iter().map(PathBuf::from).find(|path| around.host.is_dir(path)));
    Roots { host, told, shown, bundle, directories, alone: own.then(|| at("agentbox.pem")) }
}

impl Roots {
    /// Covers them.
    pub(super) fn cover(&self, trust: &mut Trust<'_>, authority: &str) {
        for path in &self.shown {
            let of = std::iter::once(path.clone()).chain(self.told.clone()).collect();
            trust.bundle(path.clone(), of);
        }
        for of in anchors(trust.around) {
            trust.file(of.clone(), Content::Anchors { of });
        }
        if let (true, Some(bundle)) = (self.shown.is_empty(), &self.bundle) {
            trust.bundle(bundle.clone(), self.host.clone());
        }
        let Some(alone) = &self.alone else { return };
        trust.bundle(alone.clone(), Vec::new());
        // One link would do: but the file is small, and it is what the listing says.
        if let (Some(directory), Some(hash)) = (self.directories.first(), subject::hash(authority)) {
            trust.bundle(directory.join(format!("{hash:08x}.0")), Vec::new());
        }
    }
}

/// The file of p11-kit in each directory that has one: with the roots that come with the system.
fn anchors(around: &Around<'_>) -> Vec<PathBuf> {
    let first = |directory: &&str| {
        let entries = std::fs::read_dir(directory).ok()?.filter_map(Result::ok).map(|entry| entry.path());
        let is_one = |path: &PathBuf| path.as_os_str().as_encoded_bytes().ends_with(b".trust.p11-kit");
        around.coverable(&entries.filter(is_one).min()?)
    };
    ANCHORS.iter().filter_map(first).collect()
}
