//! Traces from elsewhere that were made to harm whoever replays them: each ends with a clear word, and the
//! host's files stay as they are.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::{Forged, Ran, Sandbox, User, copy_program, everyone, tree};

/// What the recorded run did.
const AGENT: &str = "
import os, socket, time
link = socket.create_connection(('127.0.0.1', PORT))
link.sendall(b'PING')
print(link.recv(100))
open('out/x', 'w').write(open('in').read())
os.mkdir('out/d')
os.rename('out/d', 'out/e')
print(time.time(), len(input()))
";

/// Recorded once: each case changes a copy.
struct Honest {
    sandbox: Sandbox,
}

impl Honest {
    fn new() -> Self {
        let sandbox = Sandbox::new(User::Caller);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut heard = [0; 4];
            std::io::Read::read_exact(&mut stream, &mut heard).expect("reads");
            std::io::Write::write_all(&mut stream, b"PONG").expect("writes");
        });
        sandbox.policy(&format!("read: .\nwrite: ./out\nexec: python3\nnet: 127.0.0.1:{port}\n"));
        sandbox.file("in", "in");
        sandbox.file("out/x", "old");
        sandbox.file("../host/file", "the host's");
        sandbox.file("given", "given\n");
        sandbox.file("agent.py", AGENT.replace("PORT", &port.to_string()));
        let mut command = sandbox.run_command(&[], &["python3", "agent.py"]);
        command.stdin(fs::File::open(sandbox.path("given")).expect("opens"));
        crate::support::Running::start(command).finish().exits(0);
        server.join().expect("a client came");
        Self { sandbox }
    }

    /// Replays what `change` makes of the trace, with and without --force.
    fn replay(&self, name: &str, change: impl FnOnce(&Sandbox, &mut Forged)) -> Ran {
        let (sandbox, path) = (&self.sandbox, self.sandbox.beside("forged.jsonl"));
        let mut forged = Forged::of(&sandbox.trace(), &path);
        change(sandbox, &mut forged);
        forged.write();
        let before = (tree(sandbox), fs::read(sandbox.beside("host/file")).expect("reads"));
        let policy = sandbox.beside("agentbox.policy");
        let words = ["replay".as_ref(), "--force".as_ref(), "-t".as_ref(), path.as_os_str()];
        let words = [&words[..], &["-p".as_ref(), policy.as_os_str()]].concat();
        let ran = sandbox.agentbox(&words);
        let after = (tree(sandbox), fs::read(sandbox.beside("host/file")).expect("reads"));
        assert_eq!(after, before, "{name}: the host's files\n{ran}");
        assert_eq!(fs::read_dir(sandbox.beside("host")).expect("reads").count(), 1, "{name}\n{ran}");
        assert!(!ran.stderr.contains("panicked"), "{name}\n{ran}");
        assert!(!ran.stderr.chars().any(|c| c == '\x1b' || c == '\u{202e}'), "{name}\n{ran}");
        assert!([0, 1, 2, 125].contains(&ran.code), "{name}\n{ran}");
        ran
    }
}

/// A file that held `abc`.
fn file(forged: &Forged) -> Value {
    json!({"content": forged.blob(b"abc"), "mode": 0o644, "mtime_ns": 1, "size": 3, "type": "file"})
}

#[test]
fn an_honest_copy_does_the_same() {
    Honest::new().replay("copy", |_, _| ()).exits(0).complains("replay ok");
}

#[test]
fn a_program_that_is_not_the_systems_is_one_that_the_policy_names() {
    everyone(|sandbox| {
        let program = sandbox.path("../tools/shell");
        sandbox.directory("../tools");
        copy_program(fs::canonicalize("/bin/sh").expect("a shell"), &program);
        sandbox.give("../tools");
        let script = sandbox.file("../scripts/job", "echo done");
        let (program, script) =
            (program.canonicalize().expect("there"), script.canonicalize().expect("there"));
        sandbox.policy("");
        let words: [&[&OsStr]; 2] = [
            &[program.as_os_str(), "-c".as_ref(), "echo done".as_ref()],
            &["sh".as_ref(), script.as_os_str()],
        ];
        let rules = [format!("exec: {}", program.display()), format!("read: {}", script.display())];
        let home = sandbox.beside("state");
        for (words, rule) in words.into_iter().zip(rules) {
            sandbox.environment("XDG_STATE_HOME", &home).policy("");
            sandbox.run(words).exits(0).prints("done\n");
            // It was made elsewhere.
            sandbox.environment("XDG_STATE_HOME", sandbox.directory("../other"));
            let (trace, policy) = (sandbox.trace(), sandbox.beside("agentbox.policy"));
            let words =
                ["replay".as_ref(), "-t".as_ref(), trace.as_os_str(), "-p".as_ref(), policy.as_os_str()];
            let ran = sandbox.agentbox(&words);
            assert_ne!(ran.code, 0, "{ran}");
            if rule.starts_with("exec") {
                ran.exits(2).prints("").complains(&format!("name it in your policy: {rule}"));
            }
            sandbox.policy(&rule);
            sandbox.agentbox(&words).exits(0).prints("done\n").complains("replay ok");
        }
    });
}

#[test]
fn what_is_put_back_leads_nowhere_else() {
    let honest = Honest::new();
    let out = honest.sandbox.path("out").display().to_string();
    let host = honest.sandbox.beside("host").display().to_string();
    for path in ["/../evil", "/../../host/file", "/../in", "/.."] {
        let ran = honest.replay(path, |_, forged| {
            let before = file(forged);
            forged.insert("fs.open_write", &json!({"before": before, "path": format!("{out}{path}")}));
        });
        ran.exits(2).prints("").complains("no direct path");
    }
    for (name, from, to) in [
        ("out of it", format!("{host}/file"), format!("{out}/e")),
        ("over it", format!("{out}/e"), format!("{out}/../../host/file")),
        ("the whole", format!("{out}/e"), out.clone()),
        ("in itself", format!("{out}/e"), format!("{out}/e/f")),
    ] {
        let args = json!({"exchange": name == "in itself", "path": from, "to": to, "type": "directory"});
        honest.replay(name, |_, forged| forged.insert("fs.rename", &args));
    }
    for (name, path, before) in [
        ("elsewhere", format!("{host}/file"), json!("absent")),
        ("elsewhere too", format!("{host}/new"), json!({"mode": 511, "type": "dir"})),
        ("the root", out.clone(), json!("absent")),
        ("a link for the root", out.clone(), json!({"target": host, "type": "symlink"})),
        ("zero byte", format!("{out}/a\0b"), json!({"mode": 420, "size": 0, "type": "file"})),
        ("long name", format!("{out}/{}", "a".repeat(300)), json!({"size": 0, "type": "file"})),
        ("deep path", format!("{out}{}", "/a".repeat(100_000)), json!({"size": 0, "type": "file"})),
        ("times", format!("{out}/t"), json!({"mode": u64::MAX, "mtime_ns": i64::MIN, "type": "dir"})),
        ("a kind", format!("{out}/k"), json!({"type": ["file"]})),
    ] {
        honest.replay(name, |_, forged| {
            forged.insert("fs.open_write", &json!({"before": before, "path": path}));
        });
    }
    for path in ["/../../host/new", "/../new", "/new"] {
        honest.replay("captured", |_, forged| {
            let (captured, digest) = (file(forged), forged.blob(b"abc")["blob"].clone());
            let path = format!("{out}{path}");
            forged.insert("fs.open_read", &json!({"captured": captured, "path": path, "sha256": digest}));
        });
    }
    honest.replay("through a link", |_, forged| {
        let before = file(forged);
        forged.insert("fs.open_write", &json!({"before": before, "path": format!("{out}/l/file")}));
        let link = json!({"target": host, "type": "symlink"});
        forged.insert("fs.symlink", &json!({"before": link, "path": format!("{out}/l")}));
    });
}

#[test]
fn lists_of_a_stranger_tell_and_remove_nothing() {
    let honest = Honest::new();
    let own = honest.sandbox.path("out").display().to_string();
    let places = ["", "/..", "/../../host", "/../out"].map(|place| format!("{own}{place}"));
    let others = ["/", "/..", "/etc", "/proc/self/fd"].map(str::to_owned);
    for place in places.iter().chain(&others) {
        for op in ["fs.order", "fs.listed", "fs.links"] {
            let ran = honest.replay(place, |_, forged| {
                let lists = forged.blob(format!("{place}\0none\0").as_bytes());
                forged.insert(op, &json!({"path": place, "names": "none", "lists": lists, "links": lists}));
            });
            assert!(!ran.stderr.contains("host/"), "{place}\n{ran}");
        }
    }
}

#[test]
fn bodies_are_files_of_their_digest() {
    let honest = Honest::new();
    let path = honest.sandbox.path("out/b").display().to_string();
    for (name, place) in [("a link", true), ("a FIFO", false)] {
        let ran = honest.replay(name, |sandbox, forged| {
            let before = file(forged);
            let blob = forged.blob_path(before["content"]["blob"].as_str().expect("text"));
            let other = sandbox.beside("other.zst");
            fs::rename(&blob, &other).expect("moves");
            if place {
                symlink(&other, &blob).expect("a link");
            } else {
                nix::unistd::mkfifo(&blob, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
            }
            forged.insert("fs.open_write", &json!({"before": before, "path": path}));
        });
        ran.exits(1).prints("").complains("TAMPERED");
    }
    let ran = honest.replay("a path", |_, forged| {
        let mut before = file(forged);
        before["content"]["blob"] = "../../host/file".into();
        forged.insert("fs.open_write", &json!({"before": before, "path": path}));
    });
    ran.exits(2).prints("").complains("no SHA-256");
    let ran = honest.replay("a tape too long", |_, forged| {
        let tape = forged.blob(&vec![0; 8 << 20]);
        forged.first("clock.tape")["args"]["tape"] = tape;
    });
    ran.exits(2).prints("").complains("clock.tape");
}

#[test]
fn what_is_compared_is_a_regular_file() {
    let honest = Honest::new();
    let fifo = honest.sandbox.beside("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    symlink("/dev/zero", honest.sandbox.beside("zero")).expect("a link");
    let fifo = fifo.display().to_string();
    let link = honest.sandbox.beside("zero").display().to_string();
    for path in [fifo, link, "/tmp/../dev/zero".to_owned(), "/tmp/../proc/kmsg".to_owned()] {
        let args = json!({"path": path, "sha256": "0".repeat(64)});
        let ran = honest.replay(&path, |_, forged| forged.insert("fs.open_read", &args));
        ran.exits(1).complains("now no regular file");
    }
}

#[test]
fn what_is_no_regular_file_is_not_even_opened() {
    let honest = Honest::new();
    let fifo = honest.sandbox.beside("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let (begins, begun) = std::sync::mpsc::channel();
    let (ends, ended) = std::sync::mpsc::channel();
    let waited_for = fifo.clone();
    let writer = std::thread::spawn(move || {
        begins.send(()).expect("heard");
        let opened = fs::OpenOptions::new().write(true).open(waited_for);
        ends.send(()).expect("heard");
        opened
    });
    begun.recv().expect("it begins");
    let args = json!({"path": fifo, "sha256": "0".repeat(64)});
    honest.replay("a FIFO", |_, forged| forged.insert("fs.open_read", &args)).exits(1);
    assert!(ended.try_recv().is_err(), "a writer waits for who reads it");
    drop(fs::File::open(&fifo).expect("opens"));
    writer.join().expect("it ends").expect("it had a reader");
}

#[test]
fn without_the_user_s_policy_nothing_is_unpacked() {
    let honest = Honest::new();
    let path = honest.sandbox.beside("forged.jsonl");
    let mut forged = Forged::of(&honest.sandbox.trace(), &path);
    let args = &mut forged.first("stdio")["args"];
    (args["kind"], args["offset"]) = ("file".into(), u64::MAX.into());
    forged.write();
    let ran = honest.sandbox.agentbox(&["replay", "-t", "../forged.jsonl"]);
    ran.exits(2).prints("").complains("name yours with -p");
}

#[test]
fn numbers_that_no_run_records_do_no_harm() {
    let honest = Honest::new();
    for clock in [json!(u64::MAX), json!(1_u64 << 62), json!(-1), json!(1e300), json!("noon"), Value::Null] {
        let base = json!({"boottime_ns": clock, "monotonic_ns": clock, "realtime_ns": clock});
        let ran = honest.replay("clock", |_, forged| forged.first("run.replay")["args"]["clock"] = base);
        ran.exits(2).prints("").complains("when it began");
    }
    honest.replay("clock 0", |_, forged| {
        forged.first("run.replay")["args"]["clock"] =
            json!({"boottime_ns": 0, "monotonic_ns": 0, "realtime_ns": 0});
    });
    honest.replay("counts", |_, forged| {
        forged.entries.iter_mut().filter(|entry| entry["kind"] != "meta").for_each(|entry| {
            entry["count"] = u64::MAX.into();
        });
    });
    honest.replay("reads", |_, forged| {
        forged.first("clock.tape")["args"]["reads"] = u64::MAX.into();
        let tape = forged.first("clock.tape").clone();
        forged.entries.insert(5, tape);
    });
    honest.replay("an end", |_, forged| {
        forged.entries.last_mut().expect("an entry")["ts"] = json!(1.8e19);
    });
    for transcript in [
        &b"[\"up\",18446744073709551615,1]\nPING\n"[..],
        b"[\"down\",9223372036854775807,1]\nPING\n",
        b"[\"up\",4,18446744073709551615]\nPING\n[\"up\",18446744073709551615,1]\nx",
        b"[[[[[[[[[[",
        b"\xff\xfe",
        b"",
    ] {
        honest.replay("transcript", |_, forged| {
            let blob = forged.blob(transcript);
            forged.first("net.stream")["result"]["transcript"] = blob;
        });
    }
    for (name, args) in [
        ("umask", json!({"umask": u64::MAX})),
        ("processors", json!({"processors": {"count": u64::MAX, "model": "\u{1b}[31m\u{202e}"}})),
    ] {
        let mut more = args.as_object().cloned().expect("an object");
        honest.replay(name, |_, forged| {
            forged.first("run.replay")["args"].as_object_mut().expect("an object").append(&mut more);
        });
    }
    let ran = honest.replay("offset", |_, forged| {
        let args = &mut forged.first("stdio")["args"];
        (args["kind"], args["offset"]) = ("file".into(), u64::MAX.into());
    });
    ran.exits(125).prints("").complains("standard input");
}

#[test]
fn the_private_part_is_judged_as_well() {
    let honest = Honest::new();
    let code = |name: &str, code: i32, change: fn(&mut Value)| {
        honest.replay(name, |_, forged| forged.private(change)).exits(code).prints("");
    };
    code("seed", 2, |private| private["seed"] = "zz".into());
    code("key", 2, |private| private["redactor"] = "q".into());
    code("relative directory", 2, |private| private["cwd"] = ".".into());
    code("no directory", 1, |private| private["cwd"] = "/\u{1b}[31m".into());
    code("no words", 1, |private| private["argv"] = json!([]));
    code("no program", 1, |private| private["argv"] = json!(["\u{1b}[31m"]));
    code("zero byte", 125, |private| private["argv"] = json!(["python3", "a\0b"]));
    code("no PATH", 1, |private| private["environment"] = json!(["=x", "a", "PATH="]));
    code("authority", 2, |private| private["authority"] = json!({"key": "x"}));
    // What the user's policy does not pass is not passed.
    let ran = honest.replay("preloaded", |_, forged| {
        forged.private(|private| {
            let variables = private["environment"].as_array_mut().expect("a list");
            variables.extend(["LD_PRELOAD=/nowhere.so".into(), "PYTHONINSPECT=1".into()]);
        });
    });
    ran.exits(0).complains("replay ok");
    // Another command is judged by the user's policy, and what it writes is diverted.
    let ran = honest.replay("another command", |sandbox, forged| {
        let program = format!(
            "import os\ntry: open({:?}, 'w')\nexcept OSError as error: print(type(error).__name__)\nopen('out/new', 'w').write('x')",
            sandbox.beside("host/file")
        );
        forged.private(|private| private["argv"] = json!(["python3", "-c", program]));
    });
    ran.exits(1).prints("PermissionError\n");
}

#[test]
fn a_policy_is_the_user_s_wherever_the_trace_says_that_it_ran() {
    let honest = Honest::new();
    let sandbox = &honest.sandbox;
    sandbox.file("../host-too/agentbox.policy", "read: /\nwrite: /\n");
    let there = sandbox.beside("host-too").display().to_string();
    let path = sandbox.beside("forged.jsonl");
    let mut forged = Forged::of(&sandbox.trace(), &path);
    forged.private(|private| private["cwd"] = there.into());
    forged.write();
    // Relative to where the user is: there is none of that name.
    let ran = sandbox.agentbox(&["replay", "-t", "../forged.jsonl", "-p", "agentbox.policy"]);
    ran.exits(2).prints("").complains("agentbox.policy");
}
