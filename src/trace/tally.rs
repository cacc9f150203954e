//! The tally: how many effects, observations and denials there were, and which denials were the most frequent.

use std::collections::HashMap;
use std::time::Instant;

use super::event::{Event, Kind};

/// Different denials that are remembered by name; the rest is only counted.
const MOST_NAMES: usize = 1024;
/// Ends of streams that are remembered for their origin's certificate.
const MOST_UNVERIFIED: usize = 64;
/// Characters of a target that are remembered: an argv may be megabytes long.
const LONGEST_TARGET: usize = 512;

/// Numbers of events, repeats included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Outcomes that replay serves.
    pub effects: u64,
    /// Outcomes that replay checks.
    pub observations: u64,
    /// What was refused, or would have been.
    pub denials: u64,
}

impl Totals {
    /// What a comparison compares.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.effects + self.observations + self.denials
    }
}

/// One thing that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// The operation, as `read`.
    pub op: &'static str,
    /// What it was refused for: the `target` of the event.
    pub target: String,
    /// The rule or reason of the first such event.
    pub rule: Option<String>,
    /// Why, where the event says more than the rule.
    pub reason: Option<String>,
    /// The rule that would allow it, where the event says it.
    pub remedy: Option<String>,
    /// How often.
    pub count: u64,
    /// When it was first refused.
    pub first: Instant,
}

/// What was refused, the most frequent first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Denials {
    /// The denials that are known by name.
    pub named: Vec<Denial>,
    /// Denials of yet other targets, after too many different ones.
    pub others: u64,
    /// How streams ended whose origin's certificate could not be verified, each once; some, if they are many.
    pub unverified: Vec<String>,
}

#[derive(Default)]
pub(super) struct Tally {
    totals: Totals,
    denied: HashMap<(&'static str, String), Denial>,
    others: u64,
    unverified: Vec<String>,
}

impl Tally {
    pub(super) fn count_effect(&mut self) {
        self.totals.effects += 1;
    }

    pub(super) fn count_observation(&mut self) {
        self.totals.observations += 1;
    }

    pub(super) fn count(&mut self, event: &Event) {
        match event.kind {
            Kind::Meta => {}
            Kind::Effect => {
                self.count_effect();
                self.note_unverified(event);
            }
            Kind::Observe => self.count_observation(),
            Kind::Deny => {
                self.totals.denials += 1;
                self.count_denial(event);
            }
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn denials(&self) -> Denials {
        let mut named: Vec<Denial> = self.denied.values().cloned().collect();
        named.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (a.op, &a.target).cmp(&(b.op, &b.target))));
        Denials { named, others: self.others, unverified: self.unverified.clone() }
    }

    fn note_unverified(&mut self, event: &Event) {
        let Some(result) = event.result.as_ref().filter(|_| event.op == "net.stream") else { return };
        let is_certificate = result.pointer("/failure/kind").is_some_and(|kind| kind == "certificate");
        if let Some(end) = result.get("end").and_then(|end| end.as_str())
            && is_certificate
            && self.unverified.len() < MOST_UNVERIFIED
            && !self.unverified.iter().any(|known| known == end)
        {
            self.unverified.push(end.to_owned());
        }
    }

    fn count_denial(&mut self, event: &Event) {
        let target = event.args.get("target").and_then(|target| target.as_str()).unwrap_or_default();
        let key = (event.op, target.chars().take(LONGEST_TARGET).collect::<String>());
        let remedy = || event.args.get("remedy").and_then(|remedy| remedy.as_str()).map(str::to_owned);
        if let Some(denial) = self.denied.get_mut(&key) {
            denial.count += 1;
            // A rule can help against some of what was refused there.
            if denial.remedy.is_none() {
                denial.remedy = remedy();
            }
        } else if self.denied.len() < MOST_NAMES {
            let text = |name| event.args.get(name).and_then(|text| text.as_str()).map(str::to_owned);
            let (reason, remedy) = (text("reason"), remedy());
            let (op, target, rule) = (event.op, key.1.clone(), event.rule.clone());
            self.denied
                .insert(key, Denial { op, target, rule, reason, remedy, count: 1, first: Instant::now() });
        } else {
            self.others += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_denial_stands_first() {
        let mut tally = Tally::default();
        for (target, times) in [("a", 1), ("b", 3), ("c", 2)] {
            for _ in 0..times {
                tally.count(&Event::new(Kind::Deny, "read").arg("target", target));
            }
        }
        tally.count(&Event::new(Kind::Effect, "dns.lookup"));
        let denials = tally.denials();
        let order: Vec<(&str, u64)> = denials.named.iter().map(|d| (d.target.as_str(), d.count)).collect();
        assert_eq!(order, [("b", 3), ("c", 2), ("a", 1)]);
        assert_eq!(tally.totals(), Totals { effects: 1, observations: 0, denials: 6 });
    }

    #[test]
    fn a_rule_that_helps_later_is_told_as_well() {
        let mut tally = Tally::default();
        let event = |reason| {
            Event::new(Kind::Deny, "net").arg("target", "a.test:80").arg("reason", reason).rule("no rule")
        };
        tally.count(&event("a `%2F` stands there"));
        tally.count(&event("no rule allows PUT").arg("remedy", "net: PUT a.test:80/x"));
        let denials = tally.denials();
        assert_eq!(denials.named[0].reason.as_deref(), Some("a `%2F` stands there"));
        assert_eq!(denials.named[0].remedy.as_deref(), Some("net: PUT a.test:80/x"));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        let mut tally = Tally::default();
        for name in 0..5000 {
            tally.count(&Event::new(Kind::Deny, "read").arg("target", name.to_string()));
        }
        let denials = tally.denials();
        assert_eq!(denials.named.len(), MOST_NAMES);
        assert_eq!(denials.others + denials.named.iter().map(|d| d.count).sum::<u64>(), 5000);
    }
}
