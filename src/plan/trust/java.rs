//! Keystores with the trusted certificates of Java: no variable of ours names another, for
//! JAVA_TOOL_OPTIONS has every Java print a line.

use std::path::{Path, PathBuf};

use super::super::roots::programs;
use super::Around;
use crate::policy::{ExecProgram, PathPattern};

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
    let named = around.policy.granted_programs().flat_map(|(_, exec)| programs(&exec.program));
    let started = around.command.images.iter().map(|image| image.resolved.clone());
    let mut homes: Vec<PathBuf> = started
        .chain(named)
        .map(|program| around.host.resolve(&program))
        .filter_map(|program| Some(program.parent().filter(|bin| bin.ends_with("bin"))?.parent()?.to_owned()))
        .collect();
    if around.policy.granted_programs().any(|(_, exec)| reaches(&exec.program, Path::new(INSTALLED))) {
        let entries = std::fs::read_dir(INSTALLED).into_iter().flatten().filter_map(Result::ok);
        homes.extend(entries.map(|entry| around.host.resolve(&entry.path())));
    }
    homes.sort();
    homes.dedup();
    homes
}

/// Whether a rule that names more than one program grants some below `directory`.
fn reaches(program: &ExecProgram, directory: &Path) -> bool {
    match program {
        ExecProgram::Word { .. } => false,
        ExecProgram::Path { pattern: PathPattern::Literal { resolved, .. }, directory: true, .. } => {
            directory.starts_with(resolved) || resolved.starts_with(directory)
        }
        ExecProgram::Path { .. } => false,
        ExecProgram::Glob(pattern) => pattern.may_cover_below(directory),
    }
}
