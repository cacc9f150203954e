//! Listening Unix sockets of ours, each standing for a socket of the host: where the place in the
//! view belongs to the run, the socket is there; elsewhere it is in a file system that nothing
//! shows, and the supervisor leads to it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};

use super::FsviewError;
use super::tree::Tree;
use crate::sys::mount::{self, NODEV, NOEXEC, NOSUID};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 512;

/// The way to one socket of the host.
#[derive(Debug)]
pub struct Door {
    /// What connects arrive at.
    pub listener: OwnedFd,
    /// The socket's file, as O_PATH.
    pub file: OwnedFd,
}

/// Makes one for each of `paths`. Changes the working directory: the path in a socket address is
/// limited to 108 bytes (unix(7)), so each socket is bound by its name alone.
pub(super) fn make(view: &mut Tree, paths: &[PathBuf]) -> Result<Vec<Door>, FsviewError> {
    let mut holder = None;
    let mut doors = Vec::with_capacity(paths.len());
    for (index, path) in paths.iter().enumerate() {
        let door = match in_view(view, path) {
            Ok(door) => door,
            // A directory of the host, a name that is taken, or one that is too long to bind.
            Err(Errno::EROFS | Errno::EADDRINUSE | Errno::ENOTDIR | Errno::ELOOP | Errno::EINVAL) => {
                if holder.is_none() {
                    holder = Some(new_holder()?);
                }
                let directory = holder.as_ref().unwrap_or(&view.root).as_fd();
                bind(directory, OsStr::new(&index.to_string()))
                    .map_err(|errno| FsviewError::new("bind", path, errno))?
            }
            Err(errno) => return Err(FsviewError::new("bind", path, errno)),
        };
        doors.push(door);
    }
    Ok(doors)
}

fn in_view(view: &mut Tree, path: &Path) -> nix::Result<Door> {
    let (directory, name) = view.own_parent(path)?;
    bind(directory.as_fd(), name)
}

/// A file system of its own, attached nowhere.
fn new_holder() -> Result<OwnedFd, FsviewError> {
    let options = [(c"mode", c"700"), (c"size", c"64k")];
    mount::new_filesystem(c"tmpfs", &options, NOSUID | NODEV | NOEXEC).map_err(FsviewError::of("tmpfs"))
}

fn bind(directory: BorrowedFd<'_>, name: &OsStr) -> nix::Result<Door> {
    let address = UnixAddr::new(name).map_err(|_| Errno::EINVAL)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    nix::unistd::fchdir(directory)?;
    nix::sys::socket::bind(listener.as_raw_fd(), &address)?;
    // Whatever the caller's umask is, the run's own user may connect.
    fchmodat(directory, name, Mode::S_IRUSR | Mode::S_IWUSR, FchmodatFlags::FollowSymlink)?;
    nix::sys::socket::listen(&listener, Backlog::new(BACKLOG)?)?;
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = nix::fcntl::openat(directory, name, flags, Mode::empty())?;
    Ok(Door { listener, file })
}
