//! Changes of modes, owners, times, extended attributes and sizes: carried out by us on the
//! file that was judged.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmodat, utimensat};
use nix::sys::time::{TimeSpec, TimeValLike as _};
use nix::unistd::{Gid, Uid};
use sha2::{Digest as _, Sha256};

use super::absent::Wish;
use super::access::Area;
use super::call::{Call, Reply};
use super::first_change::Kept;
use super::spelling::lexical;
use super::view::{Found, Spelled, View, found};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;
use crate::sys::{memory, xattr};
use crate::trace::{Event, Kind, hex};

/// Which file a call means.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    /// A path below a directory; a link at its end is followed or not.
    Path { directory: i32, path: u64, follow: bool },
    /// A path that may be empty, which means the descriptor itself (AT_EMPTY_PATH).
    PathOrDescriptor { directory: i32, path: u64, follow: bool },
    /// A descriptor.
    Descriptor(i32),
}

/// A nosuid mount does not stop a run from planting such programs on the host's files.
pub(super) const SET_ID_REFUSED: &str = "setuid and setgid modes are never set";
/// As without CAP_MKNOD.
pub(super) const DEVICE: &str = "devices are never made";
/// Capabilities, security labels and overlay marks outlive the run on the host's files.
const SECURITY: &str = "security and trusted attributes are never changed";

/// Without it, what was written could not be read for its digest.
const OWNER_READS: u32 = 0o400;

/// The setuid and setgid bits of a mode.
pub(super) const SET_ID: u32 = 0o6000;

/// Longest extended attribute that is copied (XATTR_SIZE_MAX).
const VALUE: usize = 65_536;

impl Supervisor {
    pub(super) fn change_mode(&mut self, call: &Call, which: Which, mode: u64) -> Result<Reply, Stop> {
        let mode = u32::try_from(mode & 0o7777).unwrap_or(0);
        if mode & SET_ID != 0 {
            return self.refuse_change(call, which, SET_ID_REFUSED);
        }
        let mut reader = None;
        let event = event("chmod").arg("mode", mode);
        let reply = self.change(call, which, event, Kept::Status, &mut |path, found| {
            if found.kind() == SFlag::S_IFLNK {
                return Err(Errno::EOPNOTSUPP);
            }
            if mode & OWNER_READS == 0 && found.kind() == SFlag::S_IFREG {
                reader = File::open(path).ok().map(|file| (found.id(), file));
            }
            fchmodat(AT_FDCWD, path, Mode::from_bits_truncate(mode), FchmodatFlags::FollowSymlink)
        })?;
        if let Some((id, reader)) = reader {
            self.written.read_by(id, reader);
        }
        Ok(reply)
    }

    fn refuse_change(&mut self, call: &Call, which: Which, why: &str) -> Result<Reply, Stop> {
        match self.file_of(call, which) {
            Ok((spelled, _)) | Err((_, Some(spelled))) => self.refuse_always(call, &spelled, why),
            Err((errno, None)) => Ok(Reply::Errno(errno)),
        }
    }

    /// Refuses what no rule can allow, and `--observe` does not lift.
    pub(super) fn refuse_always(&mut self, call: &Call, spelled: &Spelled, why: &str) -> Result<Reply, Stop> {
        let event = Event::new(Kind::Deny, "write").arg("enforced", true).arg("pid", call.task.inner_tgid());
        let event = spelled.add_to(event, "target", &lexical(&spelled.absolute));
        let event = event.proc(call.task.lineage.clone());
        self.recorder.deny(event.rule(self.access.label(None, why)))?;
        Ok(Reply::Errno(Errno::EPERM))
    }

    pub(super) fn change_owner(
        &mut self,
        call: &Call,
        which: Which,
        uid: u64,
        gid: u64,
    ) -> Result<Reply, Stop> {
        let id = |raw: u64, shown: u32, own: u32| match super::call::low_half(raw) {
            u32::MAX => Ok(None),
            same if same == shown => Ok(Some(own)),
            // Not mapped in the run's user namespace (chown(2), EINVAL there).
            _ => Err(Errno::EPERM),
        };
        let owner = id(uid, self.view.ids.0, nix::unistd::geteuid().as_raw());
        let group = id(gid, self.view.ids.1, nix::unistd::getegid().as_raw());
        let (Ok(owner), Ok(group)) = (owner, group) else { return Ok(Reply::Errno(Errno::EPERM)) };
        self.change(call, which, event("chown"), Kept::Status, &mut |path, _| {
            nix::unistd::chown(path, owner.map(Uid::from_raw), group.map(Gid::from_raw))
        })
    }

    pub(super) fn change_times(
        &mut self,
        call: &Call,
        which: Which,
        times: [TimeSpec; 2],
    ) -> Result<Reply, Stop> {
        let event = with_time(event("utimes"), "atime_ns", &times[0]);
        let event = with_time(event, "mtime_ns", &times[1]);
        self.change(call, which, event, Kept::Status, &mut |path, _| {
            utimensat(AT_FDCWD, path, &times[0], &times[1], UtimensatFlags::FollowSymlink)
        })
    }

    pub(super) fn truncate(&mut self, call: &Call, path: u64, length: u64) -> Result<Reply, Stop> {
        let which = Which::Path { directory: libc::AT_FDCWD, path, follow: true };
        self.settle()?;
        let event = event("truncate").arg("size", length);
        self.change(call, which, event, Kept::Whole, &mut |path, _| {
            nix::unistd::truncate(path, length.cast_signed())
        })
    }

    pub(super) fn set_attribute(
        &mut self,
        call: &Call,
        which: Which,
        arguments: [u64; 4],
    ) -> Result<Reply, Stop> {
        let [name, value, size, flags] = arguments;
        let name = match self.attribute_name(call, name) {
            Ok(name) => name,
            Err(Errno::EPERM) => return self.refuse_change(call, which, SECURITY),
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > VALUE {
            return Ok(Reply::Errno(Errno::E2BIG));
        }
        let mut bytes = vec![0; size];
        if size != 0 && memory::read_exact(call.task.tid, value, &mut bytes).is_err() {
            return Ok(Reply::Errno(Errno::EFAULT));
        }
        let flags = call.int(flags);
        let event = event("setxattr").path("name", OsStr::from_bytes(name.as_bytes()));
        let event = event.arg("value_sha256", hex(&Sha256::digest(&bytes)));
        self.change(call, which, event, Kept::Status, &mut |path, _| {
            with_c_string(path, |path| xattr::set(path, &name, &bytes, flags))
        })
    }

    pub(super) fn remove_attribute(&mut self, call: &Call, which: Which, name: u64) -> Result<Reply, Stop> {
        let name = match self.attribute_name(call, name) {
            Ok(name) => name,
            Err(Errno::EPERM) => return self.refuse_change(call, which, SECURITY),
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        let event = event("removexattr").path("name", OsStr::from_bytes(name.as_bytes()));
        self.change(call, which, event, Kept::Status, &mut |path, _| {
            with_c_string(path, |path| xattr::remove(path, &name))
        })
    }

    /// EPERM for one that is never changed.
    fn attribute_name(&self, call: &Call, name: u64) -> nix::Result<CString> {
        let name = memory::read_string(call.task.tid, name, 256).map_err(|_| Errno::ERANGE)?;
        if name.starts_with(b"security.") || name.starts_with(b"trusted.") {
            return Err(Errno::EPERM);
        }
        CString::new(name).map_err(|_| Errno::EINVAL)
    }

    fn change(
        &mut self,
        call: &Call,
        which: Which,
        mut event: Event,
        kept: Kept,
        act: &mut dyn FnMut(&str, &Found) -> nix::Result<()>,
    ) -> Result<Reply, Stop> {
        let (spelled, file) = match self.file_of(call, which) {
            Ok(file) => file,
            Err((errno @ (Errno::ENOENT | Errno::ENOTDIR), Some(spelled))) => {
                return self.absent(call, Wish::Change, &spelled, errno);
            }
            Err((errno, Some(spelled))) => {
                return self.unreachable(call, PathAccess::Write, &spelled, errno);
            }
            Err((errno, None)) => return Ok(Reply::Errno(errno)),
        };
        if self.view.is_inherited(&file) || self.view.is_input(&file) {
            // The launcher's terminal, and what its standard input leads to.
            return Ok(Reply::Errno(Errno::EPERM));
        }
        let decision = self.decide_file(PathAccess::Write, &file);
        let Some(area) = self.judge(call, PathAccess::Write, &spelled, &file.path, &decision)? else {
            return Ok(Reply::Errno(Errno::EACCES));
        };
        let before = match area {
            Area::Rule(_) => self.before_change(&file.path, &file.file, &file.status, kept)?,
            _ => None,
        };
        self.saw(&file);
        let done = act(&file.own_path(), &file);
        if done.is_ok() {
            self.changed(&file.path, &file.file);
        }
        if let (Area::Rule(rule), Ok(())) = (area, done) {
            let label = self.access.grant_label(rule);
            // Nothing closes what is cut short by its name.
            if kept == Kept::Whole
                && let Ok(cut) = File::open(file.own_path())
                && let Ok(content) = self.digests.of(cut.as_fd())
            {
                self.written.cut(file.id(), &content);
                event = event.arg("sha256", content.sha256);
            }
            let event = self.with_before(spelled.add_to(event, "path", &file.path), "before", before);
            // Not folded: what is stored last is how the file was left.
            self.recorder.record(event.proc(call.task.lineage.clone()).rule(label))?;
        }
        Ok(done.into())
    }

    pub(super) fn file_of(
        &self,
        call: &Call,
        which: Which,
    ) -> Result<(Spelled, Found), (Errno, Option<Spelled>)> {
        let plain = |errno| (errno, None);
        let (directory, path, follow, may_be_empty) = match which {
            Which::Descriptor(number) => {
                self.check_waiting(call).map_err(plain)?;
                let file = call.task.descriptor(number).and_then(found).map_err(plain)?;
                return Ok((Spelled::of_file(&file.path), file));
            }
            Which::Path { directory, path, follow } => (directory, path, follow, false),
            Which::PathOrDescriptor { directory, path, follow } => (directory, path, follow, true),
        };
        let path = self.path_of(call, path).map_err(plain)?;
        if path.is_empty() && may_be_empty {
            let file = call.task.descriptor(directory).and_then(found).map_err(plain)?;
            return Ok((Spelled::of_file(&file.path), file));
        }
        let spelled = View::absolute(&call.task, directory, &path).map_err(plain)?;
        match self.view.find(&spelled.absolute, follow) {
            Ok(file) => Ok((spelled, file)),
            Err(errno) => Err((errno, Some(spelled))),
        }
    }
}

fn with_c_string(path: &str, act: impl FnOnce(&std::ffi::CStr) -> std::io::Result<()>) -> nix::Result<()> {
    let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
    act(&path).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Both times now.
const NOW: [TimeSpec; 2] = [TimeSpec::UTIME_NOW, TimeSpec::UTIME_NOW];

/// Reads the times of utimensat(2) at `address`; null means now.
pub(super) fn timespecs(call: &Call, address: u64) -> nix::Result<[TimeSpec; 2]> {
    let Some(words) = words(call, address)? else { return Ok(NOW) };
    Ok([TimeSpec::new(words[0], words[1]), TimeSpec::new(words[2], words[3])])
}

/// Reads the times of utimes(2) and futimesat(2): seconds and microseconds.
pub(super) fn timevals(call: &Call, address: u64) -> nix::Result<[TimeSpec; 2]> {
    let Some(words) = words(call, address)? else { return Ok(NOW) };
    if !(0..1_000_000).contains(&words[1]) || !(0..1_000_000).contains(&words[3]) {
        return Err(Errno::EINVAL);
    }
    let time = |seconds, micros: i64| TimeSpec::new(seconds, micros * 1000);
    Ok([time(words[0], words[1]), time(words[2], words[3])])
}

/// Reads the times of utime(2): seconds.
pub(super) fn seconds(call: &Call, address: u64) -> nix::Result<[TimeSpec; 2]> {
    if address == 0 {
        return Ok(NOW);
    }
    let mut bytes = [0; 16];
    memory::read_exact(call.task.tid, address, &mut bytes).map_err(|_| Errno::EFAULT)?;
    let (access, modification) = bytes.split_at(8);
    let time = |bytes: &[u8]| bytes.try_into().map(i64::from_ne_bytes).map_err(|_| Errno::EFAULT);
    Ok([TimeSpec::seconds(time(access)?), TimeSpec::seconds(time(modification)?)])
}

/// The entry of a change.
fn event(change: &str) -> Event {
    Event::new(Kind::Observe, "fs.meta").arg("change", change)
}

/// A time that is set, if it is.
fn with_time(event: Event, key: &str, time: &TimeSpec) -> Event {
    match time.tv_nsec() {
        libc::UTIME_OMIT => event,
        libc::UTIME_NOW => event.arg(key, "now"),
        nanos => event.arg(key, time.tv_sec().saturating_mul(1_000_000_000).saturating_add(nanos)),
    }
}

fn words(call: &Call, address: u64) -> nix::Result<Option<[i64; 4]>> {
    if address == 0 {
        return Ok(None);
    }
    let mut bytes = [0; 32];
    memory::read_exact(call.task.tid, address, &mut bytes).map_err(|_| Errno::EFAULT)?;
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map(i64::from_ne_bytes).map_err(|_| Errno::EFAULT)?;
    }
    Ok(Some(words))
}
