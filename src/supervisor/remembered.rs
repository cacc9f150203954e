//! Digests of large programs, kept from run to run: an interpreter is started in every one of them.
//!
//! The file is in the private state directory, which no run can reach. What it says counts until the
//! machine starts anew, for device numbers are given out again then.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::content::{Content, Identity};

/// Its name in the state directory.
const NAME: &str = "digests";
/// Smaller files are digested sooner than this one is read.
const LARGE: i64 = 1 << 20;
/// Most files that are remembered; each is a line of less than 200 bytes.
const MOST: usize = 256;
const LARGEST_FILE: u64 = 64 << 10;
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// What is known from earlier runs.
#[derive(Debug)]
pub(super) struct Remembered {
    directory: OwnedFd,
    /// The first line of the file.
    head: String,
    known: HashMap<Identity, Content>,
    changed: bool,
}

impl Remembered {
    /// Reads what is remembered in the state directory; without a file, or with one that is not ours,
    /// that is nothing.
    pub(super) fn open(directory: OwnedFd) -> Option<Self> {
        let boot = std::fs::read_to_string(BOOT).ok()?;
        let head = format!("agentbox digests 1 {}", boot.trim());
        let text = read(&directory).unwrap_or_default();
        let mut lines = text.lines();
        let known = if lines.next() == Some(head.as_str()) {
            lines.filter_map(parse).take(MOST).collect()
        } else {
            HashMap::new()
        };
        Some(Self { directory, head, known, changed: false })
    }

    pub(super) fn find(&self, identity: &Identity) -> Option<Content> {
        self.known.get(identity).cloned()
    }

    /// Remembers a digest that may be remembered; one of a small file is not worth it.
    pub(super) fn add(&mut self, identity: Identity, content: &Content) {
        if identity.size < LARGE {
            return;
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(identity, content.clone());
        self.changed = true;
    }

    /// Writes what is new. Nothing depends on it: the next run digests again what is missing.
    pub(super) fn keep(&self) {
        if self.changed {
            let _ = self.write();
        }
    }

    fn write(&self) -> io::Result<()> {
        let mut text = format!("{}\n", self.head);
        for (identity, content) in &self.known {
            let Identity { device, inode, size, modified, changed } = identity;
            let _ = writeln!(
                text,
                "{device} {inode} {size} {} {} {} {} {}",
                modified.0, modified.1, changed.0, changed.1, content.sha256
            );
        }
        // Another run may write too: each has a file of its own, and the last name counts.
        let own = format!("{NAME}.{}", std::process::id());
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let mut file = File::from(openat(&self.directory, own.as_str(), flags, mode)?);
        let done = file
            .write_all(text.as_bytes())
            .and_then(|()| Ok(renameat(&self.directory, own.as_str(), &self.directory, NAME)?));
        if done.is_err() {
            let _ = unlinkat(&self.directory, own.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        done
    }
}

/// A file of the user's own that nobody else can read or write.
fn read(directory: &OwnedFd) -> io::Result<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(directory, NAME, flags, Mode::empty())?);
    let status = fstat(file.as_fd())?;
    let regular = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    if !regular || status.st_uid != geteuid().as_raw() || status.st_mode & 0o077 != 0 {
        return Err(Errno::EPERM.into());
    }
    let mut text = String::new();
    file.take(LARGEST_FILE).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(line: &str) -> Option<(Identity, Content)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [device, inode, size, seconds, nanos, changed_seconds, changed_nanos, sha256] = words.as_slice()
    else {
        return None;
    };
    let identity = Identity {
        device: device.parse().ok()?,
        inode: inode.parse().ok()?,
        size: size.parse().ok()?,
        modified: (seconds.parse().ok()?, nanos.parse().ok()?),
        changed: (changed_seconds.parse().ok()?, changed_nanos.parse().ok()?),
    };
    let is_digest = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    let size = u64::try_from(identity.size).ok()?;
    is_digest.then(|| (identity, Content { sha256: (*sha256).to_owned(), size }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    fn open(directory: &Path) -> Remembered {
        Remembered::open(File::open(directory).expect("a directory").into()).expect("a boot id")
    }

    fn program(size: i64) -> (Identity, Content) {
        let identity = Identity { device: 1, inode: 2, size, modified: (3, 4), changed: (5, 6) };
        (identity, Content { sha256: "ab".repeat(32), size: size.unsigned_abs() })
    }

    #[test]
    fn a_large_program_is_remembered_in_a_private_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let (large, small) = (program(LARGE), program(LARGE - 1));
        let mut first = open(directory.path());
        first.add(large.0, &large.1);
        first.add(small.0, &small.1);
        first.keep();
        let second = open(directory.path());
        assert_eq!((second.find(&large.0), second.find(&small.0)), (Some(large.1), None));
        let file = directory.path().join(NAME);
        assert_eq!(file.metadata().expect("the file").permissions().mode() & 0o777, 0o600);
        assert_eq!(directory.path().read_dir().expect("a directory").count(), 1);
    }

    #[test]
    fn a_file_that_others_could_have_written_or_of_another_boot_says_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let (identity, content) = program(LARGE);
        let mut first = open(directory.path());
        first.add(identity, &content);
        first.keep();
        let file = directory.path().join(NAME);
        let mode =
            |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("ours");
        mode(0o660);
        assert_eq!(open(directory.path()).find(&identity), None);
        mode(0o600);
        assert!(open(directory.path()).find(&identity).is_some());
        let text = std::fs::read_to_string(&file).expect("text");
        std::fs::write(&file, text.replacen("digests 1 ", "digests 1 x", 1)).expect("written");
        assert_eq!(open(directory.path()).find(&identity), None);
        std::fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &file).expect("a link");
        assert_eq!(open(directory.path()).find(&identity), None);
    }
}
