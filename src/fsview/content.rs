//! What a generated file holds, and how what it takes over from files of the host is read.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write};
use std::path::{Path, PathBuf};

use memchr::arch::all::memchr::One;
use memchr::memmem;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};
use serde::{Deserialize, Serialize};

use super::{FsviewError, keystore};
use crate::policy::lossless;

/// Most bytes of a file of the host that are read: bundles of roots have less than one MiB.
const MOST: u64 = 16 << 20;
/// So many are read at once.
const PIECE: usize = 32 << 10;

/// What a generated file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// These bytes.
    Bytes(#[serde(with = "lossless::bytes")] Vec<u8>),
    /// The certificates in these files of the host, and after them that of the run's authority.
    Bundle {
        /// Files of certificates in PEM, links followed; nothing else in them is taken over.
        #[serde(with = "lossless::paths")]
        of: Vec<PathBuf>,
    },
    /// A file of p11-kit's own format, and after it one more anchor.
    Anchors {
        /// The file, links followed.
        #[serde(with = "lossless::path")]
        of: PathBuf,
    },
    /// The same as a keystore for Java.
    Keystore {
        /// A keystore of the host: kept where it is one that we can read, else `of` stands for it.
        #[serde(with = "lossless::path")]
        store: PathBuf,
        /// Files of certificates in PEM, links followed.
        #[serde(with = "lossless::paths")]
        of: Vec<PathBuf>,
    },
}

impl Content {
    /// Whether `path`, links followed, is a file of the host that may be taken over.
    #[must_use]
    pub fn can_take(path: &Path) -> bool {
        open(path).is_ok()
    }

    /// Its bytes, where they are known without a look at the host.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// The files of the host that it takes over, links followed, in the order in which [`write`](Self::write) reads
    /// them.
    pub fn sources(&self) -> impl Iterator<Item = &Path> {
        let (first, others) = match self {
            Self::Bytes(_) => (None, [].as_slice()),
            Self::Bundle { of } => (None, of.as_slice()),
            Self::Anchors { of } => (Some(of), [].as_slice()),
            Self::Keystore { store, of } => (Some(store), of.as_slice()),
        };
        first.into_iter().chain(others).map(PathBuf::as_path)
    }

    /// Opens them with the rights of the caller.
    ///
    /// # Errors
    /// The file that is not there, or is none that is taken over.
    pub fn open(&self) -> Result<Vec<File>, FsviewError> {
        self.sources().map(open).collect()
    }

    /// Writes the whole of it into `to`, out of `files`, which [`open`](Self::open) has opened; `and` is the
    /// certificate (PEM) of the run's authority.
    ///
    /// # Errors
    /// The file of the host that cannot be read, or the content that cannot be written.
    pub fn write(&self, files: Vec<File>, and: &str, to: &mut dyn Write) -> Result<(), FsviewError> {
        let written = |result: io::Result<()>| {
            result.map_err(|error| FsviewError::new("write", "the content of a generated file", error))
        };
        let mut files = self.sources().zip(files);
        let mut next = || files.next().map_or_else(|| Ok(Vec::new()), |(path, file)| read(path, file));
        match self {
            Self::Bytes(bytes) => written(to.write_all(bytes)),
            Self::Bundle { .. } => {
                for (path, file) in files {
                    take_certificates_of(path, file, to)?;
                }
                written(take_certificates(and.as_bytes(), to))
            }
            Self::Anchors { .. } => {
                let anchor = format!("\n[p11-kit-object-v1]\nlabel: \"agentbox\"\ntrusted: true\n{and}");
                written(to.write_all(&next()?).and_then(|()| to.write_all(anchor.as_bytes())))
            }
            Self::Keystore { .. } => {
                let added = keystore::certificates(and.as_bytes());
                let kept = keystore::with(&next()?, &added);
                let made = || {
                    let mut bundle = Vec::new();
                    for (path, file) in files {
                        take_certificates_of(path, file, &mut bundle)?;
                    }
                    written(take_certificates(and.as_bytes(), &mut bundle))?;
                    Ok(keystore::new(&keystore::certificates(&bundle)))
                };
                written(to.write_all(&kept.map_or_else(made, Ok)?))
            }
        }
    }
}

/// Takes the certificates of a file, piece by piece: a bundle is larger than what a run otherwise needs of memory, and
/// each page of it would have to be given by the kernel first.
fn take_certificates_of(path: &Path, mut file: File, to: &mut dyn Write) -> Result<(), FsviewError> {
    let written = |error| FsviewError::new("write", "the content of a generated file", error);
    let (mut text, mut left) = (Vec::new(), MOST);
    loop {
        let kept = text.len();
        text.resize(kept + PIECE, 0);
        let read = match file.read(&mut text[kept..]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            other => Some(other.map_err(|error| FsviewError::new("read", path, error))?),
        };
        text.truncate(kept + read.unwrap_or_default());
        left = left.saturating_sub(read.unwrap_or_default() as u64);
        if read == Some(0) || left == 0 {
            return take_certificates(&text, to).map_err(written);
        }
        let end = end_of_blocks(&text);
        take_certificates(&text[..end], to).map_err(written)?;
        text.drain(..end);
    }
}

/// Where the last line that ends a block does: none goes on behind it.
fn end_of_blocks(text: &[u8]) -> usize {
    let whole = One::new(b'\n').rfind(text).map_or(0, |end| end + 1);
    let Some(last) = memmem::rfind(&text[..whole], b"-----END ") else { return 0 };
    One::new(b'\n').find(&text[last..]).map_or(0, |length| last + length + 1)
}

/// Takes the blocks of certificates and nothing else: whoever could put another file in the place
/// of a bundle must not have its content shown. Here and above nothing asks what the processor can do: in a virtual
/// machine each cpuid is answered by the host, which takes longer than the search.
fn take_certificates(text: &[u8], to: &mut dyn Write) -> io::Result<()> {
    // Blocks that follow each other, to be written at once.
    let mut row = 0..0;
    let (dash, mut from) = (One::new(b'-'), 0);
    while let Some(at) = dash.find(text.get(from..).unwrap_or_default()) {
        let start = from + at;
        from = start + 1;
        let block = text.get(start..).unwrap_or_default();
        if !block.starts_with(b"-----BEGIN ") {
            continue;
        }
        let Some((head, body)) = line_of(block).filter(|(head, _)| head.ends_with(b"CERTIFICATE-----"))
        else {
            continue;
        };
        // An armour has no other dashes.
        let Some(length) = dash.find(body) else { break };
        let (inner, rest) = body.split_at(length);
        let Some((tail, after)) = line_of(rest) else { break };
        let is_closed = tail.strip_prefix(b"-----END ") == head.strip_prefix(b"-----BEGIN ");
        if !is_closed || !is_base64(inner) {
            continue;
        }
        let end = text.len() - after.len();
        from = end;
        if end - start == head.len() + inner.len() + tail.len() + 2 {
            if row.end != start {
                to.write_all(&text[row])?;
                row = start..start;
            }
            row.end = end;
        } else {
            to.write_all(&text[std::mem::take(&mut row)])?;
            for part in [head, b"\n", inner, tail, b"\n"] {
                to.write_all(part)?;
            }
        }
    }
    to.write_all(&text[row])
}

/// The first line, and what follows.
fn line_of(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = One::new(b'\n').find(text).unwrap_or(text.len());
    Some((text.get(..end)?.trim_ascii_end(), text.get(end + 1..).unwrap_or_default()))
}

/// Whether only such bytes are there as stand between the lines of an armour. Without a branch for each: the
/// compiler has several at a time compared.
fn is_base64(text: &[u8]) -> bool {
    let is_one = |byte: u8| {
        let is_letter = (byte | 0x20).wrapping_sub(b'a') < 26;
        // '/' comes before '0'.
        let is_digit = byte.wrapping_sub(b'/') < 11;
        let is_blank = (byte == b'\n') | (byte == b'\r') | (byte == b' ');
        is_letter | is_digit | (byte == b'+') | (byte == b'=') | is_blank
    };
    text.iter().fold(true, |all, byte| all & is_one(*byte))
}

fn read(path: &Path, file: File) -> Result<Vec<u8>, FsviewError> {
    let failed = |error| FsviewError::new("read", path, error);
    let size = file.metadata().map_err(failed)?.len().min(MOST);
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(MOST).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

/// Opens a file of the host whose links were followed before: if one is on the way now, somebody
/// has put it there since.
fn open(path: &Path) -> Result<File, FsviewError> {
    let failed = |call| move |errno: Errno| FsviewError::new(call, path, errno);
    let how = OpenHow::new()
        // A FIFO would wait for a writer.
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = openat2(nix::fcntl::AT_FDCWD, path, how).map_err(failed("openat2"))?;
    let status = fstat(&file).map_err(failed("fstat"))?;
    let regular = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
    if !regular || size > MOST {
        return Err(FsviewError::new("read", path, if regular { Errno::EFBIG } else { Errno::EINVAL }));
    }
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn taken(text: &str) -> String {
        let mut whole = Vec::new();
        take_certificates(text.as_bytes(), &mut whole).expect("memory");
        String::from_utf8(whole).expect("text")
    }

    #[test]
    fn only_certificates_are_taken_over() {
        let trusted = ONE.replace("CERT", "TRUSTED CERT");
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(taken(&format!("# a comment\n{ONE}secret\n{key}{trusted}")), format!("{ONE}{trusted}"));
        assert_eq!(taken(&ONE.replace('\n', "\r\n")).replace('\r', ""), ONE);
        assert_eq!(taken(ONE.trim_end()), ONE);
        for broken in ["-----BEGIN CERTIFICATE-----\nAAAA\n", "-----BEGIN CERTIFICATE-----\n{secret}\n"] {
            assert_eq!(taken(&format!("{broken}{ONE}")), ONE, "{broken}");
            assert_eq!(taken(&format!("{ONE}{broken}")), ONE, "{broken}");
        }
    }

    #[test]
    fn what_stands_between_certificates_is_left_out() {
        let two = ONE.replace("AAAA", "BBBB");
        assert_eq!(taken(&format!("{ONE}{two}secret\n{ONE}{two}")), format!("{ONE}{two}{ONE}{two}"));
        assert_eq!(taken(&format!("x{}{two}{ONE}", ONE.replace("AAAA", "AA-A"))), format!("{two}{ONE}"));
        assert_eq!(
            taken(&format!("{ONE}{}{two}", ONE.replace("-----\n", "----- \n"))),
            format!("{ONE}{}{two}", ONE)
        );
    }

    #[test]
    fn a_file_is_taken_like_a_text() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().canonicalize().expect("it exists").join("bundle");
        let long = ONE.replace("AAAA\n", &"ABCD/+=\n".repeat(9000));
        let broken = long.replace("END", "ENDE");
        let parts = [
            ONE,
            "# a comment\n",
            &long,
            &broken,
            &ONE.repeat(700),
            &long,
            "secret -----END \n",
            ONE.trim_end(),
        ];
        for lead in [0, 1, 11, PIECE - 9, PIECE - 1] {
            let text = format!("{}{}", "x".repeat(lead), parts.concat());
            std::fs::write(&path, &text).expect("a file");
            let mut whole = Vec::new();
            take_certificates_of(&path, open(&path).expect("a file"), &mut whole).expect("a file");
            assert!(whole == taken(&text).as_bytes(), "{lead}");
        }
        std::fs::write(&path, "").expect("a file");
        take_certificates_of(&path, open(&path).expect("a file"), &mut Vec::new()).expect("a file");
    }

    #[test]
    fn an_armour_has_the_bytes_of_base64_alone() {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+/= \r\n".contains(&byte);
        assert!((0..=255).all(|byte| is_base64(&[b'A', byte]) == known(byte)));
    }

    #[test]
    fn neither_links_nor_pipes_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path().canonicalize().expect("it exists");
        let at = |name: &str| directory.join(name);
        let taken_from = |path: &Path| open(path).and_then(|file| read(path, file));
        std::fs::write(at("file"), ONE).expect("a file");
        std::os::unix::fs::symlink("file", at("link")).expect("a link");
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(taken_from(&at("file")).expect("a file"), ONE.as_bytes());
        let refused = |name: &str| taken_from(&at(name)).expect_err(name).source.raw_os_error();
        assert_eq!(refused("link"), Some(libc::ELOOP));
        assert_eq!(refused("pipe"), Some(libc::EINVAL));
        assert_eq!(refused("absent"), Some(libc::ENOENT));
    }
}
