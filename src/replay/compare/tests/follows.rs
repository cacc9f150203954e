//! What comes first, and what follows from it.

use serde_json::{Value, json};

use super::super::report;
use super::{Cause, compared, observe, read, request, spawn};

const STYLE: report::Style<'_> = report::Style { recorded: "recorded", live: "live", color: false };

/// A request that began at `start`, and is recorded wherever it stands.
fn asked(what: &str, start: u32) -> Value {
    let mut asked = request("0", "http://h/", "1", (start, 1100));
    asked["args"]["body"] = json!({"sha256": what, "size": 1, "text": what});
    asked
}

#[test]
fn a_request_has_the_place_where_it_began() {
    let recorded = [spawn("0", &["agent"]), read("0", "f", "1"), read("0", "g", "2"), asked("one", 1002)];
    let live = [spawn("0", &["agent"]), read("0", "f", "1"), asked("two", 1002)];
    let found = compared(&recorded, &live);
    let [first] = &found.divergences[..] else { panic!("{found:#?}") };
    assert_eq!((first.cause, first.step.as_str()), (Cause::RequestChanged, "0@4"));
    assert_eq!(found.further.get(&(Cause::MissingEffect, "fs.open_read".to_owned())), Some(&1));
    // Not where it began behind.
    let recorded = [spawn("0", &["agent"]), read("0", "f", "1"), read("0", "g", "2"), asked("one", 1003)];
    assert_eq!(compared(&recorded, &live).divergences[0].cause, Cause::MissingEffect);
}

#[test]
fn what_follows_is_one_line() {
    let image =
        |name: &str| json!({"kind": "observe", "op": "proc.image", "args": {"path": name, "sha256": name}});
    let mut recorded = vec![spawn("0", &["agent"]), spawn("0.0", &["before"]), asked("one", 1002)];
    for number in 1..40 {
        let (child, file) = (format!("0.{number}"), format!("f{number}"));
        recorded.extend([
            spawn(&child, &["tool", &file]),
            image(&file),
            read(&child, &file, "1"),
            observe(&child, "fs.write", json!({"path": format!("out{number}"), "sha256": "1", "size": 1})),
        ]);
    }
    let live = [spawn("0", &["agent"]), spawn("0.0", &["before"]), asked("two", 1002)];
    let found = compared(&recorded, &live);
    assert_eq!(found.divergences.len(), 1, "{found:#?}");
    let text = report::text(&found, &STYLE);
    let last = text.lines().last().expect("lines");
    assert_eq!(
        last,
        "156 further differences, behind these: missing-effect 156 (fs.open_read 39, fs.write 39, proc.image 39, proc.spawn 39)"
    );
    // What a process did that was there before is told.
    recorded.push(read("0.0", "late", "1"));
    let found = compared(&recorded, &live);
    let streams: Vec<_> = found.divergences.iter().map(|one| one.stream.as_str()).collect();
    assert_eq!(streams, ["0", "0.0"], "{found:#?}");
}

#[test]
fn requests_that_differ_in_durations_are_named_so() {
    let told = |time: &str| {
        let mut told = request("0", "http://h/", "1", (1, 2));
        let text = format!("tests took {time} ms");
        told["args"]["body"] = json!({"sha256": time, "size": text.len(), "text": text});
        told
    };
    let found = compared(&[told("12")], &[told("340")]);
    assert_eq!((found.tiers.normalised, found.differences()), (1, 1), "{found:#?}");
    assert_eq!(found.divergences[0].cause, Cause::TimeOnly);
    let named: Vec<_> = found.divergences[0].fields.iter().map(|field| field.name.as_str()).collect();
    assert!(named.contains(&"body.text"), "{named:?}");
    // A replay says itself that durations were all that differed.
    let mut live = request("0", "http://h/other", "1", (1, 2));
    live["result"]["replayed"] =
        json!({"entry": 0, "tier": 1, "durations": [{"field": "body", "recorded": "1 ms", "live": "2 ms"}]});
    let found = compared(&[request("0", "http://h/1", "1", (1, 2))], &[live]);
    assert_eq!(found.divergences[0].cause, Cause::TimeOnly);
    let text = report::text(&found, &STYLE);
    assert!(text.contains("durations  body: 1 ms -> 2 ms\n"), "{text}");
}

#[test]
fn long_lists_are_folded() {
    let tape = |number: u32| json!({"kind": "meta", "op": "clock.tape", "proc": format!("0.{number}"), "args": {"clock": "shift"}});
    let run: Vec<_> = [spawn("0", &["agent"])].into_iter().chain((10..40).map(tape)).collect();
    let text = report::text(&compared(&run, &run), &STYLE);
    assert!(
        text.starts_with("times are approximate in: 0.10, 0.11, ") && text.ends_with(" … and 18 more\n"),
        "{text}"
    );
}
