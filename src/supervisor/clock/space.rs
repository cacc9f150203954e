//! The memory that a program shares with the supervisor: the image, its control page, and lanes of tape.
//!
//! It is a file in memory that the program itself has made ([`super::visit`]), of a size that nobody can
//! change. A program that forks goes on sharing it with its child, each with lanes of its own.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::uio::{pread, pwrite};
use nix::unistd::ftruncate;

use super::control::Control;
use super::points::Point;
use crate::sys::vdso::{CONTROL, IMAGE, KINDS, LANE, LANE_HEAD, LANES, LENGTH, POINTS, TAPE};

/// From a lane to what its clock is ahead, and its times of day are behind that.
const SKEW: u64 = 32;
const LATE: u64 = 40;
/// From a lane to the last time of CLOCK_MONOTONIC that Java code, or an interpreter, was given.
const FLOOR: u64 = 176;
/// The name of the file in memory.
pub(super) const NAME: &str = "agentbox clock";

/// The memory of a program and of those that it has forked into.
#[derive(Debug)]
pub(super) struct Space {
    file: OwnedFd,
    /// Lanes that nobody has: those that were given back, and all from a number on.
    free: RefCell<(Vec<u32>, u32)>,
}

impl Space {
    /// Fills `file`, which the program says that it has made.
    ///
    /// # Errors
    /// When it is something else, or cannot be filled.
    pub(super) fn fill(file: OwnedFd, control: &Control) -> io::Result<Self> {
        let status = nix::sys::stat::fstat(&file)?;
        // Only files in memory know seals (EINVAL).
        let sealed = fcntl(&file, FcntlArg::F_GET_SEALS)?;
        if sealed != 0 || status.st_nlink != 0 || status.st_size != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        ftruncate(&file, i64::try_from(LENGTH).map_err(io::Error::other)?)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        // Pages between them that are not written are none.
        write(&file, IMAGE, 0)?;
        write(&file, &control.bytes(), CONTROL)?;
        Ok(Self { file, free: RefCell::new((Vec::new(), 0)) })
    }

    /// A lane that nobody else has; `None` when all are taken.
    pub(super) fn lane(self: &Rc<Self>) -> Option<Lane> {
        let mut free = self.free.borrow_mut();
        let (returned, unused) = &mut *free;
        let number = returned.pop().or_else(|| {
            let number = *unused;
            (number < LANES).then(|| {
                *unused += 1;
                number
            })
        })?;
        Some(Lane { space: Rc::clone(self), number })
    }
}

/// A place for each kind of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next(pub(super) [u16; KINDS]);

impl Default for Next {
    fn default() -> Self {
        Self([0; KINDS])
    }
}

impl Next {
    pub(super) fn of(&self, kind: u8) -> u16 {
        self.0.get(usize::from(kind)).copied().unwrap_or(0)
    }
}

/// What stands at the head of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub(super) cursor: u64,
    pub(super) count: u64,
    pub(super) more: bool,
    pub(super) last: u64,
    pub(super) skew: u64,
    pub(super) adrift: bool,
    pub(super) mismatches: u64,
    /// Where the next read of each kind is looked for.
    pub(super) next: Next,
}

impl Head {
    /// Whether the thread is beyond the end. Where only reads of another clock than CLOCK_MONOTONIC are, it is
    /// on its tape still.
    pub(super) fn drifts(&self) -> bool {
        self.adrift && self.cursor >= self.count
    }
}

/// A thread's part of the tape. The thread can write to it at any time: nothing that is read here is more
/// than what it says of itself.
#[derive(Debug)]
pub(super) struct Lane {
    space: Rc<Space>,
    number: u32,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.space.free.borrow_mut().0.push(self.number);
    }
}

impl Space {
    /// Its file, once nobody else has a lane.
    pub(super) fn into_file(self: Rc<Self>) -> Option<OwnedFd> {
        Rc::into_inner(self).map(|space| space.file)
    }
}

impl Lane {
    /// The memory that it is in.
    pub(super) fn space(&self) -> Rc<Space> {
        Rc::clone(&self.space)
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Another lane for a child that shares the memory.
    pub(super) fn another(&self) -> Option<Self> {
        self.space.lane()
    }

    fn at(&self) -> u64 {
        TAPE + u64::from(self.number) * LANE
    }

    pub(super) fn head(&self) -> io::Result<Head> {
        let mut bytes = [0; LANE_HEAD];
        read(&self.space.file, &mut bytes, self.at())?;
        let (words, _) = bytes.as_chunks::<8>();
        let (shorts, _) = bytes.as_chunks::<2>();
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        let flags = word(2);
        Ok(Head {
            cursor: word(0),
            count: word(1),
            more: flags & u64::from(u32::MAX) != 0,
            adrift: flags >> 32 != 0,
            last: word(3),
            skew: word(4),
            mismatches: word(5),
            next: Next(std::array::from_fn(|kind| {
                shorts.get(24 + kind).map_or(0, |short| u16::from_le_bytes(*short))
            })),
        })
    }

    pub(super) fn set_head(&self, head: Head) -> io::Result<()> {
        let Head { cursor, count, more, adrift, last, skew, mismatches, next } = head;
        let flags = u64::from(more) | u64::from(adrift) << 32;
        let mut bytes = [cursor, count, flags, last, skew, mismatches].map(u64::to_le_bytes).concat();
        bytes.extend(next.0.map(u16::to_le_bytes).as_flattened());
        write(&self.space.file, &bytes, self.at())
    }

    /// Moves on what all threads of a program share, while others read it: to this cursor, the clock by so much, and
    /// what the times of day are behind it.
    pub(super) fn move_on(&self, cursor: u64, ahead: u64, late: u64) -> io::Result<()> {
        write(&self.space.file, &late.to_le_bytes(), self.at() + LATE)?;
        if ahead > 0 {
            let mut skew = [0; 8];
            read(&self.space.file, &mut skew, self.at() + SKEW)?;
            let skew = u64::from_le_bytes(skew).wrapping_add(ahead);
            write(&self.space.file, &skew.to_le_bytes(), self.at() + SKEW)?;
        }
        self.set_cursor(cursor)
    }

    /// How far the image has come.
    pub(super) fn cursor(&self) -> io::Result<u64> {
        let mut cursor = [0; 8];
        read(&self.space.file, &mut cursor, self.at())?;
        Ok(u64::from_le_bytes(cursor))
    }

    /// The first points, as many as there are to the cursor.
    pub(super) fn points(&self) -> io::Result<Vec<Point>> {
        let count = usize::try_from(self.cursor()?).unwrap_or(POINTS).min(POINTS);
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; count * 8];
        read(&self.space.file, &mut bytes, self.at() + LANE_HEAD as u64)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|word| Point::from_word(u64::from_le_bytes(*word))).collect())
    }

    /// Puts points there, at most [`POINTS`].
    pub(super) fn set_points(&self, points: &[Point]) -> io::Result<()> {
        let bytes: Vec<[u8; 8]> =
            points.iter().take(POINTS).map(|point| point.word().to_le_bytes()).collect();
        write(&self.space.file, bytes.as_flattened(), self.at() + LANE_HEAD as u64)
    }

    /// For another thread: nothing is behind it, and it has not asked yet.
    pub(super) fn clear(&self) -> io::Result<()> {
        write(&self.space.file, &[0; 24], self.at() + FLOOR)
    }

    pub(super) fn set_floor(&self, floor: u64) -> io::Result<()> {
        write(&self.space.file, &floor.to_le_bytes(), self.at() + FLOOR)
    }

    /// That time.
    pub(super) fn floor(&self) -> io::Result<u64> {
        let mut floor = [0; 8];
        read(&self.space.file, &mut floor, self.at() + FLOOR)?;
        Ok(u64::from_le_bytes(floor))
    }

    /// Moves the cursor alone.
    pub(super) fn set_cursor(&self, cursor: u64) -> io::Result<()> {
        write(&self.space.file, &cursor.to_le_bytes(), self.at())
    }
}

fn read(file: &OwnedFd, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let offset = i64::try_from(at).map_err(io::Error::other)?;
    let count = pread(file.as_fd(), bytes, offset)?;
    if count == bytes.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn write(file: &OwnedFd, bytes: &[u8], at: u64) -> io::Result<()> {
    let offset = i64::try_from(at).map_err(io::Error::other)?;
    let count = pwrite(file.as_fd(), bytes, offset)?;
    if count == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
