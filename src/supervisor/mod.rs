//! The supervisor: what a syscall of the run meets before the kernel carries it out.
//!
//! [`syscall_table`] classifies every syscall, [`filter`] turns the table into a seccomp program,
//! [`bpf`] is the assembler for it.

pub mod bpf;
pub mod filter;
pub mod syscall_table;
