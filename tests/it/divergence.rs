//! Replays of an agent that does something else than it did: each difference is found, and named for what it is.

use std::fs;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::{Ran, Sandbox, Server, User, copy_program, everyone, has, skip, tree};

/// What it does otherwise is in the file `mode`: no replay puts that back.
const AGENT: &str = r#"
import http.client, os, subprocess, sys
mode = open("mode").read()
def say(text): print(text, flush=True)
def get(path):
    link = http.client.HTTPConnection("127.0.0.1", PORT)
    link.request("GET", path)
    say(link.getresponse().read())
    link.close()
def look(name):
    try: say(open(name).read())
    except OSError as error: say(type(error).__name__)
first = open("in1").read()
for path in ("/2", "/1") if mode == "swap" else ("/1", "/2"): get("/other" if (mode, path) == ("request", "/2") else path)
open("out/a", "w").write(first + ("!" if mode == "content" else ""))
if mode != "missing": look("in2")
if mode == "extra": look("in3")
if mode != "allowed": look("../secret")
if mode == "denied": look("../other")
subprocess.run(["cat", "in1"])
if mode == "spawn": subprocess.run(["cat", "in3"])
open("out/b", "w").write("b")
os.rename("out/b", "out/elsewhere" if mode == "rename" else "out/moved")
os.mkdir("out/d", 0o700 if mode == "mkdir" else 0o755)
os.close(os.open("out/n", os.O_CREAT | os.O_WRONLY, 0o600 if mode == "create" else 0o644))
os.chmod("out/n", 0o600 if mode == "chmod" else 0o640)
os.truncate("out/t", 1 if mode == "truncate" else 2)
if mode == "line": say("more")
if mode == "stderr": print("more", file=sys.stderr)
if mode == "signal": os.kill(os.getpid(), 9)
sys.exit(3 if mode == "code" else 0)
"#;

/// A recorded agent, whose server goes on to listen: nobody may come.
struct Recorded {
    sandbox: Sandbox,
    server: Server,
    answer: Arc<Mutex<&'static str>>,
    ran: Ran,
}

fn policy(port: u16) -> String {
    format!("read: .\nwrite: ./out\nexec: python3\nexec: cat\nnet: 127.0.0.1:{port}\n")
}

impl Recorded {
    fn new() -> Self {
        let (sandbox, answer) = (Sandbox::new(User::Caller), Arc::new(Mutex::new("answer")));
        let server = Server::paths(&answer);
        sandbox.policy(&policy(server.port));
        for name in ["in1", "in2", "in3", "mode", "../secret", "../other"] {
            sandbox.file(name, name);
        }
        sandbox.file("out/a", "old");
        sandbox.file("out/t", "four");
        sandbox.file("agent.py", AGENT.replace("PORT", &server.port.to_string()));
        let ran = sandbox.run(&["python3", "agent.py"]);
        ran.exits(0).denied("read", "secret");
        server.forget();
        Self { sandbox, server, answer, ran }
    }

    /// Replays it; the host's files stay as they are, and nobody comes to the server.
    fn replay(&self, options: &[&str]) -> Ran {
        let before = tree(&self.sandbox);
        let trace = self.sandbox.trace();
        let words = [&["replay", "-t", trace.to_str().expect("text")], options].concat();
        let ran = self.sandbox.agentbox(&words);
        assert_eq!(tree(&self.sandbox), before, "the host's files\n{ran}");
        assert_eq!(self.server.accepted(), 0, "it went out\n{ran}");
        assert!(!ran.stderr.contains("panicked"), "{ran}");
        ran
    }

    /// Replays it in another mode, in which the file that says so is no difference.
    fn replay_as(&self, mode: &str) -> (Ran, Value) {
        self.sandbox.file("mode", mode);
        let ran = self.replay(&["--force", "--json", "--lenient", "input-changed"]);
        let verdict = verdict(&ran);
        (ran, verdict)
    }
}

/// The verdict in JSON.
fn verdict(ran: &Ran) -> Value {
    let line = ran.stderr.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no verdict\n{ran}"))).expect("JSON")
}

/// The members of an object.
fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn the_same_agent_does_the_same() {
    let recorded = Recorded::new();
    let ran = recorded.replay(&[]);
    ran.exits(0).prints(&recorded.ran.stdout);
    let steps: u64 = recorded.ran.entries.iter().filter(|entry| entry["kind"] != "meta").count() as u64;
    ran.complains(&format!("replay ok — {steps}/{steps} recorded steps matched"));
    let ran = recorded.replay(&["--json", "--", "python3", "agent.py"]);
    ran.exits(0);
    let verdict = verdict(&ran);
    assert_eq!(
        keys(&verdict),
        [
            "accepted",
            "approximate",
            "before",
            "cut",
            "differences",
            "divergences",
            "elsewhere",
            "ended_otherwise",
            "further",
            "left_out",
            "live",
            "matched",
            "recorded",
            "renamed",
            "repeats",
            "requests",
            "same",
            "torn",
            "unheld",
            "unordered",
            "unseen"
        ]
    );
    assert_eq!((&verdict["same"], &verdict["matched"]), (&true.into(), &steps.into()));
}

/// A mode, and a difference that it makes: class, operation, stream, and a word of the step.
const MODES: [(&str, &str, &str, &str, &str); 19] = [
    ("swap", "order-changed", "http.exchange", "0", "/1"),
    ("swap", "output-changed", "stdio", "run", "stdout"),
    ("request", "request-changed", "http.exchange", "0", "/2"),
    ("content", "output-changed", "fs.write", "0", "out/a"),
    ("missing", "missing-effect", "fs.open_read", "0", "in2"),
    ("missing", "output-changed", "stdio", "run", "stdout"),
    ("extra", "extra-effect", "fs.open_read", "0", "in3"),
    ("allowed", "denial-changed", "read", "0", "secret"),
    ("denied", "denial-changed", "read", "0", "other"),
    ("rename", "missing-effect", "fs.rename", "0", "out/moved"),
    ("mkdir", "missing-effect", "fs.mkdir", "0", "out/d"),
    ("create", "missing-effect", "fs.open_write", "0", "out/n"),
    ("chmod", "output-changed", "fs.meta", "0", "out/n"),
    ("truncate", "output-changed", "fs.meta", "0", "out/t"),
    ("spawn", "extra-effect", "proc.spawn", "0.1", "in3"),
    ("line", "output-changed", "stdio", "run", "stdout"),
    ("stderr", "output-changed", "stdio", "run", "stderr"),
    ("signal", "exit-status-changed", "proc.exit", "0", "signal"),
    ("code", "exit-status-changed", "proc.exit", "0", "code"),
];

#[test]
fn what_was_printed_first_in_another_way_is_told() {
    let recorded = Recorded::new();
    let (ran, verdict) = recorded.replay_as("line");
    let divergences = verdict["divergences"].as_array().expect("a list");
    let output = divergences.iter().find(|one| one["op"] == "stdio").expect("stdout");
    let field = &output["fields"][0];
    let printed = recorded.ran.stdout.len();
    // No newline ends it yet.
    let line = recorded.ran.stdout.lines().count();
    assert_eq!(field["name"], format!("line {line} (byte {printed})"), "{ran}");
    assert_eq!((&field["recorded"], &field["live"]), (&"in1".into(), &"in1more".into()), "{ran}");
    // The content is the user's: it is in no redacted pack.
    let entry = recorded.ran.of("stdio").into_iter().find(|entry| entry["args"]["stream"] == "stdout");
    assert_eq!(entry.expect("stdout")["args"]["content"]["private"], true);
    recorded.sandbox.file("mode", "stderr");
    let ran = recorded.replay(&["--force", "--lenient", "input-changed"]);
    ran.exits(1).complains("line 1 (byte 0): none -> more");
}

#[test]
fn each_step_that_differs_is_named_for_what_it_is() {
    let recorded = Recorded::new();
    for (mode, class, op, stream, word) in MODES {
        let (ran, verdict) = recorded.replay_as(mode);
        ran.exits(1);
        let told = verdict["divergences"].as_array().expect("a list");
        let found = told.iter().find(|one| one["class"] == class && one["op"] == op);
        let found = found.unwrap_or_else(|| panic!("{mode}: no {class} {op}: {verdict:#}"));
        assert_eq!(keys(found), ["chain", "class", "fields", "live", "op", "recorded", "step", "stream"]);
        assert_eq!(found["stream"], stream, "{mode}: {found:#}");
        assert!(found["step"].as_str().expect("text").starts_with(&format!("{stream}@")), "{found:#}");
        let entry = if found["recorded"].is_null() { &found["live"] } else { &found["recorded"] };
        assert!(entry["args"].to_string().contains(word), "{mode}: {found:#}");
        let accepted = verdict["accepted"].to_string();
        assert!(accepted.contains("input-changed"), "{mode}: {accepted}");
    }
}

#[test]
fn the_report_says_what_json_says() {
    let recorded = Recorded::new();
    recorded.sandbox.file("mode", "content");
    let ran = recorded.replay(&["--force", "--lenient", "input-changed"]);
    let live = "replay diverged — ";
    ran.exits(1).complains("output-changed  fs.write").complains("out/a").complains("size: 3 -> 4");
    ran.complains("in        0 (python3 agent.py)").complains("accepted: input-changed 1").complains(live);
    let ran = recorded.replay(&["--force", "--lenient", "input-changed", "--lenient", "output-changed"]);
    ran.exits(0).complains("replay ok").complains("output-changed 1");
    recorded.replay(&["--lenient", "anything"]).exits(2);
}

#[test]
fn what_is_another_one_is_named_before_anything_runs() {
    let recorded = Recorded::new();
    let (sandbox, port) = (&recorded.sandbox, recorded.server.port);
    let refused = |what: &str| {
        let ran = recorded.replay(&[]);
        ran.exits(1).prints("").complains(what).complains("nothing was run");
        let ran = recorded.replay(&["--json"]);
        let verdict = verdict(ran.exits(1));
        assert_eq!((keys(&verdict), &verdict["same"]), (vec!["before", "same"], &false.into()));
        let [before] = &verdict["before"].as_array().expect("a list")[..] else { panic!("{verdict}") };
        assert_eq!(keys(before), ["name", "now", "recorded", "what"]);
        assert!(what.contains(before["what"].as_str().expect("text")), "{verdict}");
    };
    sandbox.file("in1", "iN1");
    refused("the input ");
    let ran = recorded.replay(&["--force"]);
    ran.exits(1).complains("input-changed  fs.open_read").complains("in1");
    sandbox.file("in1", "in1");

    let agent = fs::read_to_string(sandbox.path("agent.py")).expect("reads");
    sandbox.file("agent.py", format!("{agent}#"));
    refused("the script ");
    sandbox.file("agent.py", agent);

    sandbox.policy(&format!("{}read: /opt\n", policy(port)));
    refused("the policy ");
    sandbox.policy(&policy(port));

    let ran = recorded.replay(&["--", "python3", "agent.py", "more"]);
    ran.exits(1).prints("").complains("the command is another one: recorded python3 agent.py, now");
    recorded.replay(&[]).exits(0);
}

#[test]
fn a_changed_program_is_named_before_anything_runs() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: .\nexec: sh\nexec: ./tool\n");
    sandbox.file("in", "in\n");
    copy_program("/bin/cat", sandbox.path("tool"));
    sandbox.run(&["sh", "-c", "./tool in; :"]).exits(0).prints("in\n");
    let trace = sandbox.trace();
    let replay =
        |more: &[&str]| sandbox.agentbox(&[&["replay", "-t", trace.to_str().expect("text")], more].concat());
    replay(&[]).exits(0).prints("in\n");
    let mut tool = fs::OpenOptions::new().append(true).open(sandbox.path("tool")).expect("opens");
    tool.write_all(b"more").expect("writes");
    drop(tool);
    replay(&[]).exits(1).prints("").complains("the executable ").complains("tool has changed");
    let ran = replay(&["--force"]);
    ran.exits(1).prints("in\n").complains("input-changed  proc.image");
    fs::remove_file(sandbox.path("tool")).expect("is there");
    replay(&[]).exits(1).prints("").complains("now absent");
}

#[test]
fn another_answer_is_what_diff_names() {
    let recorded = Recorded::new();
    let sandbox = &recorded.sandbox;
    let first = sandbox.beside("first.jsonl");
    fs::rename(sandbox.trace(), &first).expect("moves");
    fs::rename(sandbox.beside("trace.jsonl.blobs"), sandbox.beside("first.jsonl.blobs")).expect("moves");
    fs::remove_dir_all(sandbox.path("out")).expect("is there");
    sandbox.file("out/a", "old");
    sandbox.file("out/t", "four");
    *recorded.answer.lock().expect("no panic") = "another";
    sandbox.run(&["python3", "agent.py"]).exits(0);
    let ran = sandbox.agentbox(&["diff".as_ref(), first.as_os_str(), sandbox.trace().as_os_str()]);
    ran.exits(1);
    assert!(ran.stdout.contains("response-changed  http.exchange"), "{ran}");
    assert!(ran.stdout.contains("output-changed  stdio"), "{ran}");
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let recorded = Recorded::new();
    let sandbox = &recorded.sandbox;
    let text = fs::read_to_string(sandbox.trace()).expect("reads");
    fs::write(sandbox.trace(), text.replacen("in2", "in3", 1)).expect("writes");
    let ran = recorded.replay(&[]);
    ran.exits(1).prints("").complains("TAMPERED").complains("nothing was run");
    recorded.replay(&["--force"]).exits(1).prints("").complains("TAMPERED");
    fs::write(sandbox.trace(), text).expect("writes");

    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/trace-python.jsonl");
    let ran = sandbox.agentbox(&["replay", "-t", python]);
    ran.exits(2).complains("cannot be replayed").complains("the Python package agentbox-runtime");

    let ours = recorded.sandbox.beside("agentbox.policy");
    sandbox.environment("XDG_STATE_HOME", sandbox.beside("elsewhere"));
    sandbox.directory("../elsewhere");
    recorded.replay(&[]).exits(2).prints("").complains("was not made here").complains("-p");
    let ran = recorded.replay(&["-p", ours.to_str().expect("text")]);
    ran.exits(0).prints(&recorded.ran.stdout).complains("replay ok");

    let ran = sandbox.run_with(&["--no-replay"], &["cat", "in1"]);
    ran.exits(0);
    recorded.replay(&[]).exits(2).prints("").complains("--no-replay");
}

#[test]
fn a_script_is_an_input_that_can_be_captured() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: .\nexec: python3\n");
    let script = sandbox.file("agent.py", "print('said')");
    sandbox.run_with(&["--capture"], &["python3", "agent.py"]).recorded("fs.open_read", "path", "agent.py");
    fs::remove_file(&script).expect("is there");
    let trace = sandbox.trace();
    let ran = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
    ran.exits(0).prints("said\n").complains("replay ok");
}

/// A worker of a pool ends by itself or is ended, by chance: which it was is told.
#[test]
fn a_forked_process_that_ends_otherwise_is_told() {
    if !has("python3") {
        return skip("workers", "python3 is not installed");
    }
    const POOL: &str = "import os, signal, time\n\
        kills = open('how').read() == 'kill'\n\
        child = os.fork()\n\
        if not child: time.sleep(20 if kills else 0); os._exit(0)\n\
        if kills: os.kill(child, signal.SIGTERM)\n\
        os.wait()\n";
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3\n");
        sandbox.file("pool.py", POOL);
        sandbox.file("how", "kill");
        sandbox.run(&["python3", "pool.py"]).exits(0);
        sandbox.file("how", "wait");
        let trace = sandbox.trace();
        let words = ["replay", "-t", trace.to_str().expect("text"), "--force", "--lenient", "input-changed"];
        let again = sandbox.agentbox(&words);
        again.exits(0).complains("ended by SIGTERM or SIGPIPE in one run, by themselves in the other: 0.0");
    });
}
