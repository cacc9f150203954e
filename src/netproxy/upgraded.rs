//! What became of a connection after 101.

use std::sync::Arc;

use serde_json::{Value, json};

use super::failure::Failure;
use super::scribe::Desk;
use super::segments::Way;
use super::transcript::Transcript;
use crate::trace::TraceError;

/// What became of the connection after 101.
pub(super) struct Upgraded {
    pub(super) transcript: Arc<Transcript>,
    pub(super) end: Option<(String, Option<Failure>)>,
}

impl Upgraded {
    pub(super) fn describe(self, ends: bool, desk: &mut Desk) -> Result<Value, TraceError> {
        let (up, down) = (self.transcript.bytes(Way::Up), self.transcript.bytes(Way::Down));
        let unnamed = || (if ends { "the run ended" } else { "closed" }.to_owned(), None);
        let (end, failure) = self.end.unwrap_or_else(unnamed);
        let transcript = self.transcript.finish()(desk)?;
        let mut value = json!({"up": up, "down": down, "end": end, "transcript": transcript});
        if let Some(failure) = failure {
            value["failure"] = failure.value(down);
        }
        Ok(value)
    }
}
