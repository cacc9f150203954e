//! A directory with a policy, in which the program runs as a certain user.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agentbox::trace::hex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// The user that a root launcher is tested as besides.
const OTHER: u32 = 65534;

pub(super) struct Place {
    directory: TempDir,
    program: PathBuf,
    user: Option<u32>,
}

/// One place for each user.
pub(super) fn places() -> Vec<Place> {
    let own = Place::new(None);
    if !nix::unistd::geteuid().is_root() {
        return vec![own];
    }
    vec![own, Place::new(Some(OTHER))]
}

impl Place {
    fn new(user: Option<u32>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut program = PathBuf::from(env!("CARGO_BIN_EXE_agentbox"));
        if user.is_some() {
            // The build directory may be closed to other users.
            let copy = directory.path().join("agentbox");
            crate::support::copy_program(&program, &copy);
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("executable");
            program = copy;
        }
        let place = Self { directory, program, user };
        for name in ["", "work", "home"] {
            fs::create_dir_all(place.directory.path().join(name)).expect("made");
            place.own(&place.directory.path().join(name));
        }
        place.write("test.policy", b"read: .\nexec: cat\nexec: sleep\nexec: chmod\n");
        place
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("work").join(name)
    }

    pub(super) fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).expect("written");
        self.own(&self.path(name));
    }

    fn own(&self, path: &Path) {
        if self.user.is_some() {
            chown(path, self.user, self.user).expect("chown");
        }
    }

    /// `sh -c SCRIPT` in a run, with the null device as its input.
    pub(super) fn shell(&self, script: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["run", "-p", "test.policy", "--", "sh", "-c", script]);
        self.prepare(command)
    }

    /// The same, without our own lines.
    pub(super) fn quiet(&self, script: &str) -> Command {
        let mut command = self.shell(script);
        command.stderr(Stdio::null());
        command
    }

    /// The same, started by a shell that says what becomes of its descriptors.
    pub(super) fn through_shell(&self, starter: &str, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", starter, "sh"]).arg(&self.program);
        command.args(["run", "-p", "test.policy", "--", "sh", "-c", script]);
        self.prepare(command)
    }

    fn prepare(&self, mut command: Command) -> Command {
        let home = self.directory.path().join("home");
        command.current_dir(self.path("")).env("HOME", home).stdin(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    fn entries(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("trace.jsonl")).expect("a trace");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// What the trace says of a stream.
    pub(super) fn stream(&self, name: &str) -> Value {
        let mut said = self
            .entries()
            .into_iter()
            .filter(|entry| entry["op"] == "stdio" && entry["args"]["stream"] == name)
            .map(|entry| entry["args"].clone());
        let one = said.next().expect("it says something");
        assert_eq!(said.next(), None);
        one
    }

    /// What the header says of the streams.
    pub(super) fn manifest(&self) -> Value {
        self.entries()[0]["args"]["capture"]["stdio"].clone()
    }

    /// The trace is whole and sealed.
    pub(super) fn verify(&self) {
        let output =
            Command::new(&self.program).arg("verify").arg(self.path("trace.jsonl")).output().expect("runs");
        assert!(output.status.success(), "{output:?}");
    }
}

pub(super) fn random(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    getrandom::fill(&mut bytes).expect("random bytes");
    bytes
}

pub(super) fn sha256(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}
