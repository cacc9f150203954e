//! The words that the kernel puts on the stack of a new program: where its auxiliary vector is (execve(2),
//! getauxval(3)).

use std::io;

use crate::sys::memory::{self, PAGE};

const AT_NULL: u64 = 0;
const AT_ENTRY: u64 = 9;
const AT_SYSINFO_EHDR: u64 = 33;
/// Bytes of pointers to arguments and environment that are looked through: the kernel takes a quarter of the
/// stack for them and what they point to.
const MOST: u64 = 8 << 20;

/// Where the program is told of the kernel's vDSO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vdso {
    /// The kernel's vDSO.
    pub(super) kernel: u64,
    /// The word that says so.
    pub(super) word: u64,
    /// Where the program itself begins, behind its loader (AT_ENTRY).
    pub(super) entry: u64,
}

/// Looks at the stack of `task`, which stands at its first instruction; `None` where the kernel has no vDSO.
///
/// # Errors
/// When it is not as the kernel makes it.
pub(super) fn find_vdso(task: i32, stack: u64) -> io::Result<Option<Vdso>> {
    let mut words = Words { task, next: stack, end: stack.saturating_add(MOST), page: Vec::new(), at: 0 };
    // The arguments and their end.
    let count = words.read()?;
    words.skip(count.saturating_add(1))?;
    while words.read()? != 0 {}
    let (mut found, mut entry) = (None, 0);
    loop {
        let tag = words.read()?;
        let word = words.next;
        let value = words.read()?;
        match tag {
            AT_NULL => return Ok(found.map(|(kernel, word)| Vdso { kernel, word, entry })),
            AT_SYSINFO_EHDR => found = Some((value, word)),
            AT_ENTRY => entry = value,
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

    fn skip(&mut self, words: u64) -> io::Result<()> {
        let next = words.checked_mul(8).and_then(|bytes| self.next.checked_add(bytes));
        self.next = next.ok_or(io::ErrorKind::InvalidData)?;
        self.page.clear();
        Ok(())
    }
}
