//! A directory with sockets of the host, a policy, and an agent in Python; as root and as another user.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tempfile::TempDir;

const OTHER_USER: u32 = 65534;
/// Nothing here takes long; a run that hangs is killed.
const PATIENCE: &str = "120";

/// Runs `test` as the caller and, for a root caller, as another user too.
pub(crate) fn as_each_user(test: impl Fn(&Stage)) {
    test(&Stage::new(None));
    if nix::unistd::geteuid().is_root() {
        test(&Stage::new(Some(OTHER_USER)));
    }
}

pub(crate) struct Stage {
    directory: TempDir,
    user: Option<u32>,
}

/// What a run left behind.
pub(crate) struct Ran {
    pub(crate) output: Output,
    pub(crate) trace: Vec<Value>,
}

impl Stage {
    fn new(user: Option<u32>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("mode");
        let stage = Self { directory, user };
        stage.own(stage.path(""));
        stage
    }

    /// The absolute path of `name` in the stage's directory, links followed.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("it exists").join(name)
    }

    pub(crate) fn make_directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("a directory");
        self.own(&path);
        path
    }

    fn own(&self, path: impl AsRef<Path>) {
        chown(path, self.user, self.user).expect("chown");
    }

    /// A server of the host that answers `host:` and what it was sent.
    pub(crate) fn serve(&self, name: &str) -> Server {
        let path = self.path(name);
        // The path of a socket address is short: bound through the directory.
        let directory = fs::File::open(path.parent().expect("a parent")).expect("it opens");
        let file = path.file_name().expect("a name").to_str().expect("UTF-8");
        let short = format!("/proc/self/fd/{}/{file}", std::os::fd::AsRawFd::as_raw_fd(&directory));
        let listener = UnixListener::bind(short).expect("bind");
        self.own(&path);
        Server::start(listener)
    }

    /// Runs `code` with Python under `policy`; the working directory is the stage's.
    pub(crate) fn python(&self, policy: &str, code: &str) -> Ran {
        self.run(policy, &["/usr/bin/python3", "-c", code])
    }

    pub(crate) fn run(&self, policy: &str, command: &[&str]) -> Ran {
        self.run_with(policy, &[], command)
    }

    pub(crate) fn run_with(&self, policy: &str, options: &[&str], command: &[&str]) -> Ran {
        fs::write(self.path("agent.policy"), policy).expect("a policy");
        let output = self
            .command()
            .args(["run", "-p", "agent.policy", "-t", "trace.jsonl"])
            .args(options)
            .arg("--")
            .args(command)
            .output()
            .expect("it runs");
        let trace = fs::read_to_string(self.path("trace.jsonl")).unwrap_or_default();
        let trace = trace.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        Ran { output, trace }
    }

    /// The product, as the stage's user.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", PATIENCE]);
        if let Some(user) = self.user {
            command.args(["setpriv", &format!("--reuid={user}"), &format!("--regid={user}")]);
            command.args(["--clear-groups", "--"]);
        }
        command.arg(product(self.user)).current_dir(self.path("")).env("HOME", self.path(""));
        command
    }
}

/// The build directory may be closed to others: they get a copy.
fn product(user: Option<u32>) -> PathBuf {
    static COPY: OnceLock<TempDir> = OnceLock::new();
    let built = PathBuf::from(env!("CARGO_BIN_EXE_agentbox"));
    if user.is_none() {
        return built;
    }
    let copy = COPY.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("mode");
        crate::support::copy_program(&built, directory.path().join("agentbox"));
        directory
    });
    copy.path().join("agentbox")
}

impl Ran {
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// What the agent printed; it ended well.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<String> {
        assert!(self.output.status.success(), "{self}");
        self.stdout().lines().map(str::to_owned).collect()
    }

    /// Targets of the denials of one operation.
    pub(crate) fn denied(&self, op: &str) -> Vec<String> {
        let denied = self.trace.iter().filter(|entry| entry["kind"] == "deny" && entry["op"] == op);
        denied.map(|entry| entry["args"]["target"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) fn entries(&self, op: &str) -> Vec<&Value> {
        self.trace.iter().filter(|entry| entry["op"] == op).collect()
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let errors = String::from_utf8_lossy(&self.output.stderr);
        write!(formatter, "{}\n{}\n{errors}", self.output.status, self.stdout())
    }
}

/// A server of the host; its thread ends with the process.
pub(crate) struct Server {
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn start(listener: UnixListener) -> Self {
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counter.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || answer(stream));
            }
        });
        Self { connections }
    }

    /// How many connections it has seen.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: std::os::unix::net::UnixStream) {
    let mut buffer = [0; 100];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&[b"host:", &buffer[..length]].concat()).is_err() {
            return;
        }
    }
}
