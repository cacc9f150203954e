//! What kind of program an image is, where that decides how it is controlled.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use nix::sys::stat::FileStat;

use super::super::clock::{Pace, Text};
use super::super::content::Identity;

/// Images that are remembered.
const REMEMBERED: usize = 1024;
/// Most sections that are looked through, and most bytes of their names.
const SECTIONS: usize = 1024;
const NAMES: usize = 64 << 10;

/// What decides how a program is controlled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::supervisor) struct Runtime {
    /// Go moves what it runs from thread to thread: which thread asks tells nothing.
    pub(in crate::supervisor) is_go: bool,
    /// What it reads the clock from.
    pub(in crate::supervisor) pace: Pace,
    /// Where its own code lies.
    pub(in crate::supervisor) text: Text,
}

/// The kinds of images that were seen.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct Runtimes {
    known: HashMap<Identity, Runtime>,
}

impl Runtimes {
    /// The kind of the image with this status, which `open` opens for reading.
    pub(in crate::supervisor) fn of(
        &mut self,
        status: &FileStat,
        open: impl FnOnce() -> Option<File>,
    ) -> Runtime {
        let identity = Identity::of(status);
        if let Some(runtime) = self.known.get(&identity) {
            return *runtime;
        }
        let Some(image) = open() else { return Runtime::default() };
        let is_go = is_go(&image).unwrap_or(false);
        let runtime = Runtime { is_go, pace: Pace::of(&image), text: Text::of(&image) };
        if identity.is_settled() {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            self.known.insert(identity, runtime);
        }
        runtime
    }
}

/// Go's linker writes one of these sections into every program (cmd/link, and `go version` reads the first).
const OF_GO: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];

/// Whether the image has a section that only Go makes (elf(5)).
fn is_go(image: &File) -> Option<bool> {
    const HEADER: usize = 64;
    let mut header = [0; HEADER];
    image.read_exact_at(&mut header, 0).ok()?;
    // 64 bits, little-endian: others do not run.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let at = u64::from_le_bytes(word(&header, 40)?);
    let [size, count, names] = [58, 60, 62].map(|at| word(&header, at).map(u16::from_le_bytes));
    let (size, count) = (usize::from(size?), usize::from(count?).min(SECTIONS));
    if size < HEADER {
        return None;
    }
    let mut table = vec![0; size * count];
    image.read_exact_at(&mut table, at).ok()?;
    let sections: Vec<&[u8]> = table.chunks_exact(size).collect();
    let names_at = sections.get(usize::from(names?))?;
    let (offset, length) = (u64::from_le_bytes(word(names_at, 24)?), u64::from_le_bytes(word(names_at, 32)?));
    let mut names = vec![0; usize::try_from(length).ok()?.min(NAMES)];
    image.read_exact_at(&mut names, offset).ok()?;
    Some(sections.iter().any(|section| {
        let name = word(section, 0).map(u32::from_le_bytes).and_then(|at| usize::try_from(at).ok());
        let rest = name.and_then(|at| names.get(at..)).unwrap_or_default();
        OF_GO.contains(&rest.split(|&byte| byte == 0).next().unwrap_or_default())
    }))
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// An image with one section of this name.
    fn image(name: &[u8]) -> File {
        let mut bytes = vec![0; 64 + 2 * 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[40] = 64;
        bytes[58] = 64;
        bytes[60] = 2;
        bytes[62] = 1;
        bytes[64] = 1;
        bytes[128 + 24] = 192;
        bytes[128 + 32] = u8::try_from(name.len() + 2).expect("short");
        bytes.push(0);
        bytes.extend(name);
        bytes.push(0);
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        file
    }

    #[test]
    fn a_program_of_go_is_known_by_a_section() {
        assert_eq!(is_go(&image(b".go.buildinfo")), Some(true));
        assert_eq!(is_go(&image(b".note.go.buildid")), Some(true));
        assert_eq!(is_go(&image(b".note.gnu.build-id")), Some(false));
    }

    #[test]
    fn an_image_that_is_replaced_is_looked_at_again() {
        let mut runtimes = Runtimes::default();
        let mut kind = |image: File| {
            let status = nix::sys::stat::fstat(&image).expect("a status");
            (runtimes.of(&status, || Some(image)).is_go, status)
        };
        let (is_go, mut status) = kind(image(b".go.buildinfo"));
        assert!(is_go);
        // Made just now: nothing would tell it from the next one in the same place.
        assert!(runtimes.known.is_empty());
        (status.st_mtime, status.st_ctime) = (1, 1);
        for expected in [false, false] {
            assert_eq!(runtimes.of(&status, || Some(image(b".text.")).filter(|_| !expected)).is_go, expected);
        }
        assert!(!runtimes.of(&status, || panic!("is known")).is_go);
        status.st_ctime_nsec += 1;
        assert!(runtimes.of(&status, || Some(image(b".go.buildinfo"))).is_go);
    }

    #[test]
    fn whatever_stands_in_the_image_reading_it_ends() {
        let original = image(b".go.buildinfo");
        let length = original.metadata().expect("a status").len();
        for at in 0..length {
            let file = image(b".go.buildinfo");
            file.write_all_at(&[0xff], at).expect("written");
            let _ = is_go(&file);
            file.set_len(at).expect("shorter");
            let _ = is_go(&file);
        }
        let own = File::open("/proc/self/exe").expect("this program");
        assert_eq!(is_go(&own), Some(false));
    }
}
