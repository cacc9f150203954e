//! Checks that every sort of tampering is found, and nothing else is called that.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::super::blob::{BlobStore, Place};
use super::super::chain::{Body, Chain, entry_sha};
use super::super::event::{Event, Kind, hex};
use super::super::layout::{blob_name, blobs_name};
use super::*;
use crate::trace::scan::Malformed;

mod beside;

/// A sealed trace on disk: start, seven observations, a body, the end and the seal.
struct Sample {
    _directory: tempfile::TempDir,
    path: PathBuf,
    lines: Vec<String>,
    blob: PathBuf,
}

impl Sample {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace.jsonl");
        let blobs = directory.path().join(blobs_name("trace.jsonl".as_ref()));
        std::fs::create_dir(&blobs).expect("a directory");
        let mut body =
            BlobStore::new(Place::made(File::open(&blobs).expect("it opens").into()), None).start();
        std::io::Write::write_all(&mut body, b"hello").expect("written");
        let body = body.finish().expect("stored");
        let blob = blobs.join(blob_name(&body.sha256));

        let mut events = vec![Event::new(Kind::Meta, "run.start").arg("argv", json!(["true"]))];
        events.extend(
            (0..7).map(|number| Event::new(Kind::Observe, "fs.open_read").arg("path", number.to_string())),
        );
        events.push(Event::new(Kind::Effect, "http.exchange").result(json!({"body": body})));
        events.push(Event::new(Kind::Meta, "run.end").arg("returncode", 0));
        let lines = chained(&events, true);
        let sample = Self { _directory: directory, path, lines, blob };
        sample.write(sample.lines.concat());
        sample
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        std::fs::write(&self.path, text).expect("written");
    }

    fn verify(&self) -> Verification {
        verify(&self.path, &Expectation::default()).expect("a trace")
    }

    /// Verifies the trace after a change to its lines.
    fn with(&self, change: impl FnOnce(&mut Vec<String>)) -> Outcome {
        let mut lines = self.lines.clone();
        change(&mut lines);
        self.write(lines.concat());
        self.verify().outcome
    }
}

fn chained(events: &[Event], sealed: bool) -> Vec<String> {
    let mut chain = Chain::new();
    let mut lines = Vec::new();
    let mut append = |chain: &mut Chain, event: &Event| {
        let mut line = String::new();
        chain.append(&Body::new(event), None, 1_795_960_678_080_639, &mut line);
        lines.push(line);
    };
    events.iter().for_each(|event| append(&mut chain, event));
    if sealed {
        let seal = chain.checkpoint("run.seal");
        append(&mut chain, &seal);
    }
    lines
}

fn tampered(entry: u64, reason: Tamper) -> Outcome {
    Outcome::Tampered { entry, reason }
}

#[test]
fn an_untouched_trace_is_sealed() {
    let sample = Sample::new();
    let found = sample.verify();
    assert_eq!((found.entries, found.outcome), (11, Outcome::Sealed));
    assert!(sample.lines[10].contains(&found.head));
}

#[test]
fn an_edited_entry_is_found() {
    let sample = Sample::new();
    let outcome = sample.with(|lines| lines[3] = lines[3].replace("\"path\":\"2\"", "\"path\":\"x\""));
    assert_eq!(outcome, tampered(3, Tamper::Edited));
    let outcome = sample.with(|lines| lines[3] = lines[3].replace("\"ts\":1", "\"ts\":2"));
    assert_eq!(outcome, tampered(3, Tamper::Edited));
    let outcome = sample.with(|lines| lines[3] = lines[3].replace("\"sha\":\"", "\"sha\":\"0"));
    assert_eq!(outcome, tampered(3, Tamper::Malformed(Malformed::Field { name: "sha" })));
}

#[test]
fn a_deleted_entry_is_found() {
    let sample = Sample::new();
    assert_eq!(sample.with(|lines| drop(lines.remove(3))), tampered(3, Tamper::Deleted { found: 4 }));
    assert_eq!(sample.with(|lines| drop(lines.remove(0))), tampered(0, Tamper::Deleted { found: 1 }));
    assert_eq!(sample.with(|lines| drop(lines.remove(9))), tampered(9, Tamper::Deleted { found: 10 }));
}

#[test]
fn reordered_and_repeated_entries_are_found() {
    let sample = Sample::new();
    assert_eq!(sample.with(|lines| lines.swap(3, 4)), tampered(3, Tamper::Deleted { found: 4 }));
    let outcome = sample.with(|lines| lines.insert(4, lines[3].clone()));
    assert_eq!(outcome, tampered(4, Tamper::OutOfOrder { found: 3 }));
}

#[test]
fn an_inserted_or_replaced_entry_is_found() {
    let sample = Sample::new();
    let other: Vec<Event> =
        (0..4).map(|_| Event::new(Kind::Observe, "fs.open_read").arg("path", "other")).collect();
    let other = chained(&other, false);
    let outcome = sample.with(|lines| lines.insert(3, other[3].clone()));
    assert_eq!(outcome, tampered(3, Tamper::Unchained));
    let outcome = sample.with(|lines| lines[0].clone_from(&other[0]));
    assert_eq!(outcome, tampered(1, Tamper::Unchained));
}

#[test]
fn a_number_that_is_not_its_place_is_found() {
    let sample = Sample::new();
    let outcome = sample.with(|lines| {
        // Consistent in itself, as an editor that knows the format would leave it.
        let mut chain = lines[4].clone();
        chain = chain.replace("\"i\":4", "\"i\":7");
        lines[4] = rehashed(&chain);
    });
    assert_eq!(outcome, tampered(4, Tamper::Deleted { found: 7 }));
}

#[test]
fn a_repeated_key_is_found() {
    let sample = Sample::new();
    for (text, twice) in [
        ("\"kind\":\"observe\"", "\"kind\":\"deny\",\"kind\":\"observe\""),
        ("\"path\":\"2\"", "\"path\":\"2\",\"path\":\"x\""),
        ("\"path\":\"2\"", "\"\\n\":\"2\",\"\\n\":\"x\""),
    ] {
        let outcome = sample.with(|lines| lines[3] = rehashed(&lines[3].replace(text, twice)));
        let is_repeat = matches!(
            outcome,
            Outcome::Tampered { entry: 3, reason: Tamper::Malformed(Malformed::RepeatedKey { .. }) }
        );
        assert!(is_repeat, "{outcome:?}");
    }
}

#[test]
fn what_is_no_entry_is_found() {
    let sample = Sample::new();
    for junk in ["junk\n", "\n", "{}\n", "{\"args\":{}}\n", "[]\n", "\u{0}\n"] {
        let mut lines = sample.lines[..5].concat();
        lines.push_str(junk);
        sample.write(lines);
        let outcome = sample.verify().outcome;
        assert!(
            matches!(outcome, Outcome::Tampered { entry: 5, reason: Tamper::Malformed(_) }),
            "{junk:?} {outcome:?}"
        );
    }
    let spaced = sample.with(|lines| lines[3] = lines[3].replace("\":", "\": "));
    assert!(matches!(spaced, Outcome::Tampered { entry: 3, reason: Tamper::Malformed(_) }));
}

#[test]
fn another_spelling_is_found() {
    let sample = Sample::new();
    for (text, spelt) in [
        ("\"path\"", "\"p\\u0061th\""),
        ("\"2\"", "\"\\u0032\""),
        ("\"2\"", "\"\\ud800\""),
        ("\"2\"", "1e999"),
        ("\"2\"", "1.000e-00"),
        ("\"observe\"", "\"obs\\u0065rve\""),
    ] {
        let outcome = sample.with(|lines| lines[3] = rehashed(&lines[3].replace(text, spelt)));
        let reason = matches!(
            outcome,
            Outcome::Tampered { entry: 3, reason: Tamper::Malformed(Malformed::Syntax { .. }) }
        );
        assert!(reason, "{spelt} {outcome:?}");
    }
}

#[test]
fn what_follows_the_seal_is_found() {
    let sample = Sample::new();
    for junk in ["junk", "junk\n", "\n", &sample.lines[10]] {
        let outcome = sample.with(|lines| lines.push(junk.to_owned()));
        assert_eq!(outcome, tampered(11, Tamper::AfterSeal), "{junk:?}");
    }
}

#[test]
fn a_cut_trace_is_not_sealed() {
    let sample = Sample::new();
    for whole in 1..11 {
        sample.write(sample.lines[..whole].concat());
        let found = sample.verify();
        assert_eq!(found.outcome, Outcome::Unsealed);
        assert_eq!(found.entries, u64::try_from(whole).expect("fits"));
    }
    sample.write("");
    assert_eq!(sample.verify().outcome, Outcome::Unsealed);
}

#[test]
fn a_torn_line_is_called_that_wherever_it_is_torn() {
    let sample = Sample::new();
    let text = sample.lines.concat();
    for cut in (9..text.len()).step_by(7) {
        sample.write(&text[..cut]);
        let found = sample.verify();
        let whole = text[..cut].matches('\n').count();
        assert_eq!(found.entries, u64::try_from(whole).expect("fits"));
        let torn = cut - text[..cut].rfind('\n').map_or(0, |at| at + 1);
        match torn {
            0 => assert_eq!(found.outcome, Outcome::Unsealed),
            bytes => assert_eq!(found.outcome, Outcome::Torn { bytes }),
        }
    }
}

#[test]
fn a_false_seal_or_checkpoint_is_found() {
    for op in ["run.seal", "checkpoint"] {
        for (field, value) in [("entries", json!(7)), ("head", json!(ZERO_SHA)), ("blobs", json!("x"))] {
            let sample = Sample::new();
            let start = Event::new(Kind::Meta, "run.start");
            let mut chain = Chain::new();
            let mut text = String::new();
            chain.append(&Body::new(&start), None, 1, &mut text);
            let mut line = String::new();
            let seal = chain.checkpoint(op).arg(field, value);
            chain.append(&Body::new(&seal), None, 1, &mut line);
            sample.write(text + &line);
            assert_eq!(sample.verify().outcome, tampered(1, Tamper::WrongCheckpoint { field }));
        }
    }
}

#[test]
fn traces_of_the_python_tool_verify() {
    for (name, entries) in [("trace-python.jsonl", 22), ("trace-node.jsonl", 6)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
        let found = verify(&path, &Expectation::default()).expect("a trace");
        assert_eq!((found.entries, found.outcome), (entries, Outcome::Unsealed), "{name}");
    }
}

#[test]
fn what_is_no_trace_is_an_error() {
    let sample = Sample::new();
    for text in ["hello\n", "hello", "{\"a\":1}\n", "\n", "\u{0}\u{1}"] {
        sample.write(text);
        let result = verify(&sample.path, &Expectation::default());
        assert!(matches!(result, Err(TraceError::NotATrace { .. })), "{text:?}");
    }
    let directory = sample.path.parent().expect("a parent");
    assert!(matches!(verify(directory, &Expectation::default()), Err(TraceError::NotATrace { .. })));
    let missing = directory.join("missing");
    assert!(matches!(verify(&missing, &Expectation::default()), Err(TraceError::Read { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_flipped_byte_is_never_sealed(at in 0_usize..3000, flip in 1_u8..=255) {
        let sample = Sample::new();
        let mut bytes = sample.lines.concat().into_bytes();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        sample.write(&bytes);
        let outcome = verify(&sample.path, &Expectation::default()).map(|found| found.outcome);
        prop_assert!(!matches!(outcome, Ok(Outcome::Sealed | Outcome::Unsealed)), "{outcome:?}");
    }

    #[test]
    fn any_bytes_are_read_without_panic(start in prop::bool::ANY, bytes: Vec<u8>, text in "[\\[{\"a:,0-9.e\\\\u\n}\\]]{0,80}") {
        let sample = Sample::new();
        let mut content = if start { b"{\"args\":".to_vec() } else { sample.lines[0].clone().into_bytes() };
        content.extend_from_slice(text.as_bytes());
        content.extend_from_slice(&bytes);
        sample.write(&content);
        let _ = verify(&sample.path, &Expectation::default());
    }
}

/// Gives a changed line the hash that belongs to it.
fn rehashed(line: &str) -> String {
    let from = line.find(",\"sha\":\"").expect("a hash");
    let to = from + ",\"sha\":\"\"".len() + 64;
    let prev_from = line.find("\"prev\":\"").expect("a hash") + "\"prev\":\"".len();
    let prev = &line[prev_from..prev_from + 64];
    let (before, after) = (&line[..from], line[to..].trim_end());
    let sha = hex(&entry_sha(prev.as_bytes(), before.as_bytes(), after.as_bytes()));
    format!("{before},\"sha\":\"{sha}\"{after}\n")
}

#[test]
fn a_body_in_the_entry_is_the_one_that_its_digest_names() {
    let sample = Sample::new();
    let outcome = |text: &str, sha256: String| {
        let body = json!({"sha256": sha256, "size": text.len(), "text": text});
        let events = [
            Event::new(Kind::Meta, "run.start").arg("argv", json!(["true"])),
            Event::new(Kind::Effect, "http.exchange").result(json!({"body": body})),
        ];
        sample.write(chained(&events, true).concat());
        sample.verify().outcome
    };
    let digest = |text: &str| hex(&Sha256::digest(text));
    for text in ["", "ok", "\"quoted\" \\ \t\r\n é \u{2028} \u{7f}"] {
        assert_eq!(outcome(text, digest(text)), Outcome::Sealed, "{text}");
    }
    let sha256 = digest("other");
    let reason = Tamper::TextAltered { sha256: sha256.clone() };
    assert_eq!(outcome("ok", sha256), Outcome::Tampered { entry: 1, reason });
}
