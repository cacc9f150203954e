//! The files that are mapped into a process (proc_pid_maps(5)), and the numbers that they have there: not on every file
//! system are they those of stat(2) (Btrfs, overlays).

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use super::memory::PAGE;

/// A file by the device and inode of its mapping.
pub type Numbers = (u64, u64);

/// The files of the mappings in `maps`, which is such a file of /proc; one that is mapped in parts comes several times.
///
/// # Errors
/// When it is none.
pub fn files(maps: &[u8]) -> io::Result<Vec<Numbers>> {
    let nameless = |(_, numbers): &(_, Numbers)| *numbers != (0, 0);
    Ok(parsed(maps)?.into_iter().filter(nameless).map(|(_, numbers)| numbers).collect())
}

/// The numbers that `file`, which is open for reading, has where it is mapped.
///
/// # Errors
/// As mmap(2).
pub fn numbers(file: BorrowedFd<'_>) -> io::Result<Numbers> {
    let flags = libc::MAP_PRIVATE;
    // SAFETY: a new mapping, at an address that the kernel chooses; nobody can read or write there.
    let address = unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_NONE, flags, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let maps = std::fs::read("/proc/self/maps");
    // SAFETY: the page that was mapped above, which nobody else knows.
    super::checked(libc::c_long::from(unsafe { libc::munmap(address, PAGE) }))?;
    let at = address.expose_provenance() as u64;
    let mapped = parsed(&maps?)?.into_iter().find(|((start, end), _)| (*start..*end).contains(&at));
    mapped.map(|(_, numbers)| numbers).ok_or_else(|| io::ErrorKind::NotFound.into())
}

type Mapping = ((u64, u64), Numbers);

fn parsed(maps: &[u8]) -> io::Result<Vec<Mapping>> {
    let lines = maps.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| mapping(line).ok_or_else(|| io::ErrorKind::InvalidData.into())).collect()
}

/// `START-END MODES OFFSET MAJOR:MINOR INODE NAME`, all but the inode in hexadecimal.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.split(|&byte| byte == b' ').map(std::str::from_utf8);
    let (range, device, inode) =
        (words.next()?.ok()?, words.nth(2)?.ok()?, words.next()?.ok()?.parse().ok()?);
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = libc::makedev(number(major)?, number(minor)?);
    Some(((hexadecimal(start)?, hexadecimal(end)?), (device, inode)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_mapped_file_has_one_pair_of_numbers() {
        let path = std::env::current_exe().expect("its own path");
        let file = std::fs::File::open(&path).expect("opens");
        let numbers = numbers(file.as_fd()).expect("is mapped");
        assert_eq!(numbers.1, file.metadata().expect("a status").ino());
        let maps = std::fs::read("/proc/self/maps").expect("is there");
        let files = files(&maps).expect("is one");
        assert!(files.contains(&numbers) && !files.contains(&(0, 0)));
    }

    #[test]
    fn names_do_not_count() {
        let maps = b"7f00-7f01 r-xp 00000000 103:0a 77                        /a b (deleted)\n\
                     7f02-7f03 rw-p 00000000 00:00 0 \n7f04-7f05 rw-p 00000000 00:00 0    [heap]\n";
        assert_eq!(files(maps).expect("is one"), [(libc::makedev(0x103, 10), 77)]);
        for bad in [&b"x"[..], b"7f00-7f01 r-xp 0 103 77", b"7f00 r-xp 0 1:1 77", b"7f00-7f01 r-xp 0 1:1 x"] {
            assert!(files(bad).is_err());
        }
    }
}
