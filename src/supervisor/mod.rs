//! The supervisor: what a system call of the run meets before the kernel carries it out.
//!
//! [`syscall_table`] classifies every call, [`filter`] turns the table into a seccomp program,
//! [`bpf`] is the assembler for it. [`Supervisor::run`] is the loop of one thread: it takes each
//! waiting call (`call`), finds the task (`task`) and the file in the run's root (`view`),
//! decides by the one table ([`access`]), carries the call out itself or refuses it
//! (`open`, `mutate`, `attributes`, `sockets`, `exec`), and records both.

mod absent;
mod absolute;
pub mod access;
mod arguments;
mod attributes;
mod beginning;
mod beside;
mod bind;
pub mod bpf;
mod call;
mod capture;
mod clock;
pub mod connections;
mod content;
mod controls;
mod create;
mod crossed;
mod denials;
mod destination;
mod devices;
mod digest;
mod directory;
mod dispatch;
mod diverted;
mod ending;
mod entry;
mod environment;
mod exec;
mod exec_event;
pub mod filter;
mod first_change;
mod hand_over;
mod hasher;
mod image;
mod init_words;
mod interpreters;
mod listing;
mod locks;
mod machine;
mod mutate;
mod names;
mod open;
mod outputs;
mod outside;
mod pending;
mod prepared;
mod read;
mod ready;
mod receiver;
mod remembered;
mod rename;
mod reopen;
mod request;
mod settled;
mod setup;
mod skip;
pub mod sockaddr;
mod sockets;
pub mod spelling;
mod status;
mod stop;
pub mod syscall_table;
mod system_files;
mod task;
mod terminal;
mod tracer;
mod turn;
mod unheard;
mod unix;
mod view;
mod waiter;
mod waiting;
mod written;
mod written_file;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::signalfd::SignalFd;

use self::access::AccessTable;
use self::beside::Directories;
use self::capture::Captures;
use self::clock::Clock;
pub use self::clock::{LeftOut, OPERATION as CLOCK_TAPE, TapeError, Tapes, Timeline};
use self::connections::Connections;
use self::controls::{Births, Following};
pub use self::controls::{Controls, Ids, Seed, TASK_IDS};
pub use self::denials::{Counted, Denials, is_probe};
pub use self::destination::{JudgeConnection, LeadLoopback, Loopback, RefusedConnection};
use self::digest::Digests;
pub use self::digest::sha256_of;
pub use self::diverted::DivertedRoots;
pub use self::ending::Ended;
pub use self::exec::{CommandTable, OwnProgram};
use self::first_change::FirstChanges;
use self::hand_over::HandOver;
use self::hasher::Hasher;
use self::image::Heads;
use self::listing::Listings;
pub use self::listing::{OPERATION as LISTED, Orders};
use self::machine::Machine;
pub use self::machine::{LONGEST_MACHINE_FILE, OPERATION as MACHINE, RecordedMachine};
pub use self::names::OPERATION as LINKS_IN;
use self::outputs::Outputs;
pub use self::outputs::{Course, OPERATION as OUTPUT_ORDER, OutputPipe};
pub use self::outside::{OPERATION as OUTSIDE_SIGNAL, OutsideSignal};
pub use self::prepared::Prepared;
use self::read::Grants;
pub use self::setup::{Finished, InitWords, Meanwhile, Refusal, Setup};
pub use self::skip::UnderWay;
use self::status::Statuses;
pub use self::status::{LONGEST_STATUSES, OPERATION as STATUSES, RecordedStatuses, StatusError};
pub use self::stop::Stop;
use self::system_files::SystemFiles;
use self::task::Tasks;
use self::view::View;
use self::written::WrittenFiles;
use crate::trace::{Event, Members, Recorder, Turn};

/// The supervisor of one run; lives on one thread, which is the tracer too (ptrace(2)).
pub struct Supervisor {
    listener: Arc<OwnedFd>,
    hand_over: HandOver,
    init: i32,
    access: AccessTable,
    command: CommandTable,
    recorder: Recorder,
    /// What is being written of an observation.
    observed: Members,
    grants: Grants,
    judge_connection: JudgeConnection,
    lead_loopback: LeadLoopback,
    connections: Arc<Connections>,
    signals: SignalFd,
    channel: OwnedFd,
    view: View,
    tasks: Tasks,
    system_files: SystemFiles,
    directories: Directories,
    heads: Heads,
    digests: Digests,
    written: WrittenFiles,
    first: Option<FirstChanges>,
    captures: Option<Captures>,
    listings: Listings,
    statuses: Statuses,
    machine: Machine,
    hasher: Hasher,
    denials: Denials,
    words: InitWords,
    pending: Vec<pending::Place>,
    /// What pid 1 said at the end.
    last_words: Option<Vec<u8>>,
    /// Nothing more is heard from pid 1.
    silent: bool,
    /// Nothing of the run is left but pid 1.
    ended: bool,
    sockets: unix::Sockets,
    /// Ports on which something inside has listened.
    served: HashSet<u16>,
    /// Tasks that are traced: they stop at their next exec event.
    seized: HashSet<i32>,
    /// What that event must show.
    expected: HashMap<i32, exec::Expected>,
    /// Processes that were killed for what they had started, until they are gone.
    doomed: HashSet<i32>,
    /// What `env` will start for a script, by process.
    follow_ups: HashMap<i32, Vec<OsString>>,
    /// Every task is followed, for the run is to be replayed.
    following: Option<Following>,
    /// Its clocks are under control as well.
    clock: Option<Clock>,
    /// Its waits are left out.
    skip: Option<skip::Skip>,
    /// Who writes to standard output and error.
    outputs: Outputs,
    /// When the run goes on for real, as long as it does not.
    turn: Option<Arc<Turn>>,
    /// Stopped tasks are left that were not looked at.
    more_stops: bool,
    /// The command's process, once it was seen.
    command_pid: Option<i32>,
    /// Threads that wait in place of tasks.
    waiting: waiting::Waiting,
    /// When they were looked after.
    looked: Instant,
    /// Signals that came before the command's process was seen.
    early_signals: Vec<i32>,
    /// A signal came that was meant to end the run.
    interrupted: bool,
    /// Signals from outside.
    outside: outside::Signals,
    /// Tasks that are made.
    births: Births,
    /// Why the command was not started, while it was not.
    first_refusal: Option<Refusal>,
    started: bool,
    /// Looked at before the command begins.
    meanwhile: Option<Meanwhile>,
}

impl Supervisor {
    /// Serves until nothing of the run is left but pid 1, which then ends as well.
    ///
    /// # Errors
    /// Why the run must be stopped. The caller kills it before it drops the supervisor: a call that
    /// waits would be answered then, by ENOSYS.
    pub fn run(&mut self) -> Result<Finished, Stop> {
        waiter::prepare()?;
        self.note_machine()?;
        let mut listening = true;
        loop {
            let ready = self.wait(listening)?;
            self.take_turn()?;
            let quiet = ready.is_nothing();
            self.look_after_waiters();
            self.look_after_unnamed();
            self.next_birth()?;
            if let Some(following) = &mut self.following {
                following.feeds.serve(&ready.devices);
            }
            if ready.written {
                self.settle()?;
            }
            if ready.closed {
                listening = false;
            } else if ready.call {
                self.serve_one()?;
            }
            self.serve_held()?;
            if self.recorder.failed() {
                self.recorder.record(Event::new(crate::trace::Kind::Meta, "run.stop"))?;
            }
            if ready.channel && !self.silent {
                let words = self.hear()?;
                self.heed(words);
            }
            // Pid 1 tells when all others have ended; where it was killed, its own end does.
            if ((ready.signal || self.more_stops) && self.handle_signal()?) || self.ended {
                break;
            }
            self.skip_waits(quiet)?;
            self.give_due_signals()?;
        }
        self.hear_last_signals();
        self.tell_ids()?;
        self.tell_order()?;
        self.written.finish(&self.view, &mut self.digests, &self.recorder)?;
        let closed = self.written.take_closed();
        self.note_settled(closed);
        self.record_lists()?;
        self.keep_statuses(true)?;
        self.hasher.finish();
        if self.last_words.is_none() {
            self.last_words = Some(self.hear()?);
        }
        Ok(Finished {
            last_words: self.last_words.take(),
            denials: std::mem::take(&mut self.denials),
            interrupted: self.interrupted,
            ended_by: self.outside.ended_by,
            left_out: self.clock.as_ref().map(Clock::left_out).unwrap_or_default(),
            first_refusal: self.first_refusal.take(),
        })
    }

    /// Checks what was left to be checked before anything of the run begins.
    fn check_meanwhile(&mut self) -> Result<(), Stop> {
        self.meanwhile.take().map_or(Ok(()), |check| check().map_err(Stop::Meanwhile))
    }

    /// Records the files that were closed after writing.
    fn settle(&mut self) -> Result<(), Stop> {
        let started = Instant::now();
        self.written.settle(&mut self.digests, &self.recorder)?;
        let closed = self.written.take_closed();
        self.note_settled(closed);
        self.hand_over.worked(started.elapsed());
        Ok(())
    }
}
