//! One file of a trace and its bodies: made, read, played again elsewhere, and refused when it was altered.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Ran, Running, Sandbox, everyone};

const BLOCK: usize = 512;

/// Records a run that reads, changes and prints.
fn record(sandbox: &Sandbox) {
    sandbox.policy("write: .\nexec: sh\nexec: cat\n");
    sandbox.file("in", "input\n");
    sandbox.file("old", "old\n");
    sandbox.run(&["sh", "-c", "cat in old; echo new > old"]).exits(0);
}

/// Any subcommand; paths are relative to the working directory.
fn agentbox(sandbox: &Sandbox, words: &str) -> Ran {
    sandbox.agentbox(&words.split(' ').collect::<Vec<_>>())
}

/// How it ended, and what is among its words.
#[track_caller]
fn says(ran: &Ran, code: i32, part: &str) {
    ran.exits(code);
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains(part), "{part}\n{ran}");
}

pub(crate) fn pack(sandbox: &Sandbox, name: &str, options: &str) -> PathBuf {
    let words = format!("pack ../trace.jsonl -o {name}{options}");
    agentbox(sandbox, &words).exits(0);
    sandbox.path(name)
}

/// Another home, where nothing is known of the trace, and nothing beside it.
pub(crate) fn elsewhere(sandbox: &Sandbox) {
    fs::rename(sandbox.beside("state"), sandbox.beside("former state")).expect("renamed");
    fs::remove_file(sandbox.trace()).expect("removed");
    fs::remove_dir_all(sandbox.beside("trace.jsonl.blobs")).expect("removed");
}

/// The members of a container: name, place of the header, size.
fn members(packed: &[u8]) -> Vec<(String, usize, usize)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while packed[at] != 0 {
        let text = |from: usize, to: usize| {
            let field = packed[at + from..at + to].split(|&byte| byte == 0).next().expect("a field");
            String::from_utf8(field.to_vec()).expect("text")
        };
        let size = usize::from_str_radix(&text(124, 136), 8).expect("a size");
        found.push((text(0, 100), at, size));
        at += BLOCK + size.next_multiple_of(BLOCK);
    }
    found
}

/// A header as any tar would write it.
fn header(name: &str, size: &str, kind: u8, target: &str) -> Vec<u8> {
    let mut header = vec![0; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000600\x000000000\x000000000\x00");
    put(124, size.as_bytes());
    put(136, b"00000000000\x00        ");
    put(156, &[kind]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    put(329, b"0000000\x000000000\x00");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[test]
fn a_packed_trace_is_a_trace_wherever_it_lies() {
    everyone(|sandbox| {
        record(sandbox);
        let packed = pack(sandbox, "../run.pack", "");
        let again = pack(sandbox, "../again.pack", "");
        assert_eq!(fs::read(&packed).expect("reads"), fs::read(again).expect("reads"));
        agentbox(sandbox, "pack ../trace.jsonl -o ../run.pack").exits(2).complains("is there already");
        agentbox(sandbox, "replay -t ../run.pack").exits(0).complains("replay ok");
        agentbox(sandbox, "diff ../trace.jsonl ../run.pack").exits(0);
        elsewhere(sandbox);
        says(&agentbox(sandbox, "verify ../run.pack"), 0, "trace ok");
        says(&agentbox(sandbox, "show ../run.pack --op fs.open_read"), 0, "in");
        agentbox(sandbox, "replay -t ../run.pack")
            .exits(2)
            .complains("run.pack: this trace was not made here");
        let replayed = agentbox(sandbox, "replay -t ../run.pack -p ../agentbox.policy");
        replayed.exits(0).prints("input\nold\n");
        assert_eq!(fs::read_to_string(sandbox.path("old")).expect("reads"), "new\n");
        let replays = fs::read_dir(sandbox.beside("state/agentbox/replays")).expect("a directory");
        assert_eq!(replays.count(), 0, "nothing stays unpacked");
    });
}

#[test]
fn what_is_unpacked_is_what_was_packed() {
    everyone(|sandbox| {
        record(sandbox);
        let trace = fs::read(sandbox.trace()).expect("reads");
        pack(sandbox, "../run.pack", "");
        agentbox(sandbox, "unpack ../run.pack -o new/place").exits(0);
        assert_eq!(fs::read(sandbox.path("new/place/trace.jsonl")).expect("reads"), trace);
        let policy = fs::read_to_string(sandbox.path("new/place/trace.jsonl.policy")).expect("reads");
        assert_eq!(policy, "write: .\nexec: sh\nexec: cat\n");
        agentbox(sandbox, "verify new/place/trace.jsonl").exits(0);
        agentbox(sandbox, "unpack ../run.pack -o new/place").exits(2).complains("there already");
        agentbox(sandbox, "unpack ../trace.jsonl")
            .exits(2)
            .complains("no packed trace: it can be used as it is");
        sandbox.file("other", "other");
        let ran = agentbox(sandbox, "unpack other");
        ran.exits(2).complains("no packed trace");
        assert!(!ran.stderr.contains("can be used"), "{ran}");
        agentbox(sandbox, "pack new/place/trace.jsonl -o second.pack").exits(0);
        assert_eq!(
            fs::read(sandbox.path("second.pack")).expect("reads"),
            fs::read(sandbox.beside("run.pack")).expect("reads")
        );
    });
}

#[test]
fn private_bodies_can_be_left_out() {
    everyone(|sandbox| {
        record(sandbox);
        pack(sandbox, "../whole.pack", "");
        let packed = fs::read(pack(sandbox, "../part.pack", " --redacted")).expect("reads");
        let names: Vec<_> = members(&packed).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["trace.jsonl", "policy", "blobs/redacted"]);
        says(&agentbox(sandbox, "verify ../part.pack"), 0, "4 private bodies were left out");
        agentbox(sandbox, "diff ../part.pack ../whole.pack").exits(0);
        agentbox(sandbox, "replay -t ../part.pack").exits(2).complains("packed with --redacted");
        agentbox(sandbox, "unpack ../part.pack").exits(0);
        says(&agentbox(sandbox, "verify"), 0, "4 private bodies were left out");
        agentbox(sandbox, "pack -o ../second.pack").exits(0);
        assert_eq!(fs::read(sandbox.beside("second.pack")).expect("reads"), packed);
        // Without the mark it is missing.
        fs::remove_file(sandbox.path("trace.jsonl.blobs/redacted")).expect("removed");
        says(&agentbox(sandbox, "verify"), 1, "is missing");
    });
}

/// What every command says of a container that was altered.
fn refused(sandbox: &Sandbox, packed: &[u8], code: i32, reason: &str) {
    let path = sandbox.beside("bad.pack");
    fs::write(&path, packed).expect("written");
    for words in [
        "verify ../bad.pack",
        "unpack ../bad.pack -o out",
        "replay -t ../bad.pack",
        "diff ../bad.pack ../run.pack",
    ] {
        says(&agentbox(sandbox, words), code, reason);
    }
    assert!(!sandbox.path("out").exists() && !sandbox.beside("x").exists());
}

#[test]
fn what_was_altered_is_refused() {
    everyone(|sandbox| {
        record(sandbox);
        let whole = fs::read(pack(sandbox, "../run.pack", "")).expect("reads");
        let found = members(&whole);
        let (_, first_blob, size) =
            found.iter().find(|(name, ..)| name.starts_with("blobs/")).expect("a blob");
        let changed = |at: usize| {
            let mut packed = whole.clone();
            packed[at] ^= 1;
            packed
        };
        let without = |from: usize, length: usize| [&whole[..from], &whole[from + length..]].concat();
        let end = whole.len() - 2 * BLOCK;
        let with = |member: &[u8]| [&whole[..end], member, &whole[end..]].concat();
        let length = BLOCK + size.next_multiple_of(BLOCK);
        refused(sandbox, &changed(BLOCK + 300), 1, "TAMPERED");
        refused(sandbox, &changed(BLOCK + found[0].2 - 100), 1, "TAMPERED");
        refused(sandbox, &changed(first_blob + BLOCK + size - 1), 1, "was altered");
        refused(sandbox, &without(*first_blob, length), 1, "is missing");
        refused(
            sandbox,
            &with(&header("extra", "00000000000\0", b'0', "")),
            2,
            "member extra does not belong",
        );
        let unknown = format!("blobs/{}.zst", "a".repeat(64));
        refused(sandbox, &with(&header(&unknown, "00000000000\0", b'0', "")), 2, "does not belong");
        refused(sandbox, &with(&header("../x", "00000000000\0", b'0', "")), 2, "member ../x does not belong");
        refused(sandbox, &with(&header("blobs/../../x", "00000000000\0", b'0', "")), 2, "does not belong");
        refused(
            sandbox,
            &with(&header("blobs/redacted", "00000000000\0", b'2', "/etc/passwd")),
            2,
            "is no file",
        );
        refused(sandbox, &with(&header("trace.jsonl", "00000000000\0", b'0', "")), 2, "does not belong");
        let huge = with(&header("blobs/redacted", "77777777777\0", b'0', ""));
        refused(sandbox, &huge, 2, "is said to have 8589934591 bytes");
        refused(sandbox, &whole[..end], 2, "cut off");
        refused(sandbox, &[&whole[..], b"more"].concat(), 2, "follows its end");
        let policy = found.iter().find(|(name, ..)| name == "policy").expect("a policy").1;
        refused(sandbox, &changed(policy + BLOCK), 2, "its policy is not the one");
        // In a header: a mode, another owner.
        refused(sandbox, &changed(policy + 105), 2, "header of its member policy");
    });
}

#[test]
fn nothing_is_written_through_a_link() {
    everyone(|sandbox| {
        record(sandbox);
        pack(sandbox, "../run.pack", "");
        sandbox.link("../elsewhere", "trace.jsonl");
        agentbox(sandbox, "unpack ../run.pack").exits(2).complains("there already");
        sandbox.link("../elsewhere", "out.pack");
        agentbox(sandbox, "pack ../trace.jsonl -o out.pack").exits(2).complains("is there already");
        assert!(!Path::new(&sandbox.beside("elsewhere")).exists());
    });
}

/// Reads in a place that it may read, in one that it may write, and a file that a rule names.
const READER: &str = "cat in data/a data/deep/b out/old; ls data; echo new > out/new; cat out/new";

fn record_reader(sandbox: &Sandbox, options: &[&str]) -> Ran {
    sandbox.policy("read: in\nread: data\nwrite: out\nexec: sh\nexec: cat\nexec: ls\n");
    for (name, content) in [("in", "in\n"), ("data/a", "a\n"), ("data/deep/b", "b\n"), ("out/old", "old\n")] {
        sandbox.file(name, content);
    }
    sandbox.give("out");
    let ran = sandbox.run_with(options, &["sh", "-c", READER]);
    ran.exits(0).prints("in\na\nb\nold\na\ndeep\nnew\n").denied_nothing();
    fs::remove_file(sandbox.path("out/new")).expect("removed");
    ran
}

#[test]
fn what_is_read_can_be_kept() {
    everyone(|sandbox| {
        let ran = record_reader(sandbox, &["--capture"]);
        for (name, content) in [("in", "in\n"), ("data/deep/b", "b\n"), ("out/old", "old\n")] {
            let captured = &ran.recorded("fs.open_read", "path", name)["args"]["captured"];
            assert!(captured["content"]["private"] == true && captured["mode"] == 0o644, "{captured}");
            let blob = captured["content"]["blob"].as_str().expect("a blob");
            let file =
                fs::File::open(sandbox.beside(format!("trace.jsonl.blobs/{blob}.zst"))).expect("is there");
            assert_eq!(zstd::decode_all(file).expect("zstd"), content.as_bytes());
        }
        let ran = record_reader(sandbox, &[]);
        assert!(ran.recorded("fs.open_read", "path", "in")["args"].get("captured").is_none());
    });
}

#[test]
fn what_was_captured_need_not_be_there() {
    everyone(|sandbox| {
        record_reader(sandbox, &["--capture"]);
        pack(sandbox, "../run.pack", "");
        agentbox(sandbox, "pack ../trace.jsonl -o ../part.pack --redacted").exits(0);
        elsewhere(sandbox);
        sandbox.file("in", "another\n");
        sandbox.file("data/a", "another one\n");
        fs::remove_dir_all(sandbox.path("data/deep")).expect("removed");
        fs::remove_file(sandbox.path("out/old")).expect("removed");
        let replayed = agentbox(sandbox, "replay -t ../run.pack -p ../agentbox.policy --keep kept");
        replayed.exits(0).prints("in\na\nb\nold\na\ndeep\nnew\n").complains("replay ok");
        replayed.complains("taken from the trace").complains("and 3 more");
        assert_eq!(fs::read_to_string(sandbox.path("data/a")).expect("reads"), "another one\n");
        assert!(!sandbox.path("data/deep").exists() && !sandbox.path("out/old").exists());
        let kept = sandbox.path("kept").join(sandbox.path("out/new").strip_prefix("/").expect("absolute"));
        assert_eq!(fs::read_to_string(kept).expect("reads"), "new\n");
    });
}

#[test]
fn what_the_policy_does_not_grant_is_not_served() {
    everyone(|sandbox| {
        record_reader(sandbox, &["--capture"]);
        pack(sandbox, "../run.pack", "");
        elsewhere(sandbox);
        fs::remove_dir_all(sandbox.path("data/deep")).expect("removed");
        sandbox.policy("read: in\nread: data/a\nwrite: out\nexec: sh\nexec: cat\nexec: ls\n");
        let replayed = agentbox(sandbox, "replay -t ../run.pack -p ../agentbox.policy");
        replayed.exits(1).complains("data/deep/b: No such file").complains("replay diverged");
        assert!(!replayed.stderr.contains("taken from the trace"), "{replayed}");
    });
}

#[test]
fn what_was_not_captured_is_listed() {
    everyone(|sandbox| {
        record_reader(sandbox, &[]);
        pack(sandbox, "../run.pack", "");
        elsewhere(sandbox);
        sandbox.file("in", "another\n");
        fs::remove_dir_all(sandbox.path("data/deep")).expect("removed");
        let replayed = agentbox(sandbox, "replay -t ../run.pack -p ../agentbox.policy");
        replayed.exits(1).prints("").complains("nothing was run");
        replayed.complains("work/in has changed").complains("data/deep/b has changed");
    });
}

#[test]
fn not_even_its_directory_need_be_there() {
    everyone(|sandbox| {
        sandbox.file("../apart/deep/c", "c\n");
        sandbox.policy(
            "read: in\nread: data\nread: ../apart\nread: *.txt\nread: script\nwrite: out\nwrite: log\n\
             exec: sh\nexec: cat\nexec: ls\n",
        );
        for name in ["in", "data/a", "data/deep/b", "x.txt", "out/old", "log"] {
            sandbox.file(name, format!("{name}\n"));
        }
        sandbox.give("out");
        let script = "pwd; cat in data/a data/deep/b ../apart/deep/c x.txt; ls data; echo new > out/new; \
            echo more >> log; cat out/new out/old log; echo x > in || ls ../apart";
        sandbox.file("script", script);
        let ran = sandbox.run_with(&["--capture"], &["sh", "script"]);
        ran.exits(0);
        pack(sandbox, "../run.pack", "");
        elsewhere(sandbox);
        fs::remove_dir_all(sandbox.path("")).expect("removed");
        fs::remove_dir_all(sandbox.beside("apart")).expect("removed");
        let words = ["replay", "-t", "run.pack", "-p", "agentbox.policy"];
        let mut command = sandbox.command(&words);
        command.current_dir(sandbox.beside(""));
        let replayed = Running::start(command).finish();
        replayed.exits(0).prints(&ran.stdout).complains("replay ok");
        assert!(!sandbox.path("").exists() && !sandbox.beside("apart").exists());
    });
}

#[test]
fn places_that_are_missing_in_others_are_made() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nwrite: out\nwrite: state/log\nexec: sh\nexec: cat\nexec: ls\n");
        for name in ["data/a", "out/old", "state/log"] {
            sandbox.file(name, format!("{name}\n"));
        }
        sandbox.give("");
        let script = "cat data/a out/old state/log; echo new > out/new; echo more >> state/log; cat state/log; \
            ls out; echo x > data/a || ls data";
        let ran = sandbox.run_with(&["--capture"], &["sh", "-c", script]);
        ran.exits(0);
        pack(sandbox, "../run.pack", "");
        elsewhere(sandbox);
        for name in ["data", "out", "state"] {
            fs::remove_dir_all(sandbox.path(name)).expect("removed");
        }
        let replayed = agentbox(sandbox, "replay -t ../run.pack -p ../agentbox.policy");
        replayed.exits(0).prints(&ran.stdout).complains("replay ok");
        assert_eq!(fs::read_dir(sandbox.path("")).expect("a directory").count(), 0);
    });
}
