//! The ordered list of what the cloned child does before the command runs.
//!
//! Everything here happens in a copy of the single-threaded launcher; it ends by `_exit`.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::message::{Failure, Message, Step};
use super::stdio::CommandEnds;
use crate::fsview::{self, Door, FsSpec, LandlockRule, Pending, Source};
use crate::ns::handoff::{self, Role};
use crate::ns::net::{self, NetSpec};
use crate::ns::{channel, idmap, init, privileges};
use crate::sys::refused::Refused;
use crate::sys::{clone, process, seccomp};

const SECCOMP: &str = "seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER|SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)";

/// What the child needs, made before the clone.
#[derive(Debug)]
pub(super) struct ChildSpec {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) hostname: String,
    pub(super) fs: FsSpec,
    pub(super) sources: Vec<Source>,
    /// Sockets of the host that have a door in the view.
    pub(super) unix: Vec<PathBuf>,
    pub(super) net: NetSpec,
    pub(super) landlock: Vec<LandlockRule>,
    /// The filter where Landlock keeps signals inside, and the one for elsewhere.
    pub(super) filters: [Vec<seccomp::Instruction>; 2],
    pub(super) cwd: PathBuf,
    pub(super) program: CString,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    /// Signals that were blocked when the launcher started.
    pub(super) signal_mask: SigSet,
    /// The limits of open files that the launcher started with, soft and hard.
    pub(super) descriptors: (u64, u64),
}

/// The child's ends of what connects it with the launcher.
#[derive(Debug)]
pub(super) struct Ends {
    /// Messages both ways.
    pub(super) channel: OwnedFd,
    /// The launcher's word that the command may start comes in here: pid 1 reads the channel.
    pub(super) go: OwnedFd,
    /// The sockets of the network namespace go out here.
    pub(super) sockets: OwnedFd,
    /// Requests for sockets of the network namespace come in here, where there can be any.
    pub(super) dialler: Option<OwnedFd>,
    /// A pidfd of the launcher.
    pub(super) launcher: OwnedFd,
    /// What the command gets as descriptors 0, 1 and 2 in place of the launcher's.
    pub(super) stdio: CommandEnds,
}

/// Runs as pid 1 of the new namespaces; never returns.
pub(super) fn enter(spec: &ChildSpec, ends: &Ends) -> ! {
    let channel = &ends.channel;
    let code = match set_up(spec, ends) {
        Ok(pending) => start(spec, ends, &pending),
        Err(failure) => Err(failure),
    };
    let code = match code {
        Ok(()) => 0,
        Err(failure) => {
            // Nobody is left to tell when this fails: the launcher sees the end of the channel.
            let _ = channel::send(channel.as_fd(), &Message::Failed(failure).encode(), &[]);
            125
        }
    };
    process::exit_now(code)
}

fn set_up(spec: &ChildSpec, ends: &Ends) -> Result<Pending, Failure> {
    process::die_with_parent()
        .map_err(|error| Failure::new(Step::DeathSignal, "prctl(PR_SET_PDEATHSIG)", &error))?;
    idmap::write(spec.uid, spec.gid).map_err(|error| Failure::text(Step::IdMap, &error))?;
    nix::unistd::sethostname(&spec.hostname)
        .map_err(|errno| Failure::new(Step::Hostname, "sethostname", &errno.into()))?;
    let sockets = net::setup(&spec.net).map_err(|error| Failure::text(Step::Network, &error))?;
    sockets.send(&ends.sockets).map_err(|error| Failure::text(Step::Network, &error))?;
    // From here on 0, 1 and 2 are the command's; pid 1 closes them.
    let input = ends.stdio.install().map_err(|errno| Failure::new(Step::Stdio, "dup2", &errno.into()))?;
    let input: Vec<_> = input.iter().map(AsFd::as_fd).collect();
    channel::send(ends.channel.as_fd(), &Message::Sockets.encode(), &input)
        .map_err(|error| Failure::new(Step::Network, "sendmsg", &error))?;
    drop(sockets);
    let built = fsview::build(&spec.fs, &spec.sources, &spec.unix)
        .map_err(|error| Failure::text(Step::View, &error))?;
    hand_over(built.doors, &ends.sockets).map_err(|error| Failure::new(Step::View, "sendmsg", &error))?;
    fsview::enter(&built.root).map_err(|error| Failure::text(Step::View, &error))?;
    Ok(built.pending)
}

fn hand_over(doors: Vec<Door>, sockets: &OwnedFd) -> std::io::Result<()> {
    let doors = (0u16..).zip(doors);
    let fds = doors.flat_map(|(at, door)| [(Role::Unix(at), door.listener), (Role::UnixFile(at), door.file)]);
    handoff::send_fds(sockets, &fds.collect::<Vec<_>>())
}

/// Forks the command's process and becomes init.
fn start(spec: &ChildSpec, ends: &Ends, pending: &Pending) -> Result<(), Failure> {
    let (channel, launcher) = (&ends.channel, &ends.launcher);
    // Blocked before the fork, so that no end of a child is missed.
    let mut children = SigSet::empty();
    children.add(nix::sys::signal::Signal::SIGCHLD);
    children.thread_block().map_err(|errno| Failure::new(Step::Init, "sigprocmask", &errno.into()))?;
    // Before the fork: no process of the run ever sees a pid 1 that it could look into.
    process::set_dumpable(false)
        .map_err(|error| Failure::new(Step::Init, "prctl(PR_SET_DUMPABLE)", &error))?;
    let side = clone::clone_process(0).map_err(|error| Failure::text(Step::Init, &error))?;
    let command = match side {
        clone::Side::Child => command_process(spec, ends),
        clone::Side::Parent { pid, pidfd } => {
            drop(pidfd);
            Pid::from_raw(pid)
        }
    };
    become_init(ends, pending).map_err(|error| Failure::text(Step::Init, &error))?;
    let mut attach =
        |index| pending.attach(index).map_err(|error| error.source.raw_os_error().unwrap_or(libc::EIO));
    let dialler = ends.dialler.as_ref().map(AsFd::as_fd);
    let served = init::run(command, launcher, channel.as_fd(), dialler, &mut attach);
    // Its descriptors were closed behind the back of their owners: none of them is dropped.
    process::exit_now(if served.is_ok() { 0 } else { 125 })
}

/// Nothing of the launcher may be read back through /proc/1.
fn become_init(ends: &Ends, pending: &Pending) -> Result<(), Refused> {
    process::wipe_environment().map_err(Refused::by("read(/proc/self/stat)"))?;
    let mut kept = vec![ends.channel.as_raw_fd(), ends.launcher.as_raw_fd()];
    kept.extend(ends.dialler.as_ref().map(AsRawFd::as_raw_fd));
    kept.extend(pending.descriptors().map(AsRawFd::as_raw_fd));
    kept.sort_unstable();
    process::close_all_but(&kept).map_err(Refused::by("close_range"))
}

/// The last steps before execve(2); never returns.
fn command_process(spec: &ChildSpec, ends: &Ends) -> ! {
    let channel = &ends.channel;
    let failure = match confine(spec, ends) {
        Ok(()) => {
            let Err(errno) = nix::unistd::execve(&spec.program, &spec.argv, &spec.env);
            Failure::new(Step::Exec, &spec.program.to_string_lossy(), &errno.into())
        }
        Err(failure) => failure,
    };
    // As above: without a channel there is nobody to tell.
    let _ = channel::send(channel.as_fd(), &Message::Failed(failure).encode(), &[]);
    process::exit_now(125)
}

fn confine(spec: &ChildSpec, ends: &Ends) -> Result<(), Failure> {
    let channel = &ends.channel;
    let root = nix::fcntl::open("/", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| Failure::new(Step::View, "open(/)", &errno.into()))?;
    nix::unistd::chdir(spec.cwd.as_path())
        .map_err(|errno| Failure::new(Step::WorkingDirectory, "chdir", &errno.into()))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
        .map_err(|errno| Failure::new(Step::Limits, "setrlimit(RLIMIT_CORE)", &errno.into()))?;
    let (soft, hard) = spec.descriptors;
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)
        .map_err(|errno| Failure::new(Step::Limits, "setrlimit(RLIMIT_NOFILE)", &errno.into()))?;
    privileges::drop_all().map_err(|error| Failure::text(Step::Privileges, &error))?;
    process::no_new_privileges()
        .map_err(|error| Failure::new(Step::Privileges, "prctl(PR_SET_NO_NEW_PRIVS)", &error))?;
    let restricted =
        fsview::restrict(&spec.landlock).map_err(|error| Failure::text(Step::Landlock, &error))?;
    // The supervisor reads the arguments of the first execve(2) from this process.
    process::set_dumpable(true)
        .map_err(|error| Failure::new(Step::Privileges, "prctl(PR_SET_DUMPABLE)", &error))?;
    process::close_on_exec_from(3).map_err(|error| Failure::new(Step::Init, "close_range", &error))?;
    // The Rust runtime ignores it; programs expect the default.
    process::default_action(libc::SIGPIPE).map_err(|error| Failure::new(Step::Init, "sigaction", &error))?;
    spec.signal_mask
        .thread_set_mask()
        .map_err(|errno| Failure::new(Step::Init, "sigprocmask", &errno.into()))?;
    let [scoped, unscoped] = &spec.filters;
    let filter = if restricted.signals { scoped } else { unscoped };
    let listener = seccomp::install(filter).map_err(|error| Failure::new(Step::Filter, SECCOMP, &error))?;
    let message = Message::Ready { landlock: restricted.files }.encode();
    channel::send(channel.as_fd(), &message, &[listener.as_fd(), root.as_fd()])
        .map_err(|error| Failure::new(Step::Filter, "sendmsg", &error))?;
    drop(listener);
    // An empty message: the launcher is gone.
    match channel::receive(ends.go.as_fd()) {
        Ok((bytes, _)) if bytes == [super::message::GO] => Ok(()),
        Ok(_) => process::exit_now(125),
        Err(error) => Err(Failure::new(Step::Filter, "recvmsg", &error)),
    }
}
