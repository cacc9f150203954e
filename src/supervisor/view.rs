//! Resolves paths in the root of the run, as the task would, and never on the host.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlink};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{AccessFlags, faccessat, getegid, geteuid};

use super::spelling::{MagicLink, lexical, trim_slashes};
use super::task::Task;
use crate::policy::FileId;
use crate::sys::descriptor;
pub(super) use crate::sys::descriptor::own_path;
use crate::trace::{Event, Members};

/// A file that was found: pinned by an O_PATH descriptor.
#[derive(Debug)]
pub(super) struct Found {
    /// O_PATH: looking has no effect on the file.
    pub(super) file: OwnedFd,
    /// Its final path in the view.
    pub(super) path: PathBuf,
    /// Its status at that moment.
    pub(super) status: FileStat,
}

impl Found {
    /// The file type bits of its mode.
    pub(super) fn kind(&self) -> SFlag {
        SFlag::from_bits_truncate(self.status.st_mode) & SFlag::S_IFMT
    }

    pub(super) fn id(&self) -> FileId {
        FileId { dev: self.status.st_dev, ino: self.status.st_ino }
    }

    /// Whether it has or had a name: not pipes, sockets and memfds.
    pub(super) fn is_named(&self) -> bool {
        self.path.is_absolute()
            && !(self.status.st_nlink == 0 && self.path.as_os_str().as_bytes().starts_with(b"/memfd:"))
    }

    /// Whether the rights that files give us, which are those of the run, allow that.
    pub(super) fn may(&self, access: AccessFlags) -> nix::Result<()> {
        match faccessat(&self.file, "", access, AtFlags::AT_EACCESS | AtFlags::AT_EMPTY_PATH) {
            // No faccessat2(2) (Linux 5.8).
            Err(Errno::EINVAL) => faccessat(AT_FDCWD, self.own_path().as_str(), access, AtFlags::AT_EACCESS),
            done => done,
        }
    }

    /// A path of ours that leads to this very file (proc_pid_fd(5)).
    pub(super) fn own_path(&self) -> String {
        own_path(self.file.as_fd())
    }
}

/// A directory that was found, and a name in it that need not exist.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory, as O_PATH.
    pub(super) directory: Found,
    /// The last component.
    pub(super) name: OsString,
    /// The spelling ended with a slash.
    pub(super) trailing_slash: bool,
}

impl Place {
    /// The final path in the view.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path.join(&self.name)
    }
}

/// A path as a task named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spelled {
    /// The bytes that it passed.
    pub(super) typed: Vec<u8>,
    /// What they mean: joined with the directory that they start from.
    pub(super) absolute: Vec<u8>,
}

impl Spelled {
    /// Adds the path to what is written: as it was spelled, and where it led.
    pub(super) fn write_to(&self, args: &mut Members, key: &'static str, resolved: &Path) {
        args.bytes(key, &self.typed);
        let resolved = resolved.as_os_str().as_bytes();
        if self.typed != resolved {
            args.bytes("resolved", resolved);
        }
    }

    /// A file that was named by a descriptor.
    pub(super) fn of_file(path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes().to_vec();
        Self { typed: bytes.clone(), absolute: bytes }
    }

    /// Adds the path to an event: as it was spelled, and where it led.
    pub(super) fn add_to(&self, event: Event, key: &str, resolved: &Path) -> Event {
        let event = event.path(key, OsStr::from_bytes(&self.typed));
        if self.typed == resolved.as_os_str().as_bytes() { event } else { event.path("resolved", resolved) }
    }
}

/// The owner of what is not the caller's own: no other ids are mapped (`ns`), and this is what
/// user_namespaces(7) shows where the host has set nothing else.
const NOBODY: u32 = 65534;

/// What the kernel puts behind a name that is gone (proc_pid_fd(5)).
const GONE: &[u8] = b" (deleted)";

/// The root of the run.
#[derive(Debug)]
pub(super) struct View {
    pub(super) root: OwnedFd,
    /// Our own /proc/self/fd: the way to it costs more than the open.
    pub(super) descriptors: OwnedFd,
    /// Mounts outside of it that standard input, output and error lead to.
    inherited: Vec<u64>,
    /// Places whose writes stay inside.
    pub(super) diverted: Vec<PathBuf>,
    /// The pipe that is standard input as it is, for reading alone: others outside read and write it too.
    pub(super) input: Option<FileId>,
    /// What the launcher has put into it.
    pub(super) made: Vec<PathBuf>,
    /// Files without their content.
    pub(super) placeholders: HashSet<FileId>,
    /// The user and the group of the run, as it sees them; to the host they are the launcher's.
    pub(super) ids: (u32, u32),
}

impl View {
    /// Takes an O_PATH descriptor of the run's root, the mounts outside of it that standard input, output
    /// and error lead to, and the pipe that is standard input.
    pub(super) fn of(
        root: OwnedFd,
        inherited: Vec<u64>,
        diverted: Vec<PathBuf>,
        input: Option<FileId>,
    ) -> nix::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let ids = (geteuid().as_raw(), getegid().as_raw());
        let descriptors = nix::fcntl::open("/proc/self/fd", flags, Mode::empty())?;
        let (made, placeholders) = (Vec::new(), HashSet::new());
        Ok(Self { root, descriptors, inherited, diverted, input, made, placeholders, ids })
    }

    /// The same with what the launcher has put into it, and with the user and the group of the run.
    pub(super) fn with(self, made: Vec<PathBuf>, ids: (u32, u32)) -> Self {
        Self { made, ids, ..self }
    }

    /// A user of the host as the run sees it.
    pub(super) fn user(&self, id: u32) -> u32 {
        if id == geteuid().as_raw() { self.ids.0 } else { NOBODY }
    }

    /// A group of the host as the run sees it.
    pub(super) fn group(&self, id: u32) -> u32 {
        if id == getegid().as_raw() { self.ids.1 } else { NOBODY }
    }

    /// Finds what `absolute` names; a link at its end is followed only if `follow`.
    pub(super) fn find(&self, absolute: &[u8], follow: bool) -> nix::Result<Found> {
        if let Some(magic) = MagicLink::parse(absolute)
            && (follow || !magic.rest.is_empty())
        {
            return self.find_magic(&magic, follow);
        }
        let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        if !follow {
            flags |= OFlag::O_NOFOLLOW;
        }
        if super::spelling::is_clean(absolute) {
            // Most paths hold no link: then they are final as they are spelled.
            let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
            let how = OpenHow::new().flags(flags).resolve(resolve);
            match openat2(&self.root, OsStr::from_bytes(absolute), how) {
                Ok(file) => {
                    let status = fstat(&file)?;
                    return Ok(Found { file, path: PathBuf::from(OsStr::from_bytes(absolute)), status });
                }
                Err(Errno::ELOOP) => {}
                Err(errno) => return Err(errno),
            }
        }
        found(self.open(absolute, flags, Mode::empty())?)
    }

    /// The path by which rules judge `found`: where the name that it was found by is gone, that name
    /// (proc_pid_fd(5)), though there may be others.
    pub(super) fn judged_path<'a>(&self, found: &'a Found) -> nix::Result<&'a Path> {
        let former = found.path.as_os_str().as_bytes().strip_suffix(GONE).filter(|_| found.is_named());
        match former {
            Some(former) if self.has_lost_its_name(found)? => Ok(Path::new(OsStr::from_bytes(former))),
            _ => Ok(&found.path),
        }
    }

    /// Whether the name that `found` was found by is gone. One that ends as the kernel says so may be there, too.
    pub(super) fn has_lost_its_name(&self, found: &Found) -> nix::Result<bool> {
        let path = found.path.as_os_str().as_bytes();
        if found.status.st_nlink == 0 || !path.ends_with(GONE) {
            return Ok(found.status.st_nlink == 0);
        }
        match self.find(path, false) {
            Ok(there) => Ok(there.id() != found.id()),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// The directory at `absolute`, by a path without links, as O_PATH.
    pub(super) fn directory(&self, absolute: &[u8]) -> nix::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        openat2(&self.root, OsStr::from_bytes(absolute), OpenHow::new().flags(flags).resolve(resolve))
    }

    /// Finds `path` under restrictions of openat2(2): from the directory behind `base` (which it
    /// then cannot leave), else from the root.
    pub(super) fn find_restricted(
        &self,
        task: &Task,
        base: Option<i32>,
        path: &[u8],
        follow: bool,
        resolve: ResolveFlag,
    ) -> nix::Result<Found> {
        let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        if !follow {
            flags |= OFlag::O_NOFOLLOW;
        }
        let how = OpenHow::new().flags(flags).resolve(resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let path = OsStr::from_bytes(path);
        match base {
            None => {
                let how =
                    how.resolve(resolve | ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
                found(openat2(&self.root, path, how)?)
            }
            Some(libc::AT_FDCWD) => {
                found(openat2(self.find(task.working_directory()?.as_bytes(), true)?.file, path, how)?)
            }
            Some(number) => found(openat2(task.descriptor(number)?, path, how)?),
        }
    }

    /// Finds the directory that holds what `absolute` names.
    pub(super) fn place(&self, absolute: &[u8]) -> nix::Result<Place> {
        let trimmed = trim_slashes(absolute);
        let slash = trimmed.iter().rposition(|&byte| byte == b'/').ok_or(Errno::ENOENT)?;
        let (directory, name) = (&trimmed[..slash.max(1)], &trimmed[slash + 1..]);
        if name.is_empty() || name == b"." || name == b".." {
            return Err(if name == b".." { Errno::ENOTEMPTY } else { Errno::EINVAL });
        }
        let directory = self.find(directory, true)?;
        if directory.kind() != SFlag::S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        Ok(Place {
            directory,
            name: OsStr::from_bytes(name).to_owned(),
            trailing_slash: trimmed.len() != absolute.len(),
        })
    }

    /// Whether something is mounted at `place`. Outside of the run's mount namespace the kernel does not keep
    /// such a name from being removed or moved: the mount would go, and what lies under it would show.
    pub(super) fn is_mount_point(place: &Place) -> nix::Result<bool> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let there = nix::fcntl::openat(&place.directory.file, place.name.as_os_str(), flags, Mode::empty());
        let there = match there {
            Ok(there) => there,
            Err(Errno::ENOENT) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        let mounts = [&place.directory.file, &there].map(|file| descriptor::mount_id(file.as_fd()));
        Ok(!matches!(mounts, [Ok(around), Ok(at)] if around == at))
    }

    pub(super) fn open(&self, absolute: &[u8], flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(flags).mode(mode).resolve(resolve);
        for _ in 0..16 {
            // EAGAIN: a rename somewhere raced with `..` in the path (openat2(2)).
            match openat2(&self.root, OsStr::from_bytes(absolute), how) {
                Err(Errno::EAGAIN) => {}
                other => return other,
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Whether `found` came in as a standard descriptor: the path that it has outside means
    /// something else in the view.
    pub(super) fn is_inherited(&self, found: &Found) -> bool {
        // All pipes share one mount.
        found.path.is_absolute()
            && !self.inherited.is_empty()
            && descriptor::mount_id(found.file.as_fd()).is_ok_and(|mount| self.inherited.contains(&mount))
    }

    /// Whether it is the pipe that is standard input: the kernel would open it for writing too, through
    /// /proc/self/fd.
    pub(super) fn is_input(&self, found: &Found) -> bool {
        found.kind() == SFlag::S_IFIFO && self.input == Some(found.id())
    }

    /// Where the way to `absolute` ends for want of rights, links followed, with what is left of it.
    pub(super) fn blocked_at(&self, absolute: &[u8]) -> PathBuf {
        let mut walked = PathBuf::from("/");
        let mut links = 0;
        let mut rest: Vec<Vec<u8>> = absolute.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect();
        while let Some(part) = rest.pop() {
            match &*part {
                b"" | b"." => continue,
                b".." => {
                    walked.pop();
                    continue;
                }
                name => walked.push(OsStr::from_bytes(name)),
            }
            let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
            let looked = self.open(walked.as_os_str().as_bytes(), flags, Mode::empty());
            let target = match &looked {
                Ok(file) => nix::fcntl::readlinkat(file, ""),
                Err(_) => break,
            };
            let Ok(target) = target else { continue };
            links += 1;
            if links > 40 {
                break;
            }
            walked.pop();
            if target.as_bytes().first() == Some(&b'/') {
                walked = PathBuf::from("/");
            }
            rest.extend(target.as_bytes().split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec));
        }
        let left: Vec<u8> = rest.iter().rev().flat_map(|part| [b"/", &**part].concat()).collect();
        lexical(&[walked.as_os_str().as_bytes(), &left].concat())
    }

    /// Follows /proc/PID/fd/N, cwd, root or exe: the link leads to an object, not to a path.
    fn find_magic(&self, magic: &MagicLink<'_>, follow: bool) -> nix::Result<Found> {
        if magic.directory == b"/proc/1" || magic.directory.starts_with(b"/proc/1/") {
            // Pid 1 is the launcher's: the kernel would refuse it to the task as well.
            return Err(Errno::EACCES);
        }
        let holder = self.open(magic.directory, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        if magic.name == b"root" {
            let rest = if magic.rest.is_empty() { b"/" } else { magic.rest };
            return self.find(rest, follow);
        }
        let name = OsStr::from_bytes(magic.name);
        let object = nix::fcntl::openat(&holder, name, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        if magic.rest.is_empty() {
            let object = found(object)?;
            let nameless = matches!(object.kind(), SFlag::S_IFREG | SFlag::S_IFIFO);
            if nameless && self.is_inherited(&object) {
                return Ok(Found { path: PathBuf::from("/dev/stdin"), ..object });
            }
            return Ok(object);
        }
        let base = found(object)?;
        if base.kind() != SFlag::S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        let mut absolute = base.path.into_os_string().into_vec();
        absolute.extend_from_slice(magic.rest);
        self.find(&absolute, follow)
    }
}

/// Looks at an O_PATH descriptor.
pub(super) fn found(file: OwnedFd) -> nix::Result<Found> {
    let status = fstat(&file)?;
    let path = PathBuf::from(readlink(own_path(file.as_fd()).as_str())?);
    Ok(Found { file, path, status })
}
