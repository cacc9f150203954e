//! The blobs of a trace that is there, for those who play it again.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;

use super::blob_check::{decoder, open_blob};
use super::event::hex;
use super::layout::blobs_name;

/// Bytes that are read ahead, and given out when more have followed or the whole was right.
const PIECE: usize = 32 << 10;

/// The directory of blobs beside a trace.
#[derive(Clone, Debug)]
pub struct StoredBlobs {
    directory: PathBuf,
}

impl StoredBlobs {
    /// Those beside the trace at `path`.
    #[must_use]
    pub fn beside(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default();
        Self { directory: path.with_file_name(blobs_name(name)) }
    }

    /// Where they lie.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads a blob from its beginning. Its last piece is given out when the whole has the digest that names it;
    /// otherwise it ends with an error (`InvalidData`), for it was changed since the trace was verified.
    ///
    /// # Errors
    /// When there is no such blob, or no file can be it.
    pub fn open(&self, sha256: &str) -> io::Result<impl Read + Send + use<>> {
        self.open_sized(sha256, u64::MAX)
    }

    /// The same of one that has at most `size` bytes.
    ///
    /// # Errors
    /// When there is no such blob, or no file can be it.
    pub fn open_sized(&self, sha256: &str, size: u64) -> io::Result<impl Read + Send + use<>> {
        Ok(Checked {
            content: decoder(open_blob(&self.directory, sha256)?)?,
            sha256: sha256.to_owned(),
            hash: Sha256::new(),
            left: size,
            piece: Vec::new(),
            at: 0,
            next: None,
        })
    }

    /// The whole of a blob, checked against its name.
    ///
    /// # Errors
    /// When it cannot be read, is longer than `most` bytes (`FileTooLarge`), or is another (`InvalidData`).
    pub fn read(&self, sha256: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.open_sized(sha256, most)?.read_to_end(&mut content)?;
        Ok(content)
    }
}

/// A blob that is read and checked.
struct Checked {
    content: Decoder<'static, BufReader<File>>,
    sha256: String,
    hash: Sha256,
    /// Bytes that it may have yet.
    left: u64,
    piece: Vec<u8>,
    /// How much of `piece` was given out.
    at: usize,
    /// What follows it, of no bytes at the end; `None` before the beginning, and when it was wrong.
    next: Option<Vec<u8>>,
}

impl Checked {
    /// The next piece. Of no bytes at the end, and then the whole is right.
    fn more(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = Vec::with_capacity(PIECE);
        self.content.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
        self.hash.update(&piece);
        let left = self.left.checked_sub(piece.len() as u64);
        let is_right = !piece.is_empty() || hex(&self.hash.clone().finalize()) == self.sha256;
        if let Some(left) = left.filter(|_| is_right) {
            self.left = left;
            return Ok(piece);
        }
        // Nothing that follows is right either.
        self.left = 0;
        let sha256 = std::mem::take(&mut self.sha256);
        let (kind, how) = match left {
            Some(_) => (io::ErrorKind::InvalidData, "not what was stored"),
            None => (io::ErrorKind::FileTooLarge, "longer than it may be"),
        };
        Err(io::Error::new(kind, format!("the blob {sha256} is {how}")))
    }
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            (self.piece, self.at) = (Vec::new(), 0);
            let piece = match self.next.take() {
                Some(piece) => piece,
                None => self.more()?,
            };
            self.next = Some(if piece.is_empty() { Vec::new() } else { self.more()? });
            self.piece = piece;
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blobs of which one has the digest of `named` and holds `content`.
    fn holding(named: &[u8], content: &[u8]) -> (tempfile::TempDir, StoredBlobs, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let trace = directory.path().join("t");
        let sha256 = hex(&Sha256::digest(named));
        let blobs = StoredBlobs::beside(&trace);
        std::fs::create_dir(&blobs.directory).expect("a directory");
        let packed = zstd::encode_all(content, 1).expect("zstd");
        std::fs::write(blobs.directory.join(format!("{sha256}.zst")), packed).expect("writes");
        (directory, blobs, sha256)
    }

    #[test]
    fn what_was_stored_comes_back() {
        for size in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let content: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).expect("fits")).collect();
            let (_directory, blobs, sha256) = holding(&content, &content);
            let mut read = Vec::new();
            let size = u64::try_from(size).expect("fits");
            blobs.open_sized(&sha256, size).expect("it is there").read_to_end(&mut read).expect("reads");
            assert_eq!(read, content);
            assert_eq!(blobs.read(&sha256, size).expect("reads"), content);
            assert!(size == 0 || blobs.read(&sha256, size - 1).is_err());
        }
    }

    #[test]
    fn nothing_is_given_of_a_short_one_that_is_another() {
        let (_directory, blobs, sha256) = holding(b"named", b"other");
        let mut blob = blobs.open(&sha256).expect("it is there");
        for _ in 0..3 {
            let error = blob.read(&mut [0; 9]).expect_err("it is another");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_long_one_that_is_another_ends_with_an_error() {
        let (_directory, blobs, sha256) = holding(b"named", &vec![7; 3 * PIECE]);
        let mut taken = Vec::new();
        let whole = 3 * PIECE as u64;
        let read = blobs.open(&sha256).expect("it is there").take(whole).read_to_end(&mut taken);
        assert!(read.is_err() && taken.len() < 3 * PIECE);
        let (_directory, blobs, sha256) = holding(&vec![7; 3 * PIECE], &vec![7; 3 * PIECE]);
        let copied = io::copy(&mut blobs.open_sized(&sha256, 5).expect("it is there"), &mut io::sink());
        assert!(copied.is_err());
    }
}
