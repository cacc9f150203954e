//! The launcher's side: clone, tell the plan, hear what was set up, let the command go.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Pid, getegid, geteuid};

use super::child::{self, Ends};
use super::diverted::Layers;
use super::failure::{self, RunError};
use super::inherited::Inherited;
use super::message::{GO, Message};
use super::order::{self, Cell, Start};
use super::processors;
use super::stdio::{Input, Outputs, Stdio};
use crate::fsview::{self, Door};
use crate::netproxy::tls::{Intention, Interception};
use crate::ns::handoff::{self, Role};
use crate::ns::net::{Mechanism, NetSockets};
use crate::ns::{self, channel, time};
use crate::plan::LaunchPlan;
use crate::sys::clock::ClockBase;
use crate::sys::{clone, pidfd, process};

/// A command that waits for the word to start.
#[derive(Debug)]
pub(super) struct Launched {
    /// Kills the run when it is dropped.
    pub(super) guard: KillOnDrop,
    pub(super) go: OwnedFd,
    pub(super) listener: OwnedFd,
    pub(super) landlock: bool,
    pub(super) stdio: Stdio,
}

/// The view of the run, which its processes are in.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) root: OwnedFd,
    /// In the order of the plan's sockets.
    pub(super) doors: Vec<Door>,
    /// What is written inside alone.
    pub(super) layers: Layers,
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

/// The run's first process, which makes its namespaces and waits for the plan. Nothing of a run has
/// begun; dropped, it is gone.
#[derive(Debug)]
pub struct Begun {
    init: i32,
    guard: KillOnDrop,
    channel: OwnedFd,
    go: OwnedFd,
    sockets: OwnedFd,
    stdio: Stdio,
    ahead: i64,
    /// Its clocks go on from those of another run.
    replayed: bool,
    /// What the launcher was started with.
    pub(super) inherited: Inherited,
    /// Pid 1 has left the old root.
    entered: bool,
}

/// What a run that is replayed has of the recorded one from its first moment on.
#[derive(Debug)]
pub struct Former {
    /// Its clocks go on from there.
    pub clock: ClockBase,
    /// User and group.
    pub ids: Option<(u32, u32)>,
    /// What the command inherited, where that is known.
    pub inherited: Option<Inherited>,
}

/// Clones the run's first process, before the plan is made: the two go on beside each other. The
/// process must have one thread, and no signals held back. A run that is replayed is like `former`.
///
/// # Errors
/// Why the host does not let it be made.
pub fn begin(former: Option<Former>, input: Input, outputs: Outputs) -> Result<Begun, RunError> {
    own_proc()?;
    let here = Inherited::here().map_err(RunError::call("getrlimit"))?;
    hold_many_descriptors().map_err(RunError::call("setrlimit(RLIMIT_NOFILE)"))?;
    let (channel, theirs) = channel::pair().map_err(RunError::call("socketpair"))?;
    let (go, their_go) = channel::pair().map_err(RunError::call("socketpair"))?;
    let (sockets, their_sockets) = channel::pair().map_err(RunError::call("socketpair"))?;
    let (stdio, their_stdio) = Stdio::prepare(input, outputs)?;
    let own_pid =
        i32::try_from(std::process::id()).map_err(std::io::Error::other).map_err(RunError::call("getpid"))?;
    let launcher = pidfd::open(own_pid).map_err(RunError::call("pidfd_open"))?;
    let offsets = former
        .as_ref()
        .map(|former| time::Offsets::to(former.clock))
        .transpose()
        .map_err(RunError::call("clock_gettime"))?;
    let replayed = offsets.is_some();
    let ahead = offsets.map_or(0, |offsets| offsets.monotonic);
    // Before the clone: without a map the clone has none.
    let ids = (geteuid().as_raw(), getegid().as_raw());
    let shown_ids = former.as_ref().and_then(|former| former.ids).unwrap_or(ids);
    let its = former.and_then(|former| former.inherited);
    let has_own_signals = its.is_some();
    let inherited = its.map_or_else(|| here.clone(), |its| its.within(&here).0);
    let processors = processors::own().map_err(RunError::call("sched_getaffinity"))?;
    let side = clone_apart()?;
    let ends = Ends {
        channel: theirs,
        go: their_go,
        sockets: their_sockets,
        launcher,
        stdio: their_stdio,
        inherited,
        processors,
        has_own_signals,
        ids,
        shown_ids,
        offsets,
    };
    match side {
        clone::Side::Child => {
            // So that the end of the launcher is heard as an end.
            drop((channel, go, sockets, stdio));
            child::enter(&ends)
        }
        clone::Side::Parent { pid, pidfd } => Ok(Begun {
            init: pid,
            guard: KillOnDrop(pidfd),
            channel,
            go,
            sockets,
            stdio,
            ahead,
            replayed,
            inherited: here,
            entered: false,
        }),
    }
}

/// The maker of the clone goes on beside it.
fn clone_apart() -> Result<clone::Side, RunError> {
    let side = clone::clone_process(ns::cloned().bits()).map_err(failure::clone_refused)?;
    if let clone::Side::Parent { pid, .. } = side {
        processors::apart(Pid::from_raw(pid)).map_err(RunError::call("sched_setaffinity"))?;
    }
    Ok(side)
}

/// The launch needs a descriptor for each mount, the supervisor many for tasks and files; the command has the
/// former limit.
fn hold_many_descriptors() -> nix::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}

/// A run that is being built.
#[derive(Debug)]
pub(super) struct Launching {
    pub(super) begun: Begun,
    pub(super) tls: Option<Interception>,
}

/// Tells the run's first process the plan, and makes what reads its TLS. Who writes its outputs is noted where
/// `orders_outputs` says so, or one of them ends.
pub(super) fn launch(
    begun: Begun,
    plan: &LaunchPlan,
    tls: Option<Intention>,
    orders_outputs: bool,
) -> Result<Launching, RunError> {
    order::tell(begun.channel.as_fd(), &Cell::of(plan))?;
    // While the child copies the same places.
    order::tell(begun.channel.as_fd(), &fsview::look(&plan.fs)?)?;
    // Its key is made while the view is.
    let tls = tls.map(Intention::carry_out).transpose().map_err(RunError::Proxy)?;
    let authority = tls.as_ref().map_or("", |tls| tls.authority.certificate_pem());
    // The view waits for them; the command's process waits for the view.
    order::tell_contents(begun.channel.as_fd(), plan.fs.taken_over(), authority)?;
    order::tell(begun.go.as_fd(), &Start::of(plan)?)?;
    // Wherever they lead: those of its children may lead to itself.
    let pipes = match orders_outputs {
        true => [true; 2],
        false if begun.stdio.has_end() => begun.stdio.pipes(),
        false => [false; 2],
    };
    order::tell_filters(begun.go.as_fd(), plan, (begun.replayed, pipes))?;
    Ok(Launching { begun, tls })
}

impl Begun {
    /// Ends it, as if it had never begun.
    ///
    /// # Errors
    /// The errno of setrlimit(2).
    pub fn take_back(self) -> Result<(), RunError> {
        let former = self.inherited.descriptors();
        drop(self);
        let Some((soft, hard)) = former else { return Ok(()) };
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(RunError::call("setrlimit(RLIMIT_NOFILE)"))
    }

    /// Pid 1 of the run.
    pub(super) fn handle(&self) -> std::io::Result<OwnedFd> {
        self.guard.as_fd().try_clone_to_owned()
    }

    /// What the child says next, if that is no failure.
    fn hear(&self) -> Result<(Message, Vec<OwnedFd>), RunError> {
        let received = match channel::receive(self.channel.as_fd()) {
            // It ended without taking all that it was told; what it said before is still there.
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => {
                channel::receive(self.channel.as_fd())
            }
            other => other,
        };
        let (bytes, descriptors) = received.map_err(RunError::call("recvmsg"))?;
        match Message::decode(&bytes) {
            Some(Message::Failed(failure)) => Err(failure::explain(&failure, None)),
            Some(message) => Ok((message, descriptors)),
            None => Err(RunError::Silent),
        }
    }

    /// Pid 1 of the run, as we see it.
    pub(super) fn init(&self) -> i32 {
        self.init
    }

    /// What its time namespace adds to CLOCK_MONOTONIC, in nanoseconds.
    pub(super) fn ahead(&self) -> i64 {
        self.ahead
    }

    /// The command's standard input, output and error.
    pub(super) fn stdio(&self) -> &Stdio {
        &self.stdio
    }

    /// Where pid 1 is spoken with.
    pub(super) fn channel(&self) -> std::io::Result<OwnedFd> {
        self.channel.try_clone()
    }

    /// Where pid 1 makes sockets when it is asked, if the plan needs any.
    pub(super) fn dialler(&self) -> std::io::Result<OwnedFd> {
        self.sockets.try_clone()
    }

    /// Waits until its network is there.
    pub(super) fn network(&mut self) -> Result<NetSockets, RunError> {
        let (said, descriptors) = self.hear()?;
        let Message::Sockets = said else { return Err(RunError::Silent) };
        self.stdio.settle_input(descriptors.into_iter().next());
        let sockets = NetSockets::receive(&self.sockets).map_err(RunError::Network)?;
        // Its ids are mapped: from now on nobody reads the launcher's memory.
        process::set_dumpable(false).map_err(RunError::call("prctl(PR_SET_DUMPABLE)"))?;
        Ok(sockets)
    }

    /// Waits until the command's process is in the view.
    pub(super) fn view(&mut self) -> Result<Entered, RunError> {
        let descriptors = loop {
            match self.hear()? {
                (Message::View, descriptors) => break descriptors,
                (Message::Entered, _) => self.entered = true,
                _ => return Err(RunError::Silent),
            }
        };
        let Ok([root]) = <[OwnedFd; 1]>::try_from(descriptors) else { return Err(RunError::Silent) };
        let (doors, layers) = receive_doors(&self.sockets)?;
        Ok(Entered { root, doors, layers })
    }

    /// Waits until the command is ready, and pid 1 as well; after [`view`](Self::view).
    pub(super) fn finish(mut self) -> Result<Launched, RunError> {
        let mut ready = None;
        let (landlock, descriptors) = loop {
            match (ready.take(), self.entered) {
                (Some(ready), true) => break ready,
                (unready, _) => ready = unready,
            }
            match self.hear()? {
                (Message::Ready { landlock }, descriptors) => ready = Some((landlock, descriptors)),
                (Message::Entered, _) => self.entered = true,
                _ => return Err(RunError::Silent),
            }
        };
        let Ok([listener]) = <[OwnedFd; 1]>::try_from(descriptors) else { return Err(RunError::Silent) };
        let Self { guard, go, stdio, .. } = self;
        Ok(Launched { guard, go, listener, landlock, stdio })
    }
}

/// Receives what the child handed over before it was ready.
fn receive_doors(sockets: &OwnedFd) -> Result<(Vec<Door>, Layers), RunError> {
    let mut fds = handoff::recv_fds(sockets).map_err(RunError::call("recvmsg"))?.into_iter();
    let (mut doors, mut layers) = (Vec::new(), Layers::default());
    while let Some((role, first)) = fds.next() {
        match role {
            Role::Unix(at) if usize::from(at) == doors.len() => match fds.next() {
                Some((Role::UnixFile(same), file)) if at == same => {
                    doors.push(Door { listener: first, file })
                }
                _ => return Err(RunError::Silent),
            },
            Role::Upper(at) => layers.uppers.push((usize::from(at), first)),
            Role::Holder(_) => layers.holders.push(first),
            _ => return Err(RunError::Silent),
        }
    }
    Ok((doors, layers))
}

/// Memory, in bytes, that a run needs once it has started: blocks of the relays, stacks of threads.
const ROOM: usize = 8 << 20;

/// Looks for that room before the command starts: a launcher that found none later would have to end at once, and
/// end the run with it.
pub(super) fn look_for_room() -> Result<(), RunError> {
    let mut room = Vec::<u8>::new();
    if room.try_reserve_exact(ROOM).is_err() {
        return Err(RunError::call("mmap")(nix::Error::ENOMEM));
    }
    // Else the compiler may leave the allocation out.
    std::hint::black_box(&mut room);
    Ok(())
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
