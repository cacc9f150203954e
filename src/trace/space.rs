//! Disk space for what is to come: reserved ahead, so that what was accepted can also be written.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::fstatvfs;

use super::layout::{RESERVE_AHEAD, RESERVE_STEP, RESERVE_STEP_OF_BODIES};

/// The reservation of one file.
pub(super) struct Space {
    file: File,
    purpose: Purpose,
    reserved_to: u64,
    /// RLIMIT_FSIZE: past it nothing is written, and KEEP_SIZE does not look.
    limit: u64,
    /// The file system cannot reserve: each line is written before its producer goes on.
    write_through: bool,
}

/// What is reserved for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Lines of that very file.
    Lines,
    /// Bodies in other files.
    Bodies,
}

impl Space {
    /// Takes a descriptor of a file that ends at 0; of the trace itself another one.
    pub(super) fn new(file: File, purpose: Purpose) -> Self {
        let limit = getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft);
        Self { file, purpose, reserved_to: 0, limit, write_through: false }
    }

    pub(super) fn write_through(&self) -> bool {
        self.write_through
    }

    /// Makes sure that the file can grow to `end` bytes.
    pub(super) fn reserve(&mut self, end: u64) -> io::Result<()> {
        if end > self.limit {
            return Err(Errno::EFBIG.into());
        }
        if self.write_through {
            return self.is_free(self.counted(end));
        }
        if end <= self.reserved_to {
            return Ok(());
        }
        let target = end.max(self.reserved_to.saturating_add(self.step()));
        let offset = offset(self.reserved_to)?;
        let length = offset_between(self.reserved_to, target)?;
        loop {
            match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, length) {
                Ok(()) => break,
                Err(Errno::EINTR) => {}
                // Not every file system can reserve (fallocate(2)); those that cannot say so at the first try.
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS) if self.reserved_to == 0 => {
                    self.write_through = true;
                    return self.is_free(self.counted(end));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        self.reserved_to = target;
        Ok(())
    }

    fn step(&self) -> u64 {
        match self.purpose {
            Purpose::Lines => RESERVE_STEP,
            Purpose::Bodies => RESERVE_STEP_OF_BODIES,
        }
    }

    /// What must be free where nothing can be reserved.
    fn counted(&self, end: u64) -> u64 {
        match self.purpose {
            Purpose::Lines => RESERVE_AHEAD,
            Purpose::Bodies => end,
        }
    }

    /// Nobody else may have it meanwhile, which cannot be promised: the line itself says in time.
    fn is_free(&self, bytes: u64) -> io::Result<()> {
        let system = fstatvfs(&self.file)?;
        // Without blocks it does not count them (ramfs).
        if system.blocks() != 0 && system.blocks_available().saturating_mul(system.fragment_size()) < bytes {
            return Err(Errno::ENOSPC.into());
        }
        Ok(())
    }
}

fn offset(bytes: u64) -> io::Result<i64> {
    i64::try_from(bytes).map_err(|_| Errno::EFBIG.into())
}

fn offset_between(from: u64, to: u64) -> io::Result<i64> {
    offset(to - from)
}
