//! A trace that was verified, held as it was then: whatever becomes of its file, who reads it later reads the same.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use super::error::TraceError;
use super::layout::FILE_MODE;
use super::placement::Scratch;
use super::stored::StoredBlobs;
use super::verify::{Expectation, Verification, verify, verify_as};

/// The content of a trace at the time when it was verified. Its blobs are checked as they are read.
#[derive(Clone, Debug)]
pub struct Held {
    file: Arc<File>,
    blobs: StoredBlobs,
}

impl Held {
    /// Verifies the trace at `path`, where nobody else writes, or which is copied.
    pub(super) fn verify(path: &Path, is_private: bool) -> Result<(Self, Verification), TraceError> {
        if !is_private {
            return Self::copied(path, nameless()?);
        }
        let file = File::open(path).map_err(|source| TraceError::Read { path: path.to_owned(), source })?;
        let found = verify(path, &Expectation::default())?;
        Ok((Self { file: Arc::new(file), blobs: StoredBlobs::beside(path) }, found))
    }

    fn copied(path: &Path, file: File) -> Result<(Self, Verification), TraceError> {
        let found = verify_as(path, &Expectation::default(), |from| Copying { from, to: &file })?;
        Ok((Self { file: Arc::new(file), blobs: StoredBlobs::beside(path) }, found))
    }

    /// Reads it from its beginning.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn read(&self) -> io::Result<File> {
        // Opened anew, for an offset of its own (proc_pid_fd(5)).
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Its bodies.
    #[must_use]
    pub fn blobs(&self) -> &StoredBlobs {
        &self.blobs
    }
}

/// A private file without a name.
fn nameless() -> Result<File, TraceError> {
    let scratch = Scratch::new()?;
    let path = scratch.path().join("held");
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&path);
    file.map_err(|source| TraceError::Create { path, source })
}

/// Copies what is read.
pub(super) struct Copying<R, W> {
    pub(super) from: R,
    pub(super) to: W,
}

impl<R: Read, W: Write> Read for Copying<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        let copied = self.to.write_all(&buffer[..count]);
        copied
            .map_err(|error| io::Error::new(error.kind(), format!("its copy cannot be written: {error}")))?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    use super::super::chain::{Body, Chain};
    use super::super::event::{Event, Kind, hex};
    use super::super::pack::pack;
    use super::*;

    /// A trace with a body `hello`; gives its path and text, and the path of the body.
    fn sample(directory: &Path) -> (PathBuf, String, PathBuf) {
        let (path, sha256) = (directory.join("t"), hex(&Sha256::digest("hello")));
        let blob = directory.join(format!("t.blobs/{sha256}.zst"));
        fs::create_dir(directory.join("t.blobs")).expect("a directory");
        fs::write(&blob, zstd::encode_all(&b"hello"[..], 1).expect("zstd")).expect("writes");
        let body = json!({"body": {"blob": sha256, "size": 5}});
        let (mut chain, mut text) = (Chain::new(), String::new());
        for _ in 0..2 {
            let mut line = String::new();
            let event = Event::new(Kind::Effect, "http.exchange").result(body.clone());
            chain.append(&Body::new(&event), None, 1_000_000, &mut line);
            text.push_str(&line);
        }
        fs::write(&path, &text).expect("writes");
        (path, text, blob)
    }

    fn held(path: &Path) -> Held {
        Held::copied(path, tempfile::tempfile().expect("a file")).expect("a trace").0
    }

    #[test]
    fn what_was_verified_is_read_whatever_becomes_of_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, text, _) = sample(directory.path());
        let held = held(&path);
        let read = || io::read_to_string(held.read().expect("it is held")).expect("it reads");
        fs::write(&path, text.replace("effect", "denied")).expect("writes");
        assert_eq!(read(), text);
        fs::remove_file(&path).expect("removes");
        fs::write(&path, "another").expect("writes");
        assert_eq!((read(), read()), (text.clone(), text));
    }

    #[test]
    fn a_body_that_was_changed_since_is_neither_read_nor_packed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, _, blob) = sample(directory.path());
        let held = held(&path);
        let packed = || pack(&held, false, &tempfile::tempfile().expect("a file"));
        assert_eq!(packed().expect("it is whole").blobs, 1);
        fs::write(&blob, zstd::encode_all(&b"other"[..], 1).expect("zstd")).expect("writes");
        let name = blob.file_stem().and_then(|name| name.to_str()).expect("a name");
        assert!(held.blobs().open(name).expect("it is there").read(&mut [0; 9]).is_err());
        assert!(packed().is_err());
        let mut longer = zstd::encode_all(&b"hello"[..], 1).expect("zstd");
        longer.extend_from_slice(b"more");
        fs::write(&blob, longer).expect("writes");
        assert!(packed().is_err());
    }
}
