//! The status of a file at one moment: what differs from run to run of what stat(2) tells.

use std::hash::{Hash, Hasher};
use std::io::Write as _;

use nix::sys::stat::FileStat;

use crate::sys::status;

/// A status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) mode: u32,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) links: u32,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) block_size: u32,
    /// Nanoseconds since the epoch, as the next two.
    pub(super) accessed: i64,
    pub(super) modified: i64,
    pub(super) changed: i64,
    /// When it was made, where that is known.
    pub(super) born: Option<i64>,
}

const SECOND: i64 = 1_000_000_000;

fn nanoseconds(seconds: i64, more: i64) -> i64 {
    seconds.saturating_mul(SECOND).saturating_add(more)
}

/// Sets a time of statx(2).
pub(super) fn set(time: &mut libc::statx_timestamp, nanoseconds: i64) {
    time.tv_sec = nanoseconds.div_euclid(SECOND);
    time.tv_nsec = u32::try_from(nanoseconds.rem_euclid(SECOND)).unwrap_or(0);
}

/// A time of statx(2), in nanoseconds.
pub(super) fn nanoseconds_of(time: libc::statx_timestamp) -> i64 {
    nanoseconds(time.tv_sec, time.tv_nsec.into())
}

impl From<&libc::statx> for Sample {
    fn from(status: &libc::statx) -> Self {
        let time = nanoseconds_of;
        let is_born = status.stx_mask & libc::STATX_BTIME != 0;
        Self {
            mode: status.stx_mode.into(),
            device: status::device(status),
            inode: status.stx_ino,
            links: status.stx_nlink,
            size: status.stx_size,
            blocks: status.stx_blocks,
            block_size: status.stx_blksize,
            accessed: time(status.stx_atime),
            modified: time(status.stx_mtime),
            changed: time(status.stx_ctime),
            born: is_born.then(|| time(status.stx_btime)),
        }
    }
}

impl From<&FileStat> for Sample {
    fn from(status: &FileStat) -> Self {
        Self {
            mode: status.st_mode,
            device: status.st_dev,
            inode: status.st_ino,
            links: u32::try_from(status.st_nlink).unwrap_or(u32::MAX),
            size: u64::try_from(status.st_size).unwrap_or(0),
            blocks: u64::try_from(status.st_blocks).unwrap_or(0),
            block_size: u32::try_from(status.st_blksize).unwrap_or(u32::MAX),
            accessed: nanoseconds(status.st_atime, status.st_atime_nsec),
            modified: nanoseconds(status.st_mtime, status.st_mtime_nsec),
            changed: nanoseconds(status.st_ctime, status.st_ctime_nsec),
            born: None,
        }
    }
}

/// All but the time when it was made, which fstat(2) does not tell.
impl Hash for Sample {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.mode, self.device, self.inode, self.links, self.size, self.blocks, self.block_size).hash(state);
        (self.accessed, self.modified, self.changed).hash(state);
    }
}

impl Sample {
    /// What tells the file from others of the run.
    pub(super) fn id(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    pub(super) fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// Whether the next read of the file could change when it was read last (mount(8), `relatime`); `now` as all
    /// times here.
    pub(super) fn shows_reads(&self, now: i64) -> bool {
        const DAY: i64 = 86_400 * SECOND;
        self.accessed <= self.modified.max(self.changed) || now.saturating_sub(self.accessed) >= DAY
    }

    /// Appends it as text.
    pub(super) fn write(&self, text: &mut Vec<u8>) {
        let Self { mode, device, inode, links, size, blocks, block_size, accessed, modified, changed, born } =
            self;
        // A Vec takes everything.
        let _ = write!(
            text,
            "{mode:o} {device} {inode} {links} {size} {blocks} {block_size} {accessed} {modified} {changed} "
        );
        let _ = match born {
            Some(born) => write!(text, "{born}"),
            None => write!(text, "-"),
        };
    }

    /// Reads what [`write`](Self::write) wrote: its eleven words.
    pub(super) fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let mode = u32::from_str_radix(words.next()?, 8).ok()?;
        let [device, inode] = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
        let links = words.next()?.parse().ok()?;
        let [size, blocks] = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
        let block_size = words.next()?.parse().ok()?;
        let mut time = || words.next()?.parse::<i64>().ok();
        let [accessed, modified, changed] = [time()?, time()?, time()?];
        let born = match words.next()? {
            "-" => None,
            born => Some(born.parse().ok()?),
        };
        // A device has 32 bits of each number; a size is one of the kernel's.
        let is_known = mode <= 0o177_777
            && i64::try_from(size).is_ok()
            && i64::try_from(blocks).is_ok()
            && libc::makedev(libc::major(device), libc::minor(device)) == device;
        is_known.then_some(Self {
            mode,
            device,
            inode,
            links,
            size,
            blocks,
            block_size,
            accessed,
            modified,
            changed,
            born,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Sample> {
        Sample::parse(&mut text.split(' '))
    }

    #[test]
    fn what_is_written_is_read() {
        let file = tempfile::tempfile().expect("a file");
        let status = nix::sys::stat::fstat(&file).expect("is there");
        let mut sample = Sample::from(&status);
        for born in [None, Some(-1), Some(i64::MAX)] {
            sample.born = born;
            let mut text = Vec::new();
            sample.write(&mut text);
            assert_eq!(parse(std::str::from_utf8(&text).expect("text")), Some(sample));
        }
    }

    #[test]
    fn what_no_kernel_says_is_refused() {
        let good = "100644 2049 5 1 3 8 4096 1 -2 3 -";
        assert!(parse(good).is_some());
        for (from, to) in [
            ("100644", "1000000"),
            ("100644", "10089"),
            (" 5 ", " 18446744073709551616 "),
            (" 5 ", " -5 "),
            (" 1 3 ", " 4294967296 3 "),
            (" 3 8 ", " 9223372036854775808 8 "),
            (" 1 -2 ", " 1 9223372036854775808 "),
            (" 3 -", " 3"),
            (" 3 -", " 3 x"),
        ] {
            assert_eq!(parse(&good.replacen(from, to, 1)), None, "{to}");
        }
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_time_before_the_epoch_has_its_part_of_a_second_after_it() {
        let file = tempfile::tempfile().expect("a file");
        let like = status::of(std::os::fd::AsFd::as_fd(&file), 0, libc::STATX_BASIC_STATS).expect("is there");
        let mut time = like.stx_mtime;
        set(&mut time, -1);
        assert_eq!((time.tv_sec, time.tv_nsec), (-1, 999_999_999));
        set(&mut time, i64::MIN);
        assert!(time.tv_nsec < 1_000_000_000);
    }
}
