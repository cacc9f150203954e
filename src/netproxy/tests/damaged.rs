//! Transcripts that cannot be read, or not to their end: nothing else is played in their place.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};

use serde_json::Value;

use super::replays::{again, twice};
use super::world::{Bench, Plan, server};

const PLACE: &str = "93.184.216.34:7";

/// Greets with the client's first byte, in ten.
fn greeting() -> SocketAddr {
    server(|mut stream| {
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            let _ = stream.write_all(&byte.repeat(10));
        }
    })
}

/// What a client that says this byte hears.
fn hears(bench: &Bench, byte: u8) -> Vec<u8> {
    let mut stream = bench.connect(PLACE);
    let mut heard = Vec::new();
    // One that is refused has been reset.
    let _ = stream.write_all(&[byte]);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut heard);
    heard
}

fn streams(entries: &[Value]) -> Vec<&Value> {
    entries.iter().filter(|entry| entry["op"] == "net.stream").map(|entry| &entry["result"]).collect()
}

#[test]
fn a_transcript_that_cannot_be_read_is_told_and_no_other_is_played() {
    let plan = Plan { policy: "net: 93.184.216.34", routes: &[(PLACE, Some(greeting()))], ..Plan::default() };
    let (recorded, _) = twice(&plan, |bench| [hears(bench, 1), hears(bench, 2)]);
    // The first is absent, and the second has no beginning that can be read.
    for damage in [|_: Vec<u8>| None, |_: Vec<u8>| Some(b"[\"down\"".to_vec())] {
        let is_first = |content: &[u8]| content.contains(&1);
        let recording = recorded.damaged(recorded.entries.clone(), move |content| {
            if is_first(&content) { damage(content) } else { Some(content) }
        });
        let replayed = again(&plan, &recording, |bench| {
            assert_eq!(hears(bench, 1), b"");
            assert_eq!(hears(bench, 2), [2; 10]);
        });
        let [first, second] = streams(&replayed.entries)[..] else { panic!("two streams") };
        assert_eq!(first["failure"]["kind"], "not recorded", "{first}");
        assert_eq!(second["failure"], Value::Null, "{second}");
    }
}

#[test]
fn a_piece_that_is_cut_short_ends_the_connection() {
    let plan = Plan { policy: "net: 93.184.216.34", routes: &[(PLACE, Some(greeting()))], ..Plan::default() };
    let (recorded, _) = twice(&plan, |bench| hears(bench, 3));
    for kept in 0..10 {
        let recording = recorded.damaged(recorded.entries.clone(), move |mut content| {
            let heard = content.windows(10).position(|ten| ten == [3; 10]).expect("what was heard");
            content.truncate(heard + kept);
            Some(content)
        });
        let replayed = again(&plan, &recording, |bench| {
            let heard = hears(bench, 3);
            assert!(heard.len() <= kept && heard.iter().all(|byte| *byte == 3), "{kept}: {heard:?}");
        });
        let [stream] = streams(&replayed.entries)[..] else { panic!("one stream") };
        assert_eq!(stream["failure"]["kind"], "not recorded", "{kept}: {stream}");
    }
}
