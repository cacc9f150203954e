//! The fixture of the black-box tests: a place of its own, a policy, the built program, its trace.
//!
//! [`everyone`] runs a test as the caller and, where the caller is root, as an ordinary user too.

mod forge;
mod held;
pub(crate) mod mounts;
mod outside;
mod ran;
mod server;
mod tree;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, chown, geteuid};
use tempfile::TempDir;

pub(crate) use forge::Forged;
pub(crate) use held::nothing_is_held;
pub(crate) use outside::{OUTSIDE_V4, OUTSIDE_V6};
pub(crate) use ran::Ran;
pub(crate) use server::Server;
pub(crate) use tree::tree;

/// How long one run of the program may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// `nobody`, who owns nothing and may do nothing special.
const ORDINARY: u32 = 65534;

/// Who runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// Whoever runs the tests.
    Caller,
    /// An ordinary user, from a caller who is root.
    Ordinary,
}

/// Runs a test as everyone whom the caller can be.
pub(crate) fn everyone(test: impl Fn(&Sandbox)) {
    test(&Sandbox::new(User::Caller));
    if !geteuid().is_root() {
        return;
    }
    if !has("setpriv") {
        return skip("as an ordinary user", "there is no setpriv");
    }
    test(&Sandbox::new(User::Ordinary));
}

/// Says that a test, or the part of it named so, did not run, and why. `scripts/check.sh` lists them.
pub(crate) fn skip(part: &str, reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("{test} ({part}): {reason}");
    let _ = writeln!(std::io::stderr(), "SKIP {line}");
    if let Some(file) = std::env::var_os("CHECK_SKIPS") {
        let mut file =
            fs::OpenOptions::new().append(true).create(true).open(file).expect("the list of skips");
        writeln!(file, "{line}").expect("the list of skips");
    }
}

/// Whether the program is on the PATH that tests run with.
pub(crate) fn has(program: &str) -> bool {
    SEARCHED.split(':').any(|directory| Path::new(directory).join(program).exists())
}

/// The system's own programs: those of a version manager below /root are out of others' reach.
const SEARCHED: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// A directory of its own with a working directory (`work`), a home, a policy and a trace beside them.
#[derive(Debug)]
pub(crate) struct Sandbox {
    directory: TempDir,
    pub(crate) user: User,
    environment: RefCell<Vec<(OsString, OsString)>>,
}

impl Sandbox {
    /// A place that holds the empty directories `work`, `home` and `state`.
    pub(crate) fn new(user: User) -> Self {
        let directory = tempfile::Builder::new().prefix("agentbox-test-").tempdir_in("/var/tmp");
        let directory = directory.expect("a directory in /var/tmp");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let sandbox = Self { directory, user, environment: RefCell::default() };
        sandbox.own(sandbox.directory.path());
        for name in ["", "../home", "../state"] {
            sandbox.directory(name);
        }
        if user == User::Ordinary {
            let program = sandbox.beside("agentbox");
            let built = env!("CARGO_BIN_EXE_agentbox");
            if fs::hard_link(built, &program).is_err() {
                copy_program(built, &program);
            }
        }
        sandbox.policy("");
        sandbox
    }

    /// A path beside the working directory.
    pub(crate) fn beside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A path in the working directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.beside("work").join(name)
    }

    /// Where the trace of [`Sandbox::run`] goes.
    pub(crate) fn trace(&self) -> PathBuf {
        self.beside("trace.jsonl")
    }

    /// Gives the policy, which stands beside the working directory; rules are relative to `work`.
    pub(crate) fn policy(&self, text: &str) -> &Self {
        self.file("../agentbox.policy", text);
        self
    }

    /// Writes a file, its directories too; the name is relative to `work`.
    pub(crate) fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(&name);
        if let Some(parent) = name.as_ref().parent() {
            self.directory(parent);
        }
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.own(&path);
        path
    }

    /// An executable script.
    pub(crate) fn script(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
        path
    }

    /// Makes a directory and those around it; the name is relative to `work`.
    pub(crate) fn directory(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        let missing: Vec<_> = path.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
        for directory in missing.into_iter().rev() {
            fs::create_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
            self.own(directory);
        }
        path
    }

    /// Makes a symbolic link; both names are relative to `work`, the target as it is spelled.
    pub(crate) fn link(&self, target: impl AsRef<Path>, name: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.path(name)).expect("a link");
    }

    /// Gives a tree that a test made by other means to the sandbox's user; relative to `work`.
    pub(crate) fn give(&self, name: impl AsRef<Path>) {
        let mut waiting = vec![self.path(name)];
        while let Some(path) = waiting.pop() {
            self.own(&path);
            if path.is_dir() && !path.is_symlink() {
                let inside = fs::read_dir(&path).expect("a directory");
                waiting.extend(inside.map(|entry| entry.expect("an entry").path()));
            }
        }
    }

    fn own(&self, path: &Path) {
        if self.user == User::Ordinary {
            let (user, group) = (Uid::from_raw(ORDINARY), Gid::from_raw(ORDINARY));
            chown(path, Some(user), Some(group)).expect("chown");
        }
    }

    /// Sets none of the variables that were set so far.
    pub(crate) fn no_environment(&self) -> &Self {
        self.environment.borrow_mut().clear();
        self
    }

    /// Sets a variable of the launcher's environment.
    pub(crate) fn environment(&self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &Self {
        self.environment.borrow_mut().push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// `agentbox` with these words, in `work`, as the sandbox's user, with a small environment.
    pub(crate) fn command<W: AsRef<OsStr>>(&self, words: &[W]) -> Command {
        let mut command = match self.user {
            User::Caller => Command::new(env!("CARGO_BIN_EXE_agentbox")),
            User::Ordinary => {
                let mut command = Command::new("setpriv");
                let id = ORDINARY.to_string();
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(self.beside("agentbox"));
                command
            }
        };
        command.args(words).current_dir(self.path("")).env_clear();
        command.env("PATH", SEARCHED).env("LANG", "C.UTF-8").env("HOME", self.beside("home"));
        command.env("XDG_STATE_HOME", self.beside("state"));
        command.envs(self.environment.borrow().iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `agentbox run` with the sandbox's policy and trace and these further options.
    pub(crate) fn run_command<W: AsRef<OsStr>>(&self, options: &[&str], words: &[W]) -> Command {
        let mut all: Vec<OsString> = vec!["run".into(), "-p".into(), self.beside("agentbox.policy").into()];
        all.extend(["-t".into(), self.trace().into()]);
        all.extend(options.iter().map(Into::into));
        all.push("--".into());
        all.extend(words.iter().map(|word| word.as_ref().to_owned()));
        self.command(&all)
    }

    /// Runs a command confined, to its end; the trace must be intact and sealed.
    pub(crate) fn run<W: AsRef<OsStr>>(&self, words: &[W]) -> Ran {
        self.run_with(&[], words)
    }

    /// The same with further options of `run`.
    pub(crate) fn run_with<W: AsRef<OsStr>>(&self, options: &[&str], words: &[W]) -> Ran {
        let _ = fs::remove_file(self.trace());
        let mut ran = Running::start(self.run_command(options, words)).finish();
        ran.read_trace(&self.trace());
        ran
    }

    /// Runs a program of Python's confined.
    pub(crate) fn python(&self, program: &str) -> Ran {
        self.run(&["python3", "-c", program])
    }

    /// Runs any subcommand.
    pub(crate) fn agentbox<W: AsRef<OsStr>>(&self, words: &[W]) -> Ran {
        Running::start(self.command(words)).finish()
    }
}

/// A program that runs, and what it has said so far.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    shown: String,
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // A stream that breaks off has said what it has said.
        let _ = stream.read_to_end(&mut all);
        all
    })
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let shown = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self { child, stdout, stderr, shown }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("kill");
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Ran {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            if Instant::now() > until {
                let _ = self.child.kill();
                panic!("still running after {PATIENCE:?}: {}", self.shown);
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let text = |stream: Option<JoinHandle<Vec<u8>>>| match stream {
            Some(stream) => stream.join().expect("a reader"),
            None => Vec::new(),
        };
        Ran::new(status, text(self.stdout.take()), text(self.stderr.take()), self.shown)
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Copies a program, by another process: a descriptor that is open for writing in this one could be
/// inherited by what another test starts just then, and the copy would be busy (execve(2), ETXTBSY).
pub(crate) fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status().expect("cp starts");
    assert!(copied.success(), "cp {}", from.as_ref().display());
}
