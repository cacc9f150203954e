//! Each class of difference, over traces made by hand.

use std::io::Cursor;

use serde_json::{Value, json};

use super::{Cause, Comparison, compare};

mod follows;
mod foreign;
mod streams;

/// Compares two rows of entries.
fn compared(recorded: &[Value], live: &[Value]) -> Comparison {
    with(recorded, live, &[])
}

fn with(recorded: &[Value], live: &[Value], lenient: &[Cause]) -> Comparison {
    compare(&mut trace(recorded), &mut trace(live), lenient).expect("they read")
}

/// A trace of these entries, numbered; `ts` follows the number where it is not given.
fn trace(entries: &[Value]) -> Cursor<Vec<u8>> {
    let mut text = String::new();
    for (number, entry) in entries.iter().enumerate() {
        let mut entry = entry.clone();
        entry["i"] = number.into();
        if entry.get("ts").is_none() {
            entry["ts"] = (1000 + number).into();
        }
        text.push_str(&entry.to_string());
        text.push('\n');
    }
    Cursor::new(text.into_bytes())
}

fn observe(proc: &str, op: &str, args: Value) -> Value {
    json!({"kind": "observe", "op": op, "args": args, "proc": proc, "rule": "agent.policy:1"})
}

fn read(proc: &str, path: &str, sha256: &str) -> Value {
    observe(proc, "fs.open_read", json!({"path": path, "sha256": sha256, "size": 3}))
}

fn spawn(proc: &str, argv: &[&str]) -> Value {
    observe(proc, "proc.spawn", json!({"argv": argv, "exe": format!("/usr/bin/{}", argv[0])}))
}

/// A request and its answer, with the times at which it began and ended.
fn request(proc: &str, url: &str, answer: &str, (start, end): (u32, u32)) -> Value {
    json!({"kind": "effect", "op": "http.exchange", "proc": proc,
        "args": {"method": "POST", "url": url, "version": "HTTP/1.1", "headers": [["host", "h"], ["date", "then"]],
            "body": {"sha256": "q", "size": 1, "text": "q"}},
        "result": {"status": 200, "headers": [["date", "then"]], "body": {"sha256": answer, "size": 1, "text": answer},
            "address": "192.0.2.1:80", "segments": [["down", 1, start]],
            "timing": {"start": start, "end": end, "first_byte": end}}})
}

/// A run of every sort of step.
fn run() -> Vec<Value> {
    vec![
        json!({"kind": "meta", "op": "run.start",
            "args": {"argv": ["python3", "agent.py"], "cwd": "/w", "policy_sha256": "p", "host": "x"}}),
        json!({"kind": "meta", "op": "env.pass", "args": {"names": ["HOME", "PATH"]}}),
        spawn("0", &["python3", "agent.py"]),
        json!({"kind": "observe", "op": "proc.image", "args": {"path": "/usr/bin/python3", "sha256": "i"}}),
        read("0", "in.txt", "a"),
        read("0", "more.txt", "b"),
        observe(
            "0",
            "net.connect",
            json!({"names": ["h"], "address": "192.0.2.1", "port": 80, "via": "direct"}),
        ),
        request("0", "http://h/1", "one", (10, 11)),
        request("0", "http://h/2", "two", (12, 13)),
        json!({"kind": "effect", "op": "dns.lookup", "proc": "0", "args": {"name": "h", "type": "A"},
            "result": {"code": "NOERROR", "answers": ["192.0.2.1", "192.0.2.2"]}}),
        spawn("0.0", &["sh", "-c", "true"]),
        read("0.0", "child.txt", "c"),
        observe(
            "0",
            "fs.open_write",
            json!({"path": "out.txt", "resolved": "/w/out.txt", "before": "absent"}),
        ),
        observe("0", "fs.write", json!({"path": "/w/out.txt", "sha256": "o", "size": 9})),
        json!({"kind": "deny", "op": "read", "proc": "0", "rule": "no rule",
            "args": {"target": "/etc/shadow", "enforced": true, "pid": 7, "remedy": "read: /etc/shadow"}}),
        observe("0", "proc.exit", json!({"code": 3, "signal": 0, "cpu_us": 5, "peak_kib": 6})),
        json!({"kind": "observe", "op": "stdio", "args": {"stream": "stdin", "covered": false, "why": "the null device"}}),
        json!({"kind": "observe", "op": "stdio", "args": {"stream": "stdout", "sha256": "s", "size": 4}}),
        json!({"kind": "observe", "op": "stdio", "args": {"stream": "stderr", "sha256": "e", "size": 0}}),
        json!({"kind": "meta", "op": "run.end", "args": {"returncode": 3}}),
    ]
}

const STEPS: u64 = 17;

/// The run with one entry changed: the first of that operation whose text contains `part`.
fn changed(op: &str, part: &str, change: impl Fn(&mut Value)) -> Vec<Value> {
    let mut run = run();
    change(&mut run[place(op, part)]);
    run
}

fn place(op: &str, part: &str) -> usize {
    let is_it = |entry: &Value| entry["op"] == op && entry.to_string().contains(part);
    run().iter().position(is_it).expect("such an entry")
}

/// Demands one difference, and what it says.
#[track_caller]
fn finds(live: &[Value], cause: Cause, step: &str, fields: &[&str]) {
    let found = compared(&run(), live);
    let [one] = &found.divergences[..] else { panic!("not one: {found:#?}") };
    assert_eq!((one.cause, one.step.as_str()), (cause, step), "{one:#?}");
    assert_eq!(one.fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>(), fields, "{one:#?}");
    assert_eq!(found.differences(), 1, "{found:#?}");
    let accepted = with(&run(), live, &[cause]);
    assert!(accepted.is_same() && accepted.accepted.values().sum::<u64>() == 1, "{accepted:#?}");
}

#[test]
fn a_run_is_the_same_as_itself() {
    let found = compared(&run(), &run());
    assert!(found.is_same(), "{found:#?}");
    assert_eq!((found.recorded, found.live, found.matched), (STEPS, STEPS, STEPS));
    assert_eq!(found.tiers.exact, 2);
}

#[test]
fn what_never_counts_does_not() {
    let mut live = run();
    for entry in &mut live {
        entry["ts"] = 5.into();
        entry["rule"] = "other:2".into();
        for (name, value) in
            [("pid", json!(9)), ("cpu_us", json!(1)), ("peak_kib", json!(1)), ("address", json!("::1"))]
        {
            if entry["args"].get(name).is_some() {
                entry["args"][name] = value;
            }
        }
        if entry["op"] == "http.exchange" {
            entry["result"]["address"] = "[::1]:80".into();
            entry["result"]["segments"] = json!([["down", 1, 77]]);
            entry["args"]["body"] = json!({"blob": "q", "size": 1});
        }
        if entry["op"] == "dns.lookup" {
            entry["result"]["answers"] = json!(["192.0.2.2", "192.0.2.1"]);
        }
        entry["args"].as_object_mut().expect("an object").remove("before");
    }
    live[19]["args"]["totals"] = json!(1);
    let found = compared(&run(), &live);
    assert!(found.is_same(), "{found:#?}");
}

#[test]
fn a_changed_input_is_found() {
    let live = changed("fs.open_read", "child", |entry| entry["args"]["sha256"] = "x".into());
    finds(&live, Cause::InputChanged, "0.0@2", &["sha256"]);
    let live =
        changed("fs.open_read", "in.txt", |entry| entry["args"] = json!({"path": "in.txt", "exists": false}));
    finds(&live, Cause::InputChanged, "0@2", &["sha256", "size", "exists"]);
    let live = changed("proc.image", "python3", |entry| entry["args"]["sha256"] = "x".into());
    finds(&live, Cause::InputChanged, "run@1", &["sha256"]);
    let live = changed("stdio", "stdin", |entry| {
        entry["args"] = json!({"stream": "stdin", "sha256": "x", "size": 1})
    });
    finds(&live, Cause::InputChanged, "run@2", &["sha256", "size"]);
}

#[test]
fn a_changed_answer_is_found() {
    let live = changed("http.exchange", "/2", |entry| {
        entry["result"]["body"] = json!({"sha256": "twp", "size": 1, "text": "twp"});
    });
    finds(&live, Cause::ResponseChanged, "0@6", &["result.body.sha256", "result.body.text"]);
    let live = changed("http.exchange", "/2", |entry| entry["result"]["headers"] = json!([["date", "now"]]));
    finds(&live, Cause::TimeOnly, "0@6", &["result.headers.date"]);
    let live = changed("http.exchange", "/2", |entry| {
        entry["result"] = json!({"error": "no", "failure": {"kind": "refused", "side": "origin"}});
    });
    finds(
        &live,
        Cause::ResponseMissing,
        "0@6",
        &["result.status", "result.headers", "result.body", "result.failure"],
    );
    let live = changed("dns.lookup", "h", |entry| entry["result"]["answers"] = json!([]));
    finds(&live, Cause::ResponseChanged, "0@7", &["result.addresses"]);
}

#[test]
fn a_changed_request_is_found() {
    let live =
        changed("http.exchange", "/2", |entry| entry["args"]["body"] = json!({"sha256": "z", "size": 1}));
    finds(&live, Cause::RequestChanged, "0@6", &["body.sha256"]);
    let live = changed("http.exchange", "/2", |entry| entry["args"]["url"] = "http://h/3".into());
    finds(&live, Cause::RequestChanged, "0@6", &["url"]);
    let live = changed("net.connect", "h", |entry| entry["args"]["port"] = 81.into());
    let found = compared(&run(), &live);
    assert_eq!(found.differences(), 2, "{found:#?}");
}

#[test]
fn requests_the_other_way_round_are_found() {
    let mut live = run();
    let (one, two) = (place("http.exchange", "/1"), place("http.exchange", "/2"));
    live[one] = request("0", "http://h/2", "two", (10, 11));
    live[two] = request("0", "http://h/1", "one", (12, 13));
    finds(&live, Cause::OrderChanged, "0@6", &[]);
    // As they overlapped, none was first.
    let mut recorded = run();
    recorded[one] = request("0", "http://h/1", "one", (10, 13));
    let found = compared(&recorded, &live);
    assert!(found.is_same(), "{found:#?}");
}

#[test]
fn steps_the_other_way_round_are_found() {
    let mut live = run();
    let (one, two) = (place("fs.open_read", "in.txt"), place("fs.open_read", "more"));
    live.swap(one, two);
    let found = compared(&run(), &live);
    assert_eq!((found.differences(), found.divergences[0].cause), (1, Cause::OrderChanged), "{found:#?}");
}

#[test]
fn extra_and_missing_steps_are_found() {
    for (entry, step, cause) in [
        (read("0", "new.txt", "n"), "0@3", Cause::ExtraEffect),
        (spawn("0.1", &["ls"]), "0.1@1", Cause::ExtraEffect),
        (request("0", "http://h/3", "3", (12, 12)), "0@3", Cause::ExtraEffect),
        (observe("0", "fs.delete", json!({"path": "x"})), "0@3", Cause::ExtraEffect),
        (
            json!({"kind": "deny", "op": "net", "proc": "0", "args": {"target": "h:1"}}),
            "0@3",
            Cause::DenialChanged,
        ),
    ] {
        let mut live = run();
        live.insert(place("fs.open_read", "more"), entry);
        finds(&live, cause, step, &[]);
    }
    for (op, part, step, cause) in [
        ("fs.open_read", "more", "0@3", Cause::MissingEffect),
        ("proc.spawn", "sh", "0.0@1", Cause::MissingEffect),
        ("http.exchange", "/1", "0@5", Cause::MissingEffect),
        ("fs.write", "out", "0@9", Cause::MissingEffect),
        ("stdio", "stderr", "run@4", Cause::MissingEffect),
        ("read", "shadow", "0@10", Cause::DenialChanged),
    ] {
        let mut live = run();
        live.remove(place(op, part));
        finds(&live, cause, step, &[]);
    }
}

#[test]
fn a_changed_denial_is_found() {
    let live = changed("read", "shadow", |entry| entry["args"]["enforced"] = false.into());
    finds(&live, Cause::DenialChanged, "0@10", &["enforced"]);
    let live = changed("read", "shadow", |entry| entry["args"]["target"] = "/etc/gshadow".into());
    finds(&live, Cause::DenialChanged, "0@10", &["target"]);
}

#[test]
fn changed_outputs_are_found_each_by_itself() {
    let live = changed("fs.write", "out", |entry| entry["args"]["sha256"] = "x".into());
    finds(&live, Cause::OutputChanged, "0@9", &["sha256"]);
    let live = changed("proc.exit", "", |entry| entry["args"]["code"] = 0.into());
    finds(&live, Cause::ExitStatusChanged, "0@11", &["code"]);
    let mut live = changed("stdio", "stdout", |entry| entry["args"]["sha256"] = "x".into());
    live[place("fs.write", "out")]["args"]["size"] = 10.into();
    let found = compared(&run(), &live);
    let steps: Vec<_> = found.divergences.iter().map(|one| (one.cause, one.step.as_str())).collect();
    assert_eq!(steps, [(Cause::OutputChanged, "0@9"), (Cause::OutputChanged, "run@3")], "{found:#?}");
    assert_eq!(found.matched, STEPS - 2);
}

/// `git log | head`: whether git writes once more is chance.
#[test]
fn who_loses_its_reader_ends_one_way_or_the_other() {
    let ended = |proc: &str, code: i32, signal: i32| {
        let mut run = run();
        run.insert(14, observe(proc, "proc.exit", json!({"code": code, "signal": signal})));
        run
    };
    for (proc, codes, same) in [("0.0", (141, 13), true), ("0.0", (143, 15), false), ("0", (141, 13), false)]
    {
        let found = compared(&ended(proc, 0, 0), &ended(proc, codes.0, codes.1));
        assert_eq!(found.is_same(), same, "{proc} {codes:?} {found:#?}");
    }
}

#[test]
fn what_was_changed_before_the_start_is_found() {
    let live = changed("run.start", "", |entry| entry["args"]["policy_sha256"] = "x".into());
    finds(&live, Cause::PolicyChanged, "run@0", &["policy_sha256"]);
    let live = changed("run.start", "", |entry| entry["args"]["cwd"] = "/x".into());
    finds(&live, Cause::CommandChanged, "run@0", &["cwd"]);
    let live = changed("env.pass", "", |entry| entry["args"]["names"] = json!(["HOME"]));
    finds(&live, Cause::EnvironmentChanged, "run@0", &["names"]);
}

#[test]
fn a_changed_argument_is_found_with_its_ancestors() {
    let live = changed("proc.spawn", "sh", |entry| entry["args"]["argv"] = json!(["sh", "-c", "false"]));
    finds(&live, Cause::CommandChanged, "0.0@1", &["argv.2"]);
    let found = compared(&run(), &live);
    let chain: Vec<_> =
        found.divergences[0].chain.iter().map(|one| (one.proc.as_str(), one.argv.len())).collect();
    assert_eq!(chain, [("0", 2), ("0.0", 3)]);
    // Another program, and what it does is not what the other did.
    let live = changed("proc.spawn", "sh", |entry| *entry = spawn("0.0", &["ls"]));
    finds(&live, Cause::CommandChanged, "0.0@1", &["exe", "argv"]);
}

#[test]
fn what_no_control_holds_is_called_so() {
    let draw = |value: f64| vec![json!({"kind": "effect", "op": "rand.random", "args": {}, "result": value})];
    let found = compared(&draw(0.1), &draw(0.2));
    assert_eq!(found.divergences[0].cause, Cause::UncontrolledSource);
    assert_eq!(found.divergences[0].fields[0].name, "result");
    let clock = |value: f64| vec![json!({"kind": "effect", "op": "clock.now", "args": {}, "result": value})];
    assert_eq!(compared(&clock(1.0), &clock(2.0)).divergences[0].cause, Cause::TimeOnly);
}

#[test]
fn a_stream_that_one_run_did_not_see_is_told() {
    let live = changed("stdio", "stdout", |entry| {
        entry["args"] = json!({"stream": "stdout", "covered": false, "why": "a terminal"});
    });
    let found = compared(&run(), &live);
    assert!(found.is_same(), "{found:#?}");
    assert_eq!(found.unseen, ["stdio stdout"]);
}

#[test]
fn what_a_deleted_file_holds_is_not_compared() {
    let deletes = || observe("0", "fs.delete", json!({"path": "/w/lock"}));
    let opens = || observe("0", "fs.open_write", json!({"path": "lock", "resolved": "/w/lock"}));
    let writes =
        |sha256: &str| observe("0", "fs.write", json!({"path": "/w/lock", "sha256": sha256, "size": 1}));
    let unseen = compared(&[opens(), deletes(), writes("a")], &[opens(), deletes()]);
    assert!(unseen.is_same(), "{unseen:#?}");
    let anew = |sha256| [opens(), deletes(), opens(), writes(sha256)];
    assert!(!compared(&anew("a"), &anew("b")).is_same());
    let before = |sha256| [opens(), writes(sha256), deletes()];
    assert!(!compared(&before("a"), &before("b")).is_same());
}

#[test]
fn a_class_may_be_known_better() {
    let live = changed("fs.write", "out", |entry| entry["args"]["sha256"] = "x".into());
    let mut found = compared(&run(), &live);
    let of_file = |one: &super::Divergence| (one.op == "fs.write").then_some(Cause::TimeOnly);
    found.reclassify(&[], of_file);
    assert_eq!((found.is_same(), found.divergences[0].cause), (false, Cause::TimeOnly));
    found.reclassify(&[Cause::TimeOnly], of_file);
    assert!(found.is_same() && found.accepted.len() == 1, "{found:#?}");
}

#[test]
fn a_torn_end_is_told() {
    let mut torn = trace(&run()).into_inner();
    torn.extend_from_slice(b"{\"args\":{}");
    let found = compare(&mut trace(&run()), &mut Cursor::new(torn), &[]).expect("they read");
    assert_eq!(found.torn, [None, Some(10)]);
    assert!(found.is_same());
}

#[test]
fn a_trace_without_the_details_of_changes_lacks_nothing() {
    let run = |formats: Value, details: bool| {
        let mode = |args: Value| {
            let mut args = args;
            if details {
                args["mode"] = 0o644.into();
            }
            args
        };
        vec![
            json!({"kind": "meta", "op": "run.start", "args": {"formats": formats}}),
            observe("0", "fs.open_write", mode(json!({"path": "/w/n"}))),
            observe("0", "fs.mkdir", mode(json!({"path": "/w/d"}))),
            observe("0", "fs.meta", mode(json!({"path": "/w/n", "change": "chmod"}))),
        ]
    };
    let (older, newer) = (run(json!({"streams": 1}), false), run(json!({"streams": 1, "changes": 1}), true));
    assert!(compared(&older, &newer).is_same() && compared(&newer, &older).is_same());
    let mut other = newer.clone();
    other[3]["args"]["mode"] = 0o600.into();
    let found = compared(&newer, &other);
    assert_eq!((found.differences(), found.divergences[0].cause), (1, Cause::OutputChanged), "{found:#?}");
}
