//! Bundles of roots that come with packages of Python: certifi's, and copies of it.
//!
//! Only installations that the view shows for a program's sake are looked at, at places that are
//! known: no tree is walked. What is installed later is reached by variables alone.

use std::path::{Path, PathBuf};

use super::Around;

/// Bundles in a directory of packages.
const BUNDLES: &[&str] = &[
    "certifi/cacert.pem",
    "pip/_vendor/certifi/cacert.pem",
    "botocore/cacert.pem",
    "httplib2/cacerts.txt",
    "grpc/_cython/_credentials/roots.pem",
];
/// Directories of packages of the system's own Python that have no version in their name.
const SYSTEM: &[&str] = &["/usr/lib/python3/dist-packages"];
/// Where the system's Python has directories with a version.
const SYSTEM_LIBRARIES: &[&str] = &["/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64"];

/// Those that our copies may cover, links followed.
pub(super) fn bundles(around: &Around<'_>) -> Vec<PathBuf> {
    let mut packages: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    for library in SYSTEM_LIBRARIES {
        packages.extend(packages_in(Path::new(library)));
    }
    let mut found = Vec::new();
    let runtimes = around.roots.iter().filter(|root| root.is_system() && !root.path.starts_with("/usr"));
    for root in runtimes.map(|root| &root.path).filter(|path| !path.starts_with("/etc")) {
        packages.extend(packages_in(root));
        packages.extend(["lib", "lib64"].iter().flat_map(|name| packages_in(&root.join(name))));
        packages.extend(["site-packages", "dist-packages"].map(|name| root.join(name)));
        // conda's own
        found.extend(around.coverable(&root.join("ssl/cacert.pem")));
    }
    for bundle in packages.iter().flat_map(|packages| BUNDLES.iter().map(|name| packages.join(name))) {
        found.extend(around.coverable(&bundle));
    }
    found.sort();
    found.dedup();
    found
}

/// The directories of packages of each Python in `library`.
fn packages_in(library: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(library).into_iter().flatten().filter_map(Result::ok);
    let versions = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        name.starts_with(b"python3") || name.starts_with(b"pypy3")
    });
    versions
        .flat_map(|version| ["site-packages", "dist-packages"].map(|name| version.path().join(name)))
        .collect()
}
