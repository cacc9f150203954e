//! The clock of a run that can be replayed.
//!
//! Every program gets an image in place of the kernel's vDSO ([`crate::sys::vdso`]) at its first instruction
//! (`visit`), in which each thread has a tape (`space`, `reel`): while recording, each read of a clock is put
//! onto it; in a replay each read is taken from it. Reads that reach the kernel as calls are answered from the
//! same tape (`raw`). Programs that read the clock in threads of their own as it happens (`kind`) have a clock
//! at real rate instead, set to the recorded time at the start of each program; their times of day alone are
//! on a tape, one for all threads (`days`). What Java code reads is on a tape for each thread all the same (`java`).
//!
//! One timeline lies under all clocks: nanoseconds of CLOCK_MONOTONIC. The others differ from it by what
//! they did when the run began.
//!
//! What the program's memory holds is never followed: it goes into the trace, and in a replay back to the
//! same program, as a time and nothing else.

mod advance;
mod arrivals;
mod control;
mod days;
mod interpreter;
mod java;
mod kind;
mod live;
mod marks;
mod points;
mod raw;
mod reel;
mod space;
mod strands;
mod symbols;
mod tapes;
mod visit;
mod waits;

use std::collections::HashMap;
use std::os::fd::OwnedFd;

pub use self::advance::LeftOut;
pub use self::tapes::{OPERATION, TapeError, Tapes};

use self::control::{Control, Mode};
use self::java::Methods;
pub(in crate::supervisor) use self::kind::{Pace, Text};
use self::reel::{Record, Reel, Replay};
use self::space::Lane;
use self::visit::ClockError;
use super::beginning::Beginning;
use crate::sys::clock::{self, ClockBase};
use crate::sys::tracee::VisitError;
use crate::sys::vdso::{self, BESIDE_LOOP, BY_CALLER, Functions, OF_INTERPRETER, OF_JAVA};
use crate::trace::{Event, Kind, Recorder, TraceError};

/// Where the run's timeline begins, and what it is replayed from.
#[derive(Debug)]
pub struct Timeline {
    /// The clocks at the start of the run; in a replay, of the recorded one.
    pub base: ClockBase,
    /// What the run's time namespace adds to the machine's CLOCK_MONOTONIC, in nanoseconds.
    pub ahead: i64,
    /// In a replay, the recorded tapes.
    pub tapes: Option<Tapes>,
}

/// What each kind of clock adds to the timeline (`image.c` numbers them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offsets([u64; 8]);

impl Offsets {
    fn of(base: ClockBase) -> Self {
        let real = base.realtime_ns.wrapping_sub(base.monotonic_ns);
        let boot = base.boottime_ns.wrapping_sub(base.monotonic_ns);
        Self([real, 0, real, 0, 0, real, 0, boot])
    }

    fn all(self) -> [u64; 8] {
        self.0
    }

    /// What is added for a kind of reads (`clock_of` in `image.c`).
    fn of_kind(self, kind: u8) -> u64 {
        let [by_caller, coarse_by_caller] = BY_CALLER;
        let clock = match kind {
            _ if OF_INTERPRETER.contains(&kind) => 1,
            BESIDE_LOOP => 1,
            _ if kind < by_caller => usize::from(kind),
            OF_JAVA => 1,
            _ if (coarse_by_caller..OF_JAVA).contains(&kind) => 5,
            _ => 0,
        };
        self.0.get(clock).copied().unwrap_or(0)
    }
}

/// Packed bytes of a part of a tape that are held in memory.
const PART: usize = 32 << 10;
/// Packed bytes of all tapes of a run. Whoever reads the clock without end gets the clock at real rate from
/// there on.
const MOST: u64 = 64 << 20;
/// The largest part that stands in its entry.
const INLINE: usize = 4 << 10;

/// A program.
#[derive(Debug)]
struct Program {
    control: Control,
    /// What all its threads see of CLOCK_REALTIME, where its clock goes at real rate.
    days: Option<Box<Thread>>,
    /// Threads of it have tapes all the same.
    has_readers: bool,
    /// What they run.
    methods: Box<Methods>,
    /// At which time of the kernel how much was left out, where its clock goes at real rate.
    skips: Vec<(u64, u64)>,
}

/// A thread of a program.
#[derive(Debug)]
struct Thread {
    process: i32,
    strand: String,
    lane: Option<Lane>,
    reel: Reel,
    /// The base of FS of the thread that made it, until it has run itself.
    made_at: Option<u64>,
}

/// The clocks of a run.
#[derive(Debug)]
pub(super) struct Clock {
    base: ClockBase,
    offsets: Offsets,
    ahead: i64,
    tapes: Option<Tapes>,
    recorder: Recorder,
    functions: Functions,
    programs: HashMap<i32, Program>,
    threads: HashMap<i32, Thread>,
    /// Threads of programs whose clock goes at real rate: what Java code reads.
    readers: HashMap<i32, Thread>,
    /// What the programs of interpreters ask, by where these lie.
    interpreters: HashMap<(u64, u64), interpreter::Functions>,
    /// Packed bytes in the trace.
    spent: u64,
    /// Tasks in a call that was translated.
    waits: HashMap<i32, waits::Own>,
    /// Nanoseconds that were left out, those among them that had passed before the run began.
    skipped: u64,
    /// A replay that goes on for real: what the timeline is ahead of the kernel's clock is `skipped`.
    is_live: bool,
    passed: u64,
    /// Nanoseconds of waits among them.
    waited: u64,
    /// From which time of the kernel's on how much was left out.
    skips: Vec<(u64, u64)>,
    /// The memory that ended programs have shared.
    left: Vec<OwnedFd>,
}

impl Clock {
    pub(super) fn new(timeline: Timeline, recorder: Recorder) -> Self {
        let Timeline { base, ahead, tapes } = timeline;
        Self {
            base,
            offsets: Offsets::of(base),
            ahead,
            tapes,
            recorder,
            functions: vdso::of_kernel(),
            programs: HashMap::new(),
            threads: HashMap::new(),
            readers: HashMap::new(),
            interpreters: HashMap::new(),
            spent: 0,
            waits: HashMap::new(),
            skipped: 0,
            is_live: false,
            passed: 0,
            waited: 0,
            skips: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Task `former` has become process `process`, which stands at the first instruction of a new program.
    pub(super) fn executed(
        &mut self,
        former: i32,
        process: i32,
        strand: String,
        beginning: Beginning,
        (pace, text): (Pace, Text),
    ) -> Result<(), TraceError> {
        let start = self.now_of(former);
        self.end_program(process)?;
        let gone =
            |(task, thread): (&i32, &Thread)| (*task == former || thread.process == process).then_some(*task);
        for task in self.threads.iter().chain(&self.readers).filter_map(gone).collect::<Vec<_>>() {
            self.end_thread(task)?;
        }
        let at_real_rate = matches!(pace, Pace::RealRate | Pace::Java);
        let mode = match (&self.tapes, at_real_rate) {
            (None, true) => Mode::RecordShift,
            (Some(_), true) => Mode::Shift,
            (None, false) => Mode::Record,
            (Some(_), false) => Mode::Replay,
        };
        let mut control = Control::new(mode, Functions::default(), self.offsets);
        let mut has_readers = false;
        if at_real_rate {
            (control.shift, has_readers) = self.anchor(&strand, pace == Pace::Java)?;
        }
        let has_interpreter = self.tapes.as_ref().is_none_or(|tapes| tapes.has_interpreter);
        control.is_interpreter = has_interpreter && pace == Pace::Interpreter;
        let has_callers = self.tapes.as_ref().is_none_or(|tapes| tapes.has_callers);
        let text = Some(text).filter(|_| has_callers && !at_real_rate);
        control.has_loop = self.tapes.as_ref().is_none_or(|tapes| tapes.has_loop);
        let space = match visit::enter(beginning, &mut control, self.functions, text) {
            Ok(space) => space,
            // Its end is still to be heard.
            Err(ClockError::Visit(VisitError::Gone)) => return Ok(()),
            Err(error) => return self.uncontrolled(process, strand, &error),
        };
        let lane = space.as_ref().and_then(space::Space::lane);
        let thread = self.thread(process, strand, lane, start);
        let days = if at_real_rate {
            Some(Box::new(thread))
        } else {
            self.threads.insert(process, thread);
            None
        };
        if space.is_some() || at_real_rate {
            self.programs.insert(
                process,
                Program { control, days, has_readers, methods: Box::default(), skips: Vec::new() },
            );
        }
        Ok(())
    }

    /// A program whose reads of the clock are not under control goes on, and the trace says so.
    fn uncontrolled(&mut self, process: i32, strand: String, error: &ClockError) -> Result<(), TraceError> {
        let start = self.base.monotonic_ns;
        let event = Event::new(Kind::Meta, "clock.uncontrolled").arg("reason", error.to_string());
        self.recorder.record(event.proc(strand.clone()))?;
        self.begin_thread(process, process, strand, None, start);
        Ok(())
    }

    /// Sets the clock at real rate: records where the timeline is, or says how far it is from where it was; and
    /// whether threads of the program have tapes.
    fn anchor(&mut self, strand: &str, is_java: bool) -> Result<(u64, bool), TraceError> {
        let now = self.kernel_now();
        if let Some(tapes) = &mut self.tapes {
            // Never behind the kernel: to that the program's deadlines would be over before they come, and it
            // would ask again and again.
            let anchor = tapes.anchor(strand);
            return Ok(anchor.map_or((self.skipped, false), |(at, threads)| {
                (at.saturating_sub(now), threads && is_java)
            }));
        }
        let event = Event::new(Kind::Meta, OPERATION).arg("clock", "shift").arg("reads", 0).arg("at", now);
        let event = if is_java { event.arg("threads", true) } else { event };
        self.recorder.record(event.proc(strand))?;
        Ok((0, is_java))
    }

    /// CLOCK_MONOTONIC as the run's processes see it.
    fn kernel_now(&self) -> u64 {
        // It cannot fail: the base was read from the same clock.
        clock::read(libc::CLOCK_MONOTONIC).unwrap_or(0).wrapping_add_signed(self.ahead)
    }

    /// Where the timeline stands for a task, for what it makes or becomes.
    fn now_of(&self, task: i32) -> u64 {
        match self.threads.get(&task) {
            Some(Thread { reel: Reel::Replay(replay), lane, .. }) => replay.now(lane.as_ref()),
            _ => self.kernel_now().wrapping_add(self.skipped),
        }
    }

    fn begin_thread(&mut self, task: i32, process: i32, strand: String, lane: Option<Lane>, start: u64) {
        let thread = self.thread(process, strand, lane, start);
        self.threads.insert(task, thread);
    }

    fn thread(&mut self, process: i32, strand: String, lane: Option<Lane>, start: u64) -> Thread {
        // It is a file of ours: it can be written.
        let _ = lane.as_ref().map(Lane::clear);
        let reel = match &mut self.tapes {
            None if self.spent >= MOST => Reel::full(lane.as_ref()),
            None => Reel::Record(Record::new(lane.as_ref())),
            Some(tapes) => {
                let mut replay = Replay::new(tapes.take(&strand), start);
                // Its memory is ours and has its size: without it each read is answered by us.
                let _ = replay.fill(lane.as_ref());
                if self.is_live {
                    replay.let_go(lane.as_ref(), start, self.skipped);
                }
                Reel::Replay(Box::new(replay))
            }
        };
        Thread { process, strand, lane, reel, made_at: None }
    }
}
