//! Why a run did not happen or was stopped, and what would mend it.

use std::io;

use nix::errno::Errno;

use super::message::{Failure, Step};
use super::stdio::StdioError;
use crate::fsview::FsviewError;
use crate::netproxy::NetproxyError;
use crate::ns::net::NetError;
use crate::supervisor::Stop;
use crate::supervisor::bpf::BpfError;
use crate::trace::TraceError;

/// Why a run did not happen or was stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A call of the launcher itself failed.
    #[error("{call}: {source}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its errno.
        source: io::Error,
    },
    /// The host does not let namespaces be made.
    #[error(
        "clone3(CLONE_NEWUSER|CLONE_NEWNS|CLONE_NEWPID|CLONE_NEWNET|CLONE_NEWIPC|CLONE_NEWUTS|CLONE_NEWCGROUP): {errno}: {fix}"
    )]
    Clone {
        /// Its errno.
        errno: Errno,
        /// What would enable it.
        fix: &'static str,
    },
    /// A step in the cloned child failed.
    #[error("{step}: {call}{errno}: {fix}")]
    Step {
        /// Which step.
        step: &'static str,
        /// The call.
        call: String,
        /// Its errno, with a colon before it.
        errno: String,
        /// What would enable it.
        fix: &'static str,
    },
    /// The command could not be executed after all.
    #[error("{program}: {errno}")]
    Exec {
        /// The program.
        program: String,
        /// The errno of execve(2).
        errno: Errno,
    },
    /// A source of the view cannot be opened.
    #[error("the view cannot be built: {0}")]
    View(#[from] FsviewError),
    /// The sockets of the run's network did not arrive.
    #[error("the network of the run: {0}")]
    Network(#[source] NetError),
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
    /// Capabilities cannot be dropped.
    #[error("capset: {0}")]
    Privileges(#[source] caps::errors::CapsError),
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
    pub(super) fn call(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Call { call, source: errno.into() }
    }

    pub(super) fn io(call: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Call { call, source }
    }
}

/// What clone3(2) says, and what would help.
pub(super) fn clone_refused(error: io::Error) -> RunError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
    let fix = match errno {
        Errno::EPERM => {
            "user namespaces are refused here; set kernel.unprivileged_userns_clone=1 or \
             kernel.apparmor_restrict_unprivileged_userns=0, or allow clone in the container's seccomp profile"
        }
        Errno::ENOSPC | Errno::EUSERS => "the limit of namespaces is reached; raise user.max_user_namespaces",
        Errno::ENOSYS => "the kernel (5.3 or newer is needed) or a container's seccomp profile has no clone3",
        _ => "namespaces cannot be made here",
    };
    RunError::Clone { errno, fix }
}

impl RunError {
    /// The exit code that says so: 126 and 127 as a shell's, 125 for the launcher's own failures.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exec { errno: Errno::ENOENT, .. } => 127,
            Self::Exec { .. } => 126,
            _ => 125,
        }
    }
}

/// What the child said, and what would help.
pub(super) fn explain(failure: &Failure) -> RunError {
    let errno = Errno::from_raw(failure.errno);
    if failure.step == Step::Exec {
        return RunError::Exec { program: failure.call.clone(), errno };
    }
    let (step, fix) = describe(failure.step);
    let errno = if failure.errno == 0 || failure.call.contains(errno.desc()) {
        String::new()
    } else {
        format!(": {}", errno.desc())
    };
    RunError::Step { step, call: failure.call.clone(), errno, fix }
}

fn describe(step: Step) -> (&'static str, &'static str) {
    match step {
        Step::DeathSignal => ("the death signal of the run", "the host refuses prctl"),
        Step::IdMap => (
            "the ids of the run",
            "user namespaces have no rights here; set kernel.apparmor_restrict_unprivileged_userns=0 or allow \
             agentbox in an AppArmor profile",
        ),
        Step::Hostname => ("the host name of the run", "the user namespace has no rights here"),
        Step::Network => ("the network of the run", "the network namespace has no rights here"),
        Step::View => (
            "the view of the run",
            "mounts are refused here; in a container allow mount, and leave /proc unmasked",
        ),
        Step::Init => ("pid 1 of the run", "the host refuses it"),
        Step::WorkingDirectory => {
            ("the working directory", "start agentbox in a directory that you may enter")
        }
        Step::Limits => ("the limits of the run", "the host refuses setrlimit"),
        Step::Privileges => ("dropping privileges", "the host refuses it"),
        Step::Landlock => ("Landlock", "the kernel has Landlock and refuses its rules"),
        Step::Stdio => ("standard input, output and error", "the host refuses it"),
        Step::Filter => (
            "the system call filter",
            "seccomp user notification (Linux 5.19) is needed, and no outer filter may have a listener",
        ),
        Step::Exec => ("execve", "the program cannot be executed"),
    }
}
