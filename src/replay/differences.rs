//! Differences: what is not as it was when the run was recorded, found before anything runs.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use super::inputs::Inputs;
use super::{Recording, ReplayError, initial};
use crate::fsview::InitialState;
use crate::trace::display_bytes;

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What it is: `policy`, `command`, `input`, `executable`.
    pub what: &'static str,
    /// Which one.
    pub name: String,
    /// What it was.
    pub recorded: String,
    /// What it is.
    pub now: String,
}

impl Difference {
    /// Another command.
    #[must_use]
    pub fn command(recorded: &[OsString], now: &[OsString]) -> Self {
        let text = |words: &[OsString]| {
            let words = words.iter().map(|word| display_bytes(word.as_encoded_bytes()));
            words.collect::<Vec<_>>().join(" ")
        };
        Self { what: "command", name: String::new(), recorded: text(recorded), now: text(now) }
    }

    /// Another policy.
    #[must_use]
    pub fn policy(file: &Path, recorded: &str, now: &str) -> Self {
        let name = display_bytes(file.as_os_str().as_encoded_bytes());
        Self { what: "policy", name, recorded: recorded.to_owned(), now: now.to_owned() }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, recorded, now } = self;
        let space = if name.is_empty() { "" } else { " " };
        write!(formatter, "the {what}{space}{name} is another one: recorded {recorded}, now {now}")
    }
}

/// What was at the paths that the run changed, before it did, and which of its inputs are others now.
///
/// # Errors
/// When the trace cannot be read any more.
pub fn differences(recording: &Recording) -> Result<(InitialState, Vec<Difference>), ReplayError> {
    let (mut state, mut inputs) = (InitialState::default(), Inputs::default());
    for entry in recording.entries()? {
        let entry = entry?;
        initial::add(&mut state, &entry);
        inputs.add(&entry);
    }
    let found = inputs.differences(&state);
    Ok((state, found))
}
