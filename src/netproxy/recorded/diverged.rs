//! Why a replay cannot go on with a connection.

use std::error::Error;
use std::fmt;
use std::io;

use serde_json::Value;

use super::super::failure::NOT_RECORDED;

/// Why a replay cannot go on with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Diverged {
    /// Nothing like it was recorded, or all of it has been played. What comes closest, with what differs.
    NotRecorded(Option<Box<Value>>),
    /// What was recorded cannot be read, or not to its end.
    Unreadable(String),
    /// The client said something else than it had said, from this byte on.
    At {
        /// From 0.
        byte: u64,
        /// The record of TLS that holds it.
        record: Option<String>,
    },
    /// The client waits for what came after it had said more, and nothing else of the run goes on.
    Waits {
        /// What it has said.
        byte: u64,
    },
}

impl Diverged {
    /// The kind of the failure.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::NotRecorded(_) | Self::Unreadable(_) => NOT_RECORDED,
            Self::At { .. } | Self::Waits { .. } => "diverged",
        }
    }

    /// That of a recording which cannot be read.
    pub(super) fn unreadable(error: &io::Error) -> Self {
        Self::Unreadable(error.to_string())
    }

    /// Where.
    pub(super) fn place(&self) -> String {
        match self {
            Self::NotRecorded(_) | Self::Unreadable(_) => "nowhere".to_owned(),
            Self::At { byte, record: None } => format!("byte {byte}"),
            Self::At { byte, record: Some(record) } => format!("byte {byte}, in {record}"),
            Self::Waits { byte } => {
                format!("byte {byte}: it waits for an answer that came after more had been said")
            }
        }
    }

    /// What an error is about that a replay has no answer to.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().cloned()
    }

    /// Adds to the record of a failure where it came, or what comes closest.
    pub(crate) fn describe(&self, failure: &mut Value) {
        match self {
            Self::NotRecorded(Some(closest)) => failure["closest"] = (**closest).clone(),
            Self::NotRecorded(None) | Self::Unreadable(_) => {}
            Self::At { .. } | Self::Waits { .. } => failure["at"] = self.place().into(),
        }
    }
}

impl fmt::Display for Diverged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRecorded(_) => formatter.write_str("replay: nothing like it was recorded"),
            Self::Unreadable(reason) => {
                write!(formatter, "replay: what was recorded cannot be read: {reason}")
            }
            Self::At { .. } | Self::Waits { .. } => write!(formatter, "replay: diverged at {}", self.place()),
        }
    }
}

impl Error for Diverged {}

impl From<Diverged> for io::Error {
    fn from(diverged: Diverged) -> Self {
        Self::other(diverged)
    }
}
