//! The task behind a notification: its ids, its place among the run's processes, its umask.

mod identity;
mod start;
mod text;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::read_dir;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use self::identity::{identity, parent_of};
use self::text::{field, whole};
use super::beginning::{self, Beginning, Stack};
use super::controls::Kin;
use crate::sys::{pidfd, process};
use crate::trace::Text;

/// A task of the run.
#[derive(Debug)]
pub(super) struct Task {
    /// Thread id, as the supervisor sees it.
    pub(super) tid: i32,
    /// Process id, as the supervisor sees it.
    pub(super) tgid: i32,
    /// `0` for the command, `0.2` for its third child; `0.2#1` for a thread of that, where all are followed.
    pub(super) lineage: String,
    /// The same as it stands in entries, once there was one.
    said: OnceCell<Text>,
    /// /proc/TID, once it was asked for; every look through it fails once the task is gone.
    directory: OnceCell<OwnedFd>,
    /// The link in it that leads to the working directory, once that was asked for again.
    working: OnceCell<OwnedFd>,
    /// Process id and thread id inside the run, once they were asked for.
    inner: OnceCell<(i32, i32)>,
    /// The task itself, where the kernel gives such a descriptor: quicker to ask.
    itself: Option<Rc<OwnedFd>>,
}

impl Task {
    /// Its place as it stands in entries.
    pub(super) fn said(&self) -> &Text {
        self.said.get_or_init(|| self.lineage.as_str().into())
    }

    /// Its directory in /proc.
    pub(super) fn directory(&self) -> nix::Result<&OwnedFd> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory);
        }
        let directory = directory_of(self.tid)?;
        // Whoever has its number still has had it all the time.
        if self.is_alive() { Ok(self.directory.get_or_init(|| directory)) } else { Err(Errno::ESRCH) }
    }

    /// One look at an entry of the task's directory, which is not worth opening for that.
    fn look<T>(
        &self,
        name: &str,
        look: impl FnOnce(BorrowedFd<'_>, &str) -> nix::Result<T>,
    ) -> nix::Result<T> {
        if let Some(directory) = self.directory.get() {
            return look(directory.as_fd(), name);
        }
        let seen = look(AT_FDCWD, &format!("/proc/{}/{name}", self.tid))?;
        // As above.
        if self.is_alive() { Ok(seen) } else { Err(Errno::ESRCH) }
    }

    /// A link of the task's directory: `exe`, `fd/3`.
    pub(super) fn link(&self, name: &str) -> nix::Result<OsString> {
        readlinkat(self.directory()?, name)
    }

    /// Whether its table of descriptors has no room. What the kernel does not say is found out by giving one.
    pub(super) fn is_full(&self) -> bool {
        let Ok(limit) = process::descriptor_limit(self.tid) else { return false };
        // Since Linux 6.2 the size of the directory is their number (proc_pid_fd(5)).
        let count = self.look("fd", |directory, name| fstatat(directory, name, AtFlags::empty()));
        let count = count.map_or(0, |status| status.st_size);
        u64::try_from(count).is_ok_and(|count| count >= limit) && self.descriptors_below(limit) >= limit
    }

    /// There may be others, from before the limit was lowered.
    fn descriptors_below(&self, limit: u64) -> u64 {
        // Of whoever has its number by then: a task that is gone gets no answer.
        let Ok(list) = read_dir(format!("/proc/{}/fd", self.tid)) else { return 0 };
        let numbers = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
        numbers.filter(|number| *number < limit).count() as u64
    }

    /// Opens what descriptor `number` refers to, as O_PATH.
    pub(super) fn descriptor(&self, number: i32) -> nix::Result<OwnedFd> {
        let name = format!("fd/{number}");
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        match openat(self.directory()?, name.as_str(), flags, Mode::empty()) {
            Err(Errno::ENOENT) => Err(Errno::EBADF),
            other => other,
        }
    }

    /// Opens the task's executable as O_PATH.
    pub(super) fn executable(&self) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        self.look("exe", |directory, name| openat(directory, name, flags, Mode::empty()))
    }

    /// The status of the file that it executes.
    pub(super) fn executed(&self) -> nix::Result<FileStat> {
        self.look("exe", |directory, name| fstatat(directory, name, AtFlags::empty()))
    }

    /// Process id inside the run; 0 when the task is gone.
    pub(super) fn inner_tgid(&self) -> i32 {
        self.inner().0
    }

    /// Thread id inside the run; 0 when the task is gone.
    pub(super) fn inner_tid(&self) -> i32 {
        self.inner().1
    }

    fn inner(&self) -> (i32, i32) {
        *self.inner.get_or_init(|| {
            let status = self.read("status").unwrap_or_default();
            let innermost =
                |name| field(&status, name).and_then(|text| text.split_whitespace().last()?.parse().ok());
            (innermost("NStgid:").unwrap_or(0), innermost("NSpid:").unwrap_or(0))
        })
    }

    /// The memory that it has now: should it execute another program, this stays that of the former one.
    pub(super) fn memory(&self) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        self.look("mem", |directory, name| openat(directory, name, flags, Mode::empty()))
    }

    /// Where it begins, for it stands at the first instruction of its program, with this stack.
    pub(super) fn beginning(&self, stack: Stack) -> Beginning {
        let process = beginning::Process { id: self.tid, itself: self.itself.clone() };
        Beginning { process, memory: self.memory().map_err(Into::into), stack }
    }

    /// Reads a file of the task's directory.
    pub(super) fn read(&self, name: &str) -> nix::Result<Vec<u8>> {
        whole(openat(self.directory()?, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?)
    }

    /// The file mode creation mask.
    pub(super) fn umask(&self) -> nix::Result<u32> {
        let status = self.read("status")?;
        let text = field(&status, "Umask:").ok_or(Errno::ESRCH)?;
        u32::from_str_radix(&text, 8).map_err(|_| Errno::ESRCH)
    }

    /// Whether its process has no other thread.
    pub(super) fn is_alone(&self) -> bool {
        self.read("status").is_ok_and(|status| field(&status, "Threads:").as_deref() == Some("1"))
    }

    /// A copy of its descriptor `number`.
    pub(super) fn fetch(&self, number: i32) -> nix::Result<OwnedFd> {
        let fetched = match &self.itself {
            Some(task) => pidfd::fetch(task.as_fd(), number),
            None => pidfd::open(self.tgid).and_then(|process| pidfd::fetch(process.as_fd(), number)),
        };
        fetched.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Whether a signal waits that it does not block.
    pub(super) fn has_signal(&self) -> bool {
        let Ok(status) = self.read("status") else { return false };
        let set =
            |name| field(&status, name).and_then(|text| u64::from_str_radix(&text, 16).ok()).unwrap_or(0);
        (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
    }

    fn is_alive(&self) -> bool {
        match &self.itself {
            Some(task) => pidfd::holds_its_number(task.as_fd()),
            None => self
                .directory
                .get()
                .is_some_and(|directory| fstatat(directory, "comm", AtFlags::empty()).is_ok()),
        }
    }
}

fn directory_of(tid: i32) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(format!("/proc/{tid}").as_str(), flags, Mode::empty())
}

/// The process of the task behind a directory of /proc, and its parent.
fn group_and_parent(directory: &OwnedFd) -> nix::Result<(i32, i32)> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let status = whole(openat(directory, "status", flags, Mode::empty())?)?;
    let number = |name| field(&status, name).and_then(|text| text.parse().ok()).ok_or(Errno::ESRCH);
    Ok((number("Tgid:")?, number("PPid:")?))
}

/// A process of the run, dead or alive.
#[derive(Debug)]
struct Process {
    /// What tells it from another that has had its number.
    identity: u64,
    lineage: String,
    children: u32,
}

/// Every task seen so far, and the tree of processes.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    known: HashMap<i32, Rc<Task>>,
    /// There where every task is followed: then nothing is looked for in /proc.
    kin: Option<Kin>,
    processes: HashMap<i32, Process>,
    orphans: u32,
    /// Processes that may be remembered before they are looked through again.
    most: usize,
}

/// Tasks that are remembered before the dead ones are dropped.
const REMEMBERED: usize = 1024;
/// Processes that are remembered before the dead ones are dropped.
const PROCESSES: usize = 65_536;
/// Longest lineage that is carried on, in bytes: each fork adds to it, and all are remembered.
const LINEAGE: usize = 256;

impl Tasks {
    /// None yet; `followed` when each is made known from its birth on.
    pub(super) fn new(followed: bool) -> Self {
        Self { kin: followed.then(Kin::default), ..Self::default() }
    }

    /// The tasks that are followed.
    pub(super) fn kin(&mut self) -> Option<&mut Kin> {
        self.kin.as_mut()
    }

    /// Finds the task `tid`, or looks at it for the first time.
    pub(super) fn find(&mut self, tid: i32) -> nix::Result<Rc<Task>> {
        match self.known(tid) {
            Some(task) => Ok(task),
            None => self.meet(tid),
        }
    }

    /// The task `tid`, if it has that number since it was looked at first.
    pub(super) fn known(&self, tid: i32) -> Option<Rc<Task>> {
        self.known.get(&tid).filter(|task| self.is_followed(tid) || task.is_alive()).map(Rc::clone)
    }

    /// Whether a task of that number was looked at.
    pub(super) fn has_met(&self, tid: i32) -> bool {
        self.known.contains_key(&tid)
    }

    /// Whether we hear of the end of the task before anybody can get its number: nobody else waits for it (ptrace(2)).
    fn is_followed(&self, tid: i32) -> bool {
        self.kin.as_ref().is_some_and(|kin| kin.process_of(tid).is_some())
    }

    /// The number is another's from now on, or nobody's.
    pub(super) fn forget(&mut self, tid: i32) {
        self.known.remove(&tid);
    }

    /// Looks at whoever is `tid` now.
    pub(super) fn meet(&mut self, tid: i32) -> nix::Result<Rc<Task>> {
        let task = Rc::new(self.look_at(tid)?);
        if self.known.len() >= REMEMBERED {
            self.known.retain(|_, task| task.is_alive());
        }
        self.known.insert(tid, Rc::clone(&task));
        Ok(task)
    }

    fn look_at(&mut self, tid: i32) -> nix::Result<Task> {
        let itself = pidfd::open(tid).or_else(|_| pidfd::open_thread(tid)).ok().map(Rc::new);
        let known = itself.as_ref().and_then(|task| pidfd::info(task.as_fd()).ok());
        let directory = OnceCell::new();
        let (tgid, parent) = match known {
            // Most that start and end are asked for nothing else. The first one shows that they can be.
            Some(info) if !self.known.is_empty() => (info.tgid, info.parent),
            _ => {
                let opened = directory_of(tid)?;
                let opened = directory.get_or_init(|| opened);
                known.map_or_else(|| group_and_parent(opened), |info| Ok((info.tgid, info.parent)))?
            }
        };
        // Kernels that tell more of a process number it as well.
        let leader = itself.as_ref().filter(|_| known.is_some() && tid == tgid);
        let lineage = match &mut self.kin {
            Some(kin) => followed(kin, tid, tgid),
            None => {
                let own = leader.map_or_else(|| identity(tgid), |leader| Ok(fstat(leader)?.st_ino))?;
                self.lineage(tgid, parent, own)?
            }
        };
        let (said, working, inner) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Ok(Task { tid, tgid, lineage, said, directory, working, inner, itself })
    }

    fn lineage(&mut self, tgid: i32, parent: i32, own: u64) -> nix::Result<String> {
        if let Some(process) = self.processes.get(&tgid)
            && process.identity == own
        {
            return Ok(process.lineage.clone());
        }
        let lineage = self.child_of(parent);
        if self.processes.len() >= self.most.max(PROCESSES) {
            self.processes.retain(|pid, process| identity(*pid) == Ok(process.identity));
            self.most = self.processes.len() * 2;
        }
        self.processes.insert(tgid, Process { identity: own, lineage: lineage.clone(), children: 0 });
        Ok(lineage)
    }

    fn child_of(&mut self, parent: i32) -> String {
        if self.processes.is_empty() {
            return "0".to_owned();
        }
        let known = self.processes.contains_key(&parent);
        if !known
            && let Ok(grandparent) = parent_of(parent)
            && self.processes.contains_key(&grandparent)
            && let Ok(own) = identity(parent)
        {
            // The parent made no judged call of its own yet.
            let _ = self.lineage(parent, grandparent, own);
        }
        if let Some(process) = self.processes.get_mut(&parent)
            && process.lineage.len() < LINEAGE
        {
            let lineage = format!("{}.{}", process.lineage, process.children);
            process.children += 1;
            return lineage;
        }
        // Its parent ended before it was seen, so which child of whom it is cannot be known; or the
        // row of its ancestors is too long.
        self.orphans += 1;
        format!("0.~{}", self.orphans - 1)
    }
}

/// The name of a task that is followed: the first that is seen is the command's process.
fn followed(kin: &mut Kin, tid: i32, tgid: i32) -> String {
    if kin.process_of(tgid).is_none() && !kin.begin(tgid) {
        kin.adopt(tgid);
    }
    let strand = kin.strand(tid).or_else(|| kin.strand(tgid));
    strand.map_or_else(|| "0.~".to_owned(), |strand| strand.label())
}
