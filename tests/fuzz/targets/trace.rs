//! Traces of strangers: lines, entries, and the verification of whole files.
#![no_main]

use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::AsRawFd as _;

use agentbox::trace::canonical;
use agentbox::trace::{Expectation, Line, Outcome, Reader, Scanner, Tamper, hex, verify};
use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

fuzz_target!(|bytes: &[u8]| {
    let lines = split(bytes);
    let mut scanner = Scanner::default();
    let mut entries = Vec::new();
    for line in &lines {
        entries.extend(scan(&mut scanner, line));
    }
    // Threads cost more than the parsing: whole files are verified where there is something to see.
    if bytes.starts_with(b"{\"args\":") {
        check_file(bytes);
    }
    if !entries.is_empty() {
        check_chain(entries);
    }
});

/// Gives a few bytes at a time.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.len().min(7).min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(Trickle(bytes));
    let mut lines = Vec::new();
    let mut joined = Vec::new();
    while let Some(line) = reader.next_line().expect("memory can be read") {
        let (line, end) = match line {
            Line::Whole(line) => (line, &b"\n"[..]),
            Line::Torn(line) => (line, &b""[..]),
            Line::TooLong => panic!("the input is shorter than any limit"),
        };
        joined.extend_from_slice(line);
        joined.extend_from_slice(end);
        lines.push(line.to_vec());
    }
    assert_eq!(joined, bytes);
    lines
}

/// What another reader of JSON makes of a line must be the same.
fn scan(scanner: &mut Scanner, line: &[u8]) -> Option<Map<String, Value>> {
    let fields = scanner.scan(line).ok()?;
    assert!(line.len() <= 20 || scanner.blobs().len() < line.len() / 20);
    let entry: Map<String, Value> = serde_json::from_slice(line).expect("what is taken is JSON");
    assert_eq!(entry.get("i").and_then(Value::as_u64), Some(fields.index));
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let read = |raw: &str| serde_json::from_str::<String>(&format!("\"{raw}\"")).expect("a string");
    assert_eq!(text("kind"), read(fields.kind));
    assert_eq!(text("op"), read(fields.op));
    assert_eq!(text("prev"), read(fields.prev));
    assert_eq!(text("sha"), read(fields.sha));
    assert_eq!(entry.get("args"), serde_json::from_str(fields.args).ok().as_ref());
    let member = format!("\"sha\":\"{}\"", fields.sha);
    let whole = [fields.before_sha, &member, fields.after_sha].concat();
    assert!(
        whole.as_bytes() == line || whole.len() + 1 == line.len(),
        "the hashed text and the hash are the whole line"
    );
    Some(entry)
}

fn in_memory(bytes: &[u8]) -> File {
    let file: File = memfd_create("trace", MFdFlags::MFD_CLOEXEC).expect("a file in memory").into();
    (&file).write_all(bytes).expect("room");
    file
}

fn check_file(bytes: &[u8]) {
    let file = in_memory(bytes);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let found = verify(path.as_ref(), &Expectation::default()).expect("it begins as a trace");
    if let Outcome::Torn { bytes: torn } = found.outcome {
        assert!(torn <= bytes.len());
    }
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(found.entries <= lines as u64 && found.head.len() == 64);
    let other = Expectation { head: Some("f".repeat(64)) };
    let found = verify(path.as_ref(), &other).expect("it begins as a trace");
    assert!(matches!(found.outcome, Outcome::Tampered { .. }));
}

/// The same entries in an honest chain: only what they say of others can be wrong.
fn check_chain(entries: Vec<Map<String, Value>>) {
    let count = entries.len() as u64;
    let mut head = "0".repeat(64);
    let mut text = String::new();
    for (index, mut entry) in entries.into_iter().enumerate() {
        entry.remove("sha");
        entry.insert("i".to_owned(), index.into());
        entry.insert("prev".to_owned(), head.clone().into());
        let hashed = canonical::to_string(&Value::Object(entry.clone()));
        head = hex(&Sha256::digest([head.as_bytes(), hashed.as_bytes()].concat()));
        entry.insert("sha".to_owned(), head.clone().into());
        canonical::write_object(&mut text, &entry);
        text.push('\n');
    }
    if !text.starts_with("{\"args\":") {
        return;
    }
    let file = in_memory(text.as_bytes());
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let found = verify(path.as_ref(), &Expectation::default()).expect("it begins as a trace");
    match found.outcome {
        Outcome::Sealed | Outcome::Unsealed => {
            assert_eq!((found.entries, found.head), (count, head));
        }
        Outcome::Torn { .. } => panic!("every line is whole"),
        Outcome::Tampered { reason, .. } => assert!(
            matches!(
                reason,
                Tamper::WrongCheckpoint { .. }
                    | Tamper::AfterSeal
                    | Tamper::BlobMissing { .. }
                    | Tamper::BlobsMissing { .. }
            ),
            "{reason:?} in {text}"
        ),
    }
}
