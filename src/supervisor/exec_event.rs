//! The second look at a program start: at the exec event, on what the kernel really took.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::unistd::AccessFlags;

use super::access::{Decision, is_below};
use super::arguments::split_words;
use super::beginning::{Beginning, Stack};
use super::call::{Call, Reply};
use super::content::Identity;
use super::controls::Runtime;
use super::exec::Expected;
use super::hasher::Owner;
use super::interpreters::Loader;
use super::view::{Found, found};
use super::{Stop, Supervisor, environment};
use crate::policy::{FileId, PathAccess, RuleId};
use crate::sys::ptrace;
use crate::trace::{Event, Kind};

/// So many bytes of arguments stand in an entry: as text and in hex they take up to eight times as many.
const ARGUMENTS: usize = 1 << 20;

type Mismatch = (PathBuf, Vec<OsString>, Option<RuleId>, String);

impl Supervisor {
    /// Lets the kernel go on, with the task caught at its exec event.
    pub(super) fn start(&mut self, call: &Call, expected: Expected) -> Result<Reply, Stop> {
        let tid = call.task.tid;
        let seized = match &self.following {
            // Traced since its birth.
            Some(_) if self.seized.contains(&tid) => Ok(()),
            Some(_) => ptrace::seize_family(tid),
            None => ptrace::seize_at_exec(tid),
        };
        match seized {
            Ok(()) => {
                self.seized.insert(tid);
            }
            // Still seized from a start that failed.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && self.seized.contains(&tid) => {}
            Err(error) => {
                // Without the second look nothing is started (Yama scope 3 does this).
                let reason = format!("ptrace(PTRACE_SEIZE): {error}");
                self.refuse_exec(call, Path::new("?"), &expected.argv, None, &reason, false)?;
                self.host_refused("ptrace(PTRACE_SEIZE)", error);
                return Ok(Reply::Errno(Errno::EACCES));
            }
        }
        self.expected.insert(tid, expected);
        Ok(Reply::Continue)
    }

    /// The exec event of task `former` (now `pid`): the new image has not run yet.
    pub(super) fn executed(&mut self, pid: i32) -> Result<(), Stop> {
        self.check_meanwhile()?;
        // Where one start alone was allowed, it is the one that came.
        let is_plain = self.following.is_none() && self.expected.len() == 1;
        let former = match self.expected.contains_key(&pid) {
            true if is_plain => pid,
            _ => ptrace::event_message(pid).unwrap_or(pid),
        };
        let expected = self.expected.remove(&former).or_else(|| self.expected.remove(&pid));
        self.seized.remove(&former);
        self.seized.remove(&pid);
        if let Some(kin) = self.tasks.kin() {
            self.seized.insert(pid);
            kin.executed(former, pid);
        }
        let task = match self.tasks.find(pid) {
            Ok(task) => task,
            Err(errno) => return self.kill_unseen(pid, errno),
        };
        let call = Call { id: 0, number: 0, arguments: [0; 6], task };
        let mut stack = Stack::of(pid);
        let arguments = stack.as_mut().ok().and_then(|stack| stack.arguments.take());
        match self.verify(&call, arguments, expected) {
            Ok((expected, image)) => {
                self.started = true;
                self.first_refusal = None;
                self.record_spawn(&call, &expected, &image)?;
                match self.control_image(&call, &image, stack) {
                    Ok(Some((beginning, runtime))) => self.set_clock(former, pid, beginning, runtime)?,
                    Ok(None) => {}
                    Err(errno) => return self.kill_unseen(pid, errno),
                }
                if let Some(follow_up) = expected.follow_up {
                    self.follow_ups.insert(pid, follow_up);
                }
                // Gone when it was killed meanwhile.
                let _ = match self.following {
                    Some(_) => ptrace::resume(pid, 0),
                    None => ptrace::detach(pid, 0),
                };
                Ok(())
            }
            Err((path, argv, rule, reason)) => {
                let killed = self.kill(pid);
                self.refuse_exec(&call, &path, &argv, rule, &reason, killed.is_ok())
            }
        }
    }

    /// Whether `path` is the memory of a process whose start was allowed and has not been looked at yet, or was refused
    /// then: what the kernel has loaded there may be another file than was judged.
    pub(super) fn is_memory_of_start(&mut self, call: &Call, path: &Path) -> bool {
        let text = path.as_os_str().as_bytes();
        let is_idle = self.expected.is_empty() && self.doomed.is_empty();
        if is_idle || !self.access.enforce || !text.starts_with(b"/proc/") || !text.ends_with(b"/mem") {
            return false;
        }
        // Who asks has come back from a start that failed.
        self.expected.keys().chain(&self.doomed).filter(|tid| **tid != call.task.tid).any(|tid| {
            let process = self.tasks.find(*tid).map_or(0, |task| task.inner_tgid());
            process > 0 && is_below(path, Path::new(&format!("/proc/{process}")))
        })
    }

    /// Kills a process at its exec event.
    fn kill(&mut self, pid: i32) -> nix::Result<()> {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)?;
        self.doomed.insert(pid);
        Ok(())
    }

    /// Kills a task that cannot be looked at: it was gone anyway, or it would run unjudged.
    fn kill_unseen(&mut self, pid: i32, errno: Errno) -> Result<(), Stop> {
        let killed = self.kill(pid);
        if killed.is_err() || matches!(errno, Errno::ESRCH | Errno::ENOENT) {
            return Ok(());
        }
        let event =
            Event::new(Kind::Deny, "exec").arg("target", "?").arg("enforced", true).arg("killed", true);
        let event = event.rule(format!("no rule: its process cannot be looked at: {errno}"));
        Ok(self.recorder.deny(event)?)
    }

    /// Gives a new program its clock.
    fn set_clock(
        &mut self,
        former: i32,
        pid: i32,
        beginning: Beginning,
        runtime: Runtime,
    ) -> Result<(), Stop> {
        let strand = self.tasks.kin().and_then(|kin| kin.strand(pid));
        if let (Some(clock), Some(strand)) = (&mut self.clock, strand) {
            clock.executed(former, pid, strand.to_string(), beginning, (runtime.pace, runtime.text))?;
            if let Some(skip) = &self.skip {
                skip.begins(clock);
            }
        }
        Ok(())
    }

    /// Compares what came with what was judged. `arguments` are those on the stack, where they were seen.
    fn verify(
        &mut self,
        call: &Call,
        arguments: Option<Vec<u8>>,
        expected: Option<Expected>,
    ) -> Result<(Expected, FileStat), Mismatch> {
        let unreadable = |errno: Errno| {
            (PathBuf::from("?"), Vec::new(), None, format!("its image cannot be read: {errno}"))
        };
        let image = call.task.executed().map_err(unreadable)?;
        let id = FileId { dev: image.st_dev, ino: image.st_ino };
        let arguments = arguments.map_or_else(|| call.task.read("cmdline"), Ok).map_err(unreadable)?;
        let argv = split_words(&arguments);
        let as_judged = expected.filter(|expected| expected.id == id && expected.argv == argv);
        let expected = match as_judged {
            Some(expected) => expected,
            // The arguments changed after they were judged: judge what really came.
            None => {
                let file = call.task.executable().and_then(found).map_err(unreadable)?;
                if !self.access.enforce {
                    return Ok((Expected::any(&file, argv), image));
                }
                let start = self.heads.of(&self.view, &file).map_err(unreadable)?;
                let loader = self.loader(call, &file, start.loader.as_deref(), &argv).map_err(unreadable)?;
                let judged = self.judge_image(&file.path, &file, &argv);
                let came = Expected::any(&file, argv);
                match judged.and_then(|judged| Ok((judged, loader?))) {
                    Ok(((label, pins_arguments), loader)) => {
                        Expected { label, pins_arguments, loader, ..came }
                    }
                    Err((rule, reason)) => return Err((came.path, came.argv, rule, reason)),
                }
            }
        };
        if !self.access.enforce {
            return Ok((expected, image));
        }
        let swapped = self
            .refuse_mapped(call, id, &expected.loader)
            .or_else(|| self.refuse_scripts(call, &expected.scripts));
        if let Some(reason) = swapped {
            return Err((expected.path, expected.argv, None, reason));
        }
        if expected.pins_arguments {
            let environment = split_words(&call.task.read("environ").map_err(unreadable)?);
            if let Some(variable) = environment::loads_code(&environment) {
                let reason = format!("the rule pins arguments, and {variable} loads other code");
                return Err((expected.path, expected.argv, None, reason));
            }
        }
        Ok((expected, image))
    }

    /// Adds the arguments: the first of them, and all in a blob, where they are too long for an entry.
    fn with_arguments(&self, event: Event, argv: &[OsString]) -> Result<Event, Stop> {
        let mut bytes = 0;
        let fits = |word: &&OsString| {
            bytes += word.len() + 1;
            bytes <= ARGUMENTS
        };
        let first = argv.iter().take_while(fits).count();
        let event = event.words("argv", &argv[..first]);
        if first == argv.len() {
            return Ok(event);
        }
        let whole = argv.iter().flat_map(|word| [word.as_bytes(), b"\0"]).collect::<Vec<_>>().concat();
        Ok(event.arg("argv_whole", self.recorder.keep(&whole)?))
    }

    fn record_spawn(&mut self, call: &Call, expected: &Expected, image: &FileStat) -> Result<(), Stop> {
        let event = Event::new(Kind::Observe, "proc.spawn");
        let mut event = self.with_arguments(event, &expected.argv)?.path("exe", &expected.path);
        if let Some(script) = expected.scripts.first() {
            event = event.path("script", &script.path);
        }
        let loader = match &expected.loader {
            Loader::At { path, id } if !self.access.is_system(path) => Some((path, *id)),
            _ => None,
        };
        if let Some((path, _)) = loader {
            event = event.path("loader", path);
        }
        let event = event.proc(call.task.lineage.clone()).rule(expected.label.clone());
        self.recorder.record(event)?;
        if self.hasher.wants(&Identity::of(image))
            && let Ok(file) = call.task.executable().and_then(found)
        {
            self.record_image(&file);
        }
        if let Some((path, id)) = loader
            && let Ok(file) = self.view.find(path.as_os_str().as_bytes(), true)
            && file.id() == id
            && self.hasher.wants(&Identity::of(&file.status))
        {
            self.record_image(&file);
        }
        Ok(())
    }

    fn record_image(&mut self, file: &Found) {
        // It makes a thread.
        self.hand_over.leave();
        let own = self.access.enforce && self.access.is_private(&file.path);
        let may_write = || self.access.decide(PathAccess::Write, &file.path, Some(file.id()));
        let writable = match self.access.enforce {
            // Without a name it is nobody else's.
            true => file.status.st_nlink == 0 || matches!(may_write(), Decision::Allow(_)),
            false => file.may(AccessFlags::W_OK).is_ok(),
        };
        self.hasher.image(file, Owner { own, writable }, &self.recorder);
    }
}
