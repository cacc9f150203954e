//! Bundles of roots that come with packages of Python: certifi's, and copies of it.
//!
//! Only installations that the view shows for a program's sake are looked at, at places that are
//! known: no tree is walked. What is installed later is reached by variables alone.

use std::path::{Path, PathBuf};

use super::Around;
use crate::plan::Why;

/// Bundles in a directory of packages.
const BUNDLES: &[&str] = &[
    "certifi/cacert.pem",
    "pip/_vendor/certifi/cacert.pem",
    "botocore/cacert.pem",
    "httplib2/cacerts.txt",
    "grpc/_cython/_credentials/roots.pem",
];
/// The system's own Python.
const SYSTEM: &str = "/usr/bin/python3";
/// Where all of the system's are.
const PREFIX: &str = "/usr";
/// Where it has packages: without a version on Debian, with one on others.
const SYSTEM_LIBRARIES: &[&str] = &[
    "/usr/lib/python3",
    "/usr/lib/VERSION",
    "/usr/lib64/VERSION",
    "/usr/local/lib/VERSION",
    "/usr/local/lib64/VERSION",
];
/// What a directory of packages is called.
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];

/// Those that our copies may cover, links followed.
pub(super) fn bundles(around: &Around<'_>) -> Vec<PathBuf> {
    let mut libraries = system_libraries(around);
    let mut found = Vec::new();
    let needed = around.roots.iter().filter(|root| matches!(root.why, Why::Runtime(_)));
    for root in needed.map(|root| &root.path).filter(|root| *root != Path::new(PREFIX) || may_start(around)) {
        // A prefix, its directory of libraries, or the library itself.
        libraries.push(root.clone());
        libraries.extend(libraries_in(root));
        libraries.extend(["lib", "lib64"].iter().flat_map(|name| libraries_in(&root.join(name))));
        // conda's own
        found.extend(around.coverable(&root.join("ssl/cacert.pem")));
    }
    let packages = libraries.iter().flat_map(|library| PACKAGES.iter().map(|name| library.join(name)));
    for packages in packages.filter(|path| around.host.is_dir(path)) {
        found.extend(BUNDLES.iter().filter_map(|name| around.coverable(&packages.join(name))));
    }
    found.sort();
    found.dedup();
    found
}

/// Those of the system's Python, if it may be started.
fn system_libraries(around: &Around<'_>) -> Vec<PathBuf> {
    let python = around.host.resolve(Path::new(SYSTEM));
    let may_start = || around.programs().contains(&python) || around.grants_some(&python);
    let Some(version) = python.file_name().filter(|_| may_start()).and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    SYSTEM_LIBRARIES.iter().map(|library| PathBuf::from(library.replace("VERSION", version))).collect()
}

/// Whether a Python of the system may be started: to list all libraries takes as long as some mounts.
fn may_start(around: &Around<'_>) -> bool {
    let is_python = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"python") || name.starts_with(b"pypy")
    };
    around.programs().iter().any(is_python) || around.grants_some(&Path::new(PREFIX).join("bin"))
}

/// The library of each Python in `directory`.
fn libraries_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let is_library = |name: &[u8]| name.starts_with(b"python3") || name.starts_with(b"pypy3");
    let libraries = entries.filter(|entry| is_library(entry.file_name().as_encoded_bytes()));
    libraries.map(|entry| entry.path()).collect()
}
