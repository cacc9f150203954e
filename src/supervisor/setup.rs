//! What a supervisor is told at its start, and what it tells at its end.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use nix::sys::signalfd::SignalFd;
use nix::sys::socket::SockType;

use super::access::AccessTable;
use super::clock::{Clock, LeftOut, Tapes, Timeline};
use super::connections::Connections;
use super::controls::{Births, Controls, Following};
use super::denials::Denials;
use super::destination::{JudgeConnection, LeadLoopback};
use super::diverted::DivertedRoots;
use super::ending::Ended;
use super::exec::CommandTable;
use super::outputs::{OutputPipe, Outputs};
use super::outside;
use super::skip::{Skip, UnderWay};
use crate::policy::FileId;
use crate::sys::refused::Refused;
use crate::trace::{Recorder, Turn};

/// The words in which pid 1 is asked to do something inside, and answers.
#[derive(Debug, Clone, Copy)]
pub struct InitWords {
    /// Asks to show a place, by its number in [`Setup::pending`].
    pub attach: fn(usize) -> [u8; 5],
    /// Asks to bind a socket, with this umask, to this address.
    pub bind: fn(u32, &[u8]) -> Vec<u8>,
    /// Asks to bind a socket to this address where no path leads.
    pub bind_apart: fn(&[u8]) -> Vec<u8>,
    /// Asks to say that this id of a task was the last that was given out.
    pub last_id: fn(i32) -> [u8; 5],
    /// Asks whether this signal came to pid 1 as well.
    pub heard: fn(i32) -> [u8; 5],
    /// Asks for a pair of connected sockets.
    pub pair: fn(SockType) -> [u8; 5],
    /// The errno in the answer to a request, 0 when it was done; `None` for another message.
    pub answer: fn(&[u8], &[u8]) -> Option<i32>,
    /// Whether a message says that nothing of the run is left but pid 1.
    pub is_end: fn(&[u8]) -> bool,
}

/// What the supervisor is told at its start.
pub struct Setup {
    /// Pid 1 of the run.
    pub init: i32,
    /// Mounts outside of it that standard input, output and error lead to.
    pub inherited: Vec<u64>,
    /// Those that are standard output and error.
    pub outputs: Vec<OutputPipe>,
    /// The pipe that is standard input as it is.
    pub input: Option<FileId>,
    /// The user and the group of the run, as it sees them.
    pub shown_ids: (u32, u32),
    /// Decides on files.
    pub access: AccessTable,
    /// Decides on the command's own programs.
    pub command: CommandTable,
    /// Where everything is recorded.
    pub recorder: Recorder,
    /// Decides on TCP connections: the refusal, if there is one.
    pub judge_connection: JudgeConnection,
    /// Leads TCP connections to loopback.
    pub lead_loopback: LeadLoopback,
    /// Which process a connection belongs to, for the proxy.
    pub connections: Arc<Connections>,
    /// Signals: SIGCHLD, and those that are forwarded.
    pub signals: SignalFd,
    /// Becomes readable when pid 1 has something to say.
    pub channel: OwnedFd,
    /// How pid 1 is asked to do something inside.
    pub words: InitWords,
    /// Places that a rule names and that do not exist yet.
    pub pending: Vec<PathBuf>,
    /// Sockets of the host that rules name, each with the file (O_PATH) of the socket of ours that
    /// is connected instead.
    pub relayed: Vec<(PathBuf, OwnedFd)>,
    /// The private state directory, if there is one.
    pub state: Option<OwnedFd>,
    /// Whether what was at each path before the run changed it is kept.
    pub keeps_former: bool,
    /// Whether the content of what it reads is kept.
    pub captures: bool,
    /// What is written inside alone: in a replay everything.
    pub diverted: DivertedRoots,
    /// There are some when the run is to be replayed.
    pub controls: Option<Controls>,
    /// There in a replay whose waits are left out.
    pub under_way: Option<UnderWay>,
    /// Whether what the run prints is not taken for now.
    pub is_unread: fn() -> bool,
    /// There in a replay that goes on for real.
    pub turn: Option<Arc<Turn>>,
    /// What must hold before anything of the run begins, and is looked at while the kernel loads the command.
    pub meanwhile: Option<Meanwhile>,
}

/// Says why the run does not begin.
pub type Meanwhile = Box<dyn FnOnce() -> Result<(), Box<dyn Error + Send + Sync>>>;

/// Why the command's own start was refused.
#[derive(Debug)]
pub enum Refusal {
    /// By what we hold against it.
    Policy(String),
    /// The host does not let us look at it.
    Host(Refused),
}

/// How a run went, as far as the supervisor knows.
#[derive(Debug)]
pub struct Finished {
    /// What pid 1 said at the end; `None` when it died before.
    pub last_words: Option<Vec<u8>>,
    /// What was refused.
    pub denials: Denials,
    /// A signal came that was meant to end the run.
    pub interrupted: bool,
    /// Why a replay was ended, if it did not end by itself.
    pub ended_by: Option<Ended>,
    /// Time that a replay has left out.
    pub left_out: LeftOut,
    /// Why the command was not started, if we were the reason.
    pub first_refusal: Option<Refusal>,
}

/// What a run that is to be replayed has under control.
pub(super) struct Controlled {
    pub(super) following: Option<Following>,
    pub(super) clock: Option<Clock>,
    pub(super) skip: Option<Skip>,
    pub(super) outputs: Outputs,
    pub(super) outside: outside::Signals,
    pub(super) births: Births,
}

impl Controlled {
    /// A replay has the signals, ends and ids of the recorded run beside the tapes of its clock. Waits are left out of it
    /// where `under_way` tells of what they may wait for.
    pub(super) fn by(setup: &mut Setup) -> Self {
        let (recorder, outputs) = (&setup.recorder, std::mem::take(&mut setup.outputs));
        let (controls, under_way) = (setup.controls.take(), setup.under_way.take());
        let is_unread = setup.is_unread;
        let (seed, mut timeline) = controls.map(|Controls { seed, clock }| (seed, clock)).unzip();
        let tapes = timeline.as_mut().and_then(|timeline: &mut Timeline| timeline.tapes.as_mut());
        let is_replay = tapes.is_some();
        let (signals, ends, ids, course) = tapes.map_or_else(Default::default, |tapes| {
            let Tapes { signals, ends, ids, course, .. } = tapes;
            (std::mem::take(signals), std::mem::take(ends), std::mem::take(ids), std::mem::take(course))
        });
        let mut clock = timeline.map(|timeline| Clock::new(timeline, recorder.clone()));
        let skip = clock.as_mut().filter(|_| is_replay).map(|clock| Skip::new(under_way, is_unread, clock));
        Self {
            following: seed.map(Following::new),
            clock,
            skip,
            outputs: Outputs::new(outputs, course),
            outside: outside::Signals::new(signals, ends),
            births: Births::new(ids),
        }
    }
}
