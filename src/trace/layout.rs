//! Names, numbers and modes of what is on disk.

use std::ffi::{OsStr, OsString};

/// The trace that is written and read when no `-t` names one.
pub const DEFAULT_NAME: &str = "trace.jsonl";
/// `prev` of the first entry, and the root of an empty set of blobs.
pub const ZERO_SHA: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Mode of the trace, of blobs and of journals.
pub const FILE_MODE: u32 = 0o600;
/// Mode of directories that hold them.
pub const DIRECTORY_MODE: u32 = 0o700;

/// Bytes of disk that are reserved ahead at a time.
pub const RESERVE_STEP: u64 = 4 << 20;
/// The same for bodies that have passed and are not stored yet.
pub const RESERVE_STEP_OF_BODIES: u64 = 1 << 20;
/// Bytes of a reservation that only the end of a run may use: checkpoints, `run.end`, `run.seal`.
pub const RESERVE_FOR_END: u64 = 64 << 10;
/// Bytes that are reserved before an effect is let happen: its entry (two paths at PATH_MAX, each byte written in the
/// longest way) must fit.
pub const RESERVE_AHEAD: u64 = 128 << 10;
/// Producers wait when this many bytes are queued.
pub const QUEUE_BYTES: u64 = 2 << 20;
/// The longest line that is written; bigger bodies go to blobs.
pub const LONGEST_WRITTEN_LINE: u64 = 16 << 20;
/// The longest line that is read.
pub const LONGEST_READ_LINE: usize = 64 << 20;

/// Entries between two checkpoints.
pub const CHECKPOINT_ENTRIES: u64 = 10_000;
/// Seconds between two checkpoints, while entries come.
pub const CHECKPOINT_SECONDS: u64 = 300;

/// Suffix of the directory of blobs beside a trace.
pub const BLOBS_SUFFIX: &str = ".blobs";
/// Suffix of a compressed blob; its name before that is the SHA-256 of its content.
pub const BLOB_SUFFIX: &str = ".zst";
/// Suffix of the policy beside a trace that was unpacked.
pub const POLICY_SUFFIX: &str = ".policy";
/// In a directory of blobs, an empty file of this name says that private ones were left out.
pub const REDACTED_NAME: &str = "redacted";
/// Prefix of a file that is not complete yet.
pub const TEMPORARY_PREFIX: &str = ".tmp-";
/// The directory of ours in the user's state directory.
pub const STATE_NAME: &str = "agentbox";
/// The directory in there whose traces wait to be put in place.
pub const PENDING_NAME: &str = "pending";
/// The list of traces that were put where an agent could reach them.
pub const LEDGER_NAME: &str = "traces";
/// The file in which runs lock what their agents see.
pub const VIEWS_NAME: &str = "views";
/// Remembers where a waiting trace belongs.
pub const JOURNAL_NAME: &str = "journal.json";
/// Name, in the state directory, of the directory in which the traces of replays are written.
pub const REPLAYS_NAME: &str = "replays";
/// Name, in the state directory, of the directory that says which traces were made here.
pub const HEADS_NAME: &str = "heads";
/// The list in there.
pub const HEADS_LIST: &str = "list";

/// Returns the name of the directory of blobs that belongs to the trace `name`.
pub fn blobs_name(name: &OsStr) -> OsString {
    let mut blobs = name.to_owned();
    blobs.push(BLOBS_SUFFIX);
    blobs
}

/// Returns the name of the `number`-th former trace of the name `name`.
pub fn former_name(name: &OsStr, number: u32) -> OsString {
    let mut former = name.to_owned();
    former.push(format!(".{number}"));
    former
}

/// Returns the number that makes `candidate` a former trace (or the blobs of one) of the name `name`.
pub fn former_number(name: &OsStr, candidate: &OsStr) -> Option<u32> {
    let rest = candidate.as_encoded_bytes().strip_prefix(name.as_encoded_bytes())?.strip_prefix(b".")?;
    let digits = rest.strip_suffix(BLOBS_SUFFIX.as_bytes()).unwrap_or(rest);
    if digits.first() == Some(&b'0') || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the file name of a blob.
pub fn blob_name(sha256: &str) -> String {
    format!("{sha256}{BLOB_SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_names_have_numbers() {
        let name = OsStr::new("trace.jsonl");
        assert_eq!(former_name(name, 3), "trace.jsonl.3");
        assert_eq!(former_number(name, OsStr::new("trace.jsonl.12")), Some(12));
        assert_eq!(former_number(name, OsStr::new("trace.jsonl.12.blobs")), Some(12));
        for other in
            ["trace.jsonl", "trace.jsonl.", "trace.jsonl.blobs", "trace.jsonl.0", "trace.jsonl.x", "a.1"]
        {
            assert_eq!(former_number(name, OsStr::new(other)), None, "{other}");
        }
    }
}
