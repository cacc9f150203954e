//! Captures: the content of what the run reads, kept so that a replay needs none of it (`run --capture`).

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::stat::fstat;
use serde_json::{Value, json};

use super::content::Content;
use super::first_change::{Kept, image, keep};
use crate::trace::{Members, Recorder, TraceError};

/// Digests that are remembered, so that a file that is read often is stored once.
const REMEMBERED: usize = 65_536;

/// What was stored already.
#[derive(Debug, Default)]
pub(super) struct Captures(HashSet<String>);

impl Captures {
    /// Adds the file as it is to `args`, which say that it held `content`.
    pub(super) fn write_to(
        &mut self,
        args: &mut Members,
        file: &OwnedFd,
        content: &Content,
        recorder: &Recorder,
    ) -> Result<(), TraceError> {
        args.value("captured", &self.image(file, content, recorder)?);
        Ok(())
    }

    fn image(&mut self, file: &OwnedFd, content: &Content, recorder: &Recorder) -> Result<Value, TraceError> {
        let unkept = |why: String| Ok(json!({"type": "file", "unkept": why}));
        let status = match fstat(file) {
            Ok(status) => status,
            Err(errno) => return unkept(format!("fstat: {}", Errno::desc(errno))),
        };
        if !self.0.contains(&content.sha256) {
            match keep(file, status.st_size, recorder)? {
                Ok(body) if body["blob"] == content.sha256.as_str() => {}
                Ok(_) => return unkept("it changed while it was read".to_owned()),
                Err(why) => return unkept(why),
            }
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
            self.0.insert(content.sha256.clone());
        }
        let mut image = image(file, &status, Kept::Status, recorder)?;
        image.remove("kept");
        image.insert("size".to_owned(), content.size.into());
        let body = json!({"blob": content.sha256, "private": true, "size": content.size});
        image.insert("content".to_owned(), body);
        Ok(image.into())
    }
}
