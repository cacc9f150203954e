//! What the kernel says of the whole system: sysinfo(2).

use std::io;

/// Size of `struct sysinfo`.
pub const SYSINFO: usize = size_of::<libc::sysinfo>();

/// Its bytes, as a program gets them.
///
/// # Errors
/// The errno of sysinfo(2).
pub fn info() -> io::Result<[u8; SYSINFO]> {
    let mut bytes = [0u64; SYSINFO / 8];
    // SAFETY: `bytes` has the size of the structure and at least its alignment, and outlives the call.
    super::checked(libc::c_long::from(unsafe { libc::sysinfo(bytes.as_mut_ptr().cast()) }))?;
    let mut info = [0; SYSINFO];
    info.copy_from_slice(bytes.map(u64::to_ne_bytes).as_flattened());
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_time_since_the_start() {
        let info = info().expect("sysinfo");
        let up = u64::from_le_bytes(*info.first_chunk().expect("a word"));
        assert!(up > 0 && up < 1 << 40, "{up}");
    }
}
