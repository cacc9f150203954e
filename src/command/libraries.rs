//! The libraries that a program outside of the system's trees brings along.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::prefix;
use super::surroundings::{is_system, os_string};
use crate::policy::looks;
use crate::sys::elf;

/// How many files are followed; a program with more has a prefix that is a root.
const MOST_FILES: usize = 256;

/// Files outside of the system's trees that the loader opens for `program`, as spelled in the
/// search paths, and whole library directories that belong to it.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub(super) files: Vec<PathBuf>,
    pub(super) directories: Vec<PathBuf>,
}

/// What the resolved `program` needs beside itself, as ld.so(8) would find it. `LD_LIBRARY_PATH`
/// is not looked at: it is not passed on without a rule.
pub(super) fn of(program: &Path) -> Needs {
    let mut needs = Needs::default();
    let mut pending = VecDeque::from([program.to_owned()]);
    let mut seen = vec![program.to_owned()];
    let mut inherited: Vec<PathBuf> = Vec::new();
    while let Some(path) = pending.pop_front() {
        let Some(found) = elf::read(&path) else {
            continue;
        };
        let search: Vec<PathBuf> =
            found.search.iter().map(|dir| expand(dir, &path)).filter(|dir| dir.is_absolute()).collect();
        if path == program {
            needs.files.extend(found.loader.filter(|loader| loader.is_absolute() && !is_system(loader)));
            needs.directories = search.iter().filter(|dir| is_own_lib(dir, program)).cloned().collect();
            inherited = search.clone();
        }
        for name in &found.needed {
            let Some(library) = locate(name, search.iter().chain(&inherited)) else {
                continue;
            };
            if seen.len() < MOST_FILES && !seen.contains(&library) {
                seen.push(library.clone());
                needs.files.push(library.clone());
                pending.push_back(library);
            }
        }
    }
    needs
}

/// The first directory outside of the system's trees that holds the library. One in the system's
/// trees is visible anyway, and ends the search as it ends the loader's.
fn locate<'a>(name: &OsStr, search: impl Iterator<Item = &'a PathBuf>) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return (path.is_absolute() && looks::is_file(&path) && !is_system(&path)).then_some(path);
    }
    let found = search.map(|dir| dir.join(name)).find(|path| looks::is_file(path))?;
    (!is_system(&found)).then_some(found)
}

/// `P/lib` beside `P/bin/PROGRAM`: plugins are loaded from it by name, not by DT_NEEDED.
fn is_own_lib(dir: &Path, program: &Path) -> bool {
    let Some(prefix) = program.parent().and_then(Path::parent) else {
        return false;
    };
    let same = |name: &str| {
        let lib = looks::canonical(&prefix.join(name));
        lib.is_ok_and(|lib| looks::canonical(dir).is_ok_and(|dir| dir == lib))
    };
    !is_system(dir) && prefix::lies_in(dir, prefix) && ["lib", "lib64"].into_iter().any(same)
}

/// Replaces `$ORIGIN`, the directory of the file that says so.
fn expand(dir: &OsString, path: &Path) -> PathBuf {
    let origin = path.parent().unwrap_or_else(|| Path::new("/")).as_os_str().as_bytes();
    let bytes = dir.as_bytes();
    for word in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
        if let Some(rest) = bytes.strip_prefix(word) {
            return PathBuf::from(os_string(&[origin, rest].concat()));
        }
    }
    PathBuf::from(dir)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_programs_own_libraries_lie_beside_it() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        for directory in ["own/bin", "own/lib", "linked/bin", "elsewhere"] {
            fs::create_dir_all(root.join(directory)).expect("a directory");
        }
        symlink("lib", root.join("own/lib64")).expect("a link");
        symlink("../elsewhere", root.join("linked/lib")).expect("a link");
        let is_own = |prefix: &str, lib: &str| {
            is_own_lib(&root.join(prefix).join(lib), &root.join(prefix).join("bin/program"))
        };
        assert!(is_own("own", "lib") && is_own("own", "lib64") && is_own("own", "bin/../lib"));
        // A link there leads wherever its maker likes.
        assert!(!is_own("linked", "lib"));
    }
}
