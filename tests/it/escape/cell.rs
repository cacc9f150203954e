//! What every attack needs: a compiled hostile program, a place to run it in, its trace.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::copy_program;

/// Longest time that one run may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Who runs the launcher when the tests run as root: root itself, and nobody.
const USERS: [u32; 2] = [0, 65534];

/// The users to attack as.
pub(crate) fn users() -> impl Iterator<Item = u32> {
    let own = nix::unistd::geteuid().as_raw();
    USERS.into_iter().filter(move |user| own == 0 || *user == USERS[1]).map(
        move |user| {
            if own == 0 { user } else { own }
        },
    )
}

/// A directory with a work directory and a hostile program in it.
pub(crate) struct Cell {
    directory: tempfile::TempDir,
    user: u32,
}

/// What came of an attack.
pub(crate) struct Fight {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
    pub(crate) entries: Vec<Value>,
    /// Largest resident set of the launcher while it was looked at, in KiB.
    pub(crate) peak: u64,
}

impl Cell {
    /// Compiles tests/guests/`guest`.c into a new directory that belongs to `user`.
    pub(crate) fn new(guest: &str, user: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let cell = Self { directory, user };
        for name in ["", "work", "bin", "trace", "state"] {
            let path = cell.root().join(name);
            fs::create_dir_all(&path).expect("a directory");
            cell.give(&path);
        }
        copy_program(compiled(guest), cell.guest());
        copy_program(env!("CARGO_BIN_EXE_agentbox"), cell.root().join("bin/agentbox"));
        cell
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    pub(crate) fn guest(&self) -> PathBuf {
        self.root().join("bin/guest")
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.root().join("trace/trace.jsonl")
    }

    /// Writes a file below the work directory.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.work().join(name);
        let parent = path.parent().expect("a parent");
        fs::create_dir_all(parent).expect("directories");
        fs::write(&path, content).expect("a file");
        for above in path.ancestors().take_while(|above| *above != self.root()) {
            self.give(above);
        }
        path
    }

    pub(crate) fn script(&self, name: &str, content: &str) -> PathBuf {
        let path = self.file(name, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
        path
    }

    fn give(&self, path: &Path) {
        chown(path, Some(self.user), Some(self.user)).expect("an owner");
    }

    /// The launcher with `policy` and these arguments of the guest.
    pub(crate) fn launcher(&self, policy: &str, arguments: &[&str]) -> Command {
        let path = self.file("../policy", policy);
        let mut command = self.bare(&path);
        command.arg(self.guest()).args(arguments);
        command
    }

    /// The launcher up to the command.
    pub(crate) fn bare(&self, policy: &Path) -> Command {
        self.tracing(policy, &self.trace())
    }

    /// The same with the trace at another place.
    pub(crate) fn tracing(&self, policy: &Path, trace: &Path) -> Command {
        self.launching(&[], policy, trace)
    }

    /// The same with options of `run`.
    pub(crate) fn launching(&self, options: &[&str], policy: &Path, trace: &Path) -> Command {
        let mut command = Command::new(self.root().join("bin/agentbox"));
        command.args(["run", "--force"]).args(options);
        command.arg("-p").arg(policy).arg("-t").arg(trace).arg("--");
        self.dress(&mut command);
        command
    }

    /// Sets the place, the environment and the user of a process.
    pub(crate) fn dress(&self, command: &mut Command) {
        command
            .current_dir(self.work())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.root())
            .env("XDG_STATE_HOME", self.root().join("state"))
            .stdin(Stdio::null())
            .process_group(0);
        if nix::unistd::geteuid().is_root() {
            command.uid(self.user).gid(self.user);
        }
    }

    /// Runs the guest under `policy`.
    pub(crate) fn attack(&self, policy: &str, arguments: &[&str]) -> Fight {
        let _ = fs::remove_file(self.trace());
        self.watch(self.launcher(policy, arguments))
    }

    pub(crate) fn watch(&self, mut command: Command) -> Fight {
        let (output, peak) = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Fight {
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            code: output.status.code(),
            entries: self.entries(),
            peak,
        }
    }

    fn entries(&self) -> Vec<Value> {
        let trace = fs::read_to_string(self.trace()).unwrap_or_default();
        trace.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Fight {
    /// Fails if the guest got anywhere, or did not get to its end.
    pub(crate) fn is_lost(&self) -> &Self {
        assert!(!self.stdout.contains("ESCAPED"), "{self}");
        assert!(self.stdout.contains("done"), "{self}");
        self
    }

    /// The entries of this kind and operation.
    pub(crate) fn found<'a>(&'a self, kind: &'a str, op: &'a str) -> impl Iterator<Item = &'a Value> {
        self.entries.iter().filter(move |entry| entry["kind"] == kind && entry["op"] == op)
    }

    /// Who opens files, as the trace says.
    pub(crate) fn files(&self) -> &str {
        let mut manifests =
            self.entries.iter().filter_map(|entry| entry["args"]["mechanisms"]["files"].as_str());
        manifests.next().unwrap_or_default()
    }

    /// How many refusals of `op` whose target ends with `end` are recorded, repeats included.
    pub(crate) fn denials(&self, op: &str, end: &str) -> u64 {
        self.found("deny", op)
            .filter(|entry| {
                let target = entry["args"]["resolved"].as_str().or_else(|| entry["args"]["target"].as_str());
                target.is_some_and(|target| target.ends_with(end))
            })
            .map(|entry| entry["count"].as_u64().unwrap_or(1))
            .sum()
    }

    /// The number behind `name=` in what the guest printed.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let start = format!("{name}=");
        let word = self.stdout.split_whitespace().find_map(|word| word.strip_prefix(&start));
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name}: {self}"))
    }
}

impl std::fmt::Display for Fight {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "code {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }
}

/// Waits for a process, watches its memory, and kills it when it takes too long.
pub(crate) fn finish(command: &mut Command) -> (Output, u64) {
    let mut child = command.spawn().expect("the launcher starts");
    let end = Instant::now() + PATIENCE;
    let id = child.id();
    let (send, heard) = std::sync::mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        let mut peak = 0;
        while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) =
            heard.recv_timeout(Duration::from_millis(100))
        {
            peak = peak.max(high_water(id));
            if Instant::now() > end {
                let pid = nix::unistd::Pid::from_raw(i32::try_from(id).expect("a pid"));
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
        }
        peak
    });
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("its end");
    let _ = send.send(());
    (output, watcher.join().expect("the watcher ends"))
}

fn high_water(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

/// The program made from tests/guests/`name`.c, compiled once.
pub(crate) fn compiled(name: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/guests/{name}.c"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guest-{name}"));
    let newer = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    if newer(&target) > newer(&source) {
        return target;
    }
    let status = Command::new("gcc")
        .args(["-O1", "-static", "-pthread", "-Wno-unused-result", "-o"])
        .args([&target, &source])
        .status()
        .expect("gcc");
    assert!(status.success(), "{} does not compile", source.display());
    target
}
