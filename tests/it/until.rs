//! Replays up to a step, and from there for real.

use std::fs;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::{Ran, Sandbox, Server, User, tree};

const AGENT: &str = r#"
import http.client, os, sys, threading, time, uuid
def say(*text): print(*text, flush=True)
def get(path):
    link = http.client.HTTPConnection("127.0.0.1", PORT)
    link.request("GET", path)
    say(link.getresponse().read().decode())
    link.close()
mode = open("mode").read()
say("begin", time.time())
time.sleep(3)
get("/1")
if mode == "more": open("in1").read()
open("out/a", "w").write("new")
before = time.monotonic()
get("/2")
threading.Event().wait(0.3)
say("waited", time.monotonic() - before)
get("/3")
say("then", time.time())
say("drawn", uuid.uuid4())
open("out/b", "w").write("b")
sys.exit(5)
"#;

struct Recorded {
    sandbox: Sandbox,
    server: Server,
    ran: Ran,
}

impl Recorded {
    fn new() -> Self {
        let (sandbox, answer) = (Sandbox::new(User::Caller), Arc::new(Mutex::new("recorded")));
        let server = Server::paths(&answer);
        sandbox.policy(&format!(
            "read: .\nwrite: ./out\nexec: python3\nexec: cat\nnet: 127.0.0.1:{}\n",
            server.port
        ));
        sandbox.file("mode", "plain");
        sandbox.file("in1", "in1");
        sandbox.file("out/a", "old");
        sandbox.file("agent.py", AGENT.replace("PORT", &server.port.to_string()));
        let ran = sandbox.run(&["python3", "agent.py"]);
        ran.exits(5);
        sandbox.file("out/a", "old");
        fs::remove_file(sandbox.path("out/b")).expect("written");
        server.forget();
        *answer.lock().expect("no panic") = "real";
        Self { sandbox, server, ran }
    }

    fn replay(&self, options: &[&str]) -> Ran {
        let before = tree(&self.sandbox);
        let trace = self.sandbox.trace();
        let words = [&["replay", "-t", trace.to_str().expect("text")], options].concat();
        let ran = self.sandbox.agentbox(&words);
        assert_eq!(tree(&self.sandbox), before, "the host's files\n{ran}");
        assert!(!ran.stderr.contains("panicked"), "{ran}");
        ran
    }

    /// The number of the entry of the request to `path`, and its step.
    fn request(&self, path: &str) -> (String, String) {
        let mut number = 0;
        for entry in &self.ran.entries {
            let is_own = entry["kind"] != "meta" && entry["proc"] == "0";
            number += u64::from(is_own);
            let url = entry["args"]["url"].as_str().unwrap_or_default();
            if entry["op"] == "http.exchange" && url.ends_with(path) {
                return (entry["i"].to_string(), format!("0@{number}"));
            }
        }
        panic!("no request to {path}\n{}", self.ran)
    }
}

/// What stands behind a word that the agent says first on a line.
fn said(ran: &Ran, word: &str) -> String {
    let line = ran.stdout.lines().find_map(|line| line.strip_prefix(word));
    line.unwrap_or_else(|| panic!("no {word}\n{ran}")).trim().to_owned()
}

fn number(ran: &Ran, word: &str) -> f64 {
    said(ran, word).parse().expect("a number")
}

#[test]
fn a_replay_ends_at_a_step() {
    let recorded = Recorded::new();
    let (entry, step) = recorded.request("/2");
    for named in [&entry, &step] {
        let ran = recorded.replay(&["--until", named]);
        ran.exits(0).complains(&format!("replayed to {step} — "));
        assert!(ran.stderr.contains("recorded steps matched"), "{ran}");
        assert!(ran.stdout.contains("recorded /1") && !ran.stdout.contains("waited"), "{ran}");
        assert_eq!(recorded.server.accepted(), 0, "{ran}");
    }
    let ran = recorded.replay(&["--until", &step, "--json"]);
    ran.exits(0);
    let verdict = ran.stderr.lines().find(|line| line.starts_with('{')).expect("a verdict");
    let verdict: Value = serde_json::from_str(verdict).expect("JSON");
    assert_eq!((&verdict["same"], &verdict["until"]), (&true.into(), &step.clone().into()), "{ran}");
    assert_eq!(verdict["recorded"], verdict["matched"], "{ran}");
}

#[test]
fn a_step_that_is_none_is_named_with_the_nearest() {
    let recorded = Recorded::new();
    let steps = recorded.ran.entries.iter().filter(|entry| entry["kind"] != "meta" && entry["proc"] == "0");
    let last = format!("0@{}", steps.count());
    for (named, nearest) in [("0@9999", last.as_str()), ("0.7@2", "0@"), ("0", "@"), ("999999", "@")] {
        let ran = recorded.replay(&["--until", named]);
        ran.exits(2).complains("is no step of").complains(nearest);
        assert_eq!(ran.stdout, "", "{ran}");
    }
    recorded.replay(&["--until", "zero"]).exits(2);
    recorded.replay(&["--then", "live"]).exits(2);
    recorded.replay(&["--until", "0@3", "-o", "x"]).exits(2);
}

#[test]
fn from_a_step_on_it_goes_on_for_real() {
    let recorded = Recorded::new();
    let (_, step) = recorded.request("/2");
    let live = recorded.sandbox.beside("live.jsonl");
    let (named, keep) = (live.to_str().expect("text"), recorded.sandbox.beside("kept"));
    let words = ["--until", &step, "--then", "live", "-o", named, "--keep", keep.to_str().expect("text")];
    let since = std::time::Instant::now();
    let ran = recorded.replay(&words);
    ran.exits(0)
        .complains(&format!("replayed to {step} — "))
        .complains("then for real")
        .complains("exit status 5");
    for text in ["recorded /1", "recorded /2", "real /3"] {
        assert!(ran.stdout.contains(text), "{ran}");
    }
    assert_eq!(recorded.server.accepted(), 1, "{ran}");
    // Clocks: the recorded time before, today's afterwards, and no step back; waits are real ones.
    assert_eq!(said(&ran, "begin"), said(&recorded.ran, "begin"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    assert!((number(&ran, "then") - now.as_secs_f64()).abs() < 20.0, "{ran}");
    assert!((0.29..5.0).contains(&number(&ran, "waited")), "{ran}");
    assert!(since.elapsed().as_secs() < 30);
    assert_ne!(said(&ran, "drawn"), said(&recorded.ran, "drawn"), "nobody made that id before");
    // Writes stay inside, and are kept where that is wanted.
    let kept = |name: &str| {
        fs::read_to_string(keep.join(recorded.sandbox.path(name).strip_prefix("/").expect("whole")))
    };
    assert_eq!(
        (kept("out/a").expect("kept"), kept("out/b").expect("kept")),
        ("new".to_owned(), "b".to_owned())
    );
    // The new trace is whole, and says where it is from.
    let verified = recorded.sandbox.agentbox(&["verify", "-t", named]);
    verified.exits(0);
    let text = fs::read_to_string(&live).expect("a trace");
    let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told = entries.iter().find(|entry| entry["op"] == "run.live").expect("where it went live");
    let head = recorded.ran.entries.last().expect("entries")["sha"].clone();
    assert_eq!((&told["args"]["origin"], &told["args"]["step"]), (&head, &step.as_str().into()));
    let ran = recorded.sandbox.agentbox(&["replay", "-t", named]);
    ran.exits(2).complains("went on for real");
    // What is there is not written over.
    let ran = recorded.replay(&words[..words.len() - 2]);
    ran.exits(2).complains("live.jsonl is there already");
    assert_eq!(fs::read_to_string(&live).expect("a trace"), text);
}

#[test]
fn what_differs_before_the_step_never_goes_live() {
    let recorded = Recorded::new();
    let (_, step) = recorded.request("/2");
    recorded.sandbox.file("mode", "more");
    let live = recorded.sandbox.beside("live.jsonl");
    let named = live.to_str().expect("text");
    let lenient = ["--force", "--lenient", "input-changed", "-o", named, "--until", &step, "--then", "live"];
    let ran = recorded.replay(&lenient);
    ran.exits(1).complains("extra-effect").complains("in1").complains("replay diverged");
    assert!(!ran.stdout.contains("real"), "{ran}");
    let ran = recorded.replay(&["--force", "--until", &step]);
    ran.exits(1).complains("input-changed");
    assert_eq!(recorded.server.accepted(), 0, "{ran}");
}

/// Several processes, a pipeline, files that are written twice, refusals, and a step that comes again and again.
const SCRIPT: &str = r#"
for name in in1 in1 in1 in2; do cat $name; done
cat in1 | tr a-z A-Z > out/upper &
(cat in2; cat ../secret) 2>/dev/null
echo one > out/twice; echo two > out/twice
mv out/twice out/moved
wait
cat out/upper
rm out/moved
exec cat in2
"#;

#[test]
fn every_step_can_be_the_last() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: .\nwrite: ./out\nexec: bash\nexec: cat\nexec: tr\nexec: mv\nexec: rm\n");
    sandbox.file("in1", "in1\n");
    sandbox.file("in2", "in2\n");
    sandbox.file("../secret", "secret");
    sandbox.directory("out");
    sandbox.file("agent.sh", SCRIPT);
    let ran = sandbox.run(&["bash", "agent.sh"]);
    ran.exits(0);
    let trace = sandbox.trace();
    let mut reached = 0;
    for entry in ran.entries.iter().filter(|entry| entry["kind"] != "meta") {
        let number = entry["i"].to_string();
        let replayed = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text"), "--until", &number]);
        // A file that is written again is a step once.
        if replayed.code == 2 && entry["op"] == "fs.write" {
            replayed.complains("is no step of");
            continue;
        }
        replayed.exits(0).complains("replayed to ");
        reached += 1;
    }
    assert!(reached > 20, "{ran}");
}

#[test]
fn what_is_repeated_after_the_step_is_no_difference() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: .\nexec: python3\n");
    sandbox.file("in1", "in1");
    sandbox.file("in2", "in2");
    let program = "for name in ['in1'] * 3 + ['in2'] + ['in1'] * 3: open(name).read()";
    let ran = sandbox.python(program);
    let entry = ran.entries.iter().find(|entry| entry["args"]["path"] == "in2").expect("it was read");
    let (trace, number) = (sandbox.trace(), entry["i"].to_string());
    let words = ["replay", "-t", trace.to_str().expect("text"), "--until", &number];
    let replayed = sandbox.agentbox(&words);
    replayed.exits(0).complains("replayed to ");
    assert!(!replayed.stderr.contains("more or fewer times"), "{replayed}");
}
