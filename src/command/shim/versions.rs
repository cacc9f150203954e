//! pyenv and its siblings: `ROOT/shims/PROGRAM` picks `ROOT/versions/V/bin/PROGRAM`.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::Start;
use crate::command::surroundings::{Surroundings, is_system, read_setting};
use crate::command::{CommandError, lookup};
use crate::policy::looks;

/// One manager of the family: they differ in names alone.
struct Manager {
    name: &'static str,
    /// Variable that names versions, separated by `:`.
    variable: &'static str,
    /// File that names versions, looked for in the current directory and above.
    file: &'static str,
    /// A prefix that a version may carry in such files.
    prefix: &'static str,
}

const MANAGERS: [Manager; 6] = [
    Manager { name: "pyenv", variable: "PYENV_VERSION", file: ".python-version", prefix: "python-" },
    Manager { name: "rbenv", variable: "RBENV_VERSION", file: ".ruby-version", prefix: "ruby-" },
    Manager { name: "nodenv", variable: "NODENV_VERSION", file: ".node-version", prefix: "v" },
    Manager { name: "goenv", variable: "GOENV_VERSION", file: ".go-version", prefix: "go-" },
    Manager { name: "jenv", variable: "JENV_VERSION", file: ".java-version", prefix: "java-" },
    Manager { name: "plenv", variable: "PLENV_VERSION", file: ".perl-version", prefix: "perl-" },
];

/// The program that a shim of this family would start; none if `program` is no such shim.
pub(super) fn behind(program: &Path, around: &Surroundings<'_>) -> Result<Option<Start>, CommandError> {
    let Some((manager, root)) = manager_of(program) else {
        return Ok(None);
    };
    let Some(name) = program.file_name() else {
        return Ok(None);
    };
    let versions = chosen(manager, &root, around);
    for version in &versions {
        if version == "system" {
            match lookup::find_except(name, around, program.parent()) {
                Ok(found) => return Ok(Some(Start::plain(found))),
                Err(_) => continue,
            }
        }
        let Some(dir) = installed(manager, &root, version) else {
            continue;
        };
        let candidate = dir.join("bin").join(name);
        if lookup::is_executable(&candidate) {
            return Ok(Some(Start::behind(candidate)));
        }
    }
    Err(CommandError::ShimTargetMissing {
        shim: program.to_owned(),
        manager: manager.name,
        reason: format!(
            "looked in {} (set {} or {} to a version that has it)",
            versions.join(", "),
            manager.variable,
            manager.file
        ),
    })
}

/// A shim stands in a `shims` directory beside `versions`, and its text calls its manager.
fn manager_of(program: &Path) -> Option<(&'static Manager, PathBuf)> {
    let dir = program.parent()?;
    let dir = match dir.file_name() {
        Some(name) if name == "shims" => dir.to_owned(),
        _ if is_system(dir) => return None,
        _ => looks::canonical(dir).ok()?,
    };
    if dir.file_name() != Some(OsStr::new("shims")) {
        return None;
    }
    let root = dir.parent()?.to_owned();
    if !looks::is_dir(&root.join("versions")) {
        return None;
    }
    let text = read_setting(program)?;
    let manager = MANAGERS.iter().find(|manager| {
        let call = format!("{}\" exec", manager.name);
        let bare = format!("{} exec", manager.name);
        text.contains(&call) || text.contains(&bare)
    })?;
    Some((manager, root))
}

/// The versions in force: the variable, the nearest version file, the global file, `system`.
fn chosen(manager: &Manager, root: &Path, around: &Surroundings<'_>) -> Vec<String> {
    if let Some(value) = around.var(manager.variable) {
        return value.to_string_lossy().split(':').map(str::to_owned).collect();
    }
    let local = around.upwards().map(|dir| dir.join(manager.file));
    for file in local.chain([root.join("version")]) {
        let Some(text) = read_setting(&file) else {
            continue;
        };
        let words: Vec<String> = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default())
            .flat_map(str::split_whitespace)
            .map(str::to_owned)
            .collect();
        if !words.is_empty() {
            return words;
        }
    }
    vec!["system".to_owned()]
}

/// The directory of a version: its exact name, or the newest that begins with it (`3.11`).
fn installed(manager: &Manager, root: &Path, version: &str) -> Option<PathBuf> {
    let versions = root.join("versions");
    // A version file may come with a stranger's repository: a name, never a path.
    let usable = |name: &str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let short = version.strip_prefix(manager.prefix).unwrap_or(version);
    for name in [version, short].into_iter().filter(|name| usable(name)) {
        let exact = versions.join(name);
        if looks::is_dir(&exact) {
            return Some(exact);
        }
    }
    let start = format!("{short}.");
    let names = fs::read_dir(&versions).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = names
        .filter(|name| usable(short) && name.starts_with(&start) && is_release(name))
        .max_by(|left, right| compare(left, right))?;
    Some(versions.join(newest))
}

fn is_release(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn compare(left: &str, right: &str) -> Ordering {
    let numbers =
        |name: &str| -> Vec<u64> { name.split('.').map(|part| part.parse().unwrap_or(0)).collect() };
    numbers(left).cmp(&numbers(right))
}
