//! Keystores with the trusted certificates of Java: no variable of ours names another, for
//! JAVA_TOOL_OPTIONS has every Java print a line.

use std::path::{Path, PathBuf};

use super::Around;

/// Where a Java has them; the first that is there counts (JSSE Reference Guide).
const KEYSTORES: &[&str] = &["lib/security/jssecacerts", "lib/security/cacerts", "jre/lib/security/cacerts"];
/// Where distributions install Javas.
const INSTALLED: &str = "/usr/lib/jvm";

/// Those of each Java that may be started, links followed.
pub(super) fn keystores(around: &Around<'_>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = homes(around)
        .iter()
        .flat_map(|home| KEYSTORES.iter().map(|name| home.join(name)))
        .filter_map(|path| around.coverable(&path))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn homes(around: &Around<'_>) -> Vec<PathBuf> {
    let home =
        |program: PathBuf| Some(program.parent().filter(|bin| bin.ends_with("bin"))?.parent()?.to_owned());
    let mut homes: Vec<PathBuf> = around.programs().into_iter().filter_map(home).collect();
    if around.grants_some(Path::new(INSTALLED)) {
        let entries = std::fs::read_dir(INSTALLED).into_iter().flatten().filter_map(Result::ok);
        homes.extend(entries.map(|entry| around.host.resolve(&entry.path())));
    }
    homes.sort();
    homes.dedup();
    homes
}
