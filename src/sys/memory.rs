//! Copies out of another process's memory, and into it (process_vm_readv(2)).

use std::io;

/// Page size: a read never crosses a page whose neighbour may be unmapped.
pub const PAGE: usize = 4096;

/// Reads up to `buffer.len()` bytes at `address` of process `pid`; a short count means that
/// the following memory is not mapped.
///
/// # Errors
/// EFAULT where nothing is mapped, ESRCH or EPERM as process_vm_readv(2) says.
pub fn read(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0)),
        iov_len: buffer.len(),
    };
    // SAFETY: `local` describes `buffer`, which is borrowed mutably for the whole call; the
    // remote side is read by the kernel with the target's own mappings.
    let count = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    Ok(usize::try_from(super::checked(count as libc::c_long)?).unwrap_or(0))
}

/// Most pieces of one [`read_pieces`].
pub const PIECES: usize = 64;

/// Reads pieces of memory of process `pid`, each an address and a length, one behind the other into `buffer`;
/// a short count means that what follows is not mapped. No more than [`PIECES`] of them are read.
///
/// # Errors
/// As [`read`].
pub fn read_pieces(pid: i32, pieces: &[(u64, usize)], buffer: &mut [u8]) -> io::Result<usize> {
    let mut remote = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
    let mut count = 0;
    for (into, (address, length)) in remote.iter_mut().zip(pieces) {
        let address = usize::try_from(*address).unwrap_or(0);
        *into = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: *length };
        count += 1;
    }
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: `local` describes `buffer`, which is borrowed mutably for the whole call, and the first `count`
    // of `remote` are read by the kernel with the target's own mappings.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), count, 0) };
    Ok(usize::try_from(super::checked(read as libc::c_long)?).unwrap_or(0))
}

/// Reads exactly `buffer.len()` bytes.
///
/// # Errors
/// As [`read`]; EFAULT when only a part is mapped.
pub fn read_exact(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    if read(pid, address, buffer)? == buffer.len() {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }
}

/// Writes all of `bytes` to `address` of process `pid`, where it may write itself.
///
/// # Errors
/// As [`write_some`]; EFAULT when only a part can be written.
pub fn write(pid: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    if write_some(pid, address, bytes)? == bytes.len() {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }
}

/// Writes `bytes` to `address` of process `pid`; a short count means that it may not write the following memory.
///
/// # Errors
/// EFAULT where it may write nothing, ESRCH or EPERM as process_vm_writev(2) says.
pub fn write_some(pid: i32, address: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0)),
        iov_len: bytes.len(),
    };
    // SAFETY: `local` describes `bytes`, which are only read; the remote side is written by the kernel
    // with the target's own mappings.
    let count = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    Ok(usize::try_from(super::checked(count as libc::c_long)?).unwrap_or(0))
}

/// Reads a string that ends with a zero byte; at most `limit` bytes.
///
/// # Errors
/// As [`read`]; ENAMETOOLONG when no zero byte comes within `limit`.
pub fn read_string(pid: i32, address: u64, limit: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(256.min(limit));
    let mut at = address;
    let mut step = 256;
    while text.len() < limit {
        let to_page_end = PAGE - usize::try_from(at).unwrap_or(0) % PAGE;
        let want = to_page_end.min(step).min(limit - text.len());
        let start = text.len();
        text.resize(start + want, 0);
        let got = read(pid, at, &mut text[start..])?;
        text.truncate(start + got);
        if let Some(end) = text[start..].iter().position(|&byte| byte == 0) {
            text.truncate(start + end);
            return Ok(text);
        }
        if got == 0 {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        at = at.wrapping_add(got as u64);
        step = PAGE;
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}
