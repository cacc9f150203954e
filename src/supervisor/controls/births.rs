//! Ids of processes and threads: those that they had when they were recorded.
//!
//! A pid namespace gives out ids in a row, whoever asks. Where several threads or processes make others, the row is
//! the same in each run and who gets which id is not. So each id is recorded under the name of its task; in a replay
//! tasks are made one at a time, and before each the namespace is told where its row goes on
//! (/proc/sys/kernel/ns_last_pid).

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::super::{Stop, Supervisor};
use super::starts::Starts;
use crate::sys::tracee::Registers;
use crate::sys::{process, ptrace};
use crate::trace::{Event, Kind, TraceError};

/// The operation under which the trace holds ids.
pub const OPERATION: &str = "proc.ids";

/// Ids in one entry.
const PART: usize = 256;
/// How long others wait for one that makes a task.
const PATIENCE: Duration = Duration::from_secs(1);
/// CLONE_THREAD
const THREAD: u64 = 0x0001_0000;

/// Ids by the names of tasks.
#[derive(Debug, Default)]
pub struct Ids {
    by_name: HashMap<String, i32>,
    /// What children began with.
    pub starts: Starts,
}

impl Ids {
    /// Adds what an entry says.
    pub fn add(&mut self, args: &Map<String, Value>) {
        let ids = args.get("ids").and_then(Value::as_object).into_iter().flatten();
        let id = |value: &Value| i32::try_from(value.as_i64()?).ok().filter(|id| *id > 1);
        for (name, value) in ids {
            self.starts.is_made(name);
            self.by_name.extend(id(value).map(|id| (name.clone(), id)));
        }
        let makers = args.get("makers").and_then(Value::as_object).into_iter().flatten();
        for (process, thread) in makers {
            self.starts.made(process, thread.as_str().unwrap_or_default());
        }
    }
}

/// Tasks that are about to be made, and the ids of those that were.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct Births {
    /// In a replay, the recorded ids.
    recorded: Ids,
    /// In a replay, the highest that was recorded, or given out since.
    highest: Option<i32>,
    /// Who makes a task, and since when.
    maker: Option<(i32, Instant)>,
    /// Who waits to make one, and whether it is a thread.
    queue: VecDeque<(i32, bool)>,
    /// The last id that was given out, where that is known.
    last: Option<i32>,
    /// Ids that are not in the trace yet.
    unsaid: Map<String, Value>,
    /// Threads that have made some of these, other than main ones.
    makers: Map<String, Value>,
    /// The run's pid namespace, once a task has led there.
    namespace: Option<OwnedFd>,
}

impl Births {
    pub(in crate::supervisor) fn new(ids: Ids) -> Self {
        let highest = ids.by_name.values().max().copied();
        Self { recorded: ids, highest, ..Self::default() }
    }

    /// The id that a task has inside. No task of a run can make a namespace.
    fn own_id(&mut self, task: i32) -> io::Result<i32> {
        if self.namespace.is_none() {
            self.namespace = fs::File::open(format!("/proc/{task}/ns/pid")).ok().map(OwnedFd::from);
        }
        let asked = self.namespace.as_ref().map(|namespace| process::id_in(namespace.as_fd(), task));
        // Older kernels write it down, among much else.
        asked.and_then(Result::ok).map_or_else(|| said_id(task), Ok)
    }

    /// The id for a task of this name. One that was not recorded takes none that was: another gets that still.
    fn id_for(&self, name: Option<&str>) -> Option<i32> {
        let recorded = name.and_then(|name| self.recorded.by_name.get(name)).copied();
        recorded.or_else(|| self.highest?.checked_add(1))
    }

    /// Task `id` neither makes nor waits any more.
    fn forget(&mut self, id: i32) {
        self.queue.retain(|(task, _)| *task != id);
        if self.maker.is_some_and(|(task, _)| task == id) {
            self.maker = None;
        }
    }
}

/// Whether the call makes a task, and if so, whether a thread.
fn makes(registers: &Registers) -> Option<bool> {
    match registers.orig_rax.cast_signed() {
        libc::SYS_fork | libc::SYS_vfork => Some(false),
        libc::SYS_clone => Some(registers.rdi & THREAD != 0),
        _ => None,
    }
}

impl Supervisor {
    /// Task `task` stands before a call. Whether that makes a task: it goes on when it is its turn.
    pub(in crate::supervisor) fn is_birth(&mut self, task: i32, registers: &Registers) -> Result<bool, Stop> {
        let Some(is_thread) = makes(registers) else { return Ok(false) };
        self.births.queue.push_back((task, is_thread));
        self.next_birth()?;
        Ok(true)
    }

    /// Lets the next task be made, if none is at present.
    pub(in crate::supervisor) fn next_birth(&mut self) -> Result<(), Stop> {
        if self.births.maker.is_some_and(|(_, since)| since.elapsed() > PATIENCE) {
            self.births.maker = None;
        }
        while self.births.maker.is_none()
            && let Some((task, is_thread)) = self.births.queue.pop_front()
        {
            let name = self.tasks.kin().and_then(|kin| {
                if !is_thread {
                    self.births.recorded.starts.choose(kin, task);
                }
                kin.next_child(task, is_thread)
            });
            let id = self.births.id_for(name.as_deref());
            if let Some(before) = id.map(|id| id - 1).filter(|before| self.births.last != Some(*before)) {
                self.births.last = None;
                // Where the kernel does not let it be set, the row goes on as it does.
                let _ = self.ask_init(&(self.words.last_id)(before), &[])?;
            }
            // It stops again when it has made one, or could not. Killed meanwhile: the next.
            if ptrace::resume_to_return(task).is_ok() {
                self.births.maker = Some((task, Instant::now()));
            }
        }
        Ok(())
    }

    /// Whether a task waits to make another.
    pub(in crate::supervisor) fn has_births(&self) -> bool {
        !self.births.queue.is_empty() || self.births.maker.is_some()
    }

    /// Task `task` makes none any more.
    pub(in crate::supervisor) fn end_birth(&mut self, task: i32) -> Result<(), Stop> {
        self.births.forget(task);
        self.next_birth()
    }

    /// Notes the id of a new task, and of a process which thread has made it.
    pub(super) fn born(
        &mut self,
        task: i32,
        name: Option<String>,
        thread: Option<String>,
    ) -> Result<(), TraceError> {
        if let (Some(name), Some(thread)) = (&name, thread.filter(|thread| !thread.is_empty())) {
            self.births.makers.insert(name.clone(), thread.into());
        }
        self.births.last = self.births.own_id(task).ok();
        self.births.highest = self.births.highest.map(|highest| highest.max(self.births.last.unwrap_or(0)));
        if let (Some(name), Some(id)) = (name, self.births.last) {
            self.births.unsaid.insert(name, id.into());
        }
        if self.births.unsaid.len() >= PART { self.tell_ids() } else { Ok(()) }
    }

    /// Puts the ids that are known into the trace.
    pub(in crate::supervisor) fn tell_ids(&mut self) -> Result<(), TraceError> {
        if self.births.unsaid.is_empty() {
            return Ok(());
        }
        let ids = std::mem::take(&mut self.births.unsaid);
        let makers = std::mem::take(&mut self.births.makers);
        let event = Event::new(Kind::Meta, OPERATION).arg("ids", ids);
        self.recorder.record(if makers.is_empty() { event } else { event.arg("makers", makers) })
    }
}

/// The id of a task in its own namespace (NSpid in proc_pid_status(5)).
fn said_id(task: i32) -> io::Result<i32> {
    let text = fs::read_to_string(format!("/proc/{task}/status"))?;
    let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let id = ids.and_then(|ids| ids.split_whitespace().last()?.parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_numbers_that_a_task_can_have() {
        let mut ids = Ids::default();
        for entry in
            [json!({"ids": {"0.0": 3, "0#1": 4, "0.1": 1, "0.2": "5"}}), json!({"ids": 3}), json!({})]
        {
            ids.add(entry.as_object().expect("an object"));
        }
        assert_eq!(ids.by_name, HashMap::from([("0.0".to_owned(), 3), ("0#1".to_owned(), 4)]));
    }

    #[test]
    fn who_was_not_there_takes_the_id_of_nobody() {
        let mut ids = Ids::default();
        assert_eq!(Births::new(ids).id_for(Some("0.0")), None);
        ids = Ids::default();
        ids.add(json!({"ids": {"0.0": 3, "0.1": 7}}).as_object().expect("an object"));
        let births = Births::new(ids);
        assert_eq!([Some("0.0"), Some("0.2"), None].map(|name| births.id_for(name)), [3, 8, 8].map(Some));
    }

    #[test]
    fn the_own_id_is_the_innermost() {
        let own = std::process::id().cast_signed();
        assert!(said_id(own).is_ok_and(|id| id > 0 && id <= own));
        let mut births = Births::default();
        assert_eq!(births.own_id(own).ok(), said_id(own).ok());
        assert!(births.namespace.is_some());
        // A thread has an id of its own.
        let thread = std::thread::spawn(move || {
            let own = nix::unistd::gettid().as_raw();
            (births.own_id(own).ok(), said_id(own).ok())
        });
        let (id, said) = thread.join().expect("ends");
        assert_eq!(id, said);
    }
}
