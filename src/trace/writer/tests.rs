//! Checks what the writer leaves on disk.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::super::event::Kind;
use super::super::verify::{Expectation, Outcome, verify};
use super::super::{Reach, Totals, layout};
use super::*;

fn start(directory: &Path) -> (Recorder, WriterHandle) {
    let placement =
        Placement::plan(&directory.join("trace.jsonl"), &Reach::default(), false).expect("a placement");
    create(placement).expect("a writer")
}

fn read(target: &str) -> Event {
    Event::new(Kind::Deny, "read").arg("target", target).arg("enforced", true).proc("0").rule("no rule")
}

fn entries(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).expect("it reads");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_run_is_sealed_and_verifies() {
    let directory = tempfile::tempdir().expect("a directory");
    let (recorder, writer) = start(directory.path());
    recorder.record(Event::new(Kind::Meta, "run.start").arg("argv", vec!["true"])).expect("recorded");
    let mut blob = recorder.blob().expect("a blob");
    std::io::Write::write_all(&mut blob, b"body").expect("written");
    let blob = blob.finish().expect("stored");
    recorder.record(Event::new(Kind::Effect, "http.exchange").arg("body", blob)).expect("recorded");
    let placed = writer.seal(Event::new(Kind::Meta, "run.end").arg("returncode", 0)).expect("sealed");
    assert_eq!(placed.entries, 4);

    let found = verify(&placed.path, &Expectation { head: Some(placed.head.clone()) }).expect("a trace");
    assert_eq!((found.entries, found.outcome), (4, Outcome::Sealed));
    assert_eq!(found.head, placed.head);
    let metadata = std::fs::metadata(&placed.path).expect("stat");
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    // What was reserved ahead is given back.
    assert!(metadata.blocks() * 512 < layout::RESERVE_STEP, "{} blocks", metadata.blocks());
    let ops: Vec<String> = entries(&placed.path).iter().map(|entry| entry["op"].to_string()).collect();
    assert_eq!(ops, ["\"run.start\"", "\"http.exchange\"", "\"run.end\"", "\"run.seal\""]);
    assert!(matches!(recorder.record(read("x")), Err(TraceError::Sealed)));
}

#[test]
fn repeats_are_folded_and_none_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let (recorder, writer) = start(directory.path());
    for round in 0..500_u32 {
        recorder.deny(read("secret.txt")).expect("recorded");
        recorder.deny(read(&format!("{}", round % 3))).expect("recorded");
    }
    assert_eq!(recorder.totals(), Totals { effects: 0, observations: 0, denials: 1000 });
    assert_eq!(recorder.denials().named[0].count, 500);
    let placed = writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    let denials: Vec<_> = entries(&placed.path).into_iter().filter(|entry| entry["kind"] == "deny").collect();
    assert_eq!(denials.len(), 8);
    assert_eq!(denials.iter().map(|entry| entry["count"].as_u64().unwrap_or(1)).sum::<u64>(), 1000);
    assert_eq!(verify(&placed.path, &Expectation::default()).expect("a trace").outcome, Outcome::Sealed);
}

#[test]
fn many_producers_make_one_chain() {
    let directory = tempfile::tempdir().expect("a directory");
    let (recorder, writer) = start(directory.path());
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let recorder = recorder.clone();
            std::thread::spawn(move || {
                for number in 0..2000 {
                    let event =
                        Event::new(Kind::Observe, "fs.open_read").arg("path", format!("{thread}/{number}"));
                    recorder.record(event).expect("recorded");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    let placed = writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    let found = verify(&placed.path, &Expectation::default()).expect("a trace");
    assert_eq!(found.outcome, Outcome::Sealed);
    let entries = entries(&placed.path);
    assert_eq!(entries.iter().filter(|entry| entry["kind"] == "observe").count(), 16_000);
    assert_eq!(entries.iter().filter(|entry| entry["op"] == "checkpoint").count(), 1);
    assert!(entries.windows(2).all(|pair| pair[0]["ts"].as_f64() <= pair[1]["ts"].as_f64()));
}

#[test]
fn a_dropped_writer_leaves_an_unsealed_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let (recorder, writer) = start(directory.path());
    recorder.record(Event::new(Kind::Meta, "run.start")).expect("recorded");
    drop(writer);
    let found = verify(&directory.path().join("trace.jsonl"), &Expectation::default()).expect("a trace");
    assert_eq!((found.entries, found.outcome), (1, Outcome::Unsealed));
}

#[test]
fn an_entry_too_long_is_refused_and_the_trace_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let (recorder, writer) = start(directory.path());
    let long = "x".repeat(usize::try_from(layout::LONGEST_WRITTEN_LINE).expect("fits"));
    assert!(matches!(recorder.record(read(&long)), Err(TraceError::EntryTooLong { .. })));
    recorder.record(read(&long[..8_000_000])).expect("recorded");
    let placed = writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    assert_eq!(verify(&placed.path, &Expectation::default()).expect("a trace").entries, 3);
}

#[test]
fn a_body_that_cannot_be_stored_stops_the_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let (recorder, writer) = start(directory.path());
    recorder.record(Event::new(Kind::Meta, "run.start")).expect("recorded");
    std::fs::write(directory.path().join("trace.jsonl.blobs"), "of somebody else").expect("written");
    let mut blob = recorder.blob().expect("a blob");
    std::io::Write::write_all(&mut blob, b"body").expect("held");
    assert!(matches!(blob.finish(), Err(TraceError::StoreBlob { .. })));
    assert!(recorder.failed() && recorder.record(read("x")).is_err());
    let placed = writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    let found = verify(&placed.path, &Expectation::default()).expect("a trace");
    assert_eq!((found.entries, found.outcome), (3, Outcome::Sealed));
}

#[test]
fn repeats_reach_the_disk_while_the_run_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let (recorder, _writer) = start(directory.path());
    for _ in 0..5 {
        recorder.deny(read("secret.txt")).expect("recorded");
        recorder.record_folded(Event::new(Kind::Effect, "clock.now")).expect("recorded");
    }
    let counts = || -> Vec<u64> {
        let entries = entries(&directory.path().join("trace.jsonl"));
        entries.iter().map(|entry| entry["count"].as_u64().unwrap_or(1)).collect()
    };
    let start = Instant::now();
    while counts() != [1, 1, 4, 4] && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(counts(), [1, 1, 4, 4]);
}
