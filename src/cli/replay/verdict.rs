//! The verdict of a replay: the two traces are compared, and what came of it is said.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::super::Failure;
use super::super::run::colored;
use super::super::until::Bound;
use super::super::voice::tell;
use super::{ReplayCommand, refused};
use crate::replay::compare::{self, Comparison, report};
use crate::replay::{Difference, ReplayError, embedded_times, outputs};
use crate::run::{EndedBy, Outcome};
use crate::supervisor::LeftOut;
use crate::trace::{Held, StoredBlobs, escape};

/// Less than that is not worth a word.
const LEFT_OUT: Duration = Duration::from_millis(100);

impl ReplayCommand {
    /// Compares the two traces and says what came of it.
    pub(super) fn verdict(
        &self,
        recorded: &Held,
        outcome: &Outcome,
        before: &[Difference],
        bound: Option<&Bound>,
    ) -> Result<u8, Failure> {
        let reached = bound.map(Bound::reached).transpose()?.flatten();
        let is_missed = bound.is_some() && reached.is_none();
        let live = &outcome.trace.placed().path;
        let mut comparison = match reached {
            Some(comparison) => comparison,
            None => self.whole(recorded, live)?,
        };
        if let Some(EndedBy::Signal(number)) = outcome.ended_by {
            return Ok(self.interrupted(&comparison, number));
        }
        outputs::explain(&mut comparison, recorded.blobs(), &StoredBlobs::beside(live));
        let is_same = comparison.is_same() && !is_missed && outcome.ended_by.is_none();
        if self.json {
            let mut said = report::json(&comparison);
            said["before"] = serde_json::json!(before);
            said["left_out"] = serde_json::json!(outcome.left_out.all.as_secs_f64());
            if let Some(why) = outcome.ended_by {
                (said["same"], said["ended"]) = (false.into(), ended(why).into());
            }
            if let Some(bound) = bound {
                said["same"] = is_same.into();
                said["until"] = bound.step().into();
            }
            tell([escape::json(&said.to_string())]);
        } else if !is_same || !self.voice.is_quiet() {
            let style = report::Style { recorded: "recorded", live: "live", color: colored() };
            let text = report::text(&comparison, &style);
            tell(text.lines().map(|line| format!("agentbox: {line}")));
            tell(left_out(&outcome.left_out));
            let same = match bound {
                Some(bound) if is_missed => format!("{} was not reached", bound.step()),
                Some(bound) => format!("replayed to {}", bound.step()),
                None if outcome.ended_by.is_some() => "replay diverged".to_owned(),
                None => "replay ok".to_owned(),
            };
            tell(outcome.ended_by.map(|why| format!("agentbox: the replay was ended: {}", ended(why))));
            tell([format!("agentbox: {}", report::verdict(&comparison, &same, "replay diverged"))]);
        }
        if is_same {
            self.voice.tell(bound.and_then(|bound| bound.went_on(outcome)));
        }
        Ok(u8::from(!is_same))
    }

    /// A replay that its user has ended: what is missing is no difference.
    fn interrupted(&self, comparison: &Comparison, number: i32) -> u8 {
        let name = Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.to_string());
        if self.json {
            let mut said = report::json(comparison);
            (said["same"], said["ended"]) = (false.into(), name.into());
            tell([escape::json(&said.to_string())]);
        } else {
            let (step, steps) = (comparison.matched, comparison.recorded);
            tell([format!("agentbox: replay interrupted by {name} at step {step} of {steps}")]);
        }
        128 + u8::try_from(number).unwrap_or(0)
    }

    /// The comparison of runs that have both come to their end.
    fn whole(&self, recorded: &Held, live: &Path) -> Result<Comparison, Failure> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| refused(ReplayError::Read { path, source })
        };
        let mut ours = recorded.read().map_err(unreadable(&self.trace))?;
        let mut theirs = File::open(live).map_err(unreadable(live))?;
        let timed = embedded_times::between(recorded.blobs(), &StoredBlobs::beside(live));
        compare::compare_with(&mut ours, &mut theirs, [None, None], &self.lenient, &timed)
            .map_err(unreadable(&self.trace))
    }
}

/// Why a replay did not end by itself.
fn ended(why: EndedBy) -> &'static str {
    match why {
        EndedBy::AtRest => "all of it waited for what was not recorded",
        EndedBy::Endless => "it went on for much longer than the recorded run",
        EndedBy::Signal(_) => "interrupted",
    }
}

/// What is said of the time that was left out.
fn left_out(LeftOut { all, waits }: &LeftOut) -> impl Iterator<Item = String> {
    let waited = format!("agentbox: waits of {:.1} s were left out", waits.as_secs_f64());
    let rest = all.saturating_sub(*waits);
    let saved = format!(
        "agentbox: it took {:.1} s less: answers came at once, or it ran quicker",
        rest.as_secs_f64()
    );
    let told = [(*waits, waited), (rest, saved)].into_iter();
    told.filter(|(time, _)| *time >= LEFT_OUT).map(|(_, said)| said)
}
