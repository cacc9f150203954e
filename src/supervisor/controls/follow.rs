//! Tasks are followed from their birth: each is traced as long as it lives (PTRACE_O_TRACEFORK and its
//! like), and stands still until it has its name.
//!
//! A new task stops before its first instruction; its maker stops after the call that made it and says
//! which task that is. The two are heard in any order. Nothing here waits for a task: calls of others
//! wait for answers meanwhile.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::super::{self as supervisor, Supervisor};
use super::Seed;
use super::device::Feeds;
use super::ports::Ports;
use super::runtime::Runtimes;
use crate::sys::process;
use crate::sys::ptrace::{self, End, Stop};
use crate::trace::{Event, Kind};

/// How long a new task waits for its maker, which is stopped at once, or was killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is known of tasks that are followed.
#[derive(Debug)]
pub(in crate::supervisor) struct Following {
    /// New tasks whose maker has not been heard yet, and how they stopped.
    unnamed: HashMap<i32, (Stop, Instant)>,
    pub(super) seed: Seed,
    /// Random devices that tasks have open.
    pub(in crate::supervisor) feeds: Feeds,
    pub(super) ports: Ports,
    pub(super) runtimes: Runtimes,
    /// The command has ended: the rest is killed, wherever it is.
    is_over: bool,
}

impl Following {
    pub(in crate::supervisor) fn new(seed: Seed) -> Self {
        Self {
            unnamed: HashMap::new(),
            seed,
            feeds: Feeds::default(),
            ports: Ports::default(),
            runtimes: Runtimes::default(),
            is_over: false,
        }
    }

    /// What is random comes from another seed; devices that are open go on as they are.
    pub(in crate::supervisor) fn begin_anew(&mut self, seed: Seed) {
        self.seed = seed;
    }

    /// Whether a task stands still that must not for ever.
    pub(in crate::supervisor) fn is_waiting(&self) -> bool {
        !self.unnamed.is_empty()
    }
}

impl Supervisor {
    /// Task `maker` has made another.
    pub(in crate::supervisor) fn made(&mut self, maker: i32, by_clone: bool) -> Result<(), supervisor::Stop> {
        if let (Ok(child), Some(kin)) = (ptrace::event_message(maker), self.tasks.kin()) {
            let own = kin.process_of(maker).unwrap_or(maker);
            let is_thread = process::has_thread(own, child);
            let lives = is_thread || process::is_there(child);
            let threaded = is_thread || (by_clone && !lives);
            if threaded {
                kin.cloned(maker, child, lives);
            } else {
                kin.forked(maker, child, lives);
            }
            if let (Some(clock), Some(strand)) = (&mut self.clock, kin.strand(child)) {
                match threaded {
                    true => clock.cloned((maker, own), child, strand.to_string()),
                    false => clock.forked((maker, own), child, strand.to_string()),
                }
            }
            let name = self.tasks.kin().and_then(|kin| kin.strand(child)).map(|strand| strand.to_string());
            let thread = self.tasks.kin().filter(|_| !threaded).and_then(|kin| kin.strand(maker));
            self.born(child, name, thread.map(|strand| strand.thread))?;
            self.named(child);
            self.count_call(maker)?;
        }
        // Killed meanwhile: ESRCH.
        let _ = ptrace::resume(maker, 0);
        self.end_birth(maker)
    }

    /// Lets a new task go on that has waited for its name.
    fn named(&mut self, task: i32) {
        self.tasks.forget(task);
        let stop = self.following.as_mut().and_then(|following| following.unnamed.remove(&task));
        if stop.is_some()
            && let Some(clock) = &mut self.clock
        {
            clock.begins(task);
        }
        // Killed meanwhile: ESRCH.
        let _ = match stop {
            None => Ok(()),
            Some((Stop::Group, _)) => ptrace::listen(task),
            Some(_) => ptrace::resume(task, 0),
        };
    }

    /// A task stands still, as new ones do: lets it go on, if it has a name.
    pub(in crate::supervisor) fn stood_still(&mut self, task: i32, stop: Stop) -> std::io::Result<()> {
        if stop == Stop::Event && self.ran_errand(task) {
            return Ok(());
        }
        if let Some(following) = &mut self.following
            && let Some(kin) = self.tasks.kin()
        {
            // Whoever stops is traced, by us.
            self.seized.insert(task);
            if kin.process_of(task).is_none() {
                following.unnamed.insert(task, (stop, Instant::now()));
                return Ok(());
            }
        }
        if let Some(clock) = &mut self.clock {
            clock.begins(task);
        }
        if stop == Stop::Group { ptrace::listen(task) } else { ptrace::resume(task, 0) }
    }

    /// A task has ended.
    pub(in crate::supervisor) fn ended(&mut self, task: i32, end: End) -> Result<(), supervisor::Stop> {
        self.seized.remove(&task);
        self.expected.remove(&task);
        self.doomed.remove(&task);
        self.tasks.forget(task);
        self.forget_waits(task);
        if let Some(following) = &mut self.following
            && let Some(kin) = self.tasks.kin()
        {
            following.unnamed.remove(&task);
            let process = kin.lineage(task);
            // We hear of the command's end before pid 1 does, which tells it, and kills the rest then.
            let left = kin.left_by(task);
            let parent = kin.parent_of_several(task);
            kin.ended(task);
            if process.as_deref() == Some("0") {
                following.is_over = true;
                self.outputs.course.end();
            } else if let Some(process) = process.filter(|_| !following.is_over) {
                self.note_end((&process, task), parent);
                self.recorder.record(exit(end).proc(process))?;
            }
            if !left.is_empty() {
                self.recorder.record(Event::new(Kind::Meta, "run.cut").words("procs", left))?;
            }
        }
        if let Some(clock) = &mut self.clock {
            clock.ended(task)?;
            if clock.has_left_much() {
                self.hand_over.leave();
                clock.clear();
            }
        }
        self.end_birth(task)
    }

    /// Gives a name to those whose maker was killed before it could be asked.
    pub(in crate::supervisor) fn look_after_unnamed(&mut self) {
        let Some(following) = &self.following else { return };
        let left =
            |(task, (_, since)): (&i32, &(Stop, Instant))| (since.elapsed() > PATIENCE).then_some(*task);
        for task in following.unnamed.iter().filter_map(left).collect::<Vec<_>>() {
            if let Some(kin) = self.tasks.kin() {
                kin.adopt(task);
            }
            self.named(task);
        }
    }
}

/// What is recorded of the end of a process.
fn exit(end: End) -> Event {
    Event::new(Kind::Observe, "proc.exit")
        .arg("code", end.code)
        .arg("signal", end.signal)
        .arg("cpu_us", end.cpu_micros)
        .arg("peak_kib", end.peak_kib)
}
