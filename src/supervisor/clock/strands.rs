//! Processes and threads come and go: each has a tape of its own, which ends up in the trace.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::reel::{Followed, Reel};
use super::{Clock, INLINE, MOST, OPERATION, PART, Program, Thread};
use crate::sys::process::share_memory;
use crate::sys::tracee;
use crate::trace::{Event, Kind, TraceError};

/// What stands in a mark for the call that makes a process or a thread, whichever it is: the number of
/// clone(2).
const BIRTH: u64 = libc::SYS_clone.cast_unsigned();

/// Files that nobody reads any more and that are closed together: the kernel gives their memory back then,
/// for which no task must wait.
const LEFT: usize = 32;

impl Clock {
    /// Task `maker` of `process` has made process `child`, which has not run yet.
    pub(in crate::supervisor) fn forked(&mut self, (maker, process): (i32, i32), child: i32, strand: String) {
        self.called(maker, BIRTH);
        let start = self.now_of(maker);
        let Some(program) = self.programs.get(&process) else {
            return self.begin_thread(child, child, strand, None, start);
        };
        if program.control.mode.is_at_real_rate() {
            return self.forked_at_real_rate(maker, child, program.control.clone());
        }
        // A child that shares the memory of its maker, as after vfork(2), reads from its maker's tape until it
        // has a program of its own. Where that cannot be told, nothing of the maker is to be changed.
        if share_memory(maker, child).unwrap_or(true) {
            return self.begin_thread(child, child, strand, None, start);
        }
        let lane = self.threads.get(&maker).and_then(|thread| thread.lane.as_ref()?.another());
        let control = program.control.alone(lane.as_ref().map(super::Lane::number));
        let threaded = program.control.threaded;
        // Killed meanwhile: nobody reads it.
        let _ = control.write(child);
        if threaded {
            let _ = control.clear_table(child);
        }
        self.begin_thread(child, child, strand, lane, start);
        self.programs.insert(
            child,
            Program { control, days: None, has_readers: false, methods: Box::default(), skips: Vec::new() },
        );
    }

    /// Task `maker` of `process`, which stands still, has made thread `child`, which has not run yet.
    pub(in crate::supervisor) fn cloned(&mut self, (maker, process): (i32, i32), child: i32, strand: String) {
        // Runtimes make workers as it happens: only traces of earlier versions count them.
        if self.tapes.as_ref().is_some_and(|tapes| !tapes.has_callers) {
            self.called(maker, BIRTH);
        }
        let start = self.now_of(maker);
        let Some(program) = self.programs.get_mut(&process) else {
            return self.begin_thread(child, process, strand, None, start);
        };
        if program.control.mode.is_at_real_rate() {
            return self.cloned_at_real_rate((maker, process), child, strand);
        }
        let fs_base = tracee::registers(maker).map_or(0, |registers| registers.fs_base);
        let own = self.threads.get(&maker).and_then(|thread| thread.lane.as_ref());
        let lane = own.and_then(super::Lane::another);
        if !program.control.threaded {
            program.control.threaded = true;
            if let Some(own) = own {
                // Killed meanwhile: nobody reads it.
                let _ = program.control.assign(maker, fs_base, own.number(), |_| true);
            }
            let _ = program.control.write(maker);
        }
        self.begin_thread(child, process, strand, lane, start);
        if let Some(thread) = self.threads.get_mut(&child) {
            thread.made_at = Some(fs_base);
        }
    }

    /// A task that was just made, and has its name, stands still before its first instruction.
    pub(in crate::supervisor) fn begins(&mut self, task: i32) {
        let Some(thread) = self.thread_mut(task) else { return };
        let (Some(made_at), Some(lane)) = (thread.made_at.take(), &thread.lane) else { return };
        let (process, lane) = (thread.process, lane.number());
        let Ok(registers) = tracee::registers(task) else { return };
        if registers.fs_base == made_at {
            // It will set its own later on; until then its reads cannot be told from its maker's.
            return;
        }
        let lives = |number: u32| {
            let threads = self.threads.values().chain(self.readers.values());
            let mut lanes = threads.filter(|thread| thread.process == process);
            lanes.any(|thread| thread.lane.as_ref().is_some_and(|lane| lane.number() == number))
        };
        if let Some(program) = self.programs.get_mut(&process) {
            // Killed meanwhile: nobody reads it.
            let _ = program.control.assign(task, registers.fs_base, lane, lives);
        }
    }

    /// A task has ended.
    pub(in crate::supervisor) fn ended(&mut self, task: i32) -> Result<(), TraceError> {
        let lane = self.threads.get(&task).and_then(|thread| thread.lane.as_ref());
        let space = lane.map(super::Lane::space);
        self.end_program(task)?;
        self.waits.remove(&task);
        self.end_thread(task)?;
        self.left.extend(space.and_then(super::space::Space::into_file));
        Ok(())
    }

    /// Whether many programs have left memory behind.
    pub(in crate::supervisor) fn has_left_much(&self) -> bool {
        self.left.len() >= LEFT
    }

    /// Gives that memory back, in a thread of its own.
    pub(in crate::supervisor) fn clear(&mut self) {
        let left = std::mem::take(&mut self.left);
        // Without a thread they are closed here and now.
        let _ = std::thread::Builder::new().name("closer".to_owned()).spawn(|| drop(left));
    }

    pub(super) fn end_thread(&mut self, task: i32) -> Result<(), TraceError> {
        let thread = self.threads.remove(&task).or_else(|| self.readers.remove(&task));
        let Some(mut thread) = thread else { return Ok(()) };
        if let Reel::Replay(replay) = &thread.reel {
            if self.is_live {
                return Ok(());
            }
            return self.tell(&thread.strand, replay.followed(thread.lane.as_ref()));
        }
        if let Reel::Record(record) = &mut thread.reel {
            record.drain(thread.lane.as_ref());
        }
        self.keep(&mut thread, true)
    }

    /// Says where a replayed tape was not followed to its end, or beyond.
    fn tell(&self, strand: &str, followed: Followed) -> Result<(), TraceError> {
        let Followed { recorded, read, mismatches } = followed;
        if recorded == read && mismatches == 0 {
            return Ok(());
        }
        let event = Event::new(Kind::Meta, "clock.apart").arg("recorded", recorded).arg("read", read);
        self.recorder.record(event.arg("mismatches", mismatches).proc(strand))
    }

    /// Puts what is packed into the trace, if it is enough or the last of it.
    pub(super) fn keep(&mut self, thread: &mut Thread, last: bool) -> Result<(), TraceError> {
        let Reel::Record(record) = &mut thread.reel else { return Ok(()) };
        let size = record.packer.size();
        if size == 0 || (size < PART && !last) {
            return Ok(());
        }
        let (bytes, reads) = record.packer.take();
        let marks = record.marker.take();
        self.spent += (bytes.len() + marks.len()) as u64;
        let event = Event::new(Kind::Meta, OPERATION).arg("clock", "tape").arg("callers", true);
        let event = event.arg("interpreter", true).arg("loop", true).arg("reads", reads);
        let mut event = event.arg("tape", self.stored(&bytes)?);
        if !marks.is_empty() {
            event = event.arg("marks", self.stored(&marks)?);
        }
        if self.is_full() {
            event = event.arg("cut", true);
        }
        self.recorder.record(event.proc(thread.strand.clone()))
    }

    /// Bytes, in the entry itself if they are few.
    fn stored(&self, bytes: &[u8]) -> Result<Value, TraceError> {
        if bytes.len() <= INLINE {
            return Ok(Value::from(STANDARD.encode(bytes)));
        }
        Ok(self.recorder.keep(bytes)?.into())
    }

    /// Task `task` makes a call, which is not one that reads a clock.
    pub(in crate::supervisor) fn called(&mut self, task: i32, number: u64) {
        let Some(Thread { reel, lane, .. }) = self.thread_mut(task) else { return };
        match reel {
            Reel::Record(record) => record.call(number, lane.as_ref()),
            Reel::Full => {}
            // Its memory is a file of ours: it can be read and written.
            Reel::Replay(replay) => drop(replay.call(number, lane.as_ref())),
        }
    }

    /// Whether no more reads are recorded.
    pub(super) fn is_full(&self) -> bool {
        self.spent >= MOST
    }
}
