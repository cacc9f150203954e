//! When what a recorded run waited for came from outside, and since when it was under way.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Map, Value};

use super::Blobs;
use super::pieces::pieces;
use super::records::{Record, Records};
use crate::netproxy::segments::Way;

/// What came sooner is not waited for.
const LONG: Duration = Duration::from_millis(100);

/// Those of one entry, from 1970 on: answers, their pieces, and bytes of streams. What cannot be read is told when it
/// is to be played.
pub fn arrivals(entry: &Map<String, Value>, blobs: &Blobs) -> Vec<Range<Duration>> {
    let Some(result) = entry.get("result") else { return Vec::new() };
    let mut found = Vec::new();
    match entry.get("op").and_then(Value::as_str) {
        Some("http.exchange") => {
            let timing = |name: &str| seconds(result.get("timing")?.get(name));
            let Some(begun) = timing("start") else { return Vec::new() };
            let Some(answered) = timing("first_byte").or_else(|| timing("end")) else { return Vec::new() };
            found.push(begun..answered);
            let mut last = answered;
            for piece in pieces(result.get("segments"), blobs).unwrap_or_default() {
                let came = begun.saturating_add(Duration::from_micros(piece.micros));
                found.push(last..came);
                last = came.max(last);
            }
            // What follows an upgrade begins with the answer.
            if let Some(upgraded) = result.get("upgraded") {
                found.extend(said(answered, upgraded, blobs));
            }
        }
        Some("net.stream") => {
            if let Some(opened) = seconds(result.get("opened")) {
                found = said(opened, result, blobs);
            }
        }
        _ => {}
    }
    found.retain(|wait| wait.end.saturating_sub(wait.start) >= LONG);
    found
}

fn seconds(value: Option<&Value>) -> Option<Duration> {
    Duration::try_from_secs_f64(value?.as_f64()?).ok()
}

/// What the origin said on a stream, each since what was said before it.
fn said(opened: Duration, result: &Value, blobs: &Blobs) -> Vec<Range<Duration>> {
    let name = result.get("transcript").and_then(|transcript| transcript.get("blob")?.as_str());
    let mut records = Records::new(blobs, name.map(str::to_owned));
    let (mut last, mut found) = (opened, Vec::new());
    while let Ok(Some(Record { way, micros, .. })) = records.next() {
        let at = opened.saturating_add(Duration::from_micros(micros));
        if way == Way::Down && at.saturating_sub(last) >= LONG {
            found.push(last..at);
        }
        last = at;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn of(entry: Value) -> Vec<(u128, u128)> {
        let transcript = b"[\"up\",1,100000]\nx\n[\"down\",1,1100000]\ny\n[\"down\",1,1150000]\nz\n";
        let blobs: Blobs = Arc::new(|_| Ok(Box::new(&transcript[..]) as Box<dyn Read + Send>));
        let Value::Object(entry) = entry else { panic!("an object") };
        arrivals(&entry, &blobs).iter().map(|wait| (wait.start.as_millis(), wait.end.as_millis())).collect()
    }

    #[test]
    fn answers_their_pieces_and_streams_are_waited_for() {
        let exchange = json!({
            "op": "http.exchange",
            "result": {
                "timing": {"start": 10.0, "first_byte": 11.5, "end": 14.0},
                "segments": [["down", 0, 1_500_000], ["up", 3, 1_600_000], ["down", 5, 4_000_000], ["down", 1, 4_010_000]],
            },
        });
        assert_eq!(of(exchange), [(10_000, 11_500), (11_500, 14_000)]);
        let quick = json!({"op": "http.exchange", "result": {"timing": {"start": 10.0, "end": 10.05}}});
        assert_eq!(of(quick), []);
        let stream = json!({"op": "net.stream", "result": {"opened": 5.0, "transcript": {"blob": "x"}}});
        assert_eq!(of(stream), [(5_100, 6_100)]);
        assert_eq!(of(json!({"op": "net.stream", "result": {"opened": -1.0, "transcript": 1}})), []);
        assert_eq!(of(json!({"op": "fs.open_read"})), []);
    }
}
