//! The mounts of this process (proc_pid_mountinfo(5)), and the other paths under which they show a file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::descriptor::mount_id;
use super::refused::Named;

/// What is mounted somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number, as statx(2) tells it.
    id: u64,
    /// Major and minor number of the file system, which name it.
    device: Vec<u8>,
    /// What of it is shown.
    root: PathBuf,
    /// Where.
    point: PathBuf,
}

/// All mounts; none where there is no /proc, without which nothing is launched.
///
/// # Errors
/// When they cannot be read.
pub fn mounts() -> io::Result<Vec<Mount>> {
    match std::fs::read("/proc/self/mountinfo") {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(io::Error::other(format!("/proc/self/mountinfo: {}", Named(&error)))),
    }
}

/// Where file systems are mounted; none where that cannot be read.
#[must_use]
pub fn points() -> Vec<PathBuf> {
    mounts().unwrap_or_default().into_iter().map(|mount| mount.point).collect()
}

fn parse(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let device = fields.nth(1)?.to_vec();
        Some(Mount { id, device, root: unescaped(fields.next()?), point: unescaped(fields.next()?) })
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Every other path under which `mounts` show the file or directory that is, or would be, at `path`, which has no
/// links on the way, or something in that directory.
#[must_use]
pub fn aliases(mounts: &[Mount], path: &Path) -> Vec<PathBuf> {
    aliases_in(mounts, path, holder(path))
}

/// The number of the mount that shows what is at `path`, or would.
fn holder(path: &Path) -> Option<u64> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut there = path.ancestors().filter_map(|path| nix::fcntl::open(path, flags, Mode::empty()).ok());
    mount_id(there.next()?.as_fd()).ok()
}

/// The same where what is at `path` belongs to the mount of this number.
fn aliases_in(mounts: &[Mount], path: &Path, holder: Option<u64>) -> Vec<PathBuf> {
    // The one with the longest name may be hidden by a later one above it. The last of those at one place is on top.
    let around = mounts.iter().filter_map(|mount| Some((mount, below(path, &mount.point)?)));
    let shown = |mount: &Mount| (Some(mount.id) == holder, mount.point.as_os_str().len());
    let Some((own, rest)) = around.max_by_key(|(mount, _)| shown(mount)) else {
        return Vec::new();
    };
    let inner = joined(&own.root, rest);
    let others = mounts.iter().filter(|mount| mount.device == own.device);
    let others = others.filter_map(|mount| match below(&inner, &mount.root) {
        Some(rest) => Some(joined(&mount.point, rest)),
        None => below(&mount.root, &inner).map(|_| mount.point.clone()),
    });
    others.filter(|other| below(other, path).is_none()).collect()
}

/// What of `path` is below `tree`, without a slash before it.
fn below<'a>(path: &'a Path, tree: &Path) -> Option<&'a Path> {
    let tree = tree.as_os_str().as_bytes();
    let rest = path.as_os_str().as_bytes().strip_prefix(tree.strip_suffix(b"/").unwrap_or(tree))?;
    match rest {
        [] => Some(Path::new("")),
        [b'/', rest @ ..] => Some(Path::new(OsStr::from_bytes(rest))),
        _ => None,
    }
}

fn joined(tree: &Path, rest: &Path) -> PathBuf {
    // Joined with nothing, a path ends with a slash.
    if rest.as_os_str().is_empty() { tree.to_owned() } else { tree.join(rest) }
}

/// A path of mountinfo: some bytes are three octal digits behind a backslash.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), field);
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *byte == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(code.unwrap_or(*byte));
        rest = if code.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_mounts_come_back() {
        assert_eq!(unescaped(br"/a\040b\134\011"), PathBuf::from("/a b\\\t"));
        assert_eq!(unescaped(br"/a\"), PathBuf::from("/a\\"));
        assert!(points().contains(&PathBuf::from("/")));
    }

    fn of(path: &str) -> Vec<String> {
        of_held(path, None)
    }

    fn of_held(path: &str, holder: Option<u64>) -> Vec<String> {
        let text = br"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:30 / /tmp rw - tmpfs tmpfs rw
30 21 8:1 /home/u/my\040proj /mnt/al\040ias rw - ext4 /dev/sda1 rw
31 21 8:1 /home/u/my\040proj/.state/pending /mnt/deep rw - ext4 /dev/sda1 rw
32 21 8:2 / /home/v rw - ext4 /dev/sdb1 rw
33 21 8:2 / /mnt/disk rw - ext4 /dev/sdb1 rw
34 21 8:2 /w/file /mnt/file rw - ext4 /dev/sdb1 rw
35 30 0:31 /tmp /mnt/al\040ias/over rw - tmpfs tmpfs rw
";
        let found = aliases_in(&parse(text), Path::new(path), holder);
        found.into_iter().map(|path| path.into_os_string().into_string().expect("text")).collect()
    }

    #[test]
    fn a_bind_of_what_is_around_a_file_shows_it_too() {
        assert_eq!(of("/home/u/my proj/trace.jsonl"), ["/mnt/al ias/trace.jsonl"]);
        assert_eq!(of("/mnt/al ias/trace.jsonl"), ["/home/u/my proj/trace.jsonl"]);
        assert_eq!(of("/home/u/my proj"), ["/mnt/al ias", "/mnt/deep"]);
        assert_eq!(of("/home/u/my project"), [""; 0]);
    }

    #[test]
    fn a_bind_of_what_is_in_a_directory_shows_a_part_of_it() {
        assert_eq!(of("/home/u/my proj/.state"), ["/mnt/al ias/.state", "/mnt/deep"]);
        assert_eq!(of("/mnt/deep/x"), ["/home/u/my proj/.state/pending/x", "/mnt/al ias/.state/pending/x"]);
    }

    #[test]
    fn a_mount_above_may_hide_the_one_around_a_file() {
        assert_eq!(of_held("/mnt/deep/x", Some(21)), [""; 0]);
        assert_eq!(of_held("/home/v/w/file", Some(21)), [""; 0]);
    }

    #[test]
    fn a_file_system_may_be_mounted_twice_and_a_file_be_bound() {
        assert_eq!(of("/home/v/w/file"), ["/mnt/disk/w/file", "/mnt/file"]);
        assert_eq!(of("/mnt/file"), ["/home/v/w/file", "/mnt/disk/w/file"]);
        assert_eq!(of("/home/v"), ["/mnt/disk", "/mnt/file"]);
        assert_eq!(of("/tmp/x"), [""; 0]);
        assert_eq!(of("/mnt/al ias/over/x"), ["/tmp/tmp/x"; 0]);
    }
}
