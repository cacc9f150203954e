//! Changes to a sealed trace: none may pass.
#![no_main]

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::LazyLock;

use agentbox::trace::canonical;
use agentbox::trace::{Expectation, Outcome, hex, verify};
use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

struct Sealed {
    lines: Vec<Vec<u8>>,
    head: String,
}

static SEALED: LazyLock<Sealed> = LazyLock::new(|| {
    let mut entries = vec![json!({"args": {"argv": ["a"], "n": 1.5}, "kind": "meta", "op": "run.start"})];
    let path = |path: &str| json!({"args": {"path": path}, "kind": "observe", "op": "fs.open_read"});
    entries.extend(["a", "b", "é\u{1}\"", "a"].map(path));
    entries.push(json!({"args": {}, "kind": "deny", "op": "net", "proc": "0.1", "rule": "p:1"}));
    entries.push(json!({"args": {"returncode": 0}, "kind": "meta", "op": "run.end"}));
    entries.push(json!({"args": {}, "kind": "meta", "op": "run.seal"}));
    let lines = entries.into_iter().map(|entry| canonical::to_string(&entry).into_bytes()).collect();
    let mut sealed = Sealed { lines, head: String::new() };
    chain(&mut sealed.lines, 0);
    sealed.head = sha_of(sealed.lines.last().expect("a seal")).expect("an entry");
    let honest = found(&joined(&sealed.lines), None);
    assert_eq!(honest, Some(Outcome::Sealed));
    sealed
});

fuzz_target!(|edits: &[u8]| {
    let mut lines = SEALED.lines.clone();
    let mut is_rehashed = false;
    let mut at_end = Vec::new();
    for edit in edits.chunks(4).take(32) {
        let [op, line, place, byte] = *edit else { break };
        let count = lines.len();
        if count == 0 {
            break;
        }
        let line = usize::from(line) % count;
        let length = lines[line].len().max(1);
        // Lines are longer than 256 bytes: both halves of the number count.
        let place = (usize::from(place) * 2 + usize::from(op >> 7)) % length;
        match op & 0x7f {
            0..32 => lines[line].splice(place..place, [byte]).for_each(drop),
            32..64 if place < lines[line].len() => lines[line][place] = byte,
            64..80 if place < lines[line].len() => drop(lines[line].remove(place)),
            80..88 => drop(lines.remove(line)),
            88..96 => lines.insert(usize::from(byte) % count, lines[line].clone()),
            96..104 => lines.swap(line, usize::from(byte) % count),
            104..108 => lines.truncate(line),
            108..112 => at_end.push(byte),
            112..120 => {
                chain(&mut lines, line);
                is_rehashed = true;
            }
            _ => {
                let from = lines[usize::from(byte) % count].clone();
                let end = place.min(from.len());
                lines[line].splice(..end.min(length.min(from.len())).min(place), from[..end].to_vec());
            }
        }
    }
    let mut text = joined(&lines);
    text.extend(at_end);
    if text == joined(&SEALED.lines) {
        return;
    }
    if let Some(outcome) = found(&text, Some(SEALED.head.clone())) {
        assert!(matches!(outcome, Outcome::Tampered { .. }), "{outcome:?}: {}", text.escape_ascii());
    }
    if !is_rehashed && let Some(outcome) = found(&text, None) {
        assert_ne!(outcome, Outcome::Sealed, "{}", text.escape_ascii());
    }
});

fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect()
}

fn sha_of(line: &[u8]) -> Option<String> {
    let entry: Value = serde_json::from_slice(line).ok()?;
    entry.get("sha").and_then(Value::as_str).map(str::to_owned)
}

/// What an attacker without the head can do: numbers and hashes made right from a line on.
fn chain(lines: &mut [Vec<u8>], from: usize) {
    let zeros = || "0".repeat(64);
    let mut head = from.checked_sub(1).and_then(|before| sha_of(&lines[before])).unwrap_or_else(zeros);
    for (index, line) in lines.iter_mut().enumerate().skip(from) {
        let Ok(Value::Object(mut entry)) = serde_json::from_slice(line) else { return };
        entry.remove("sha");
        entry.insert("i".to_owned(), index.into());
        entry.insert("prev".to_owned(), head.clone().into());
        entry.entry("ts").or_insert_with(|| 1.5.into());
        if entry.get("op").is_some_and(|op| op == "run.seal") {
            let args = json!({"blobs": zeros(), "entries": index, "head": head});
            entry.insert("args".to_owned(), args);
        }
        let hashed = canonical::to_string(&Value::Object(entry.clone()));
        head = hex(&Sha256::digest([head.as_bytes(), hashed.as_bytes()].concat()));
        entry.insert("sha".to_owned(), head.clone().into());
        *line = canonical::to_string(&Value::Object(entry)).into_bytes();
    }
}

/// None for what is no trace at all.
fn found(bytes: &[u8], head: Option<String>) -> Option<Outcome> {
    let file: File = memfd_create("trace", MFdFlags::MFD_CLOEXEC).expect("a file in memory").into();
    (&file).write_all(bytes).expect("room");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    verify(path.as_ref(), &Expectation { head }).ok().map(|verified| verified.outcome)
}
