//! Decides what the command gets for each of descriptors 0, 1 and 2.

use std::io;
use std::os::fd::BorrowedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FileStat, SFlag, fstat};

use super::{Input, Outputs, StdioError, Stream, input};
use crate::sys::descriptor;

/// What the command gets for one of the launcher's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// The launcher's own, as it is, and not digested: what it is.
    Passed(&'static str),
    /// The regular file, through a mount that is read-only; where that cannot be had, relayed.
    File,
    /// The pipe, for reading alone: a relay would take from it what others are to read.
    Pipe,
    /// A pipe of ours, copied from or to the launcher's own.
    Relayed,
    /// The same pipe as standard output.
    WithOutput,
    /// Something that gives EBADF, as the launcher's own would.
    Unusable,
}

impl Treatment {
    /// The same for standard input that is wanted as `input`.
    pub(super) fn of(self, input: Input) -> Self {
        match (input, self) {
            (Input::Kept, Self::Pipe) | (Input::Piped, Self::File | Self::Pipe) => Self::Relayed,
            (_, other) => other,
        }
    }
}

/// One of the launcher's descriptors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    kind: SFlag,
    /// Device and inode.
    id: (u64, u64),
    /// Which device a character device stands for.
    device: (u64, u64),
    flags: OFlag,
    terminal: bool,
    /// In a file system like /proc.
    of_kernel: bool,
}

/// null(4).
const NULL: (u64, u64) = (1, 3);
/// What is said of it.
const NULL_DEVICE: &str = "the null device";
/// The same of standard input that can be written to as well.
pub const NULL_DEVICE_BOTH_WAYS: &str = "the null device, to read and to write";

impl Descriptor {
    pub(super) fn of(stream: Stream, file: BorrowedFd<'_>) -> Result<Self, StdioError> {
        let failed = |call| move |errno: nix::Error| StdioError::Call { stream, call, source: errno.into() };
        let status: FileStat = fstat(file).map_err(failed("fstat"))?;
        let flags = fcntl(file, FcntlArg::F_GETFL).map_err(failed("fcntl(F_GETFL)"))?;
        Ok(Self {
            kind: SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT,
            id: (status.st_dev, status.st_ino),
            device: (libc::major(status.st_rdev).into(), libc::minor(status.st_rdev).into()),
            flags: OFlag::from_bits_retain(flags),
            terminal: std::io::IsTerminal::is_terminal(&file),
            of_kernel: input::is_of_kernel(file),
        })
    }

    fn mode(&self) -> OFlag {
        self.flags & OFlag::O_ACCMODE
    }

    fn passed(&self) -> Option<Treatment> {
        if self.terminal {
            return Some(Treatment::Passed("a terminal"));
        }
        let null = self.kind == SFlag::S_IFCHR && self.device == NULL;
        null.then_some(Treatment::Passed(NULL_DEVICE))
    }

    /// What the command gets as standard input.
    pub(super) fn as_input(&self) -> Result<Treatment, StdioError> {
        if self.kind == SFlag::S_IFDIR {
            // A way out of the view by openat(2).
            return Err(StdioError::Directory);
        }
        if self.flags.contains(OFlag::O_PATH) || self.mode() == OFlag::O_WRONLY {
            return Ok(Treatment::Unusable);
        }
        if self.mode() == OFlag::O_RDWR && self.passed() == Some(Treatment::Passed(NULL_DEVICE)) {
            return Ok(Treatment::Passed(NULL_DEVICE_BOTH_WAYS));
        }
        Ok(self.passed().unwrap_or(match self.kind {
            // What the kernel makes up as it is read cannot be read twice.
            SFlag::S_IFREG if !self.of_kernel => Treatment::File,
            SFlag::S_IFIFO => Treatment::Pipe,
            // A socket would be a way out, a device takes ioctl(2).
            _ => Treatment::Relayed,
        }))
    }

    /// What the command gets as standard output or error.
    pub(super) fn as_output(&self) -> Treatment {
        if self.flags.contains(OFlag::O_PATH) || self.mode() == OFlag::O_RDONLY {
            return Treatment::Unusable;
        }
        self.passed().unwrap_or(Treatment::Relayed)
    }

    /// Whether what is written to both arrives in one order, which one pipe keeps. Two opens of
    /// one regular file overwrite each other instead, unless they append.
    pub(super) fn is_ordered_with(
        &self,
        other: &Self,
        same_open_file: impl FnOnce() -> io::Result<bool>,
    ) -> bool {
        self.id == other.id
            && (self.kind != SFlag::S_IFREG
                || (self.flags & other.flags).contains(OFlag::O_APPEND)
                // Without kcmp(2): `2>&1` is what people write.
                || same_open_file().unwrap_or(true))
    }
}

/// What the command gets as standard output and as standard error.
pub(super) fn outputs(
    output: BorrowedFd<'_>,
    error: BorrowedFd<'_>,
    wanted: Outputs,
) -> Result<(Treatment, Treatment), StdioError> {
    let one = Descriptor::of(Stream::Output, output)?;
    let other = Descriptor::of(Stream::Error, error)?;
    let own = [one.as_output(), other.as_output()];
    Ok(wanted.of(own, || one.is_ordered_with(&other, || descriptor::same_open_file(output, error))))
}

impl Outputs {
    /// What of the launcher's own, of which it is told whether what is written to both arrives in one order.
    fn of(self, own: [Treatment; 2], is_one: impl FnOnce() -> bool) -> (Treatment, Treatment) {
        let relayed = |own, wanted| match own {
            Treatment::Passed(_) if wanted => Treatment::Relayed,
            own => own,
        };
        let first = relayed(own[0], self.output || self.together);
        let second = relayed(own[1], self.error || self.together);
        let together = self.together || self == Self::default() && is_one();
        match (first, second) {
            (Treatment::Relayed, Treatment::Relayed) if together => (first, Treatment::WithOutput),
            both => both,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(kind: SFlag, flags: OFlag) -> Descriptor {
        Descriptor { kind, id: (1, 2), device: (0, 0), flags, terminal: false, of_kernel: false }
    }

    #[test]
    fn nothing_that_leads_out_is_passed() {
        let input = |kind, flags| descriptor(kind, flags).as_input().ok();
        assert_eq!(input(SFlag::S_IFDIR, OFlag::O_RDONLY), None);
        assert_eq!(input(SFlag::S_IFSOCK, OFlag::O_RDWR), Some(Treatment::Relayed));
        assert_eq!(input(SFlag::S_IFBLK, OFlag::O_RDONLY), Some(Treatment::Relayed));
        assert_eq!(input(SFlag::S_IFCHR, OFlag::O_RDWR), Some(Treatment::Relayed));
        assert_eq!(input(SFlag::S_IFREG, OFlag::O_RDWR), Some(Treatment::File));
        assert_eq!(input(SFlag::S_IFIFO, OFlag::O_RDONLY), Some(Treatment::Pipe));
        assert_eq!(input(SFlag::S_IFREG, OFlag::O_WRONLY), Some(Treatment::Unusable));
        assert_eq!(input(SFlag::S_IFREG, OFlag::O_PATH), Some(Treatment::Unusable));
        let output = |kind, flags| descriptor(kind, flags).as_output();
        assert_eq!(output(SFlag::S_IFSOCK, OFlag::O_RDWR), Treatment::Relayed);
        assert_eq!(output(SFlag::S_IFREG, OFlag::O_RDONLY), Treatment::Unusable);
        assert_eq!(output(SFlag::S_IFDIR, OFlag::O_RDONLY), Treatment::Unusable);
    }

    #[test]
    fn terminals_and_the_null_device_are_passed() {
        let null = Descriptor { device: NULL, ..descriptor(SFlag::S_IFCHR, OFlag::O_RDWR) };
        assert_eq!(null.as_output(), Treatment::Passed(NULL_DEVICE));
        assert_eq!(null.as_input().ok(), Some(Treatment::Passed(NULL_DEVICE_BOTH_WAYS)));
        let read = Descriptor { flags: OFlag::O_RDONLY, ..null };
        assert_eq!(read.as_input().ok(), Some(Treatment::Passed(NULL_DEVICE)));
        let terminal = Descriptor { terminal: true, ..descriptor(SFlag::S_IFCHR, OFlag::O_RDWR) };
        assert_eq!(terminal.as_input().ok(), Some(Treatment::Passed("a terminal")));
    }

    #[test]
    fn outputs_are_as_they_are_wanted() {
        let (terminal, relayed) = (Treatment::Passed("a terminal"), Treatment::Relayed);
        let own = Outputs::default();
        assert_eq!(own.of([terminal, relayed], || true), (terminal, relayed));
        assert_eq!(own.of([relayed; 2], || true), (relayed, Treatment::WithOutput));
        assert_eq!(own.of([relayed; 2], || false), (relayed, relayed));
        let apart = Outputs { output: true, error: true, ..Outputs::default() };
        assert_eq!(apart.of([relayed; 2], || true), (relayed, relayed));
        assert_eq!(apart.of([terminal, Treatment::Unusable], || true), (relayed, Treatment::Unusable));
        let together = Outputs { output: true, together: true, ..Outputs::default() };
        assert_eq!(together.of([terminal, relayed], || false), (relayed, Treatment::WithOutput));
    }

    #[test]
    fn one_pipe_where_the_order_shows() {
        let pipe = descriptor(SFlag::S_IFIFO, OFlag::O_WRONLY);
        assert!(pipe.is_ordered_with(&pipe, || Ok(false)));
        assert!(!pipe.is_ordered_with(&Descriptor { id: (1, 3), ..pipe }, || Ok(true)));
        let file = descriptor(SFlag::S_IFREG, OFlag::O_WRONLY);
        assert!(file.is_ordered_with(&file, || Ok(true)));
        assert!(!file.is_ordered_with(&file, || Ok(false)));
        assert!(file.is_ordered_with(&file, || Err(io::ErrorKind::Unsupported.into())));
        let log = descriptor(SFlag::S_IFREG, OFlag::O_WRONLY | OFlag::O_APPEND);
        assert!(log.is_ordered_with(&log, || Ok(false)));
    }
}
