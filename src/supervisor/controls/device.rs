//! Files that hold other bytes in each run: /dev/random, /dev/urandom, and the ids that the kernel makes up
//! below /proc/sys/kernel/random. An open of one is answered with bytes of the run's seed.
//!
//! A device is answered with one end of a pair of sockets, of which we fill the other: a read waits until
//! it has all the bytes that it asks for, as with the device. Nothing can be sent back: a descriptor in a
//! message would be closed by us, and that of a connection that lingers waits (socket(7), SO_LINGER). Who
//! opens the device for writing too gets the reading end of a pipe.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{SockType, setsockopt, sockopt};
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};

use super::super::call::{Call, Reply};
use super::super::request::Request;
use super::super::view::{Found, own_path};
use super::super::{Stop, Supervisor};
use super::draw::{Draw, Purpose};
use crate::policy::FileId;
use crate::sys::sockopt::read_whole;

/// Devices that may be open at once.
const MOST: usize = 256;
/// Bytes that wait to be read, about: who reads a key takes few, and who reads more gets a larger buffer.
const BUFFER: usize = 8 << 10;
const LARGE_BUFFER: usize = 128 << 10;
/// Bytes after which the buffer is enlarged.
const MUCH: u64 = 64 << 10;
/// Bytes that are given to one reader before others get theirs.
const TURN: u64 = 256 << 10;
/// Bytes that are made at once.
const PIECE: usize = 4 << 10;

/// `makedev(1, 8)` and `makedev(1, 9)` (random(4)).
const DEVICES: [(u64, u64); 2] = [(1, 8), (1, 9)];

/// A file that holds other bytes in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::supervisor) enum Source {
    /// Random bytes without end.
    Device,
    /// An id for whoever asks.
    Uuid,
    /// An id for the time since the host was started.
    Boot,
}

/// A device that a task has open.
#[derive(Debug)]
struct Feed {
    ours: File,
    /// That of the other end.
    id: FileId,
    draw: Draw,
    /// Bytes that found no room yet.
    waiting: Vec<u8>,
    given: u64,
}

/// The devices that tasks have open.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct Feeds {
    feeds: Vec<Feed>,
}

impl Feeds {
    /// What to wait for: room in a buffer, or the end of all readers.
    pub(in crate::supervisor) fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.feeds.iter().map(|feed| PollFd::new(feed.ours.as_fd(), PollFlags::POLLOUT))
    }

    /// Serves those for which something has come.
    pub(in crate::supervisor) fn serve(&mut self, due: &[bool]) {
        let mut due = due.iter().copied();
        self.feeds.retain_mut(|feed| !due.next().unwrap_or(false) || feed.serve());
    }

    fn open(&mut self, (ours, theirs): (OwnedFd, OwnedFd), draw: Draw, flags: OFlag) -> nix::Result<OwnedFd> {
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        if flags.contains(OFlag::O_NONBLOCK) {
            fcntl(&theirs, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let status = fstat(&theirs)?;
        let id = FileId { dev: status.st_dev, ino: status.st_ino };
        let mut feed = Feed { ours: File::from(ours), id, draw, waiting: Vec::new(), given: 0 };
        // Who reads without waiting finds something.
        feed.serve();
        self.feeds.push(feed);
        Ok(theirs)
    }
}

/// Makes the second of a pair one that can only be read.
fn one_way((ours, theirs): (OwnedFd, OwnedFd)) -> nix::Result<(OwnedFd, OwnedFd)> {
    let ours = UnixStream::from(ours);
    ours.shutdown(Shutdown::Read).map_err(errno)?;
    setsockopt(&ours, sockopt::SndBuf, &BUFFER)?;
    read_whole(&theirs).map_err(errno)?;
    Ok((ours.into(), theirs))
}

fn pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    Ok((ours, theirs))
}

impl Feed {
    /// False when nobody reads any more.
    fn serve(&mut self) -> bool {
        let mut turn = 0;
        while turn < TURN {
            if self.waiting.is_empty() {
                self.waiting.resize(PIECE, 0);
                self.draw.fill(&mut self.waiting);
            }
            match self.ours.write(&self.waiting) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    turn += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // EPIPE: the last descriptor was closed.
                Err(_) => return false,
            }
        }
        if self.given < MUCH && self.given + turn >= MUCH {
            // A pipe stays as it is.
            let _ = setsockopt(&self.ours, sockopt::SndBuf, &LARGE_BUFFER);
        }
        self.given = self.given.saturating_add(turn);
        true
    }
}

impl Supervisor {
    /// What to answer an open of this file from; `None` for files that are what they are.
    pub(in crate::supervisor) fn source(&self, request: &Request, found: &Found) -> Option<Source> {
        // Who only writes stirs the host's pool and learns nothing.
        let following = self.following.as_ref()?;
        if request.flags & OFlag::O_ACCMODE == OFlag::O_WRONLY {
            return None;
        }
        let device = (major(found.status.st_rdev), minor(found.status.st_rdev));
        let is_device = match found.kind() {
            SFlag::S_IFCHR => DEVICES.contains(&device),
            // /dev/fd/3 of a device that is open already.
            SFlag::S_IFSOCK | SFlag::S_IFIFO => {
                following.feeds.feeds.iter().any(|feed| feed.id == found.id())
            }
            _ => false,
        };
        if is_device {
            return Some(Source::Device);
        }
        let name = found.path.strip_prefix("/proc/sys/kernel/random").ok()?;
        if name == Path::new("uuid") {
            Some(Source::Uuid)
        } else {
            (name == Path::new("boot_id")).then_some(Source::Boot)
        }
    }

    /// Answers the open.
    pub(in crate::supervisor) fn open_source(
        &mut self,
        call: &Call,
        request: &Request,
        source: Source,
    ) -> Result<Reply, Stop> {
        let purpose = match source {
            Source::Device => Purpose::Device,
            Source::Uuid => Purpose::Uuid,
            Source::Boot => Purpose::Boot,
        };
        let draw = match (source, &self.following) {
            (Source::Boot, Some(following)) => Some(Draw::new(&following.seed, purpose, None, 0)),
            _ => self.draw(call.task.tid, purpose),
        };
        let Some(mut draw) = draw else { return Ok(Reply::Errno(Errno::EIO)) };
        let opened = match source {
            Source::Device => self.open_device(draw, request.flags)?,
            Source::Uuid | Source::Boot => id_file(&draw.uuid()),
        };
        Ok(match opened {
            Ok(file) => {
                let close_on_exec = request.flags.contains(OFlag::O_CLOEXEC);
                Reply::Descriptor { file, close_on_exec }
            }
            Err(errno) => Reply::Errno(errno),
        })
    }

    fn open_device(&mut self, draw: Draw, flags: OFlag) -> Result<nix::Result<OwnedFd>, Stop> {
        if self.following.as_ref().is_none_or(|following| following.feeds.feeds.len() >= MOST) {
            return Ok(Err(Errno::EMFILE));
        }
        let ends = if flags.contains(OFlag::O_RDWR) {
            pipe()
        } else {
            self.pair_inside(SockType::Stream)?.and_then(one_way)
        };
        let feeds = self.following.as_mut().map(|following| &mut following.feeds);
        Ok(ends.and_then(|ends| feeds.ok_or(Errno::EIO)?.open(ends, draw, flags)))
    }
}

/// A file that can be read and holds this line.
fn id_file(id: &str) -> nix::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"id", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(format!("{id}\n").as_bytes()).map_err(errno)?;
    nix::fcntl::open(own_path(file.as_fd()).as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::seed::Seed;
    use super::*;

    fn drawn(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        draw().fill(&mut bytes);
        bytes
    }

    fn draw() -> Draw {
        Draw::new(&Seed::new([3; 32]), Purpose::Device, None, 0)
    }

    fn opened() -> (Feeds, UnixStream) {
        let mut feeds = Feeds::default();
        let (one, other) = UnixStream::pair().expect("a pair");
        let ends = one_way((one.into(), other.into())).expect("options");
        let theirs = feeds.open(ends, draw(), OFlag::O_RDONLY).expect("a device");
        (feeds, UnixStream::from(theirs))
    }

    #[test]
    fn a_read_gets_all_that_it_asks_for() {
        let (mut feeds, mut theirs) = opened();
        const LENGTH: usize = 3_000_001;
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; LENGTH];
            let count = theirs.read(&mut bytes).expect("random bytes");
            (count, bytes)
        });
        while !feeds.feeds.is_empty() {
            let mut watched: Vec<_> = feeds.watched().collect();
            nix::poll::poll(&mut watched, nix::poll::PollTimeout::NONE).expect("poll");
            feeds.serve(&[true]);
        }
        let (count, bytes) = reader.join().expect("a reader");
        assert_eq!(count, LENGTH);
        assert!(bytes == drawn(LENGTH));
    }

    #[test]
    fn nothing_can_be_sent_back() {
        let (mut feeds, mut theirs) = opened();
        assert_eq!(theirs.write(&[7]).expect_err("refused").kind(), ErrorKind::BrokenPipe);
        let mut bytes = [0; 100];
        theirs.read_exact(&mut bytes).expect("random bytes");
        assert_eq!(bytes[..], drawn(100));
        drop(theirs);
        feeds.serve(&[true]);
        assert!(feeds.feeds.is_empty());
        let mut theirs =
            File::from(feeds.open(pipe().expect("a pipe"), draw(), OFlag::O_RDWR).expect("a device"));
        assert_eq!(theirs.write(&[7]).expect_err("refused").raw_os_error(), Some(libc::EBADF));
        theirs.read_exact(&mut bytes).expect("random bytes");
        assert_eq!(bytes[..], drawn(100));
        drop(theirs);
        feeds.serve(&[true]);
        assert!(feeds.feeds.is_empty());
    }

    #[test]
    fn an_id_is_read_as_from_the_kernel() {
        let id = draw().uuid();
        let text = std::io::read_to_string(File::from(id_file(&id).expect("a file"))).expect("text");
        assert_eq!(text, format!("{id}\n"));
    }
}
