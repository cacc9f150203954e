//! Puts the image into a new program, which stands at its first instruction.
//!
//! The program itself makes the file in memory and maps it, in code that is there for that alone: nothing of
//! this is a call that the filter would ask us about while we wait for it. Whatever it then is that the
//! program holds out to us is looked at before anything is written to it ([`Space::fill`]), and what it has
//! mapped is looked at before it is told where.

use std::io;
use std::rc::Rc;

use super::super::beginning::{Beginning, Process, Stack};
use super::control::Control;
use super::kind::Text;
use super::space::{NAME, Space};
use crate::sys::memory;
use crate::sys::tracee::{Registers, Visit, VisitError};
use crate::sys::vdso::{BASE, CONTROL, Functions, LENGTH, TAPE, WAY_IN};

/// Why a program has no clock of ours.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClockError {
    /// Its code could not be visited.
    #[error(transparent)]
    Visit(#[from] VisitError),
    /// The words on its stack are not as the kernel makes them.
    #[error("its stack cannot be read: {0}")]
    Stack(#[source] io::Error),
    /// It could not make a file in memory.
    #[error("memfd_create: {0}")]
    File(#[source] io::Error),
    /// What it made is no such file, or cannot be filled.
    #[error("its file in memory cannot be used: {0}")]
    Fill(#[source] io::Error),
    /// The file could not be mapped.
    #[error("mmap: {0}")]
    Map(#[source] io::Error),
}

/// Puts the image and `control` into `task`, which stands at its beginning; `text` is where its own code lies, if
/// reads are told apart by that. `None` where the kernel has no vDSO: then each read is a call.
pub(super) fn enter(
    beginning: Beginning,
    control: &mut Control,
    functions: Functions,
    text: Option<Text>,
) -> Result<Option<Rc<Space>>, ClockError> {
    let Beginning { process, memory, stack } = beginning;
    let Stack { registers, told, .. } = stack;
    let told = told.map_err(ClockError::Stack)?;
    let Some(vdso) = told.vdso else { return Ok(None) };
    let place = |offset: Option<u64>| offset.map(|offset| vdso.kernel.wrapping_add(offset));
    control.kernel = Functions {
        gettime: place(functions.gettime),
        getres: place(functions.getres),
        getcpu: place(functions.getcpu),
    };
    control.text = text.map_or(0..0, |text| text.at(told.entry));
    control.clocks =
        text.filter(|_| control.has_loop).map(|text| text.clocks_at(told.entry)).unwrap_or_default();
    control.entry = registers.rip;
    // The first lane is the first that is asked for.
    control.lane = Some(0);
    let mut visit = Visit::begin(process.id, registers, memory.map_err(VisitError::Code)?, &code())?;
    let mapped = map(&process, control, &mut visit);
    // A program that cannot be left as it was found must not go on.
    let left = leave(visit, &mapped);
    let (space, _) = mapped?;
    left?;
    memory::write(process.id, vdso.word, &BASE.to_le_bytes()).map_err(ClockError::Stack)?;
    Ok(Some(Rc::new(space)))
}

/// Fills the file that the program has made and mapped; gives its descriptor there.
fn map(process: &Process, control: &Control, visit: &mut Visit) -> Result<(Space, u64), ClockError> {
    let Registers { r8: descriptor, rbx: mapped, .. } = visit.run()?;
    let number = i32::try_from(descriptor).map_err(|_| ClockError::File(errno(descriptor)))?;
    if mapped != BASE + TAPE {
        return Err(ClockError::Map(errno(mapped)));
    }
    let space =
        process.fetch(number).and_then(|file| Space::fill(file, control)).map_err(ClockError::Fill)?;
    let wanted = control.bytes();
    let mut found = vec![0; wanted.len()];
    memory::read_exact(process.id, BASE + CONTROL, &mut found).map_err(ClockError::Map)?;
    if found != wanted {
        return Err(ClockError::Map(io::ErrorKind::InvalidData.into()));
    }
    Ok((space, descriptor))
}

/// Leaves the program as it was found, without the descriptor: it closes that on its way.
fn leave(mut visit: Visit, mapped: &Result<(Space, u64), ClockError>) -> Result<(), VisitError> {
    match mapped {
        Ok((_, descriptor)) if visit.began_blank() => {
            return visit.end_by(WAY_IN, libc::SYS_close.cast_unsigned(), *descriptor);
        }
        // It did not come to the end of the first part.
        Err(ClockError::Visit(_)) => {}
        _ => {
            visit.run()?;
        }
    }
    visit.end()
}

/// The error behind what a system call returned.
fn errno(result: u64) -> io::Error {
    match i32::try_from(result.wrapping_neg()) {
        Ok(errno @ 1..4096) => io::Error::from_raw_os_error(errno),
        _ => io::ErrorKind::InvalidData.into(),
    }
}

/// What the program runs. The first part ends with the descriptor in r8, and in rbx the address of the last mapping,
/// or errnos; the second closes the descriptor.
fn code() -> Vec<u8> {
    const MEMFD_CREATE: u32 = 319;
    const MMAP: u32 = 9;
    const CLOSE: u32 = 3;
    const CLOEXEC_AND_SEALING: u32 = 1 | 2;
    const READ: u32 = 1;
    const WRITE: u32 = 2;
    const EXECUTE: u32 = 4;
    const SHARED: u32 = 1;
    const PRIVATE: u32 = 2;
    const NO_RESERVE: u32 = 0x4000;
    const FIXED_NOREPLACE: u32 = 0x10_0000;
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let mappings = [
        (0, CONTROL, READ | EXECUTE, PRIVATE),
        (CONTROL, TAPE - CONTROL, READ | WRITE, PRIVATE),
        (TAPE, LENGTH - TAPE, READ | WRITE, SHARED | NO_RESERVE),
    ];
    let mut code = Code(Vec::new());
    // The name stands behind the jump: lea rdi, [rip + 5]; jmp over it.
    code.bytes(&[0x48, 0x8d, 0x3d]).word(5);
    code.bytes(&[0xe9]).word(small(NAME.len() as u64 + 1)).bytes(NAME.as_bytes()).bytes(&[0]);
    code.bytes(&[0xbe]).word(CLOEXEC_AND_SEALING); // mov esi
    code.call(MEMFD_CREATE);
    code.bytes(&[0x49, 0x89, 0xc0]); // mov r8, rax
    for ((offset, length, protection, flags), left) in mappings.into_iter().zip([2, 1, 0]) {
        code.bytes(&[0xbf]).word(small(BASE + offset)); // mov edi
        code.bytes(&[0xbe]).word(small(length)); // mov esi
        code.bytes(&[0xba]).word(protection); // mov edx
        code.bytes(&[0x41, 0xba]).word(flags | FIXED_NOREPLACE); // mov r10d
        code.bytes(&[0x41, 0xb9]).word(small(offset)); // mov r9d
        code.call(MMAP);
        code.bytes(&[0x48, 0x39, 0xf8]); // cmp rax, rdi
        code.bytes(&[0x75, left * MAPPING]); // jne to the end
    }
    code.bytes(&[0x48, 0x89, 0xc3]); // mov rbx, rax
    code.trap();
    code.bytes(&[0x44, 0x89, 0xc7]); // mov edi, r8d
    code.call(CLOSE).trap();
    code.0
}

/// Bytes of the code of one mapping.
const MAPPING: u8 = 39;

struct Code(Vec<u8>);

impl Code {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn word(&mut self, word: u32) -> &mut Self {
        self.bytes(&word.to_le_bytes())
    }

    /// mov eax, number; syscall
    fn call(&mut self, number: u32) -> &mut Self {
        self.bytes(&[0xb8]).word(number).bytes(&[0x0f, 0x05])
    }

    /// int3
    fn trap(&mut self) -> &mut Self {
        self.bytes(&[0xcc])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jumps_lead_to_the_end_of_the_mappings() {
        let code = code();
        let jumps: Vec<usize> = code
            .windows(4)
            .enumerate()
            .filter(|(_, window)| window[..3] == [0x39, 0xf8, 0x75])
            .map(|(at, window)| at + 4 + usize::from(window[3]))
            .collect();
        assert_eq!(jumps.len(), 3);
        assert!(jumps.iter().all(|at| code[*at..].starts_with(&[0x48, 0x89, 0xc3])), "{jumps:?}");
    }
}
