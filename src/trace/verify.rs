//! Verifies a trace: every entry, the chain between them, the seal, and the blobs.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use super::blob_check::BlobCheck;
use super::chain::next_blob_root;
use super::error::TraceError;
use super::layout::ZERO_SHA;
use super::reader::Reader;
use super::scan::looks_like_a_trace;
use super::tamper::Tamper;

mod pipeline;

use pipeline::{End, Examined, examine_all};

/// What the caller knows about the trace from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// Hash of the last entry, in lower-case hex.
    pub head: Option<String>,
}

/// What a trace proves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verification {
    /// Number of whole entries, up to the first bad one.
    pub entries: u64,
    /// Hash of the last of them; 64 zeros when there is none.
    pub head: String,
    /// How many private bodies were left out when it was packed.
    pub left_out: u64,
    /// The first entry whose body is not there, nor is the place for bodies, of a trace that is not sealed: it was
    /// moved without them. A sealed one is tampered with then.
    pub lacking: Option<u64>,
    /// How the trace ends.
    pub outcome: Outcome,
}

/// How a trace ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Intact and sealed.
    Sealed,
    /// Intact, but nothing says that this is all.
    Unsealed,
    /// Intact up to a last line that was not finished.
    Torn {
        /// Bytes of that line.
        bytes: usize,
    },
    /// Not what was recorded.
    Tampered {
        /// The first bad entry.
        entry: u64,
        /// What is wrong with it.
        reason: Tamper,
    },
}

/// Verifies the trace at `path` with the blobs beside it.
///
/// An error means that it cannot be read or is no trace at all.
pub fn verify(path: &Path, expected: &Expectation) -> Result<Verification, TraceError> {
    verify_as(path, expected, |file| file)
}

/// The same, where the trace is read as `reading` reads its file.
pub(super) fn verify_as<R: Read>(
    path: &Path,
    expected: &Expectation,
    reading: impl FnOnce(File) -> R,
) -> Result<Verification, TraceError> {
    let read = |source| TraceError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(read)?;
    if file.metadata().map_err(read)?.is_dir() {
        return Err(TraceError::NotATrace { path: path.to_owned() });
    }
    let mut state = State::new(path);
    let mut bad = None;
    let end = examine_all(&mut Reader::new(reading(file)), looks_like_a_trace, |finding| {
        match state.take(finding) {
            Ok(()) => ControlFlow::Continue(()),
            Err(reason) => {
                bad = Some((state.entries, reason));
                ControlFlow::Break(())
            }
        }
    });
    let outcome = match (bad.or_else(|| state.lacking_when_sealed()), end.map_err(read)?) {
        (Some((entry, reason)), _) => Outcome::Tampered { entry, reason },
        (None, End::NotATrace) => {
            return Err(TraceError::NotATrace { path: path.to_owned() });
        }
        (None, End::TooLong) => state.tampered(Tamper::TooLong),
        (None, End::Torn { .. }) if state.sealed => state.tampered(Tamper::AfterSeal),
        (None, End::Torn { bytes }) => Outcome::Torn { bytes },
        (None, End::Whole | End::Stopped) if state.sealed => Outcome::Sealed,
        (None, End::Whole | End::Stopped) => Outcome::Unsealed,
    };
    Ok(state.conclude(outcome, expected))
}

/// What was verified so far.
struct State {
    blobs: BlobCheck,
    entries: u64,
    head: [u8; 64],
    blob_root: String,
    sealed: bool,
    /// The first entry that has a body where there is no place for bodies.
    lacking: Option<(u64, Tamper)>,
}

impl State {
    fn new(path: &Path) -> Self {
        Self {
            blobs: BlobCheck::beside(path),
            entries: 0,
            head: [b'0'; 64],
            blob_root: ZERO_SHA.to_owned(),
            sealed: false,
            lacking: None,
        }
    }

    /// Takes the next entry, which must follow the last one.
    fn take(&mut self, finding: Result<Examined, Tamper>) -> Result<(), Tamper> {
        if self.sealed {
            return Err(Tamper::AfterSeal);
        }
        let entry = finding?;
        match entry.index {
            found if found > self.entries => return Err(Tamper::Deleted { found }),
            found if found < self.entries => return Err(Tamper::OutOfOrder { found }),
            _ if entry.prev != self.head => return Err(Tamper::Unchained),
            _ => {}
        }
        if let Some(history) = &entry.history {
            check_history(&history.args, self.entries, &self.head(), &self.blob_root)?;
            self.sealed = history.is_seal;
        }
        for mention in &entry.blobs {
            match self.blobs.check(mention) {
                Err(reason @ Tamper::BlobsMissing { .. }) => {
                    self.lacking.get_or_insert((self.entries, reason));
                }
                other => other?,
            }
            self.blob_root = next_blob_root(&self.blob_root, &mention.sha256);
        }
        self.head = entry.sha;
        self.entries += 1;
        Ok(())
    }

    fn head(&self) -> String {
        self.head.iter().copied().map(char::from).collect()
    }

    /// An interrupted run's trace is taken for one that was moved without its bodies; of a whole one they are part.
    fn lacking_when_sealed(&mut self) -> Option<(u64, Tamper)> {
        self.lacking.take_if(|_| self.sealed)
    }

    fn tampered(&self, reason: Tamper) -> Outcome {
        Outcome::Tampered { entry: self.entries, reason }
    }

    fn conclude(self, mut outcome: Outcome, expected: &Expectation) -> Verification {
        let head = self.head();
        let other_head = expected.head.as_ref().is_some_and(|expected| *expected != head);
        if other_head && !matches!(outcome, Outcome::Tampered { .. }) {
            outcome = Outcome::Tampered { entry: self.entries.saturating_sub(1), reason: Tamper::OtherHead };
        }
        let lacking = self.lacking.as_ref().map(|(entry, _)| *entry);
        Verification { entries: self.entries, head, left_out: self.blobs.left_out(), lacking, outcome }
    }
}

/// Checks that a checkpoint or seal tells of exactly what comes before it.
fn check_history(args: &str, entries: u64, head: &str, blob_root: &str) -> Result<(), Tamper> {
    let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
    let text = |name| args.get(name).and_then(serde_json::Value::as_str);
    let checks = [
        ("entries", args.get("entries").and_then(serde_json::Value::as_u64) == Some(entries)),
        ("head", text("head") == Some(head)),
        ("blobs", text("blobs") == Some(blob_root)),
    ];
    match checks.into_iter().find(|(_, holds)| !holds) {
        Some((field, _)) => Err(Tamper::WrongCheckpoint { field }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
