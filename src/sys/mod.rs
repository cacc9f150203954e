//! The only unsafe code: thin, safe wrappers over single system calls that no library offers.
//!
//! Beside them stands what the kernel does unasked: how it reads a `#!` line.
//!
//! Every function is safe to call, takes and gives owned or borrowed descriptors, and returns
//! `io::Result` with the errno of the one call that it makes.

pub mod address;
pub mod alarm;
pub mod clock;
pub mod clone;
pub mod dents;
pub mod descriptor;
pub mod elf;
pub mod image;
pub mod injection;
pub mod mapping;
pub mod memory;
pub mod mount;
pub mod mountinfo;
pub mod netlink;
pub mod pidfd;
pub mod process;
pub mod ptrace;
pub mod refused;
pub mod relocate;
pub mod scm;
pub mod seccomp;
pub mod shebang;
pub mod sockopt;
pub mod status;
pub mod system;
pub mod timerfd;
pub mod tracee;
pub mod vdso;
pub mod xattr;

use std::io;

/// Turns the -1 of a system call into the errno of the calling thread.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
