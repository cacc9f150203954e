//! The tapes of a recorded run, as its trace holds them.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::super::controls::Ids;
use super::super::outputs::Course;
use super::super::outside::OutsideSignal;
use super::arrivals::Arrivals;

/// The operation under which the trace holds a tape.
pub const OPERATION: &str = "clock.tape";

/// Why an entry is no tape.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// A member is missing, or is not of its kind.
    #[error("an entry {OPERATION} has no usable `{0}`")]
    Member(&'static str),
    /// Its content cannot be had.
    #[error("the content of an entry {OPERATION} cannot be read: {0}")]
    Content(#[source] std::io::Error),
}

/// What one thread of one program saw of the clock.
#[derive(Debug, Default)]
pub(super) struct Strip {
    pub(super) parts: Vec<Vec<u8>>,
    pub(super) marks: Vec<u8>,
    pub(super) reads: u64,
    /// Where the timeline was when the program began, for one whose clock runs at real rate, and whether threads
    /// of it have tapes.
    anchor: Option<(u64, bool)>,
}

/// The tapes of a recorded run.
#[derive(Debug, Default)]
pub struct Tapes {
    strips: HashMap<String, Strip>,
    /// Reads of the time of day are told apart by who asks; not in traces of earlier versions.
    pub(super) has_callers: bool,
    /// And reads of CLOCK_MONOTONIC, where an interpreter makes them.
    pub(super) has_interpreter: bool,
    /// And where a program makes them that libuv's event loop runs.
    pub(super) has_loop: bool,
    /// How long the run lasted.
    pub(super) lasted: Duration,
    /// How many steps it had.
    pub steps: u64,
    /// What came from outside, where programs have a clock at real rate.
    pub(super) arrivals: Arrivals,
    /// The signals that came from outside.
    pub signals: Vec<OutsideSignal>,
    /// The processes that a signal has ended, and that signal, in order.
    pub ends: VecDeque<(String, i32)>,
    /// The ids of its tasks.
    pub ids: Ids,
    /// In which order its processes wrote.
    pub course: Course,
}

impl Tapes {
    /// The run has lasted for so long at least.
    pub fn lasted(&mut self, time: Duration) {
        self.lasted = self.lasted.max(time);
    }

    /// Adds an entry `clock.tape`, in the order of the trace: of its `proc` and `args`. `content` gives that of
    /// a blob that `args` refer to.
    ///
    /// # Errors
    /// Why it is none.
    pub fn add(
        &mut self,
        proc: &str,
        args: &Map<String, Value>,
        mut content: impl FnMut(&Value) -> std::io::Result<Vec<u8>>,
    ) -> Result<(), TapeError> {
        let strip = self.strips.entry(proc.to_owned()).or_default();
        match args.get("clock").and_then(Value::as_str) {
            Some("shift") => {
                let anchor = args.get("at").and_then(Value::as_u64).ok_or(TapeError::Member("at"))?;
                strip.anchor = Some((anchor, args.get("threads").and_then(Value::as_bool).unwrap_or(false)));
                Ok(())
            }
            Some("tape") => {
                let tape = args.get("tape").ok_or(TapeError::Member("tape"))?;
                let bytes = stored(tape, "tape", &mut content)?;
                if let Some(marks) = args.get("marks") {
                    strip.marks.extend(stored(marks, "marks", &mut content)?);
                }
                let reads = args.get("reads").and_then(Value::as_u64).ok_or(TapeError::Member("reads"))?;
                let has = |member| args.get(member).and_then(Value::as_bool).unwrap_or(false);
                self.has_callers |= has("callers");
                self.has_interpreter |= has("interpreter");
                self.has_loop |= has("loop");
                strip.reads = strip.reads.saturating_add(reads);
                strip.parts.push(bytes);
                Ok(())
            }
            _ => Err(TapeError::Member("clock")),
        }
    }

    /// Whether a program has a clock at real rate: of what came from outside it is told.
    #[must_use]
    pub fn want_arrivals(&self) -> bool {
        self.strips.values().any(|strip| strip.anchor.is_some())
    }

    /// Something came from outside that was under way for so long; on the timeline, in nanoseconds.
    pub fn arrived(&mut self, since: u64, came: u64) {
        self.arrivals.add(since, came);
    }

    /// Takes the tape of a thread; an empty one where it read no clock.
    pub(super) fn take(&mut self, strand: &str) -> Strip {
        self.strips.remove(strand).unwrap_or_default()
    }

    /// Where the timeline was when a program began whose clock runs at real rate, and whether threads of it have
    /// tapes.
    pub(super) fn anchor(&mut self, strand: &str) -> Option<(u64, bool)> {
        self.strips.get_mut(strand)?.anchor.take()
    }
}

/// Bytes that stand in the entry, or in a blob.
fn stored(
    value: &Value,
    member: &'static str,
    content: &mut impl FnMut(&Value) -> std::io::Result<Vec<u8>>,
) -> Result<Vec<u8>, TapeError> {
    match value {
        Value::String(text) => STANDARD.decode(text).map_err(|_| TapeError::Member(member)),
        blob @ Value::Object(_) => content(blob).map_err(TapeError::Content),
        _ => Err(TapeError::Member(member)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::points::{Packer, Point, Unpacker};
    use super::*;

    fn add(tapes: &mut Tapes, args: Value) -> Result<(), TapeError> {
        let Value::Object(args) = args else { panic!("an object") };
        let mut packer = Packer::default();
        packer.push(Point::new(0, 30));
        tapes.add("0.1:1", &args, |_| Ok(packer.take().0))
    }

    #[test]
    fn parts_follow_each_other_and_are_taken_once() {
        let mut packer = Packer::default();
        packer.push(Point::new(1, 10));
        packer.push(Point::new(1, 20));
        let text = STANDARD.encode(packer.take().0);
        let mut tapes = Tapes::default();
        add(&mut tapes, json!({"clock": "tape", "reads": 2, "tape": text})).expect("a tape");
        add(&mut tapes, json!({"clock": "tape", "reads": 1, "tape": {"blob": "x"}})).expect("a tape");
        add(&mut tapes, json!({"clock": "shift", "reads": 0, "at": 7})).expect("an anchor");
        assert_eq!(
            (tapes.anchor("0.1:1"), tapes.anchor("0.1:1"), tapes.anchor("0")),
            (Some((7, false)), None, None)
        );
        let strip = tapes.take("0.1:1");
        let points: Vec<_> = Unpacker::new(strip.parts).map(|point| point.at).collect();
        assert_eq!((points, strip.reads), (vec![10, 20, 30], 3));
        assert_eq!(tapes.take("0.1:1").reads, 0);
    }

    #[test]
    fn what_is_no_tape_is_refused() {
        let wrong = [
            json!({}),
            json!({"clock": "sundial"}),
            json!({"clock": "tape", "reads": 1}),
            json!({"clock": "tape", "reads": 1, "tape": "%"}),
            json!({"clock": "tape", "reads": -1, "tape": ""}),
            json!({"clock": "shift", "at": "noon"}),
        ];
        assert!(wrong.into_iter().all(|args| add(&mut Tapes::default(), args).is_err()));
    }
}
