//! When the pieces of a message passed: what a replay needs to give them in the same order and pace.
//!
//! A segment is written as a JSON array of its direction, its bytes, and the microseconds since the
//! beginning: `["down",1400,52113]`. One of no bytes is the head of an answer that came before its body, or its end after it. Few of
//! them stand in the entry, many in a blob, one a line.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::scribe::{Desk, Reel, Scribe};
use crate::trace::TraceError;

/// Segments that stand in the entry itself.
const INLINE: usize = 64;

/// Bytes that follow each other so closely are one segment.
const GAP: Duration = Duration::from_millis(1);

/// After so many segments that time alone has parted, the gap that parts them doubles.
const PATIENCE: u32 = 10_000;

/// Text of segments that gathers before it is handed over.
const LINES: usize = 4 << 10;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the confined program.
    Up,
    /// To the confined program.
    Down,
}

impl Way {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Bytes of one direction that passed without a pause.
struct Segment {
    way: Way,
    bytes: u64,
    micros: u64,
}

impl Segment {
    fn value(&self) -> Value {
        json!([self.way.as_str(), self.bytes, self.micros])
    }

    fn line(&self) -> String {
        format!("[\"{}\",{},{}]\n", self.way.as_str(), self.bytes, self.micros)
    }
}

/// The segments of one exchange, in constant memory.
pub(crate) struct Segments {
    begun: Instant,
    /// The last one, which may still grow, and when it last did.
    open: Option<(Segment, Instant)>,
    gap: Duration,
    /// Nothing more was there after it.
    paused: bool,
    parted: u32,
    /// Those before, until they are too many.
    few: Vec<Segment>,
    many: Option<(Reel, String)>,
    /// Whether they say more than the sizes of the two bodies do.
    telling: bool,
}

impl Default for Segments {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            open: None,
            gap: GAP,
            paused: false,
            parted: 0,
            few: Vec::new(),
            many: None,
            telling: false,
        }
    }
}

impl Segments {
    /// What has passed is sent: nothing more is there.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    /// Whether nothing has come since.
    pub(crate) fn has_paused(&self) -> bool {
        self.paused
    }

    /// Notes that so many bytes pass now. Those that follow closely are parted where what was sent `is_read`,
    /// which is asked while the segments are few.
    pub(crate) fn add(
        &mut self,
        scribe: &Arc<Scribe>,
        way: Way,
        bytes: usize,
        is_read: impl FnOnce() -> bool,
    ) {
        let now = Instant::now();
        let was_paused = std::mem::take(&mut self.paused) && self.many.is_none();
        let bytes = bytes as u64;
        if let Some((last, at)) = &mut self.open
            && last.way == way
        {
            if now.duration_since(*at) < self.gap && !(was_paused && is_read()) {
                last.bytes += bytes;
                *at = now;
                return;
            }
            self.parted += 1;
            if self.parted.is_multiple_of(PATIENCE) {
                self.gap *= 2;
            }
        }
        let micros = u64::try_from(now.duration_since(self.begun).as_micros()).unwrap_or(u64::MAX);
        if let Some((last, _)) = self.open.replace((Segment { way, bytes, micros }, now)) {
            // One request and then its response go without saying.
            self.telling |= last.way == way || way == Way::Up;
            self.close(scribe, last);
        }
    }

    fn close(&mut self, scribe: &Arc<Scribe>, segment: Segment) {
        if let Some((reel, lines)) = &mut self.many {
            lines.push_str(&segment.line());
            if lines.len() >= LINES {
                reel.note(std::mem::take(lines).into());
            }
            return;
        }
        self.few.push(segment);
        if self.few.len() > INLINE {
            let lines = std::mem::take(&mut self.few).iter().map(Segment::line).collect();
            self.many = Some((scribe.reel(), lines));
        }
    }

    /// What the entry says of them; nothing when that would be nothing new.
    pub(crate) fn describe(&mut self, desk: &mut Desk) -> Result<Option<Value>, TraceError> {
        let last = self.open.take().map(|(last, _)| last);
        let Some((reel, mut lines)) = self.many.take() else {
            if !self.telling {
                return Ok(None);
            }
            let all = self.few.iter().chain(&last).map(Segment::value).collect();
            return Ok(Some(Value::Array(all)));
        };
        lines.extend(last.map(|last| last.line()));
        desk.write(&reel, lines.as_bytes())?;
        Ok(Some(desk.finish(reel)?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Kind, Promise, Recorder};

    /// What is recorded of `script`: bytes, or a pause in milliseconds.
    fn recorded(script: impl IntoIterator<Item = (Way, usize, u64)>) -> (Value, Recorder) {
        let recorder = Recorder::null();
        let (scribe, thread) = Scribe::start(recorder.clone()).unwrap();
        let mut segments = Segments::default();
        for (way, bytes, pause) in script {
            std::thread::sleep(Duration::from_millis(pause));
            segments.add(&scribe, way, bytes, || false);
        }
        scribe.record(Promise::default(), move |desk| {
            let segments = segments.describe(desk)?;
            Ok(Event::new(Kind::Effect, "http.exchange").result(segments.unwrap_or_default()))
        });
        scribe.close();
        thread.join().unwrap();
        let result = recorder.events().remove(0).result.unwrap_or_default();
        (result, recorder)
    }

    /// The segments without their times, which only grow.
    fn pieces(value: &Value) -> Vec<(String, u64)> {
        let mut last = 0;
        let piece = |segment: &Value| {
            let at = segment[2].as_u64().unwrap();
            assert!(at >= last, "{value}");
            last = at;
            (segment[0].as_str().unwrap().to_owned(), segment[1].as_u64().unwrap())
        };
        value.as_array().unwrap().iter().map(piece).collect()
    }

    #[test]
    fn a_plain_exchange_has_none() {
        let (value, _) = recorded([(Way::Up, 10, 0), (Way::Up, 5, 0), (Way::Down, 7, 5)]);
        assert_eq!(value, Value::Null);
        assert_eq!(recorded([]).0, Value::Null);
    }

    #[test]
    fn a_pause_and_a_turn_part_segments() {
        let script =
            [(Way::Up, 10, 0), (Way::Down, 7, 0), (Way::Down, 8, 20), (Way::Up, 1, 0), (Way::Down, 2, 0)];
        let (value, _) = recorded(script);
        let expected = [("up", 10), ("down", 7), ("down", 8), ("up", 1), ("down", 2)];
        assert_eq!(pieces(&value), expected.map(|(way, bytes)| (way.to_owned(), bytes)));
    }

    #[test]
    fn what_was_read_before_more_came_is_a_segment() {
        let recorder = Recorder::null();
        let (scribe, thread) = Scribe::start(recorder.clone()).unwrap();
        let mut segments = Segments { gap: Duration::from_secs(60), ..Segments::default() };
        segments.add(&scribe, Way::Up, 1, || true);
        // The head alone; two pieces that came at once, one that was not read yet, one that was, and the end.
        segments.add(&scribe, Way::Down, 0, || true);
        for (bytes, paused, is_read) in [(5, true, true), (6, false, true), (7, true, false), (8, true, true)]
        {
            if paused {
                segments.pause();
            }
            assert_eq!(segments.has_paused(), paused);
            segments.add(&scribe, Way::Down, bytes, || is_read);
        }
        segments.pause();
        segments.add(&scribe, Way::Down, 0, || true);
        scribe.record(Promise::default(), move |desk| {
            Ok(Event::new(Kind::Effect, "http.exchange").result(segments.describe(desk)?.unwrap_or_default()))
        });
        scribe.close();
        thread.join().unwrap();
        let result = recorder.events().remove(0).result.unwrap_or_default();
        let expected = [("up", 1), ("down", 0), ("down", 18), ("down", 8), ("down", 0)];
        assert_eq!(pieces(&result), expected.map(|(way, bytes)| (way.to_owned(), bytes)));
    }

    #[test]
    fn many_go_into_a_blob() {
        let script = (0..1000).map(|n| (if n % 2 == 0 { Way::Up } else { Way::Down }, n + 1, 0));
        let (value, recorder) = recorded(script);
        let lines = recorder.blob_content(value["blob"].as_str().unwrap()).unwrap();
        assert_eq!(value["size"], lines.len());
        let lines: Vec<Value> = String::from_utf8(lines)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let pieces = pieces(&Value::Array(lines));
        assert_eq!(pieces.len(), 1000);
        assert_eq!(pieces[999], ("down".to_owned(), 1000));
    }
}
