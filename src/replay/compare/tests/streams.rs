//! What belongs to which stream, what has an order, and what is the same although it looks otherwise.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::index::{Exchange, Step};
use super::super::report;
use super::{Cause, compared, observe, read, request, run, spawn, with};

fn fold(mut entry: Value, count: u64) -> Value {
    entry["count"] = count.into();
    entry
}

#[test]
fn folded_repeats_are_one_step() {
    let recorded = [read("0", "a", "1"), read("0", "b", "2"), fold(read("0", "a", "1"), 5)];
    let live = [read("0", "a", "1"), read("0", "a", "1"), read("0", "b", "2"), fold(read("0", "a", "1"), 2)];
    let found = compared(&recorded, &live);
    assert!(found.is_same(), "{found:#?}");
    assert_eq!((found.recorded, found.live, found.matched, found.repeats), (7, 5, 7, 1));
    // Not so of what is never folded.
    let found = compared(&[spawn("0", &["a"])], &[spawn("0", &["a"]), spawn("0", &["a"])]);
    assert_eq!(found.differences(), 1);
}

#[test]
fn children_that_swapped_places_are_told() {
    let recorded = [spawn("0", &["sh"]), spawn("0.0", &["a"]), read("0.0", "x", "1"), spawn("0.1", &["b"])];
    let live = [spawn("0", &["sh"]), spawn("0.0", &["b"]), spawn("0.1", &["a"]), read("0.1", "x", "1")];
    let found = compared(&recorded, &live);
    assert!(found.is_same(), "{found:#?}");
    assert_eq!(found.renamed.len(), 2);
    assert_eq!(found.elsewhere, 0);
}

#[test]
fn a_pool_may_share_its_tasks_out_differently() {
    let recorded = [read("0", "a", "1"), read("0#1", "b", "2"), request("0.0", "http://h/1", "1", (1, 2))];
    let live = [read("0", "b", "2"), read("0#1", "a", "1"), request("0.1", "http://h/1", "1", (1, 2))];
    let found = compared(&recorded, &live);
    assert!(found.is_same(), "{found:#?}");
    assert_eq!((found.elsewhere, found.tiers.elsewhere, found.matched), (2, 1, 3));
    let report = report::text(&found, &report::Style { recorded: "A", live: "B", color: false });
    assert!(report.contains("1 request: 1 of another process or thread"), "{report}");
}

#[test]
fn a_connection_that_carried_nothing_is_no_step() {
    let stream = |result: Value| {
        json!({"kind": "effect", "op": "net.stream", "proc": "0", "result": result,
        "args": {"names": ["h"], "address": "192.0.2.1", "port": 80, "via": "transparent"}})
    };
    let connect = observe("0", "net.connect", json!({"names": ["h"], "port": 80, "via": "transparent"}));
    let transcript = json!({"blob": "t", "size": 0});
    let with_stream = |result: Value| [connect.clone(), stream(result)];
    let mut spare = json!({"up": 0, "down": 0, "end": "closed", "transcript": transcript});
    for _ in 0..2 {
        let (with, without) = (with_stream(spare.clone()), std::slice::from_ref(&connect));
        for found in [compared(&with, without), compared(without, &with)] {
            assert!(found.is_same(), "{found:#?}");
        }
        spare = json!({"up": 217, "down": 0, "end": "closed", "protocol": "https"});
    }
    // That it was opened at all is one, and so is what it carried, or how it failed.
    assert_eq!(compared(std::slice::from_ref(&connect), &[]).differences(), 1);
    let steps = [
        json!({"up": 1, "down": 0, "end": "closed", "transcript": transcript}),
        json!({"up": 0, "down": 1, "end": "closed", "transcript": transcript}),
        json!({"up": 0, "down": 0, "end": "cannot connect", "failure": {"kind": "refused", "received": 0}}),
        json!({"up": 1, "down": 1, "end": "closed", "requests": 1}),
    ];
    for step in steps {
        let found = compared(&with_stream(step), std::slice::from_ref(&connect));
        assert_eq!(found.differences(), 1, "{found:#?}");
    }
}

#[test]
fn how_much_came_before_a_client_left_is_told_by_requests_alone() {
    let stream = |received: u64, more: Value| {
        let mut entry = json!({"kind": "effect", "op": "net.stream", "proc": "0",
            "args": {"names": ["h"], "address": "192.0.2.1", "port": 443, "via": "transparent"},
            "result": {"up": 819, "down": received, "end": "client: no close_notify",
                "failure": {"kind": "truncated", "side": "agent", "received": received}}});
        entry["result"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        [entry]
    };
    let carrier = json!({"requests": 1, "protocol": "upgrade", "tls": {"version": "TLSv1.3"}});
    let found = compared(&stream(1793, carrier.clone()), &stream(1815, carrier));
    assert!(found.is_same(), "{found:#?}");
    let opaque = json!({"transcript": {"sha256": "t", "size": 1}});
    let found = compared(&stream(1793, opaque.clone()), &stream(1815, opaque));
    assert_eq!(found.differences(), 1, "{found:#?}");
}

#[test]
fn requests_whose_connections_were_opened_at_once_have_no_order() {
    // When each connection was opened, when its request was sent, when that was answered.
    let row = |times: [(u32, u32, u32); 4], order: [&str; 4]| -> Vec<Value> {
        let mut row = vec![spawn("0", &["node"])];
        for ((opened, start, end), path) in times.into_iter().zip(order) {
            let mut entry = request("0", &format!("http://h/{path}"), path, (start, end));
            entry["result"]["timing"]["opened"] = opened.into();
            row.push(entry);
        }
        row
    };
    let times = [(0, 1, 4), (1, 5, 6), (2, 7, 9), (60, 61, 62)];
    let recorded = row(times, ["a", "b", "c", "d"]);
    let found = compared(&recorded, &row(times, ["c", "b", "a", "d"]));
    assert!(found.is_same(), "{found:#?}");
    let found = compared(&recorded, &row(times, ["d", "b", "c", "a"]));
    assert_eq!(found.divergences[0].cause, Cause::OrderChanged, "{found:#?}");
    // However soon the next is made after the answer to the one before.
    let times = [(0, 1, 4), (5, 6, 7), (8, 9, 10), (11, 12, 13)];
    let found = compared(&row(times, ["a", "b", "c", "d"]), &row(times, ["a", "c", "b", "d"]));
    assert_eq!(found.divergences[0].cause, Cause::OrderChanged, "{found:#?}");
}

#[test]
fn what_was_cut_off_at_the_end_is_no_difference() {
    let begin = || vec![spawn("0", &["sh"]), spawn("0.0", &["gc"]), read("0.0", "a", "1")];
    let cut = |procs: &[&str]| json!({"kind": "meta", "op": "run.cut", "args": {"procs": procs}});
    let with_tail = |cut_off: Option<Value>, tail: &[Value]| -> Vec<Value> {
        begin().into_iter().chain(cut_off).chain(tail.iter().cloned()).collect()
    };
    let further =
        [read("0.0", "b", "2"), spawn("0.0.0", &["pack"]), request("0.0", "http://h/1", "1", (1, 2))];
    let short = with_tail(Some(cut(&["0.0"])), &[]);
    let long = with_tail(None, &further);
    let found = compared(&short, &long);
    assert!(found.is_same(), "{found:#?}");
    assert_eq!((found.matched, found.cut.join(" ").as_str()), (3, "0.0 0.0.0"));
    let found = compared(&long, &short);
    assert!(found.is_same(), "{found:#?}");
    assert_eq!((found.recorded, found.matched), (6, 3));
    // Not where it was the longer one that was cut off, or where it skipped something.
    let found = compared(&with_tail(None, &[]), &with_tail(Some(cut(&["0.0"])), &further));
    assert_eq!(found.differences(), 3, "{found:#?}");
    let skipped = with_tail(Some(cut(&["0.0"])), &[read("0.0", "c", "3")]);
    let found = compared(&skipped, &with_tail(None, &[read("0.0", "b", "2"), read("0.0", "c", "3")]));
    assert_eq!(found.differences(), 1, "{found:#?}");
    // The digests of what it was to become are cut off with it, no others.
    let image =
        |name: &str| json!({"kind": "observe", "op": "proc.image", "args": {"path": name, "sha256": name}});
    let become_pack = [spawn("0.0.0", &["pack"]), image("/usr/bin/pack")];
    let found = compared(&with_tail(None, &become_pack), &short);
    assert!(found.is_same(), "{found:#?}");
    assert_eq!((found.recorded, found.matched, found.cut.join(" ").as_str()), (5, 3, "0.0.0"));
    let found = compared(&short, &with_tail(None, &become_pack));
    assert!(found.is_same(), "{found:#?}");
    let found = compared(&with_tail(None, &[image("/usr/bin/pack")]), &short);
    assert_eq!(found.differences(), 1, "{found:#?}");
    // One of which nothing else was seen.
    let found =
        compared(&[spawn("0", &["sh"]), cut(&["0.1"])], &[spawn("0", &["sh"]), read("0.1", "x", "1")]);
    assert!(found.is_same(), "{found:#?}");
}

#[test]
fn workers_have_no_order() {
    let workers = |order: [(&str, &str); 6]| -> Vec<Value> {
        let read = order.map(|(proc, file)| read(proc, file, "1"));
        [spawn("0", &["x"])].into_iter().chain(read).collect()
    };
    for names in [["0.0", "0.1"], ["0#1", "0#2"]] {
        let [one, other] = names;
        let recorded = [(one, "a"), (other, "b"), (one, "c"), (other, "d"), (one, "b"), (other, "e")];
        let live = [(other, "d"), (one, "e"), (other, "c"), (one, "b"), (other, "a"), (one, "c")];
        let found = compared(&workers(recorded), &workers(live));
        assert!(found.is_same(), "{found:#?}");
        assert_eq!((found.matched, found.unordered.len()), (7, if one == "0.0" { 2 } else { 1 }));
        let less = [(other, "d"), (one, "x"), (other, "c"), (one, "b"), (other, "a"), (one, "c")];
        assert_eq!(compared(&workers(recorded), &workers(less)).differences(), 2);
    }
}

#[test]
fn names_made_up_at_random_are_told_as_such() {
    let run = |name: &str| {
        let path = format!("/w/.git/tmp_obj_{name}");
        [
            observe("0", "fs.open_write", json!({"path": path})),
            observe("0", "fs.write", json!({"path": path, "sha256": "1", "size": 1})),
            observe("0", "fs.rename", json!({"path": path, "to": "/w/.git/object"})),
        ]
    };
    let found = compared(&run("YUeJ9W"), &run("x2KTfG"));
    assert_eq!(found.differences(), 3);
    assert!(found.divergences.iter().all(|one| one.cause == Cause::UncontrolledSource), "{found:#?}");
}

#[test]
fn requests_match_by_tiers() {
    let sent = |id: &str, date: &str| {
        let mut sent = request("0", "http://h/1", "1", (1, 2));
        sent["args"]["headers"] = json!([["x-request-id", id], ["date", date], ["host", "h"]]);
        sent["args"]["body"] =
            json!({"sha256": id, "size": 9, "text": format!("{{\"b\":1,\"id\":\"{id}\"}}")});
        sent
    };
    let ids = ["0190163d-8694-739b-aea5-966c26f8ad91", "0190163d-8694-739b-aea5-966c26f8ad92"];
    let found = compared(&[sent(ids[0], "a")], &[sent(ids[1], "b")]);
    assert!(found.is_same(), "{found:#?}");
    assert_eq!((found.tiers.exact, found.tiers.normalised), (0, 1));
    // A replay says itself what it served.
    let mut live = request("0", "http://h/other", "1", (1, 2));
    live["result"]["replayed"] = json!({"entry": 0, "tier": 1});
    let found = compared(&[request("0", "http://h/1", "1", (1, 2))], &[live]);
    assert!(found.is_same() && found.tiers.normalised == 1, "{found:#?}");
}

#[test]
fn identical_requests_have_the_answers_that_fit() {
    let recorded = [request("0", "http://h/", "1", (1, 3)), request("0", "http://h/", "2", (1, 3))];
    let live = [request("0", "http://h/", "2", (1, 3)), request("0", "http://h/", "1", (1, 3))];
    let found = compared(&recorded, &live);
    assert!(found.is_same() && found.tiers.exact == 2, "{found:#?}");
}

#[test]
fn secrets_are_equal_though_their_digests_differ() {
    let with_key = |key: &str| {
        let mut sent = request("0", &format!("http://h/?token=redacted:{key}"), "1", (1, 2));
        sent["args"]["headers"] = json!([["authorization", format!("redacted:{key}")]]);
        sent
    };
    let found = compared(&[with_key("5bdcc146bf60754e")], &[with_key("6bdcc146bf60754e")]);
    assert!(found.is_same() && found.tiers.normalised == 1, "{found:#?}");
}

#[test]
fn a_file_counts_as_it_was_left() {
    let write = |sha: &str| observe("0", "fs.write", json!({"path": "/w/o", "sha256": sha, "size": 1}));
    let rename = || observe("0", "fs.rename", json!({"path": "o", "resolved": "/w/o", "to": "/w/p"}));
    // How often it settled in between is a matter of time.
    let found = compared(&[write("1"), write("2"), write("3")], &[write("3")]);
    assert!(found.is_same() && found.matched == 3, "{found:#?}");
    // Under the same name there may be several files, one after the other.
    let found = compared(&[write("1"), rename(), write("2")], &[write("x"), rename(), write("2")]);
    assert_eq!((found.differences(), found.divergences[0].step.as_str()), (1, "0@1"), "{found:#?}");
    let found = compared(&[write("1"), rename(), write("2")], &[write("1"), rename(), write("x")]);
    assert_eq!((found.differences(), found.divergences[0].step.as_str()), (1, "0@3"), "{found:#?}");
}

#[test]
fn one_more_read_is_one_difference() {
    let row: Vec<Value> = (0..500).map(|n| read("0", &format!("f{n}"), "1")).collect();
    let mut live = row.clone();
    live.insert(100, read("0", "more", "1"));
    live.remove(300);
    let found = compared(&row, &live);
    let causes: Vec<_> = found.divergences.iter().map(|one| (one.cause, one.step.clone())).collect();
    assert_eq!(causes, [(Cause::ExtraEffect, "0@101".to_owned())]);
    assert_eq!(found.differences(), 2, "{found:#?}");
}

#[test]
fn a_long_trace_is_held_in_few_bytes() {
    let row: Vec<Value> = (0..20_000)
        .map(|n| match n % 10 {
            3 => request(&format!("0.{}", n % 20), &format!("http://h/{n}"), "1", (n, n)),
            _ => read(&format!("0.{}", n % 20), &format!("f{n}"), "1"),
        })
        .collect();
    let mut live = row.clone();
    live.remove(15_000);
    live.insert(5_000, read("0.3", "more", "1"));
    let found = compared(&row, &live);
    assert_eq!((found.differences(), found.matched), (2, 19_999));
    assert!(size_of::<Step>() <= 128 && size_of::<Exchange>() <= 128);
}

#[test]
fn the_kernel_picks_ports() {
    let listen = |port: u16| observe("0", "net.listen", json!({"address": "127.0.0.1", "port": port}));
    assert!(compared(&[listen(40_001)], &[listen(50_002)]).is_same());
    assert!(!compared(&[listen(8000)], &[listen(8001)]).is_same());
}

#[test]
fn nothing_that_an_agent_named_can_forge_a_line() {
    let forged = "x\n0@1  extra-effect\u{1b}[2K\u{202e}";
    let mut live = run();
    live.push(read("0.9\n", forged, forged));
    live[4]["args"]["sha256"] = forged.into();
    live[10]["args"]["argv"] = json!([forged]);
    let found = compared(&run(), &live);
    let text = report::text(&found, &report::Style { recorded: "A", live: "B", color: false });
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    assert!(text.lines().all(|line| !line.starts_with("0@1 ")), "{text}");
}

#[test]
fn the_report_says_what_differs() {
    let mut live = run();
    live[4]["args"]["sha256"] = "x".into();
    live[17]["args"]["size"] = 5.into();
    live.remove(5);
    let found = compared(&run(), &live);
    let style = report::Style { recorded: "recorded", live: "replayed", color: false };
    assert_eq!(
        report::text(&found, &style),
        "0@2  input-changed  fs.open_read
    recorded  entry 4: in.txt
    replayed  entry 4: in.txt
              sha256: a -> x
    in        0 (python3 agent.py)
0@3  missing-effect  fs.open_read
    recorded  entry 5: more.txt
    replayed  nothing like it
    in        0 (python3 agent.py)
run@3  output-changed  stdio
    recorded  entry 17: stdout
    replayed  entry 16: stdout
              size: 4 -> 5
"
    );
    assert_eq!(
        report::verdict(&found, "replay ok", "diverged"),
        "diverged — 14/17 recorded steps matched, 3 differences"
    );
    let found = with(&run(), &run(), &[]);
    assert_eq!(report::verdict(&found, "replay ok", "diverged"), "replay ok — 17/17 recorded steps matched");
    live.remove(5);
    let machine = report::json(&compared(&run(), &live));
    assert_eq!(machine["divergences"][0]["class"], "input-changed");
    assert_eq!(machine["further"][0]["class"], "missing-effect");
    assert_eq!(machine["further"][0]["count"], 1);
}

const PROCESSES: [&str; 4] = ["0", "0.0", "0.1", "0.0.0"];

/// Runs that do the same, with the entries of their processes between each other in any way.
fn shuffled() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
    let step = (0_usize..4, 0_usize..5, 0_u8..3).prop_map(|(process, file, what)| {
        let proc = PROCESSES[process];
        match what {
            0 => read(proc, &format!("f{file}"), "1"),
            1 => observe(proc, "fs.delete", json!({"path": format!("f{file}")})),
            _ => request(proc, &format!("http://h/{file}"), "1", (1, 100)),
        }
    });
    (prop::collection::vec(step, 0..40), prop::collection::vec(any::<u8>(), 40)).prop_map(|(row, order)| {
        let mut queues: Vec<Vec<Value>> = vec![Vec::new(); PROCESSES.len()];
        for entry in row.iter().rev() {
            let known = PROCESSES.iter().position(|proc| entry["proc"] == *proc).expect("a process");
            queues[known].push(entry.clone());
        }
        let mut other = Vec::new();
        let mut order = order.into_iter().cycle();
        while queues.iter().any(|queue| !queue.is_empty()) {
            let chosen = usize::from(order.next().unwrap_or_default());
            let full: Vec<usize> = (0..queues.len()).filter(|one| !queues[*one].is_empty()).collect();
            other.extend(queues[full[chosen % full.len()]].pop());
        }
        (row, other)
    })
}

proptest! {
    #[test]
    fn streams_have_no_order_among_each_other((recorded, live) in shuffled()) {
        let found = compared(&recorded, &live);
        prop_assert!(found.is_same(), "{:#?}", found);
        prop_assert_eq!(found.matched, found.recorded);
    }
}
