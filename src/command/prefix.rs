//! The tree that a program in `P/bin` belongs to, told by what else stands in `P`.
//!
//! A prefix is only taken when something in it says that it is one (`pyvenv.cfg`, `lib/rustlib`,
//! `lib/python3.11/os.py`): `~/bin/python` does not make the home directory a runtime.

use std::fs;
use std::path::{Path, PathBuf};

use super::surroundings::{is_system, read_setting};
use crate::policy::looks;

/// A prefix and what of it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) path: PathBuf,
    pub(super) kind: &'static str,
    /// What to show when the whole of `path` is too much: paths below it that exist.
    pub(super) parts: Vec<PathBuf>,
    /// A virtualenv, which a former run may have changed, says that it is one: only the parts are shown.
    pub(super) is_base: bool,
}

impl Prefix {
    /// Whether its parts are a runtime and nothing else.
    pub(super) fn is_runtime(&self) -> bool {
        matches!(self.kind, PYTHON | PYPY)
    }
}

/// The prefix of the file at `path`, which is run by or is an interpreter of `family`.
pub(super) fn of(path: &Path, family: Option<&str>) -> Option<Prefix> {
    let dir = path.parent()?;
    if let Some(store) = store(path) {
        return Some(store);
    }
    let named = dir.file_name()?;
    if named != "bin" && named != "sbin" {
        return None;
    }
    let prefix = dir.parent()?;
    // What lies in the system's trees is seen anyhow; a virtualenv there may lead out of them.
    let matters = |mark: &&Mark| mark.kind == VIRTUALENV || !is_system(prefix);
    let (kind, marks) =
        MARKS.iter().filter(|mark| mark.family.is_none() || mark.family == family).filter(matters).find_map(
            |mark| {
                let found = existing(prefix, mark.paths);
                (!found.is_empty()).then_some((mark.kind, found))
            },
        )?;
    let mut parts = marks;
    parts.push(path.to_owned());
    if kind == VIRTUALENV {
        parts.extend(existing(prefix, &["bin", "lib", "lib64"]));
    }
    Some(Prefix { path: prefix.to_owned(), kind, parts, is_base: false })
}

/// What of a prefix to show that a virtualenv names as its base; none of what is no Python.
pub(super) fn base(mut prefix: Prefix) -> Option<Prefix> {
    match prefix.kind {
        PYTHON | PYPY => {
            let parts = ["bin", "include", "lib", "lib64", "lib-python", "lib_pypy", "share/terminfo"];
            prefix.parts.extend(existing(&prefix.path, &parts));
            prefix.is_base = true;
            Some(prefix)
        }
        CONDA | "Nix store" | "Guix store" | "Homebrew tree" => Some(prefix),
        _ => None,
    }
}

/// The base prefix of a virtualenv: the parent of `home` in its pyvenv.cfg (PEP 405).
pub(super) fn base_python(virtualenv: &Path) -> Option<PathBuf> {
    let text = read_setting(&virtualenv.join("pyvenv.cfg"))?;
    let home = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim().eq_ignore_ascii_case("home")).then(|| PathBuf::from(value.trim()))
    })?;
    home.is_absolute().then_some(home)
}

pub(super) const VIRTUALENV: &str = "virtualenv";
const CONDA: &str = "conda environment";
const PYTHON: &str = "Python prefix";
const PYPY: &str = "PyPy prefix";

struct Mark {
    /// The interpreters that it counts for; none: any program.
    family: Option<&'static str>,
    kind: &'static str,
    /// Any of these, `*` at the end of a component standing for any rest.
    paths: &'static [&'static str],
}

const fn mark(family: Option<&'static str>, kind: &'static str, paths: &'static [&'static str]) -> Mark {
    Mark { family, kind, paths }
}

static MARKS: [Mark; 17] = [
    mark(None, VIRTUALENV, &["pyvenv.cfg"]),
    mark(None, CONDA, &["conda-meta"]),
    mark(None, "Rust toolchain", &["lib/rustlib"]),
    mark(None, "Go toolchain", &["pkg/tool"]),
    mark(None, "Java runtime", &["lib/modules", "lib/rt.jar", "jre/lib/rt.jar"]),
    mark(Some("python"), PYTHON, &["lib/python*/os.py", "lib64/python*/os.py"]),
    mark(Some("python"), PYPY, &["lib/pypy*/os.py", "lib-python"]),
    mark(Some("node"), "Node prefix", &["lib/node_modules", "include/node"]),
    mark(Some("ruby"), "Ruby prefix", &["lib/ruby", "specifications"]),
    mark(Some("perl"), "Perl prefix", &["lib/perl*", "lib/5.*"]),
    mark(Some("php"), "PHP prefix", &["lib/php*", "include/php"]),
    mark(Some("lua"), "Lua prefix", &["share/lua", "lib/lua"]),
    mark(Some("tcl"), "Tcl prefix", &["lib/tcl*"]),
    mark(Some("r"), "R prefix", &["lib/R"]),
    mark(Some("julia"), "Julia prefix", &["share/julia"]),
    mark(Some("shell"), "Maven", &["boot/plexus-classworlds*"]),
    mark(Some("shell"), "Gradle", &["lib/gradle-*"]),
];

/// Package stores whose programs name each other by absolute paths: the whole store is the root.
fn store(path: &Path) -> Option<Prefix> {
    for (root, kind) in [("/nix/store", "Nix store"), ("/gnu/store", "Guix store")] {
        if path.starts_with(root) {
            return Some(Prefix { path: root.into(), kind, parts: Vec::new(), is_base: false });
        }
    }
    // A setting of a virtualenv may name one that is not there: only what is one shows what it lies in.
    let cellar = looks::canonical(path.ancestors().find(|dir| dir.ends_with("Cellar"))?).ok()?;
    let path = cellar.parent().filter(|_| cellar.ends_with("Cellar"))?.to_owned();
    Some(Prefix { path, kind: "Homebrew tree", parts: Vec::new(), is_base: false })
}

/// Whether `path` is in `prefix` still when links are followed.
pub(super) fn lies_in(path: &Path, prefix: &Path) -> bool {
    let real = |path| looks::canonical(path).ok();
    real(path).zip(real(prefix)).is_some_and(|(path, prefix)| path.starts_with(prefix))
}

/// What of `patterns` exists below `prefix`; a mark that ends in `os.py` stands for its directory.
fn existing(prefix: &Path, patterns: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for pattern in patterns {
        let mut matches = vec![prefix.to_owned()];
        for part in pattern.split('/') {
            matches = matches.iter().flat_map(|dir| children(dir, part)).collect();
        }
        let whole = |path: PathBuf| match path.file_name() {
            Some(name) if name == "os.py" => path.parent().map(Path::to_owned),
            _ => Some(path),
        };
        found.extend(matches.into_iter().filter_map(whole));
    }
    found
}

fn children(dir: &Path, part: &str) -> Vec<PathBuf> {
    let Some(start) = part.strip_suffix('*') else {
        let path = dir.join(part);
        return if looks::exists(&path) { vec![path] } else { Vec::new() };
    };
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let mut paths: Vec<_> = named.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
