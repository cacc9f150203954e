//! The launcher's side: clone, hear what was set up, let the command go.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;

use super::child::{self, ChildSpec, Ends};
use super::failure::{self, RunError};
use super::message::{GO, Message};
use super::stdio::Stdio;
use crate::fsview::{Door, Source};
use crate::ns::handoff::{self, Role};
use crate::ns::net::{Mechanism, NetSockets};
use crate::ns::{self, channel};
use crate::plan::LaunchPlan;
use crate::supervisor::filter::{FilterOptions, compile};
use crate::sys::{clone, pidfd, process};

/// A command that waits for the word to start.
#[derive(Debug)]
pub(super) struct Launched {
    /// Pid 1 of the run, as we see it.
    pub(super) init: i32,
    /// Kills the run when it is dropped.
    pub(super) guard: KillOnDrop,
    pub(super) channel: OwnedFd,
    pub(super) go: OwnedFd,
    /// Pid 1 makes sockets when it is asked here.
    pub(super) dialler: Option<OwnedFd>,
    pub(super) listener: OwnedFd,
    pub(super) root: OwnedFd,
    pub(super) sockets: NetSockets,
    /// In the order of the plan's sockets.
    pub(super) doors: Vec<Door>,
    pub(super) landlock: bool,
    pub(super) stdio: Stdio,
}

/// How connections are captured, for the trace.
pub(super) fn capture(sockets: &NetSockets) -> String {
    match sockets.mechanism {
        Mechanism::Tproxy => "tproxy".to_owned(),
        Mechanism::Ports { errno } => format!("ports (nf_tables: errno {errno})"),
    }
}

/// Longest wait for the end of a killed run, in milliseconds: a process that waits for a disk dies later.
const DYING: u16 = 1000;

/// Whatever way the launcher leaves, nothing of the run stays.
#[derive(Debug)]
pub(super) struct KillOnDrop(OwnedFd);

impl AsFd for KillOnDrop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Ended already: ESRCH.
        let _ = pidfd::kill(self.0.as_fd());
        // Pid 1 ends after all others (pid_namespaces(7)): none goes on when its calls are no longer judged.
        let _ = poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], PollTimeout::from(DYING));
    }
}

/// Clones the run's first process and waits until its command is ready.
pub(super) fn launch(
    plan: &LaunchPlan,
    signal_mask: SigSet,
    descriptors: (u64, u64),
) -> Result<Launched, RunError> {
    own_proc()?;
    let spec = child_spec(plan, signal_mask, descriptors)?;
    let (ours, theirs) = channel::pair().map_err(RunError::call("socketpair"))?;
    let (our_go, their_go) = channel::pair().map_err(RunError::call("socketpair"))?;
    let (our_sockets, their_sockets) = channel::pair().map_err(RunError::call("socketpair"))?;
    let (dialler, their_dialler) = match plan.net.published.is_empty() {
        true => (None, None),
        false => channel::pair()
            .map(|(ours, theirs)| (Some(ours), Some(theirs)))
            .map_err(RunError::call("socketpair"))?,
    };
    let (mut stdio, their_stdio) = Stdio::prepare()?;
    let own_pid =
        i32::try_from(std::process::id()).map_err(std::io::Error::other).map_err(RunError::call("getpid"))?;
    let launcher = pidfd::open(own_pid).map_err(RunError::call("pidfd_open"))?;
    let flags = ns::all().bits();
    let side = clone::clone_process(flags).map_err(failure::clone_refused)?;
    let (init, init_fd) = match side {
        clone::Side::Child => {
            let ends = Ends {
                channel: theirs,
                go: their_go,
                sockets: their_sockets,
                dialler: their_dialler,
                launcher,
                stdio: their_stdio,
            };
            child::enter(&spec, &ends)
        }
        clone::Side::Parent { pid, pidfd } => (pid, pidfd),
    };
    let guard = KillOnDrop(init_fd);
    drop((theirs, their_go, their_sockets, their_dialler, launcher, their_stdio, spec));
    let Heard { listener, root, landlock, sockets } = hear(&ours, &our_sockets, &mut stdio)?;
    let doors = receive_doors(&our_sockets)?;
    Ok(Launched {
        init,
        guard,
        channel: ours,
        go: our_go,
        dialler,
        listener,
        root,
        sockets,
        doors,
        landlock,
        stdio,
    })
}

/// What the child says before the command waits.
struct Heard {
    listener: OwnedFd,
    root: OwnedFd,
    landlock: bool,
    sockets: NetSockets,
}

/// Listens until the command's process is ready, or something failed.
fn hear(channel: &OwnedFd, handed: &OwnedFd, stdio: &mut Stdio) -> Result<Heard, RunError> {
    let mut sockets = None;
    loop {
        let (bytes, descriptors) = channel::receive(channel.as_fd()).map_err(RunError::call("recvmsg"))?;
        match Message::decode(&bytes) {
            Some(Message::Sockets) => {
                stdio.settle_input(descriptors.into_iter().next());
                sockets = Some(NetSockets::receive(handed).map_err(RunError::Network)?);
                // Its ids are mapped: from now on nobody reads the launcher's memory.
                process::set_dumpable(false).map_err(RunError::call("prctl(PR_SET_DUMPABLE)"))?;
            }
            Some(Message::Ready { landlock }) => {
                return match (<[OwnedFd; 2]>::try_from(descriptors), sockets) {
                    (Ok([listener, root]), Some(sockets)) => Ok(Heard { listener, root, landlock, sockets }),
                    _ => Err(RunError::Silent),
                };
            }
            Some(Message::Failed(failure)) => return Err(failure::explain(&failure, None)),
            Some(Message::End(_)) | None => return Err(RunError::Silent),
        }
    }
}

/// Receives what the child handed over before it was ready.
fn receive_doors(sockets: &OwnedFd) -> Result<Vec<Door>, RunError> {
    let mut fds = handoff::recv_fds(sockets).map_err(RunError::call("recvmsg"))?.into_iter();
    let mut doors = Vec::new();
    while let Some((role, listener)) = fds.next() {
        match (role, fds.next()) {
            (Role::Unix(at), Some((Role::UnixFile(same), file)))
                if at == same && usize::from(at) == doors.len() =>
            {
                doors.push(Door { listener, file });
            }
            _ => return Err(RunError::Silent),
        }
    }
    Ok(doors)
}

/// Tells the command's process to execute the command.
pub(super) fn go(channel: &OwnedFd) -> Result<(), RunError> {
    channel::send(channel.as_fd(), &[GO], &[]).map_err(RunError::call("sendmsg"))
}

/// The supervisor looks at the run's processes through /proc: that of another pid namespace would
/// show strangers under their numbers.
fn own_proc() -> Result<(), RunError> {
    let shown = nix::fcntl::readlink("/proc/self").map_err(|errno| RunError::Proc(errno.to_string()))?;
    if shown == OsStr::new(&std::process::id().to_string()) {
        Ok(())
    } else {
        Err(RunError::Proc("it is the /proc of another pid namespace".to_owned()))
    }
}

fn child_spec(
    plan: &LaunchPlan,
    signal_mask: SigSet,
    descriptors: (u64, u64),
) -> Result<ChildSpec, RunError> {
    let sources = plan.fs.mounts.iter().map(Source::open).collect::<Result<Vec<_>, _>>()?;
    let full_mediation = plan.access.policy.full_mediation();
    let filter = |signals_are_scoped| -> Result<Vec<_>, RunError> {
        let options = FilterOptions { full_mediation, signals_are_scoped };
        let program = compile(options).map_err(RunError::Filter)?;
        Ok(program.iter().map(|one| (one.code, one.jt, one.jf, one.k)).collect())
    };
    let filters = [filter(true)?, filter(false)?];
    let process = &plan.process;
    let env = process.env.iter().map(|(name, value)| {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        c_string(&variable)
    });
    Ok(ChildSpec {
        uid: process.uid,
        gid: process.gid,
        hostname: process.hostname.clone(),
        fs: plan.fs.with_contents()?,
        sources,
        unix: plan.unix.clone(),
        net: plan.net.clone(),
        landlock: plan.landlock.clone(),
        filters,
        cwd: process.cwd.clone(),
        program: c_string(process.program.as_os_str())?,
        argv: process.argv.iter().map(|word| c_string(word)).collect::<Result<_, _>>()?,
        env: env.collect::<Result<_, _>>()?,
        signal_mask,
        descriptors,
    })
}

fn c_string(text: &OsStr) -> Result<CString, RunError> {
    CString::new(text.as_bytes()).map_err(|_| RunError::ZeroByte)
}
