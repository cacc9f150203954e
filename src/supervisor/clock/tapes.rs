//! The tapes of a recorded run, as its trace holds them.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::points::Unpacker;

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
struct Strip {
    parts: Vec<Vec<u8>>,
    reads: u64,
    /// Where the timeline was when the program began, for one whose clock runs at real rate.
    anchor: Option<u64>,
}

/// The tapes of a recorded run.
#[derive(Debug, Default)]
pub struct Tapes {
    strips: HashMap<String, Strip>,
}

impl Tapes {
    /// Adds an entry `clock.tape`, in the order of the trace: of its `proc` and `args`. `content` gives that of
    /// a blob that `args` refer to.
    ///
    /// # Errors
    /// Why it is none.
    pub fn add(
        &mut self,
        proc: &str,
        args: &Map<String, Value>,
        content: impl FnOnce(&Value) -> std::io::Result<Vec<u8>>,
    ) -> Result<(), TapeError> {
        let strip = self.strips.entry(proc.to_owned()).or_default();
        match args.get("clock").and_then(Value::as_str) {
            Some("shift") => {
                let anchor = args.get("at").and_then(Value::as_u64).ok_or(TapeError::Member("at"))?;
                strip.anchor = Some(anchor);
                Ok(())
            }
            Some("tape") => {
                let bytes = match args.get("tape") {
                    Some(Value::String(text)) => {
                        STANDARD.decode(text).map_err(|_| TapeError::Member("tape"))?
                    }
                    Some(blob @ Value::Object(_)) => content(blob).map_err(TapeError::Content)?,
                    _ => return Err(TapeError::Member("tape")),
                };
                strip.reads += args.get("reads").and_then(Value::as_u64).ok_or(TapeError::Member("reads"))?;
                strip.parts.push(bytes);
                Ok(())
            }
            _ => Err(TapeError::Member("clock")),
        }
    }

    /// Takes the points of a thread, and how many they are; none where it read no clock.
    pub(super) fn take(&mut self, strand: &str) -> (Unpacker, u64) {
        let strip = self.strips.remove(strand).unwrap_or_default();
        (Unpacker::new(strip.parts), strip.reads)
    }

    /// Where the timeline was when a program began whose clock runs at real rate.
    pub(super) fn anchor(&mut self, strand: &str) -> Option<u64> {
        self.strips.get_mut(strand)?.anchor.take()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::points::{Packer, Point};
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
        assert_eq!((tapes.anchor("0.1:1"), tapes.anchor("0.1:1"), tapes.anchor("0")), (Some(7), None, None));
        let (points, reads) = tapes.take("0.1:1");
        assert_eq!((points.map(|point| point.at).collect::<Vec<_>>(), reads), (vec![10, 20, 30], 3));
        assert_eq!(tapes.take("0.1:1").0.count(), 0);
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
