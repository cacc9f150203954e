//! Rates of `net:` rules: how often, and a meter that is told the time.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::host_fault::{HostFault, syntax};
use super::verdict::RuleId;
use super::{Policy, RuleBody};

/// At most so many times in each stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many, at least one.
    pub count: u32,
    /// In which time.
    pub unit: RateUnit,
}

/// The time of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RateUnit {
    /// `/s`
    Second,
    /// `/min`
    Minute,
    /// `/h`
    Hour,
}

impl RateUnit {
    /// How long it is.
    pub fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "min",
            Self::Hour => "h",
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}/{}", self.count, self.unit.name())
    }
}

/// More would be no limit, and each is remembered.
const MOST: u32 = 1_000_000;

/// Reads `@N/UNIT`.
pub(super) fn parse(word: &str) -> Result<Rate, HostFault> {
    let example = "write `@10/min`; the units are `s`, `min` and `h`";
    let Some((count, unit)) = word.strip_prefix('@').and_then(|rate| rate.split_once('/')) else {
        return Err(syntax(format!("`{word}` is no rate"), example));
    };
    let unit = match unit {
        "s" => RateUnit::Second,
        "min" => RateUnit::Minute,
        "h" => RateUnit::Hour,
        other => {
            let meant = match other.to_lowercase().as_str() {
                "sec" | "secs" | "second" | "seconds" => "s",
                "m" | "mins" | "minute" | "minutes" => "min",
                "hr" | "hour" | "hours" => "h",
                _ => return Err(syntax(format!("unknown unit `{other}` of a rate"), example)),
            };
            let message = format!("unknown unit `{other}` of a rate, did you mean `{meant}`?");
            return Err(syntax(message, format!("write `@{count}/{meant}`")));
        }
    };
    let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    match count.parse().ok().filter(|_| is_number) {
        Some(0) => {
            Err(syntax("a rate of 0 allows nothing", "leave the rule out, or write a `deny: net` rule"))
        }
        Some(count) if count <= MOST => Ok(Rate { count, unit }),
        _ => Err(syntax(format!("`{count}` is no number from 1 to {MOST}"), example)),
    }
}

/// What was let through under each rule that has a rate. Told the time, it does the same again.
#[derive(Debug, Default)]
pub struct RateMeter {
    windows: HashMap<RuleId, Window>,
}

#[derive(Debug, Default)]
struct Window {
    /// When, in order, the oldest first; none older than the unit.
    taken: VecDeque<Duration>,
    /// A refusal has been told since the last one that was let through.
    is_hit: bool,
}

/// A rate is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The rule under which the next one passes first.
    pub rule: RuleId,
    /// Its rate.
    pub rate: Rate,
    /// When that will be, from now.
    pub retry_after: Duration,
    /// It is the first refusal since something was let through.
    pub is_first: bool,
}

impl RateMeter {
    /// Takes a place under the first of `rules` that has one; they are those of [`Policy::rates`]. `now` only grows.
    ///
    /// # Errors
    /// When there is no place. Nothing is used up then.
    pub fn take(&mut self, policy: &Policy, rules: &[RuleId], now: Duration) -> Result<(), Exhausted> {
        let mut refusal: Option<Exhausted> = None;
        for &rule in rules {
            let Some(rate) = policy.rate_of(rule) else { continue };
            let window = self.windows.entry(rule).or_default();
            let unit = rate.unit.duration();
            while window.taken.front().is_some_and(|oldest| *oldest + unit <= now) {
                window.taken.pop_front();
            }
            if window.taken.len() < rate.count as usize {
                window.taken.push_back(now);
                window.is_hit = false;
                return Ok(());
            }
            let oldest = window.taken.front().copied().unwrap_or(now);
            let retry_after = (oldest + unit).saturating_sub(now);
            if refusal.is_none_or(|first| retry_after < first.retry_after) {
                refusal = Some(Exhausted { rule, rate, retry_after, is_first: !window.is_hit });
            }
        }
        let Some(refusal) = refusal else { return Ok(()) };
        if let Some(window) = self.windows.get_mut(&refusal.rule) {
            window.is_hit = true;
        }
        Err(refusal)
    }

    /// Whether one of `rules` has a place.
    pub fn has_place(&self, policy: &Policy, rules: &[RuleId], now: Duration) -> bool {
        rules.iter().any(|rule| {
            let (Some(rate), Some(window)) = (policy.rate_of(*rule), self.windows.get(rule)) else {
                return true;
            };
            let unit = rate.unit.duration();
            window.taken.iter().filter(|taken| **taken + unit > now).count() < rate.count as usize
        })
    }
}

impl Policy {
    /// The rate of a rule.
    pub fn rate_of(&self, rule: RuleId) -> Option<Rate> {
        match &self.rules.get(rule.0)?.body {
            RuleBody::Net(net) => net.rate,
            _ => None,
        }
    }
}
