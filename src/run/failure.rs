//! Why a run did not happen or was stopped, and what would mend it.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use super::message::{Failure, Step};
use super::stdio::StdioError;
use crate::fsview::FsviewError;
use crate::netproxy::NetproxyError;
use crate::ns::net::NetError;
use crate::supervisor::bpf::BpfError;
use crate::supervisor::{Refusal, Stop};
use crate::sys::refused::{Named, Refused, remedy};
use crate::trace::TraceError;

/// Why a run did not happen or was stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A call of the launcher itself failed.
    #[error("{0}: {fix}", fix = remedy(&.0.source).unwrap_or(ALLOW))]
    Call(#[from] Refused),
    /// The host does not let namespaces be made.
    #[error(
        "{}(CLONE_NEWUSER|CLONE_NEWPID): {}: {fix}", refused.call, Named(&refused.source)
    )]
    Clone {
        /// The call and its errno.
        refused: Refused,
        /// What would enable it.
        fix: &'static str,
    },
    /// A step in the cloned child failed.
    #[error("{step}: {call}: {fix}")]
    Step {
        /// Which step.
        step: &'static str,
        /// The call and its errno.
        call: String,
        /// What would enable it.
        fix: &'static str,
    },
    /// The command could not be executed after all.
    #[error("{program}: {errno}{reason}")]
    Exec {
        /// The program.
        program: String,
        /// The errno of execve(2).
        errno: Errno,
        /// Why we refused it, after a colon; empty when the kernel did.
        reason: String,
    },
    /// The host does not let us judge what the command does, so it was not started.
    #[error(
        "{program} was not started: {refused}: {fix}",
        fix = remedy(&refused.source).unwrap_or(JUDGE)
    )]
    Unjudged {
        /// The program.
        program: String,
        /// The call and its errno.
        refused: Refused,
    },
    /// /proc is missing, or that of another pid namespace.
    #[error(
        "readlink(/proc/self): {0}: mount -t proc proc /proc where agentbox is started (unshare --mount-proc)"
    )]
    Proc(String),
    /// A signal came before the command was started.
    #[error("{0} came before the command was started; nothing was run")]
    Interrupted(Signal),
    /// A signal came while what was written was copied out.
    #[error("{0} came before everything was copied out; nothing was kept")]
    NotKept(Signal),
    /// A source of the view cannot be opened.
    #[error("the view cannot be built: {0}")]
    View(#[from] FsviewError),
    /// The sockets of the run's network did not arrive.
    #[error("the network of the run: {0}")]
    Network(#[source] NetError),
    /// A port that the policy offers cannot be had.
    #[error("{rule}: bind({at}): {}: {}", Named(.source), publishing(.source))]
    Publish {
        /// The rule that names it.
        rule: String,
        /// The host's loopback address and the port.
        at: std::net::SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The proxy of the run.
    #[error("the proxy of the run: {0}")]
    Proxy(#[source] NetproxyError),
    /// The system call filter cannot be compiled.
    #[error("the system call filter: {0}")]
    Filter(#[source] BpfError),
    /// The trace cannot be written.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// The run was stopped.
    #[error("{0}")]
    Stopped(#[from] Stop),
    /// The cloned child ended without a word.
    #[error("the run's first process ended before the command started; it was killed from outside")]
    Silent,
    /// Standard input, output or error.
    #[error("{0}")]
    Stdio(#[from] StdioError),
    /// A word or variable has a zero byte.
    #[error("an argument or variable holds a zero byte")]
    ZeroByte,
}

impl RunError {
    pub(super) fn call<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::Call(Refused { call, source: source.into() })
    }
}

/// What makes a port of the host's loopback free.
fn publishing(source: &io::Error) -> &'static str {
    match Errno::from_raw(source.raw_os_error().unwrap_or(0)) {
        Errno::EADDRINUSE => {
            "something on the host has that port; stop it, or name another in `listen:` and inside"
        }
        Errno::EACCES | Errno::EPERM => {
            "ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE; name a higher one"
        }
        _ => remedy(source).unwrap_or(ALLOW),
    }
}

/// What mends a call that is refused by nothing but a rule of the host.
const ALLOW: &str = "a seccomp profile or security module of the host refuses it; allow it there";
/// The same where we look at the command.
const JUDGE: &str = "kernel.yama.ptrace_scope must be 0 or 1, no debugger or strace may hold agentbox, a \
                     container's seccomp profile must allow ptrace, process_vm_readv and pidfd_getfd, and /proc must \
                     show agentbox's own processes";

/// What the cloning call says, and what would help.
pub(super) fn clone_refused(refused: Refused) -> RunError {
    let errno = Errno::from_raw(refused.source.raw_os_error().unwrap_or(0));
    let fix = match errno {
        Errno::EPERM => {
            "user namespaces are refused here; set kernel.unprivileged_userns_clone=1 and \
             kernel.apparmor_restrict_unprivileged_userns=0, or allow clone with CLONE_NEW* flags in the container's \
             seccomp profile"
        }
        Errno::ENOSPC | Errno::EUSERS => "the limit of namespaces is reached; raise user.max_user_namespaces",
        Errno::ENOENT => "mount the /proc of the pid namespace that agentbox is started in",
        Errno::ENOSYS => "allow clone3 or clone in the container's seccomp profile",
        _ => remedy(&refused.source).unwrap_or("namespaces cannot be made here"),
    };
    RunError::Clone { refused, fix }
}

/// What the launcher itself could not drop.
pub(super) fn privileges_kept(refused: Refused) -> RunError {
    let (step, fix) = describe(Step::Privileges, Errno::EPERM);
    RunError::Step { step, call: refused.to_string(), fix }
}

impl RunError {
    /// The exit code that says so: 126 and 127 as a shell's, 125 for the launcher's own failures.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exec { errno: Errno::ENOENT, .. } => 127,
            Self::Exec { .. } => 126,
            Self::Interrupted(signal) | Self::NotKept(signal) => {
                128 + u8::try_from(*signal as i32).unwrap_or(0)
            }
            _ => 125,
        }
    }
}

/// What the child said, and what would help; `refusal` is what the supervisor said to the first
/// execve(2).
pub(super) fn explain(failure: &Failure, refusal: Option<Refusal>) -> RunError {
    let errno = Errno::from_raw(failure.errno);
    if failure.step == Step::Exec {
        let program = failure.call.clone();
        return match refusal {
            Some(Refusal::Host(refused)) => RunError::Unjudged { program, refused },
            Some(Refusal::Policy(reason)) => RunError::Exec { program, errno, reason: format!(": {reason}") },
            None => RunError::Exec { program, errno, reason: String::new() },
        };
    }
    let (step, fix) = describe(failure.step, errno);
    let said = errno.to_string();
    let call = if failure.errno == 0 || failure.call.contains(&said) {
        failure.call.clone()
    } else {
        format!("{}: {said}", failure.call)
    };
    // Only a replay has an overlay, and only a run that can be replayed has fixed addresses.
    let fix = if failure.step == Step::View && failure.call.contains("overlay") {
        OVERLAY
    } else if failure.call.starts_with("personality") {
        ADDRESSES
    } else {
        remedy(&errno.into()).unwrap_or(fix)
    };
    RunError::Step { step, call, fix }
}

fn describe(step: Step, errno: Errno) -> (&'static str, &'static str) {
    match step {
        Step::DeathSignal => ("the death signal of the run", ALLOW),
        Step::Namespaces if errno == Errno::ENOSPC => (
            "the namespaces of the run",
            "the limit of namespaces is reached; raise user.max_mnt_namespaces, max_net_namespaces, \
             max_ipc_namespaces, max_uts_namespaces or max_cgroup_namespaces",
        ),
        Step::Namespaces => ("the namespaces of the run", POWERLESS),
        Step::Order => ("the plan of the run", "the launcher and the run do not understand each other"),
        Step::IdMap if geteuid().is_root() => (
            "the ids of the run",
            "root maps itself by CAP_SETFCAP alone (user_namespaces(7)): leave it that capability, or start agentbox \
             as another user",
        ),
        Step::IdMap => (
            "the ids of the run",
            "user namespaces have no rights here; set kernel.apparmor_restrict_unprivileged_userns=0 or allow \
             agentbox in an AppArmor profile",
        ),
        Step::Hostname => ("the host name of the run", NAMED),
        Step::Network => ("the network of the run", POWERLESS),
        Step::View if errno == Errno::ENOSPC => ("the view of the run", "raise fs.mount-max"),
        Step::View if errno == Errno::ESTALE => {
            ("the view of the run", "it was exchanged meanwhile; try again")
        }
        Step::View => (
            "the view of the run",
            "mounts are refused here; in a container allow mount, and leave /proc unmasked",
        ),
        Step::Init => ("pid 1 of the run", ALLOW),
        Step::WorkingDirectory => {
            ("the working directory", "start agentbox in a directory that you may enter")
        }
        Step::Limits => ("the limits of the run", ALLOW),
        Step::Privileges => ("dropping privileges", ALLOW),
        Step::Landlock => {
            ("Landlock", "the kernel has Landlock and refuses its rules; allow its three calls")
        }
        Step::Stdio => ("standard input, output and error", ALLOW),
        Step::Filter if errno == Errno::EBUSY => {
            ("the system call filter", "an outer filter has a listener already; start agentbox outside of it")
        }
        Step::Filter => (
            "the system call filter",
            "seccomp user notification with WAIT_KILLABLE_RECV (Linux 5.19) is needed",
        ),
        Step::Exec => ("execve", "the program cannot be executed"),
    }
}

/// The name of the host is told by uname(2), which no filter can alter.
const NAMED: &str = "the run would see the name of the host; allow the call in the container's seccomp profile, or \
                     set kernel.apparmor_restrict_unprivileged_userns=0";

/// What a replay needs.
const OVERLAY: &str = "a replay writes into overlays: it needs overlayfs in user namespaces, and a tmpfs with attributes \
                       of users (Linux 6.6)";

/// What a run that can be replayed needs.
const ADDRESSES: &str = "allow the call in the container's seccomp profile, or give up replay by --no-replay";

/// What mends a namespace that can be made and not used.
const POWERLESS: &str = "the namespaces have no rights here; set kernel.apparmor_restrict_unprivileged_userns=0, or \
                         allow the call in the container's seccomp profile";
