//! What is known of a trace beside its entries: the bodies, and whether both of two say changes in detail.

use std::io::{self, Read, Seek, SeekFrom};

use serde_json::{Map, Value};

use super::variables::private;
use super::{normal, transcripts};
use crate::trace::{Line, Reader, StoredBlobs};

/// Members of changes that older traces lack.
const DETAILS: [&str; 5] = ["mode", "size", "name", "name_hex", "value_sha256"];

/// Entries among which a trace names its private part.
const FIRST: usize = 16;

/// What is known of one trace.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// The bodies beside it, where transcripts are to be read.
    pub(super) blobs: Option<StoredBlobs>,
    /// Neither trace is older than the details.
    details: bool,
    /// Neither trace is older than entries for each content of a program file.
    pub(super) images: bool,
    /// Secrets are named by another key than in the other trace, or nobody can say that it is the same.
    has_own_key: bool,
}

/// What is known of two traces that are compared.
pub(super) fn of(
    recorded: &mut (impl Read + Seek),
    live: &mut (impl Read + Seek),
    blobs: [Option<&StoredBlobs>; 2],
) -> io::Result<[Beside; 2]> {
    let mut both = |format| Ok::<_, io::Error>(says(recorded, format)? && says(live, format)?);
    let (details, images) = (both("changes")?, both("images")?);
    // A replay, of which only the entries are given, has the key of what it repeats.
    let [ours, theirs] = blobs;
    let has_own_key = match (ours, theirs) {
        (Some(ours), Some(theirs)) => {
            let key = key(recorded, ours)?;
            key.is_none() || key != self::key(live, theirs)?
        }
        _ => false,
    };
    Ok(blobs.map(|blobs| Beside { blobs: blobs.cloned(), details, images, has_own_key }))
}

/// The key of the digests that stand for secrets, where the private part of a trace is there.
fn key(trace: &mut (impl Read + Seek), blobs: &StoredBlobs) -> io::Result<Option<String>> {
    trace.seek(SeekFrom::Start(0))?;
    let mut reader = Reader::new(trace);
    for _ in 0..FIRST {
        let Some(Line::Whole(line)) = reader.next_line()? else { break };
        let entry: Value = serde_json::from_slice(line).unwrap_or_default();
        if entry.get("op").is_some_and(|op| op == "run.replay") {
            let private = entry.get("args").and_then(Value::as_object).map(|args| private(args, blobs));
            return Ok(private.and_then(|private| private.get("redactor")?.as_str().map(str::to_owned)));
        }
    }
    Ok(None)
}

/// Whether its first entry says that it is of this format.
fn says(trace: &mut (impl Read + Seek), format: &str) -> io::Result<bool> {
    trace.seek(SeekFrom::Start(0))?;
    let mut reader = Reader::new(trace);
    let Some(Line::Whole(line)) = reader.next_line()? else { return Ok(false) };
    let start: Value = serde_json::from_slice(line).unwrap_or_default();
    Ok(start.pointer("/args/formats").is_some_and(|formats| formats.get(format).is_some()))
}

impl Beside {
    /// Makes an entry one that can be compared; whether it named secrets by a key of its own.
    pub(super) fn complete(&self, entry: &mut Map<String, Value>) -> bool {
        transcripts::add(entry, self.blobs.as_ref());
        let is_change = |op: &str| ["fs.open_write", "fs.mkdir", "fs.mknod", "fs.meta"].contains(&op);
        if !self.details
            && entry.get("op").and_then(Value::as_str).is_some_and(is_change)
            && let Some(Value::Object(args)) = entry.get_mut("args")
        {
            args.retain(|name, _| !DETAILS.contains(&name.as_str()));
        }
        let parts = entry.iter_mut().filter(|(name, _)| ["args", "result"].contains(&name.as_str()));
        self.has_own_key && parts.fold(false, |any, (_, part)| normal::mask_secrets(part) | any)
    }
}
