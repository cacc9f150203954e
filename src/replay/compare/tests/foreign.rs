//! Traces that were made to harm whoever compares them, and what they cannot tell.

use std::io::Cursor;

use serde_json::{Value, json};

use super::super::compare;
use super::{compared, observe, trace};

/// A process with so many ancestors.
fn deep(ancestors: usize) -> serde_json::Value {
    observe(&format!("0{}", ".0".repeat(ancestors)), "fs.delete", json!({"path": "/x"}))
}

#[test]
fn a_line_that_cannot_be_read_is_not_passed_over() {
    let mut whole = trace(&[deep(1)]).into_inner();
    let other = whole.clone();
    whole.extend_from_slice(b"{\"kind\":\"deny\",\"op\":\"read\",\"args\":{\"x\":1e999}}\n");
    assert!(compare(&mut Cursor::new(whole), &mut Cursor::new(other), &[]).is_err());
}

#[test]
fn ancestors_are_counted_and_take_no_stack() {
    let many = [deep(60_000)];
    assert!(compared(&many, &many).is_same());
    let found = compared(&many, &[]);
    assert_eq!(found.divergences.len(), 1);
    assert!(found.divergences[0].chain.len() < 100);
    let more = trace(&[deep(100_000)]).into_inner();
    assert!(compare(&mut Cursor::new(more), &mut trace(&many), &[]).is_err());
}

#[test]
fn many_operations_and_fields_are_compared() {
    let of = |end: &str| -> Vec<_> {
        (0..300).map(|number| observe("0", &format!("x{number}"), json!({"a": number, "end": end}))).collect()
    };
    assert!(compared(&of("a"), &of("a")).is_same());
    assert!(!compared(&of("a"), &of("b")).is_same());
}

#[test]
fn what_could_not_be_read_is_told() {
    let written = |args| [observe("0", "fs.write", args)];
    let unread = written(json!({"path": "/x", "unreadable": "Permission denied"}));
    let found = compared(&unread, &unread);
    assert!(found.is_same());
    assert_eq!(found.unseen, ["fs.write /x"]);
    assert!(!compared(&unread, &written(json!({"path": "/x", "sha256": "a", "size": 1}))).is_same());
}

#[test]
fn what_a_file_holds_that_lost_its_name_is_not_compared() {
    let written = |sha256: &str, args: Value| {
        let mut whole = json!({"path": "/x", "sha256": sha256, "size": 1});
        whole.as_object_mut().expect("an object").extend(args.as_object().expect("an object").clone());
        observe("0", "fs.write", whole)
    };
    let late = |own: &str, gone: &str| [written(own, json!({})), written(gone, json!({"unlinked": true}))];
    assert!(compared(&late("a", "b"), &late("a", "c")).is_same());
    assert!(!compared(&late("a", "b"), &late("c", "b")).is_same());
}

#[test]
fn of_older_traces_the_first_digest_of_a_program_is_compared() {
    let run = |formats: Value, digests: &[&str]| {
        let mut run = vec![json!({"kind": "meta", "op": "run.start", "args": {"formats": formats}})];
        run.extend(digests.iter().map(|sha256| {
            json!({"kind": "observe", "op": "proc.image", "args": {"path": "/tmp/tool", "sha256": sha256}})
        }));
        run
    };
    let (before, now) =
        (json!({"streams": 1, "changes": 1}), json!({"streams": 1, "changes": 1, "images": 1}));
    let (older, newer) = (run(before.clone(), &["a"]), run(now.clone(), &["a", "b"]));
    assert!(compared(&older, &newer).is_same() && compared(&newer, &older).is_same());
    assert_eq!(compared(&run(now, &["a", "c"]), &newer).differences(), 1);
    assert_eq!(compared(&run(before, &["c"]), &newer).differences(), 1);
}
