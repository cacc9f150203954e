//! Variables that name roots: a program that has its own bundle takes the named one instead.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::bundles::Roots;
use super::{OWN, Trust};

/// Each names a file that stands for all roots.
const FILES: &[&str] = &[
    // OpenSSL, and with it Python, Ruby, PHP, Perl; Go; Rust's native roots; uv
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];
/// Names a file of roots besides those that Node and Bun have built in.
const ADDITIONAL: &str = "NODE_EXTRA_CA_CERTS";
const DIRECTORY: &str = "SSL_CERT_DIR";

/// Whether a run that reads TLS sets this variable.
#[must_use]
pub fn is_set(name: &str) -> bool {
    FILES.contains(&name) || [ADDITIONAL, DIRECTORY].contains(&name)
}

/// Sets them. One that a rule passes on or sets keeps its meaning: what it names, and ours.
pub(super) fn set(env: &mut Vec<(OsString, OsString)>, trust: &mut Trust<'_>, roots: &Roots) {
    let alone = roots.alone.as_ref().or(roots.bundle.as_ref());
    let files = FILES.iter().map(|name| (*name, roots.bundle.as_ref())).chain([(ADDITIONAL, alone)]);
    for (name, ours) in files {
        let named = env.iter().position(|(key, value)| key == name && !value.is_empty());
        match named {
            Some(at) => {
                let value = trust.also(name, &env[at].1);
                env[at].1 = value;
            }
            None => env.extend(ours.map(|path| (name.into(), path.clone().into_os_string()))),
        }
    }
    // Without a place of ours there is no directory to name.
    let Some(own) = roots.directories.first().filter(|_| roots.alone.is_some()) else { return };
    match env.iter_mut().find(|(key, value)| key == DIRECTORY && !value.is_empty()) {
        Some((_, value)) => *value = listed([own.as_os_str(), value]),
        None => env.push((DIRECTORY.into(), listed(roots.directories.iter().map(|path| path.as_os_str())))),
    }
}

/// Directories as SSL_CERT_DIR and PATH have them.
fn listed<'a>(directories: impl IntoIterator<Item = &'a OsStr>) -> OsString {
    directories.into_iter().collect::<Vec<_>>().join(OsStr::new(":"))
}

impl Trust<'_> {
    /// The file that has what the variable `name` names, `value`, and our certificate.
    fn also(&mut self, name: &str, value: &OsStr) -> OsString {
        let around = self.around;
        let file = around.host.resolve(Path::new(value));
        if self.has(&file) || !around.takes(&file) {
            return value.to_owned();
        }
        if around.has_own_place() {
            let path = Path::new(OWN).join(name).with_extension("pem");
            self.bundle(path.clone(), vec![file]);
            return path.into_os_string();
        }
        self.bundle(file.clone(), vec![file]);
        value.to_owned()
    }
}
