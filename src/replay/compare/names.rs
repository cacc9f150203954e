//! The names of kinds and operations, each with a number.

use std::collections::HashMap;

/// The names of kinds and operations of both traces.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: Vec<(String, String)>,
    /// The number of each, by operation and kind.
    known: HashMap<String, HashMap<String, u16>>,
}

impl Names {
    pub(super) fn number(&mut self, kind: &str, op: &str) -> u16 {
        if let Some(number) = self.known.get(op).and_then(|kinds| kinds.get(kind)) {
            return *number;
        }
        // Names come from the supervisor; in a forged trace with more, the last ones share a number.
        let number = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        self.all.push((kind.to_owned(), op.to_owned()));
        self.known.entry(op.to_owned()).or_default().insert(kind.to_owned(), number);
        number
    }

    pub(super) fn kind(&self, number: u16) -> &str {
        self.all.get(usize::from(number)).map_or("", |(kind, _)| kind)
    }

    pub(super) fn op(&self, number: u16) -> &str {
        self.all.get(usize::from(number)).map_or("", |(_, op)| op)
    }
}
