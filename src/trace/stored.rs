//! The blobs of a trace that is there, for those who play it again.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::blob_check::{decoder, open_blob};
use super::event::hex;
use super::layout::blobs_name;

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

    /// Reads a blob from its beginning. What it yields is what was stored, if the trace was verified.
    ///
    /// # Errors
    /// When there is no such blob, or no file can be it.
    pub fn open(&self, sha256: &str) -> io::Result<impl Read + Send + use<>> {
        decoder(open_blob(&self.directory, sha256)?)
    }

    /// The whole of a blob, checked against its name.
    ///
    /// # Errors
    /// When it cannot be read, is longer than `most` bytes, or is another (`InvalidData`).
    pub fn read(&self, sha256: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.open(sha256)?.take(most.saturating_add(1)).read_to_end(&mut content)?;
        let whole = u64::try_from(content.len()).is_ok_and(|size| size <= most);
        if whole && hex(&Sha256::digest(&content)) == sha256 {
            Ok(content)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the blob {sha256} is not what was stored"),
            ))
        }
    }
}
