//! Tests of the policy as a whole, against a machine that is a table.

mod compatibility;
mod exec;
mod grammar;
mod includes;
mod intersection;
mod launch_host;
mod net;
mod paths;
mod properties;
mod rates;
mod reference;
mod remarks;
mod requests;
mod secrets;
mod suggestions;
mod unread;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::path_rule::normalized;
use super::{FileId, Host, Policy, Report, parse};

/// A machine of files, directories and links.
pub(super) struct FakeHost {
    cwd: PathBuf,
    home: Option<PathBuf>,
    files: BTreeMap<PathBuf, String>,
    directories: Vec<PathBuf>,
    links: BTreeMap<PathBuf, PathBuf>,
    path: Vec<PathBuf>,
}

impl FakeHost {
    pub(super) fn new() -> Self {
        Self {
            cwd: "/r".into(),
            home: Some("/home/u".into()),
            files: BTreeMap::new(),
            directories: Vec::new(),
            links: BTreeMap::from([("/bin".into(), "/usr/bin".into())]),
            path: vec!["/usr/bin".into(), "/bin".into()],
        }
    }

    pub(super) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }

    pub(super) fn directory(mut self, path: &str) -> Self {
        self.directories.push(path.into());
        self
    }

    pub(super) fn link(mut self, path: &str, target: &str) -> Self {
        self.links.insert(path.into(), target.into());
        self
    }
}

impl Host for FakeHost {
    fn cwd(&self) -> &Path {
        &self.cwd
    }

    fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    fn user_home(&self, name: &str) -> Option<PathBuf> {
        (name == "other").then(|| "/home/other".into())
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        let mut path = normalized(path);
        while let Some((link, target)) = self.links.iter().find(|(link, _)| path.starts_with(link)) {
            let rest = path.strip_prefix(link).expect("it starts with it");
            path = normalized(&target.join(rest));
        }
        path
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.links.get(path).cloned()
    }

    fn exists(&self, path: &Path) -> bool {
        self.identity(path).is_some() || self.is_dir(path)
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.directories.contains(&self.resolve(path))
    }

    fn identity(&self, path: &Path) -> Option<FileId> {
        let path = self.resolve(path);
        let ino = self.files.keys().position(|file| *file == path)?;
        Some(FileId { dev: 1, ino: ino as u64 })
    }

    fn find_program(&self, word: &str) -> Vec<PathBuf> {
        let found = self.path.iter().map(|directory| directory.join(word));
        found.filter(|path| self.identity(path).is_some()).collect()
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self.files.get(&self.resolve(path)) {
            Some(text) => Ok(text.clone().into_bytes()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        Vec::new()
    }

    fn profile(&self, name: &str) -> Option<&'static str> {
        (name == "git").then_some("exec: git\nread: ~/.gitconfig\nread: ./.git\n")
    }
}

pub(super) fn policy(text: &str) -> Policy {
    policy_on(&FakeHost::new(), text)
}

pub(super) fn policy_on(host: &FakeHost, text: &str) -> Policy {
    let policy = parse(text, "agent.policy", host).unwrap_or_else(|report| panic!("{report}"));
    // Every test asks the policy that went through a file.
    let json = serde_json::to_string(&policy).expect("it serialises");
    let read: Policy = serde_json::from_str(&json).expect("it deserialises");
    assert_eq!(read, policy);
    read
}

pub(super) fn refused(text: &str) -> Report {
    match parse(text, "agent.policy", &FakeHost::new()) {
        Ok(policy) => panic!("accepted: {text:?} as {:?}", policy.rules),
        Err(report) => report,
    }
}
