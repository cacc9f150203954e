//! The ordered list of what the cloned child does before the command runs.
//!
//! Everything here happens in a copy of the single-threaded launcher; it ends by `_exit`.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::CpuSet;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::inherited::Inherited;
use super::message::{Failure, Message, Step};
use super::order::{self, Cell, Start};
use super::processors;
use super::signals;
use super::stdio::CommandEnds;
use crate::fsview::{self, Diverted, Door, Draft, Pending};
use crate::ns::handoff::{self, Role};
use crate::ns::net::{self, Prepared};
use crate::ns::{self, channel, idmap, init, privileges, time};
use crate::plan;
use crate::sys::descriptor::mount_id;
use crate::sys::refused::Refused;
use crate::sys::{clone, process, seccomp};

const SECCOMP: &str = "seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER|SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)";

/// The child's ends of what connects it with the launcher.
#[derive(Debug)]
pub(super) struct Ends {
    /// Messages both ways.
    pub(super) channel: OwnedFd,
    /// The launcher's word that the command may start comes in here: pid 1 reads the channel.
    pub(super) go: OwnedFd,
    /// The sockets of the network namespace go out here.
    pub(super) sockets: OwnedFd,
    /// A pidfd of the launcher.
    pub(super) launcher: OwnedFd,
    /// What the command gets as descriptors 0, 1 and 2 in place of the launcher's.
    pub(super) stdio: CommandEnds,
    /// What the command gets of what the launcher was started with.
    pub(super) inherited: Inherited,
    /// What the launcher may run on.
    pub(super) processors: CpuSet,
    /// Signals are other ones than the launcher's.
    pub(super) has_own_signals: bool,
    /// The launcher's user and group.
    pub(super) ids: (u32, u32),
    /// What they are inside.
    pub(super) shown_ids: (u32, u32),
    /// What the command's clocks differ by from the machine's, in a replay.
    pub(super) offsets: Option<time::Offsets>,
}

/// Runs as pid 1 of the new namespaces; never returns.
pub(super) fn enter(ends: &Ends) -> ! {
    let channel = &ends.channel;
    let code = match begin(ends).and_then(|begun| carry_on(begun, ends)) {
        Ok(()) => 0,
        Err(failure) => {
            // Nobody is left to tell when this fails: the launcher sees the end of the channel.
            let _ = channel::send(channel.as_fd(), &Message::Failed(failure).encode(), &[]);
            125
        }
    };
    process::exit_now(code)
}

/// What is there before the plan is.
struct Begun {
    /// The command's process, which waits for the view.
    command: Pid,
    /// Tells it that the view is there.
    word: OwnedFd,
    /// The file that is standard input, if it is one.
    input: Option<OwnedFd>,
    network: Prepared,
    /// What the view is likely to have.
    draft: Option<Draft>,
    /// In a replay, says which ids tasks get; not where the host does not let it.
    last_id: Option<OwnedFd>,
}

/// What needs no plan: it is made meanwhile.
fn begin(ends: &Ends) -> Result<Begun, Failure> {
    let mask = signals::hold_in_child().map_err(|error| Failure::text(Step::Init, &error))?;
    process::die_with_parent()
        .map_err(|error| Failure::new(Step::DeathSignal, "prctl(PR_SET_PDEATHSIG)", &error))?;
    ns::unshare_others()
        .map_err(|errno| Failure::new(Step::Namespaces, ns::UNSHARE_OTHERS, &errno.into()))?;
    idmap::write(ends.shown_ids, ends.ids).map_err(|error| Failure::text(Step::IdMap, &error))?;
    // From here on 0, 1 and 2 are the command's; pid 1 closes them.
    let input = ends.stdio.install().map_err(|errno| Failure::new(Step::Stdio, "dup2", &errno.into()))?;
    ends.inherited.give_niceness().map_err(|error| Failure::new(Step::Limits, "setpriority", &error))?;
    // While its own files in /proc are still its own (proc(5), "dumpable").
    if let Some(offsets) = ends.offsets {
        offsets.enter().map_err(|error| Failure::new(Step::Namespaces, time::UNSHARE, &error))?;
    }
    let last_id = ends.offsets.and_then(|_| init::open_last_id().ok());
    // Before the fork: no process of the run ever sees a pid 1 that it could look into.
    process::set_dumpable(false)
        .map_err(|error| Failure::new(Step::Init, "prctl(PR_SET_DUMPABLE)", &error))?;
    let (word, its_word) =
        channel::pair().map_err(|errno| Failure::new(Step::Init, "socketpair", &errno.into()))?;
    let side = clone::clone_process(0).map_err(|error| Failure::text(Step::Init, &error))?;
    let command = match side {
        clone::Side::Child => {
            drop((word, input, last_id));
            command_process(&mask, ends, its_word)
        }
        clone::Side::Parent { pid, .. } => Pid::from_raw(pid),
    };
    drop(its_word);
    let network = net::prepare().map_err(|error| Failure::text(Step::Network, &error))?;
    // A replay diverts what is written.
    let draft = ends
        .offsets
        .is_none()
        .then(|| Draft::make(plan::likely_mounts(ends.shown_ids), plan::possible_mounts()))
        .flatten();
    Ok(Begun { command, word, input, network, draft, last_id })
}

/// Builds what the plan says, then serves as init.
fn carry_on(begun: Begun, ends: &Ends) -> Result<(), Failure> {
    let Begun { command, word, input, network, draft, last_id } = begun;
    let cell: Cell<'_> = order::hear(ends.channel.as_fd())?;
    if (cell.uid, cell.gid) != ends.shown_ids {
        // The ids are mapped already, and no others can be (user_namespaces(7)).
        return Err(Failure::new(Step::IdMap, "write(/proc/self/uid_map)", &Errno::EPERM.into()));
    }
    nix::unistd::sethostname(cell.hostname.as_ref())
        .map_err(|errno| Failure::new(Step::Hostname, "sethostname", &errno.into()))?;
    let (sockets, other) =
        net::setup(network, &cell.net).map_err(|error| Failure::text(Step::Network, &error))?;
    sockets.send(&ends.sockets).map_err(|error| Failure::text(Step::Network, &error))?;
    let input: Vec<_> = input.iter().map(AsFd::as_fd).collect();
    channel::send(ends.channel.as_fd(), &Message::Sockets.encode(), &input)
        .map_err(|error| Failure::new(Step::Network, "sendmsg", &error))?;
    drop(sockets);
    let pending = build_view(&cell, draft, (&word, other), ends)?;
    // Where the sockets went out, requests for more come in, if there can be any.
    let dialler = (!cell.net.published.is_empty()).then_some(&ends.sockets);
    become_init(ends, dialler.into_iter().chain(&last_id), &pending)
        .map_err(|error| Failure::text(Step::Init, &error))?;
    channel::send(ends.channel.as_fd(), &Message::Entered.encode(), &[])
        .map_err(|error| Failure::new(Step::Init, "sendmsg", &error))?;
    let mut attach =
        |index| pending.attach(index).map_err(|error| error.source.raw_os_error().unwrap_or(libc::EIO));
    let dialler = dialler.map(AsFd::as_fd);
    let served =
        init::run(command, &ends.launcher, ends.channel.as_fd(), dialler, (&mut attach, last_id.as_ref()));
    // Its descriptors were closed behind the back of their owners: none of them is dropped.
    process::exit_now(if served.is_ok() { 0 } else { 125 })
}

fn build_view(
    cell: &Cell<'_>,
    draft: Option<Draft>,
    (word, network): (&OwnedFd, Option<OwnedFd>),
    ends: &Ends,
) -> Result<Pending, Failure> {
    let view = |error| Failure::text(Step::View, &error);
    let draft = draft.and_then(|draft| draft.of(&cell.fs));
    let copies = Draft::copies(draft.as_ref(), &cell.fs).map_err(view)?;
    copies.check(&cell.fs, &order::hear::<Vec<_>>(ends.channel.as_fd())?).map_err(view)?;
    let mut heard = None;
    let told = (ends.channel.as_fd(), &*cell.fs);
    let mut contents = |number, file: &mut File| order::Contents::write(&mut heard, told, number, file);
    let built = fsview::build(&cell.fs, copies, draft, &mut contents, &cell.unix).map_err(view)?;
    hand_over(cell, built.doors, built.diverted, &ends.sockets)
        .map_err(|error| Failure::new(Step::View, "sendmsg", &error))?;
    fsview::enter(&built.root).map_err(view)?;
    // The command's process goes on while the old root is left behind.
    let root = mount_id(built.root.as_fd()).map_err(|error| Failure::new(Step::View, "statx", &error))?;
    let network: Vec<_> = network.iter().map(AsFd::as_fd).collect();
    channel::send(word.as_fd(), &root.to_le_bytes(), &network)
        .map_err(|error| Failure::new(Step::View, "sendmsg", &error))?;
    fsview::leave_old_root().map_err(view)?;
    // Only the command reads them, and that does not start before the launcher has heard of this process again.
    built.unwritten.into_iter().try_for_each(|file| file.write(&mut contents)).map_err(view)?;
    Ok(built.pending)
}

fn hand_over(
    cell: &Cell<'_>,
    doors: Vec<Door>,
    diverted: Diverted,
    sockets: &OwnedFd,
) -> std::io::Result<()> {
    let doors = (0u16..).zip(doors);
    let doors =
        doors.flat_map(|(at, door)| [(Role::Unix(at), door.listener), (Role::UnixFile(at), door.file)]);
    let roots = cell.fs.divert.iter().flat_map(|divert| &divert.roots).collect::<Vec<_>>();
    let layers = diverted.layers.into_iter().filter_map(|(place, layer)| {
        let at = roots.iter().position(|root| **root == place)?;
        Some((Role::Upper(u16::try_from(at).ok()?), layer))
    });
    let holders = (0u16..).zip(diverted.holders).map(|(at, holder)| (Role::Holder(at), holder));
    handoff::send_fds(sockets, &doors.chain(layers).chain(holders).collect::<Vec<_>>())
}

/// Nothing of the launcher may be read back through /proc/1.
fn become_init<'a>(
    ends: &Ends,
    others: impl Iterator<Item = &'a OwnedFd>,
    pending: &Pending,
) -> Result<(), Refused> {
    process::wipe_words(b"agentbox").map_err(Refused::by("read(/proc/self/stat)"))?;
    let mut kept = vec![ends.channel.as_raw_fd(), ends.launcher.as_raw_fd()];
    kept.extend(others.map(AsRawFd::as_raw_fd));
    kept.extend(pending.descriptors().map(AsRawFd::as_raw_fd));
    kept.sort_unstable();
    process::close_all_but(&kept).map_err(Refused::by("close_range"))
}

/// The last steps before execve(2); never returns.
fn command_process(mask: &SigSet, ends: &Ends, word: OwnedFd) -> ! {
    let channel = &ends.channel;
    let failure = match confine(mask, ends, word) {
        Ok(ready) => {
            let Err(errno) = nix::unistd::execve(&ready.program, &ready.argv, &ready.env);
            Failure::new(Step::Exec, &ready.program.to_string_lossy(), &errno.into())
        }
        Err(failure) => failure,
    };
    // As above: without a channel there is nobody to tell.
    let _ = channel::send(channel.as_fd(), &Message::Failed(failure).encode(), &[]);
    process::exit_now(125)
}

/// What execve(2) gets.
struct Ready {
    program: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
}

fn confine(mask: &SigSet, ends: &Ends, word: OwnedFd) -> Result<Ready, Failure> {
    let channel = &ends.channel;
    let start: Start<'_> = order::hear(ends.go.as_fd())?;
    let filters = [order::hear_filter(ends.go.as_fd())?, order::hear_filter(ends.go.as_fd())?];
    let ready = Ready {
        program: order::c_string(start.program.into_os_string())?,
        argv: order::c_strings(&start.argv)?,
        env: order::c_strings(&start.env)?,
    };
    // While pid 1 builds the view.
    privileges::drop_bounding().map_err(|error| Failure::text(Step::Privileges, &error))?;
    let root = view_root(word)?;
    // The launcher looks around in it while this process gives up what it has.
    channel::send(channel.as_fd(), &Message::View.encode(), &[root.as_fd()])
        .map_err(|error| Failure::new(Step::View, "sendmsg", &error))?;
    drop(root);
    nix::unistd::chdir(start.cwd.as_path())
        .map_err(|errno| Failure::new(Step::WorkingDirectory, "chdir", &errno.into()))?;
    // The launcher has long moved pid 1 by now, and may have been at it when this process was made.
    processors::take_back(&ends.processors)
        .map_err(|errno| Failure::new(Step::Limits, "sched_setaffinity", &errno.into()))?;
    ends.inherited.give_limits().map_err(|errno| Failure::new(Step::Limits, "setrlimit", &errno.into()))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
        .map_err(|errno| Failure::new(Step::Limits, "setrlimit(RLIMIT_CORE)", &errno.into()))?;
    privileges::drop_all().map_err(|error| Failure::text(Step::Privileges, &error))?;
    process::no_new_privileges()
        .map_err(|error| Failure::new(Step::Privileges, "prctl(PR_SET_NO_NEW_PRIVS)", &error))?;
    let restricted =
        fsview::restrict(&start.landlock).map_err(|error| Failure::text(Step::Landlock, &error))?;
    // The supervisor reads the arguments of the first execve(2) from this process.
    process::set_dumpable(true)
        .map_err(|error| Failure::new(Step::Privileges, "prctl(PR_SET_DUMPABLE)", &error))?;
    if start.fixed_addresses {
        process::fix_addresses()
            .map_err(|error| Failure::new(Step::Init, "personality(ADDR_NO_RANDOMIZE)", &error))?;
    }
    process::close_on_exec_from(3).map_err(|error| Failure::new(Step::Init, "close_range", &error))?;
    // The Rust runtime ignores it; programs expect the default.
    process::default_action(libc::SIGPIPE).map_err(|error| Failure::new(Step::Init, "sigaction", &error))?;
    let mut mask = *mask;
    if ends.has_own_signals {
        let given = ends.inherited.give_signals(&mut mask);
        given.map_err(|error| Failure::new(Step::Init, "sigaction", &error))?;
    }
    mask.thread_set_mask().map_err(|errno| Failure::new(Step::Init, "sigprocmask", &errno.into()))?;
    let [scoped, unscoped] = &filters;
    let filter = if restricted.signals { scoped } else { unscoped };
    let listener = seccomp::install(filter).map_err(|error| Failure::new(Step::Filter, SECCOMP, &error))?;
    let message = Message::Ready { landlock: restricted.files }.encode();
    channel::send(channel.as_fd(), &message, &[listener.as_fd()])
        .map_err(|error| Failure::new(Step::Filter, "sendmsg", &error))?;
    drop(listener);
    // An empty message: the launcher is gone.
    match channel::receive(ends.go.as_fd()) {
        Ok((bytes, _)) if bytes == [super::message::GO] => Ok(ready),
        Ok(_) => process::exit_now(125),
        Err(error) => Err(Failure::new(Step::Filter, "recvmsg", &error)),
    }
}

/// Waits for the view, in which pivot_root(2) of pid 1 has put this process too, and looks whether it has.
fn view_root(word: OwnedFd) -> Result<OwnedFd, Failure> {
    let failed = |call: &'static str| move |error| Failure::new(Step::View, call, &error);
    let (expected, network) = channel::receive(word.as_fd()).map_err(failed("recvmsg"))?;
    if expected.is_empty() {
        // Pid 1 is gone; it has said why.
        process::exit_now(125);
    }
    for other in network {
        net::follow(other.as_fd()).map_err(|errno| Failure::new(Step::Network, "setns", &errno.into()))?;
    }
    let root = nix::fcntl::open("/", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| Failure::new(Step::View, "open(/)", &errno.into()))?;
    if mount_id(root.as_fd()).map_err(failed("statx"))?.to_le_bytes().as_slice() != expected {
        return Err(Failure::new(Step::View, "open(/)", &Errno::ESTALE.into()));
    }
    Ok(root)
}
