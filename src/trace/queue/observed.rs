//! Observations, which come written.

use std::sync::Arc;

use super::super::chain::Body;
use super::super::error::TraceError;
use super::super::observation::Observation;
use super::super::tally::Tally;
use super::{Queue, Repeat};

impl Queue {
    /// Accepts an observation that is written already; identical ones are folded.
    pub(in crate::trace) fn accept_observation(&self, seen: Observation<'_>) -> Result<(), TraceError> {
        self.accept_body(Arc::new(Body::of_observation(seen)), Repeat::Fold, Tally::count_observation)
    }
}
