//! `diff` as a user runs it: two runs of the same small agent, and what they did differently.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::sample::write_sample;
use crate::support::{Ran, Sandbox, User, everyone, skip};

const POLICY: &str = "read: .\nwrite: ./out\nexec: sh\nexec: cat\nexec: date\n";

/// An agent that reads, starts a program, writes, and is refused something.
const AGENT: &str =
    "cat in.txt more.txt; cat in.txt > out/copy; cat /etc/shadow 2>/dev/null; echo done; exit 3";

/// A place for that agent.
fn prepare(sandbox: &Sandbox) {
    sandbox.policy(POLICY);
    sandbox.directory("out");
    sandbox.file("in.txt", "one\n");
    sandbox.file("more.txt", "more\n");
}

/// Runs it, and keeps the trace under this name.
fn record(sandbox: &Sandbox, name: &str, words: &[&str]) -> PathBuf {
    sandbox.run(words);
    let kept = sandbox.beside(name);
    for end in ["", ".blobs"] {
        let beside = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        let _ = fs::remove_dir_all(beside(&kept));
        if beside(&sandbox.trace()).exists() {
            fs::rename(beside(&sandbox.trace()), beside(&kept)).expect("renamed");
        }
    }
    kept
}

fn diff(sandbox: &Sandbox, options: &[&str], one: &Path, other: &Path) -> Ran {
    let mut words = vec!["diff"];
    words.extend(options);
    words.extend([one, other].map(|path| path.to_str().expect("text")));
    sandbox.agentbox(&words)
}

/// What a comparison says of each difference: its class, its operation.
fn classes(ran: &Ran) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let text = |one: &Value, name: &str| one[name].as_str().expect("text").to_owned();
    let rows = report["divergences"].as_array().expect("a list").iter();
    rows.map(|one| (text(one, "class"), text(one, "op"))).collect()
}

#[test]
fn the_same_twice_is_the_same() {
    everyone(|sandbox| {
        prepare(sandbox);
        let one = record(sandbox, "one.jsonl", &["sh", "-c", AGENT]);
        let other = record(sandbox, "other.jsonl", &["sh", "-c", AGENT]);
        let ran = diff(sandbox, &[], &one, &other);
        ran.exits(0);
        assert!(ran.stdout.contains("same — ") && ran.stderr.is_empty(), "{ran}");
    });
}

#[test]
fn what_was_changed_is_what_differs() {
    let sandbox = Sandbox::new(User::Caller);
    prepare(&sandbox);
    let one = record(&sandbox, "one.jsonl", &["sh", "-c", AGENT]);
    let finds = |words: &[&str], expected: &[(&str, &str)]| {
        let other = record(&sandbox, "other.jsonl", words);
        let ran = diff(&sandbox, &["--json"], &one, &other);
        ran.exits(1);
        let expected: Vec<_> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(classes(&ran), expected, "{ran}");
    };
    sandbox.file("more.txt", "less\n");
    finds(&["sh", "-c", AGENT], &[("input-changed", "fs.open_read"), ("output-changed", "stdio")]);
    sandbox.file("more.txt", "more\n");
    let ends = AGENT.replace("exit 3", "exit 4");
    finds(
        &["sh", "-c", &ends],
        &[
            ("command-changed", "run.start"),
            ("command-changed", "proc.spawn"),
            ("exit-status-changed", "proc.exit"),
        ],
    );
    sandbox.policy(&format!("{POLICY}read: /etc/shadow\n"));
    finds(
        &["sh", "-c", AGENT],
        &[("policy-changed", "run.start"), ("denial-changed", "read"), ("output-changed", "stdio")],
    );
}

#[test]
fn a_time_that_is_printed_differs() {
    let sandbox = Sandbox::new(User::Caller);
    prepare(&sandbox);
    let words = ["sh", "-c", "date +%N; cat in.txt"];
    let one = record(&sandbox, "one.jsonl", &words);
    let other = record(&sandbox, "other.jsonl", &words);
    let ran = diff(&sandbox, &[], &one, &other);
    ran.exits(1);
    let lines: Vec<_> = ran.stdout.lines().filter(|line| !line.starts_with(' ')).collect();
    assert!(lines[0].ends_with("  output-changed  stdio") && lines.len() == 2, "{ran}");
    assert!(lines[1].starts_with("different — ") && lines[1].ends_with(", 1 difference"), "{ran}");
    let ran = diff(&sandbox, &["--lenient", "output-changed"], &one, &other);
    ran.exits(0);
    assert!(ran.stdout.contains("accepted: output-changed 1 (stdio 1)"), "{ran}");
}

#[test]
fn only_traces_that_verify_are_compared() {
    let sandbox = Sandbox::new(User::Caller);
    let path = sandbox.beside("sample.jsonl");
    write_sample(&path);
    diff(&sandbox, &[], &path, &path).exits(0);
    let whole = fs::read_to_string(&path).expect("it reads");
    let torn = sandbox.beside("torn.jsonl");
    fs::write(&torn, &whole[..whole.len() - 5]).expect("written");
    let ran = diff(&sandbox, &[], &path, &torn);
    ran.exits(0).complains("the last line is torn");
    let altered = sandbox.beside("altered.jsonl");
    fs::write(&altered, whole.replacen("in.txt", "on.txt", 1)).expect("written");
    for (one, other) in [(&path, &altered), (&altered, &path)] {
        diff(&sandbox, &[], one, other).exits(1).complains("TAMPERED at entry 1").prints("");
    }
    let other = sandbox.file("other.txt", "no trace\n");
    for missing in [sandbox.beside("missing"), other, sandbox.beside("work")] {
        diff(&sandbox, &[], &path, &missing).exits(2).prints("");
    }
    diff(&sandbox, &["--lenient", "everything"], &path, &path)
        .exits(2)
        .complains("possible values: command-changed, policy-changed");
}

#[test]
fn traces_of_the_python_tool_are_read_and_compared() {
    let sandbox = Sandbox::new(User::Caller);
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let [node, python] = ["trace-node.jsonl", "trace-python.jsonl"].map(|name| vectors.join(name));
    for path in [&node, &python] {
        let name = path.to_str().expect("text");
        sandbox.agentbox(&["verify", name]).exits(3);
        sandbox.agentbox(&["show", name]).exits(0);
        let ran = diff(&sandbox, &[], path, path);
        ran.exits(0).complains("not sealed");
        assert!(ran.stdout.starts_with("same — "), "{ran}");
    }
    let ran = diff(&sandbox, &["--json"], &node, &python);
    ran.exits(1);
    let found = classes(&ran);
    let commands = [("command-changed", "run.start"), ("policy-changed", "run.start")];
    assert_eq!(found[..2], commands.map(|(class, op)| (class.to_owned(), op.to_owned())), "{ran}");
}

#[test]
fn bytes_of_a_stream_are_compared() {
    let sandbox = Sandbox::new(User::Caller);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = std::thread::spawn(move || {
        for answer in [b"+PONG\r\n", b"+PONG\r\n", b"+PING\r\n", b"+PONG\r\n"] {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut asked = [0; 6];
            stream.read_exact(&mut asked).expect("a line");
            stream.write_all(answer).expect("it goes");
        }
    });
    let program = sandbox.script(
        "agent.py",
        format!(
            "import socket, sys\nword = open('word', 'rb').read()\ns = socket.create_connection(('127.0.0.1', {port}))\n\
             s.sendall(word)\nwhile s.recv(99): pass\n"
        ),
    );
    sandbox.policy(&format!("exec: python3\nread: .\nnet: 127.0.0.1:{port}\n"));
    let words = ["python3", program.to_str().expect("text")];
    let traces = [b"PING\r\n", b"PING\r\n", b"PING\r\n", b"PINK\r\n"].map(|word| {
        sandbox.file("word", word);
        let name = format!("{}.jsonl", sandbox.beside("").read_dir().expect("a directory").count());
        record(&sandbox, &name, &words)
    });
    server.join().expect("the server");
    diff(&sandbox, &["--json"], &traces[0], &traces[1]).exits(0);
    let said = |other: &Path| classes(&diff(&sandbox, &["--json"], &traces[0], other));
    assert_eq!(said(&traces[2]), [("response-changed".to_owned(), "net.stream".to_owned())]);
    let shown = diff(&sandbox, &[], &traces[0], &traces[3]);
    shown.exits(1);
    assert!(shown.stdout.contains("input-changed  fs.open_read"), "{shown}");
    assert!(shown.stdout.contains("request-changed  net.stream"), "{shown}");
}

#[test]
fn the_certificate_of_each_run_is_no_difference() {
    const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";
    if !Path::new(ROOTS).exists() {
        return skip("roots", "the host has no bundle at that place");
    }
    everyone(|sandbox| {
        sandbox.policy("read: /etc\ndeny: read **/.env\nnet: origin.example\nexec: head\n");
        let words = ["head", "-c", "1", ROOTS];
        let (one, other) = (record(sandbox, "one.jsonl", &words), record(sandbox, "other.jsonl", &words));
        let read = |trace: &Path| {
            let text = fs::read_to_string(trace).expect("text");
            let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            let mut read =
                entries.filter(|entry| entry["op"] == "fs.open_read" && entry["args"]["path"] == ROOTS);
            read.next().expect("it was read")["args"]["sha256"].clone()
        };
        assert_ne!(read(&one), read(&other));
        diff(sandbox, &[], &one, &other).exits(0);
    });
}
