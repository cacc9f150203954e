//! The statuses of files, put together from what the recorded run noted.

use std::io;

use serde_json::{Map, Value};

use crate::supervisor::{LONGEST_STATUSES, RecordedStatuses, STATUSES, StatusError};
use crate::trace::StoredBlobs;

/// Takes what an entry says of files into `statuses`; entries come in their order.
///
/// # Errors
/// When the body cannot be read; InvalidData where it holds what no run records.
pub(super) fn add(
    statuses: &mut RecordedStatuses,
    entry: &Map<String, Value>,
    blobs: &StoredBlobs,
) -> io::Result<()> {
    if entry.get("op").and_then(Value::as_str) != Some(STATUSES) {
        return Ok(());
    }
    let samples = entry.get("args").and_then(|args| args.get("samples")?.get("blob")?.as_str());
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let samples = samples.ok_or_else(|| wrong(StatusError::Malformed))?;
    statuses.add(&blobs.read(samples, LONGEST_STATUSES)?).map_err(wrong)
}
