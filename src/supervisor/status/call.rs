//! stat(2) and its like in a replay.
//!
//! What is not answered here the kernel answers: a file's status is no secret of the view, so that nothing depends
//! on what the program's memory holds by then.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;

use super::sample::{nanoseconds_of as nanoseconds, set};
use super::shown::Known;
use super::{ALL, Statuses};
use crate::supervisor::access::{NET_SETTINGS, is_below};
use crate::supervisor::call::{Call, Reply, low_half};
use crate::supervisor::machine::{is_stand_in, show_stand_in};
use crate::supervisor::view::View;
use crate::supervisor::{Stop, Supervisor};
use crate::sys::status;

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Stat,
    /// With what is asked for, and how.
    Statx {
        mask: u32,
        flags: i32,
    },
}

/// What a call asks for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    directory: i32,
    /// `None`: the descriptor itself.
    path: Option<u64>,
    follow: bool,
    form: Form,
    address: u64,
}

/// In nanoseconds: so little is a file of the kernel's no later than what its reader takes for now.
const SOON: i64 = 1_000_000_000;

/// Links of the view that lead to the system's files.
const LINKS: [&[u8]; 4] = [b"/lib/", b"/lib64/", b"/bin/", b"/sbin/"];

impl Asked {
    /// `None` where the kernel is to answer.
    fn by(call: &Call) -> Option<Self> {
        let [a, b, c, d, e, _] = call.arguments;
        let at = |register: u64| call.int(register);
        let plain = |path, follow| {
            let (directory, form) = (libc::AT_FDCWD, Form::Stat);
            Self { directory, path: Some(path), follow, form, address: b }
        };
        let asked = match i64::from(call.number) {
            libc::SYS_stat => plain(a, true),
            libc::SYS_lstat => plain(a, false),
            libc::SYS_fstat => Self { directory: at(a), path: None, ..plain(0, true) },
            libc::SYS_newfstatat => Self::with(call, (at(a), b), at(d), Form::Stat, c)?,
            libc::SYS_statx => {
                let (mask, flags) = (low_half(d), at(c));
                if mask & !status::KNOWN != 0 {
                    return None;
                }
                let form = Form::Statx { mask, flags: flags & libc::AT_STATX_SYNC_TYPE };
                Self::with(call, (at(a), b), flags & !libc::AT_STATX_SYNC_TYPE, form, e)?
            }
            _ => return None,
        };
        (asked.path.is_some() || asked.directory >= 0).then_some(asked)
    }

    fn with(
        call: &Call,
        (directory, path): (i32, u64),
        flags: i32,
        form: Form,
        address: u64,
    ) -> Option<Self> {
        let known = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;
        if flags & !known != 0 {
            return None;
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        let is_itself = flags & libc::AT_EMPTY_PATH != 0
            && (path == 0 || call.path(path).is_ok_and(|path| path.is_empty()));
        let path = (!is_itself).then_some(path);
        Some(Self { directory, path, follow, form, address })
    }
}

impl Supervisor {
    /// Shows a file with its recorded status.
    pub(in crate::supervisor) fn show_status(&mut self, call: &Call) -> Result<Reply, Stop> {
        let Some(asked) = Asked::by(call) else { return Ok(Reply::Continue) };
        let Some((file, path)) = self.asked_for(call, &asked) else { return Ok(Reply::Continue) };
        // What was closed just now counts.
        self.settle()?;
        let (mask, flags) = match asked.form {
            Form::Stat => (libc::STATX_BASIC_STATS, 0),
            Form::Statx { mask, flags } => (mask, flags),
        };
        let Ok(mut status) = status::of(file.as_fd(), flags, mask | libc::STATX_BASIC_STATS) else {
            return Ok(Reply::Continue);
        };
        let path = if status.stx_nlink == 0 { without_mark(&path) } else { &path };
        let is_diverted = self.view.is_diverted(path);
        let Statuses::Shown(shown) = &mut self.statuses else { return Ok(Reply::Continue) };
        let look = || status::at(AT_FDCWD, path.as_os_str().as_bytes(), ALL).ok();
        let host = || is_diverted.then(look).flatten().map(|status| (&status).into());
        let stands_in = status.stx_nlink == 0 && show_stand_in(path, &mut status);
        let known = if stands_in { Known::Nothing } else { shown.put(path, &mut status, host) };
        if known != Known::All
            && !self.date_back(call, path, &mut status)
            && known == Known::Nothing
            && !stands_in
        {
            return Ok(Reply::Continue);
        }
        status.stx_uid = self.view.user(status.stx_uid);
        status.stx_gid = self.view.group(status.stx_gid);
        Ok(match asked.form {
            Form::Stat => self.hand_status(call, asked.address, &status::stat_bytes(&status)),
            Form::Statx { .. } => self.hand_status(call, asked.address, &status::statx_bytes(&status)),
        })
    }

    /// Puts times that the kernel has set since the replay began onto the clock of the run. False where there are none.
    fn date_back(&self, call: &Call, path: &Path, status: &mut libc::statx) -> bool {
        let Some(clock) = &self.clock else { return false };
        // A replay that is behind the run would show what comes into being as it is looked at as of later.
        let own = is_the_kernel_s(path).then(|| clock.time_of_day(call.task.tid, call.task.tgid));
        let skip = self.skip.as_ref().filter(|_| own.is_some());
        let behind = skip.map_or(0, |skip| skip.behind(clock, call.task.tid));
        let soon = |then: i64| own.filter(|own| (1..SOON).contains(&then.saturating_sub(*own)));
        let mut is_any = false;
        let times =
            [&mut status.stx_atime, &mut status.stx_mtime, &mut status.stx_ctime, &mut status.stx_btime];
        for time in times {
            if let Some(then) = clock.time_of_run(nanoseconds(*time)) {
                // What was there before the program has read its clock last keeps its time.
                let then = own
                    .filter(|own| then > *own)
                    .map_or(then, |own| then.saturating_sub_unsigned(behind).max(own));
                set(time, soon(then).unwrap_or(then));
                is_any = true;
            }
        }
        is_any
    }

    /// The file (O_PATH) and its path, where it can be one whose status was recorded.
    fn asked_for(&self, call: &Call, asked: &Asked) -> Option<(OwnedFd, PathBuf)> {
        let Some(path) = asked.path else {
            let path = PathBuf::from(call.task.link(&format!("fd/{}", asked.directory)).ok()?);
            let file = (self.may_show(&path) || is_the_kernel_s(&path) || is_stand_in(&path))
                .then(|| call.task.descriptor(asked.directory))?;
            return Some((file.ok()?, path));
        };
        let path = call.path(path).ok()?;
        let absolute = match asked.follow {
            true => View::absolute(&call.task, asked.directory, &path).ok()?.absolute,
            false => View::unfollowed(&call.task, asked.directory, &path).ok()?,
        };
        let lexical = Path::new(OsStr::from_bytes(&absolute));
        let may_show = self.may_show(lexical) || is_the_kernel_s(lexical);
        if !may_show && self.is_system_by_name(lexical) {
            return None;
        }
        let found = self.view.find(&absolute, asked.follow).ok()?;
        let is_shown = self.may_show(&found.path) || is_the_kernel_s(&found.path);
        let is_elsewhere = self.view.is_inherited(&found) || is_below(&found.path, Path::new(NET_SETTINGS));
        (is_shown && !is_elsewhere).then_some((found.file, found.path))
    }

    /// Whether the file at a final path may have another status than in the recorded run.
    fn may_show(&self, path: &Path) -> bool {
        let Statuses::Shown(shown) = &self.statuses else { return false };
        path.is_absolute()
            && (self.view.is_diverted(path) || self.access.is_private(path) || shown.knows(path))
    }

    /// Whether a path is spelled as one of the system's: a link there that leads out of it is left to the kernel.
    fn is_system_by_name(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let is_system = LINKS.iter().any(|link| bytes.starts_with(link)) || self.access.is_system(path);
        is_system && !bytes.windows(3).any(|part| part == b"/..")
    }

    /// Writes a status into the memory that the task has now.
    fn hand_status(&mut self, call: &Call, address: u64, bytes: &[u8]) -> Reply {
        match self.give(call, address, bytes) {
            Ok(()) => Reply::Value(0),
            Err(errno @ (Errno::EFAULT | Errno::ESRCH)) => Reply::Errno(errno),
            // One that hides its memory is answered by the kernel (PR_SET_DUMPABLE).
            Err(_) => Reply::Continue,
        }
    }
}

/// Whether what is at a final path came into being with the run: what tells of its processes, pipes and sockets.
fn is_the_kernel_s(path: &Path) -> bool {
    path.starts_with("/proc") || !path.is_absolute()
}

/// The path that a file had whose last name is gone (proc_pid_fd(5)).
fn without_mark(path: &Path) -> &Path {
    let path = path.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)))
}
