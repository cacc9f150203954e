//! Where a new program begins: its registers, and the words that the kernel puts on its stack (execve(2),
//! getauxval(3)).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use crate::sys::memory::{self, PAGE};
use crate::sys::pidfd;
use crate::sys::tracee::{self, Registers};

const AT_NULL: u64 = 0;
const AT_SYSINFO_EHDR: u64 = 33;
/// Bytes of pointers to arguments and environment that are looked through: the kernel takes a quarter of the
/// stack for them and what they point to.
const MOST: u64 = 8 << 20;

/// A program that stands at its first instruction.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) process: Process,
    pub(super) memory: io::Result<OwnedFd>,
    pub(super) registers: Registers,
    /// What the kernel tells it.
    pub(super) told: io::Result<Told>,
}

/// The process that has become the program.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: i32,
    /// A descriptor of it, where the kernel has such.
    pub(super) itself: Option<Rc<OwnedFd>>,
}

/// What the kernel tells a program in its auxiliary vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    /// `None` where the kernel has no vDSO.
    pub(super) vdso: Option<Vdso>,
    /// Where its 16 random bytes are (AT_RANDOM).
    pub(super) random: Option<u64>,
}

/// Where the program is told of the kernel's vDSO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vdso {
    /// The kernel's vDSO.
    pub(super) kernel: u64,
    /// The word that says so.
    pub(super) word: u64,
}

impl Beginning {
    /// Looks at a process which stands at the first instruction of its program. Nobody else can have written there
    /// yet.
    ///
    /// # Errors
    /// When it is gone.
    pub(super) fn of(process: Process, memory: io::Result<OwnedFd>) -> io::Result<Self> {
        let registers = tracee::registers(process.id)?;
        let told = read(process.id, registers.rsp);
        Ok(Self { process, memory, registers, told })
    }
}

impl Process {
    /// Copies one of its descriptors into this process.
    ///
    /// # Errors
    /// As pidfd_getfd(2).
    pub(super) fn fetch(&self, number: i32) -> io::Result<OwnedFd> {
        match &self.itself {
            Some(itself) => pidfd::fetch(itself.as_fd(), number),
            None => pidfd::fetch(pidfd::open(self.id)?.as_fd(), number),
        }
    }
}

/// Reads the words on the stack of `task`.
///
/// # Errors
/// When they are not as the kernel puts them there for a 64-bit program.
fn read(task: i32, stack: u64) -> io::Result<Told> {
    let mut words = Words { task, next: stack, end: stack.saturating_add(MOST), page: Vec::new(), at: 0 };
    // The arguments and their end.
    let count = words.read()?;
    words.skip(count.saturating_add(1))?;
    while words.read()? != 0 {}
    let mut told = Told::default();
    loop {
        let tag = words.read()?;
        let word = words.next;
        let value = words.read()?;
        match tag {
            AT_NULL => return Ok(told),
            AT_SYSINFO_EHDR => told.vdso = Some(Vdso { kernel: value, word }),
            libc::AT_RANDOM => told.random = Some(value),
            _ => {}
        }
    }
}

/// Words of another process's memory, read page by page: what follows the stack may not be there.
struct Words {
    task: i32,
    next: u64,
    end: u64,
    page: Vec<u8>,
    at: usize,
}

impl Words {
    fn read(&mut self) -> io::Result<u64> {
        if self.next >= self.end {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.at + 8 > self.page.len() {
            let rest = PAGE - usize::try_from(self.next).unwrap_or(0) % PAGE;
            self.page.resize(rest, 0);
            self.at = 0;
            memory::read_exact(self.task, self.next, &mut self.page)?;
        }
        let bytes = self.page.get(self.at..).and_then(<[u8]>::first_chunk::<8>);
        let word = bytes.ok_or(io::ErrorKind::InvalidData)?;
        self.at += 8;
        self.next += 8;
        Ok(u64::from_le_bytes(*word))
    }

    /// Goes on so many words later, on the same page where that is read.
    fn skip(&mut self, words: u64) -> io::Result<()> {
        let bytes = words.checked_mul(8).ok_or(io::ErrorKind::InvalidData)?;
        self.next = self.next.checked_add(bytes).ok_or(io::ErrorKind::InvalidData)?;
        let at = usize::try_from(bytes).ok().and_then(|bytes| self.at.checked_add(bytes));
        match at.filter(|at| *at <= self.page.len()) {
            Some(at) => self.at = at,
            None => self.page.clear(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stack of a program with these arguments and environment.
    fn stack(words: &[&[u64]]) -> io::Result<Told> {
        let words = words.concat();
        // Rows of a page each: they are read to the page's end.
        let mut pages = vec![0_u64; (words.len() + 1024).next_multiple_of(512)];
        let start = pages.as_ptr() as usize % PAGE / 8;
        let first = (512 - start) % 512;
        pages[first..first + words.len()].copy_from_slice(&words);
        read(std::process::id().cast_signed(), &raw const pages[first] as u64)
    }

    #[test]
    fn what_is_told_stands_after_arguments_and_environment() {
        let vector = [6, 4096, 33, 0x7000, libc::AT_RANDOM, 99, 0, 0];
        for arguments in [0, 1, 2, 600] {
            let many = vec![1; arguments];
            for environment in [0, 3, 700] {
                let others = vec![2; environment];
                let told =
                    stack(&[&[arguments as u64], &many, &[0], &others, &[0], &vector]).expect("is told");
                assert_eq!((told.vdso.map(|vdso| vdso.kernel), told.random), (Some(0x7000), Some(99)));
            }
        }
        assert_eq!(stack(&[&[0, 0, 0], &[6, 4096, 0, 0]]).ok(), Some(Told::default()));
    }

    #[test]
    fn what_no_kernel_writes_is_refused() {
        for count in [u64::MAX, u64::MAX / 8, MOST / 8] {
            assert!(stack(&[&[count, 0, 0], &[6, 4096, 0, 0]]).is_err());
        }
    }
}
