//! Traces to try things on.

use std::path::Path;
use std::process::{Command, Output};

use agentbox::trace::{Event, Kind, Placement, Reach, Recorder, WriterHandle, create};
use serde_json::json;

/// Ten entries of every sort.
pub(crate) fn write_sample(path: &Path) {
    use std::os::unix::ffi::OsStrExt as _;
    let (recorder, writer) = start(path);
    let start =
        Event::new(Kind::Meta, "run.start").words("argv", ["python3", "agent.py"]).arg("policy_sha256", "ab");
    recorder.record(start).expect("recorded");
    for event in [
        Event::new(Kind::Observe, "fs.open_read")
            .path("path", "data/in.txt")
            .proc("0")
            .rule("agent.policy:1"),
        Event::new(Kind::Effect, "rand.random").result(0.000_012_345).proc("0"),
        Event::new(Kind::Effect, "net.get")
            .arg("url", "http://h/é")
            .result(json!({"n": [1e22, -0.0, 3], "z": null})),
        Event::new(Kind::Observe, "proc.spawn")
            .words("argv", [std::ffi::OsStr::from_bytes(b"a\xff b")])
            .proc("0.1"),
        Event::new(Kind::Deny, "read")
            .arg("target", "secret.txt")
            .arg("enforced", true)
            .proc("0.2")
            .rule("no rule"),
        Event::new(Kind::Deny, "read").arg("target", "a\nb\u{1b}[2J\u{202e}\u{7f}").arg("enforced", true),
        Event::new(Kind::Observe, "fs.open_write").path("path", "out/\u{1f600}\u{2028}\u{fffd}"),
    ] {
        recorder.record(event).expect("recorded");
    }
    writer.seal(Event::new(Kind::Meta, "run.end").arg("returncode", 0)).expect("sealed");
}

pub(crate) fn start(path: &Path) -> (Recorder, WriterHandle) {
    create(Placement::plan(path, &Reach::default(), false).expect("a placement")).expect("a writer")
}

pub(crate) fn event(number: u64) -> Event {
    let path = format!("data/{number}/with/a/path/that/is/long/enough/to/fill/a/disk/soon");
    Event::new(Kind::Observe, "fs.open_read").arg("path", path).arg("sha256", "0".repeat(64))
}

/// Runs the product on a trace.
pub(crate) fn agentbox(arguments: &[&str], path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_agentbox")).args(arguments).arg(path).output().expect("it runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
