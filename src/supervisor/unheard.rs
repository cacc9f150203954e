//! Calls that a signal interrupted before we heard of them: they begin anew.
//!
//! Until its notification is received a call can be interrupted (seccomp(2), `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`),
//! also one that never is without a supervisor, such as a write to a pipe that has room. Where the handler of the
//! signal does not ask for it (SA_RESTART), the program would get EINTR, which it need not expect.

use super::Supervisor;
use super::syscall_table::{FilterOptions, row};
use crate::sys::tracee;

/// "Again, or EINTR, as the handler of the signal wants it", and "again in any case" (ERESTARTSYS and ERESTARTNOINTR in
/// the kernel's sources), which no task ever sees.
const AS_WANTED: i64 = -512;
const IN_ANY_CASE: i64 = -513;

/// All that may make a call reach us.
const EVERYTHING: FilterOptions = FilterOptions {
    full_mediation: true,
    signals_are_scoped: false,
    replayable: true,
    replayed: true,
    hides_names: true,
    orders_output: true,
    orders_error: true,
};

impl Supervisor {
    /// A traced task stands still before a signal.
    pub(super) fn begin_unheard_anew(&mut self, task: i32) {
        // One that is gone is interrupted by nothing any more.
        let Ok(registers) = tracee::registers(task) else { return };
        let number = registers.orig_rax;
        let arguments =
            [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
        if registers.rax.cast_signed() == AS_WANTED && self.is_unheard(task, number.cast_signed(), &arguments)
        {
            let _ = tracee::set_registers(
                task,
                tracee::Registers { rax: IN_ANY_CASE.cast_unsigned(), ..registers },
            );
        }
    }

    /// Whether a call that was interrupted would not have been if it were not looked at.
    fn is_unheard(&mut self, task: i32, number: i64, arguments: &[u64; 6]) -> bool {
        match number {
            // The kernel carries these out itself when we have heard of them, and they may wait then.
            libc::SYS_connect | libc::SYS_ioctl => false,
            libc::SYS_write | libc::SYS_writev => {
                let [descriptor, ..] = *arguments;
                self.tasks.known(task).is_some_and(|task| self.outputs.has_room(&task, descriptor))
            }
            _ => {
                let row = u32::try_from(number).ok().and_then(row);
                row.is_some_and(|row| row.disposition.under(EVERYTHING).may_notify())
                    && !self.is_waited_for(task)
            }
        }
    }
}
