//! Binds Unix sockets where no path leads: in a file system of its own that is mounted nowhere.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, umask};
use nix::unistd::{UnlinkatFlags, chroot, fchdir, mkdir, unlinkat};

use crate::sys::address;
use crate::sys::mount::{self, NODEV, NOEXEC, NOSUID};

/// Where nobody looks; made for the first socket.
#[derive(Debug, Default)]
pub(super) struct Apart(Option<OwnedFd>);

impl Apart {
    /// Binds `socket` to an address as it is spelled, and gives the file that it is bound to (O_PATH), which any user
    /// can connect to and which has no name any more.
    ///
    /// # Errors
    /// The outer one: the root of the calling process is not its own any more.
    pub(super) fn bind(&mut self, socket: BorrowedFd<'_>, raw: &[u8]) -> io::Result<io::Result<OwnedFd>> {
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let (tree, root) = match (self.tree(), open("/", directory, Mode::empty())) {
            (Ok(tree), Ok(root)) => (tree, root),
            (Err(error), _) => return Ok(Err(error)),
            (_, Err(errno)) => return Ok(Err(errno.into())),
        };
        if let Err(errno) = fchdir(tree).and_then(|()| chroot(".")) {
            fchdir(root)?;
            return Ok(Err(errno.into()));
        }
        let bound = bind_here(socket, raw);
        fchdir(root)?;
        chroot(".")?;
        Ok(bound)
    }

    fn tree(&mut self) -> io::Result<&OwnedFd> {
        let tree = match self.0.take() {
            Some(tree) => tree,
            None => mount::new_filesystem(c"tmpfs", &[(c"mode", c"700")], NOSUID | NODEV | NOEXEC)
                .map_err(|refused| refused.source)?,
        };
        Ok(self.0.insert(tree))
    }
}

/// Whatever the path leads through is a directory here, and gone again afterwards.
fn bind_here(socket: BorrowedFd<'_>, raw: &[u8]) -> io::Result<OwnedFd> {
    let path = raw.get(2..).and_then(|rest| rest.split(|&byte| byte == 0).next()).unwrap_or_default();
    let slashes = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
    let way = slashes.map(|(at, _)| OsStr::from_bytes(&path[..at])).collect::<Vec<_>>();
    let former = umask(Mode::empty());
    let bound = way.iter().try_for_each(|part| make(part)).and_then(|()| {
        address::bind(socket, raw)?;
        take(OsStr::from_bytes(path)).map_err(io::Error::from)
    });
    umask(former);
    for part in way.iter().rev() {
        // `.` and `..` are no names.
        let _ = unlinkat(AT_FDCWD, *part, UnlinkatFlags::RemoveDir);
    }
    bound
}

fn make(directory: &OsStr) -> io::Result<()> {
    match mkdir(directory, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The socket at `path`, which loses that name.
fn take(path: &OsStr) -> nix::Result<OwnedFd> {
    let file = open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    // The mode that the socket had itself (fchmod(2)) is that of the name which others see.
    fchmodat(AT_FDCWD, path, Mode::from_bits_truncate(0o777), FchmodatFlags::FollowSymlink)?;
    unlinkat(AT_FDCWD, path, UnlinkatFlags::NoRemoveDir)?;
    Ok(file)
}
