//! Where a new program begins: its registers, and the words that the kernel puts on its stack (execve(2),
//! getauxval(3)).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use crate::sys::memory::{self, PAGE};
use crate::sys::pidfd;
use crate::sys::tracee::{self, Registers};

const AT_NULL: u64 = 0;
const AT_ENTRY: u64 = 9;
const AT_SYSINFO_EHDR: u64 = 33;
/// Bytes of pointers to arguments and environment that are looked through: the kernel takes a quarter of the
/// stack for them and what they point to.
const MOST: u64 = 8 << 20;

/// A program that stands at its first instruction.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) process: Process,
    pub(super) memory: io::Result<OwnedFd>,
    pub(super) stack: Stack,
}

/// What the kernel gives a program to begin with.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) registers: Registers,
    /// What the kernel tells it.
    pub(super) told: io::Result<Told>,
    /// Its arguments, each with its zero byte; `None` where they lie too far off.
    pub(super) arguments: Option<Vec<u8>>,
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
    /// Where the program itself begins, behind its loader (AT_ENTRY).
    pub(super) entry: u64,
}

/// Where the program is told of the kernel's vDSO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vdso {
    /// The kernel's vDSO.
    pub(super) kernel: u64,
    /// The word that says so.
    pub(super) word: u64,
}

impl Stack {
    /// Looks at a task which stands at the first instruction of its program. Nobody else can have written there
    /// yet.
    ///
    /// # Errors
    /// When it is gone.
    pub(super) fn of(task: i32) -> io::Result<Self> {
        let registers = tracee::registers(task)?;
        let (told, arguments) = match read(task, registers.rsp) {
            Ok((told, arguments)) => (Ok(told), arguments.filter(|_| tracee::is_64_bit(&registers))),
            Err(error) => (Err(error), None),
        };
        Ok(Self { registers, told, arguments })
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
fn read(task: i32, stack: u64) -> io::Result<(Told, Option<Vec<u8>>)> {
    let mut words = Words { task, next: stack, end: stack.saturating_add(MOST), read: Vec::new(), at: 0 };
    // The arguments and their end. What they point to lies in a row, and the environment follows.
    let count = words.read()?;
    let first = words.read()?;
    words.skip(count)?;
    let end = words.read()?;
    if end != 0 {
        while words.read()? != 0 {}
    }
    let mut told = Told::default();
    loop {
        let tag = words.read()?;
        let word = words.next;
        let value = words.read()?;
        match tag {
            AT_NULL => {
                let arguments = if count > 0 { words.bytes(first, end) } else { None };
                return Ok((told, arguments));
            }
            AT_SYSINFO_EHDR => told.vdso = Some(Vdso { kernel: value, word }),
            AT_ENTRY => told.entry = value,
            libc::AT_RANDOM => told.random = Some(value),
            _ => {}
        }
    }
}

/// Words of another process's memory, read by pages: what follows the stack may not be there.
struct Words {
    task: i32,
    next: u64,
    end: u64,
    read: Vec<u8>,
    at: usize,
}

/// Most of what is on the stack of a program lies within.
const READ: usize = 2 * PAGE;

impl Words {
    fn read(&mut self) -> io::Result<u64> {
        if self.next >= self.end {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.at + 8 > self.read.len() {
            let rest = READ - usize::try_from(self.next).unwrap_or(0) % PAGE;
            self.read.resize(rest, 0);
            self.at = 0;
            let count = memory::read(self.task, self.next, &mut self.read)?;
            self.read.truncate(count);
        }
        let bytes = self.read.get(self.at..).and_then(<[u8]>::first_chunk::<8>);
        let word = bytes.ok_or(io::ErrorKind::InvalidData)?;
        self.at += 8;
        self.next += 8;
        Ok(u64::from_le_bytes(*word))
    }

    /// What lies between two addresses, where that was read last.
    fn bytes(&self, from: u64, to: u64) -> Option<Vec<u8>> {
        let start = self.next.checked_sub(self.at as u64)?;
        let within = |address: u64| usize::try_from(address.checked_sub(start)?).ok();
        self.read.get(within(from)?..within(to)?).map(<[u8]>::to_vec)
    }

    /// Goes on so many words later, without a read where those are read.
    fn skip(&mut self, words: u64) -> io::Result<()> {
        let bytes = words.checked_mul(8).ok_or(io::ErrorKind::InvalidData)?;
        self.next = self.next.checked_add(bytes).ok_or(io::ErrorKind::InvalidData)?;
        let at = usize::try_from(bytes).ok().and_then(|bytes| self.at.checked_add(bytes));
        match at.filter(|at| *at <= self.read.len()) {
            Some(at) => self.at = at,
            None => self.read.clear(),
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
        read(std::process::id().cast_signed(), &raw const pages[first] as u64).map(|(told, _)| told)
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
