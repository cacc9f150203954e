//! The rates of one run, on the clock.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::policy::{Exhausted, Policy, RateMeter, RuleId};

/// What was let through so far.
#[derive(Debug)]
pub(crate) struct Rates {
    meter: Mutex<RateMeter>,
    /// Times are counted from here: the wall clock may be set back.
    started: Instant,
}

impl Default for Rates {
    fn default() -> Self {
        Self { meter: Mutex::default(), started: Instant::now() }
    }
}

impl Rates {
    /// Takes a place under one of the rules.
    pub(crate) fn take(&self, policy: &Policy, rules: &[RuleId]) -> Result<(), Exhausted> {
        if rules.is_empty() {
            return Ok(());
        }
        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        meter.take(policy, rules, self.started.elapsed())
    }

    /// Whether none of the rules has a place now.
    pub(crate) fn are_used_up(&self, policy: &Policy, rules: &[RuleId]) -> bool {
        let meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        !rules.is_empty() && !meter.has_place(policy, rules, self.started.elapsed())
    }
}
