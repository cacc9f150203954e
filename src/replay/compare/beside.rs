//! What is known of a trace beside its entries: the bodies, and whether both of two say changes in detail.

use std::io::{self, Read, Seek, SeekFrom};

use serde_json::{Map, Value};

use super::transcripts;
use crate::trace::{Line, Reader, StoredBlobs};

/// Members of changes that older traces lack.
const DETAILS: [&str; 5] = ["mode", "size", "name", "name_hex", "value_sha256"];

/// What is known of one trace.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// The bodies beside it, where transcripts are to be read.
    pub(super) blobs: Option<StoredBlobs>,
    /// Neither trace is older than the details.
    details: bool,
}

/// What is known of two traces that are compared.
pub(super) fn of(
    recorded: &mut (impl Read + Seek),
    live: &mut (impl Read + Seek),
    blobs: [Option<&StoredBlobs>; 2],
) -> io::Result<[Beside; 2]> {
    let details = says_details(recorded)? && says_details(live)?;
    Ok(blobs.map(|blobs| Beside { blobs: blobs.cloned(), details }))
}

/// Whether its first entry says so.
fn says_details(trace: &mut (impl Read + Seek)) -> io::Result<bool> {
    trace.seek(SeekFrom::Start(0))?;
    let mut reader = Reader::new(trace);
    let Some(Line::Whole(line)) = reader.next_line()? else { return Ok(false) };
    let start: Value = serde_json::from_slice(line).unwrap_or_default();
    Ok(start.pointer("/args/formats/changes").is_some())
}

impl Beside {
    /// Makes an entry one that can be compared.
    pub(super) fn complete(&self, entry: &mut Map<String, Value>) {
        transcripts::add(entry, self.blobs.as_ref());
        let is_change = |op: &str| ["fs.open_write", "fs.mkdir", "fs.mknod", "fs.meta"].contains(&op);
        if !self.details
            && entry.get("op").and_then(Value::as_str).is_some_and(is_change)
            && let Some(Value::Object(args)) = entry.get_mut("args")
        {
            args.retain(|name, _| !DETAILS.contains(&name.as_str()));
        }
    }
}
