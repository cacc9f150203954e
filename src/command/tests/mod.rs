//! Command lines against small trees made for the purpose, and against this machine's own programs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

mod managers;
mod runtime;
mod search;

/// A directory tree with a `PATH` and a home of its own.
struct Tree {
    dir: TempDir,
    env: Vec<(OsString, OsString)>,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut tree = Self { dir, env: Vec::new() };
        for name in ["home", "work", "bin"] {
            fs::create_dir(tree.at(name)).expect("a directory");
        }
        let home = tree.at("home");
        tree.set("HOME", home.to_str().expect("text"));
        let path = format!("{}:/usr/bin:/bin", tree.at("bin").display());
        tree.set("PATH", &path);
        tree
    }

    fn at(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).expect("the tree").join(name)
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.into(), value.into()));
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        path
    }

    /// A program that the kernel would load; never started here.
    fn elf(&self, name: &str) -> PathBuf {
        self.file(name, b"\x7fELF\x02\x01\x01", 0o755)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        self.file(name, text.as_bytes(), 0o755)
    }

    fn link(&self, name: &str, target: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        symlink(target, &path).expect("a link");
        path
    }

    fn run(&self, line: &str) -> Result<Command, CommandError> {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        resolve(&argv, &self.env, &self.at("work"))
    }

    fn ok(&self, line: &str) -> Command {
        self.run(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Exit code and message of a line that must fail.
    fn fails(&self, line: &str) -> (u8, String) {
        let error = self.run(line).expect_err(line);
        assert!(!error.to_string().contains('\n'), "{error}");
        (error.exit_code(), error.to_string())
    }
}

fn roots(command: &Command) -> Vec<&Path> {
    command.runtime.iter().map(|root| root.path.as_path()).collect()
}
