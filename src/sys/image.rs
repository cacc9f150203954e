//! The pages of this program's own file that are mapped (madvise(2), dl_iterate_phdr(3)).

use std::ptr;

/// The address and the bytes of a part of the program.
type Part = (usize, usize);

/// The parts that are never written: code and constants.
#[derive(Clone, Copy)]
struct Parts {
    list: [Part; 8],
    count: usize,
}

/// Lets go of the code and the constants that are mapped. What is still needed is mapped again from the file when it
/// is touched; what only a beginning needed no longer counts as this process's memory.
pub fn let_go() {
    let parts = parts();
    for &(address, length) in &parts.list[..parts.count] {
        let start = address & !(super::memory::PAGE - 1);
        let start: *mut libc::c_void = ptr::with_exposed_provenance_mut(start);
        let length = length + (address & (super::memory::PAGE - 1));
        // SAFETY: the pages are private ones of a file and were never written, as the program's own headers say, so
        // they are read from the file again with the same content.
        let _ = unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
    }
}

fn parts() -> Parts {
    let mut parts = Parts { list: [(0, 0); 8], count: 0 };
    // SAFETY: `note` is called before this returns, with the pointer to `parts`, which nobody else uses meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut parts).cast()) };
    parts
}

/// Notes those of the first object, which is the program, and stops there.
unsafe extern "C" fn note(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    data: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the C library gives a valid object for the time of the call.
    let info = unsafe { &*info };
    // SAFETY: `parts` passes it, and has no other reference to it during the call.
    let parts = unsafe { &mut *data.cast::<Parts>() };
    if info.dlpi_phdr.is_null() {
        return 1;
    }
    // SAFETY: there are so many headers, which stay where they are as long as the program is loaded.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0)
    {
        let (address, length) = (info.dlpi_addr.wrapping_add(header.p_vaddr), header.p_filesz);
        if let (Ok(address), Ok(length), Some(place)) =
            (usize::try_from(address), usize::try_from(length), parts.list.get_mut(parts.count))
        {
            *place = (address, length);
            parts.count += 1;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// KiB of this program's own file that are mapped for this process, and may not be written.
    fn mapped() -> u64 {
        let own = std::env::current_exe().unwrap();
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut counts, mut sum) = (false, 0);
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [_, rights, _, _, _, path] => counts = !rights.contains('w') && own.as_os_str() == *path,
                ["Rss:", kib, _] if counts => sum += kib.parse::<u64>().unwrap(),
                _ => {}
            }
        }
        sum
    }

    #[test]
    fn the_program_goes_on_with_less_of_itself() {
        assert_ne!(parts().count, 0);
        let before = mapped();
        let_go();
        let after = mapped();
        assert!(after < before, "{before} KiB were mapped, and {after} are");
    }
}
