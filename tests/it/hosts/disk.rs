//! A full disk: a small file system, mounted in a namespace of the test's own, where the trace, the
//! state directory or the agent's own files are.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::{MARK, behind, no_rest, prepare, ran_nothing, wrapped};
use agentbox::trace::{Expectation, Outcome, verify};

use crate::support::{Running, Sandbox, everyone};

/// Every file in `directory` has an entry in the trace.
#[track_caller]
pub(super) fn nothing_unrecorded(trace: &str, directory: &Path) {
    // The last line may be torn; what it would have said has not happened.
    let entries = trace.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let opened: HashSet<String> = entries
        .filter(|entry| entry["op"] == "fs.open_write")
        .filter_map(|entry| {
            let resolved = entry["args"]["resolved"].as_str();
            resolved.or_else(|| entry["args"]["path"].as_str()).map(str::to_owned)
        })
        .collect();
    assert!(!opened.is_empty(), "nothing was recorded");
    for file in fs::read_dir(directory).expect("a directory").filter_map(Result::ok) {
        let path = file.path().to_string_lossy().into_owned();
        assert!(opened.contains(&path), "{path} is not in the trace");
    }
}

/// The words that mount a file system of `size` at `place`, in namespaces of their own, and leave a
/// copy of the trace in there at `copy`.
fn small(size: &str, fill: &str, place: &Path, copy: &Path) -> Vec<String> {
    let (place, copy) = (place.display(), copy.display());
    let script = format!(
        "mount -t tmpfs -o mode=777,size={size} none {place} || exit 99
head -c {fill} /dev/zero >{place}/filler 2>/dev/null
\"$@\"
code=$?
cat {place}/*.jsonl >{copy} 2>/dev/null
rm -rf {copy}.blobs; cp -r {place}/trace.jsonl.blobs {copy}.blobs 2>/dev/null
ls -A {place} >{copy}.list
exit $code"
    );
    ["unshare", "-U", "-r", "-m", "sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
}

fn traced_in(sandbox: &Sandbox, place: &Path, words: &[&str]) -> std::process::Command {
    let trace = place.join("trace.jsonl");
    let policy = sandbox.beside("agentbox.policy");
    let mut all =
        vec!["run".into(), "-p".into(), policy.into_os_string(), "-t".into(), trace.into(), "--".into()];
    all.extend(words.iter().map(std::ffi::OsString::from));
    sandbox.command(&all)
}

fn list(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.beside("work/copy.list")).expect("a list")
}

#[test]
fn no_room_for_a_trace_stops_the_launch() {
    everyone(|sandbox| {
        let place = sandbox.directory("../small");
        let copy = sandbox.path("copy");
        for (size, fill) in [("1m", "2m"), ("1m", "1"), ("3m", "1")] {
            prepare(sandbox);
            let prefix = small(size, fill, &place, &copy);
            let command = traced_in(sandbox, &place, &MARK);
            let ran = Running::start(wrapped(sandbox, &prefix, &command)).finish();
            ran_nothing(sandbox, &ran, &["ENOSPC", "space", "-t"]);
            assert_eq!(list(sandbox), "filler\n", "{ran}");
        }
    });
}

#[test]
fn a_trace_whose_disk_fills_up_stops_the_run_and_nothing_is_unrecorded() {
    everyone(|sandbox| {
        prepare(sandbox);
        let place = sandbox.directory("../small");
        let copy = sandbox.path("copy");
        // Each start is an entry with all of its words: the disk is full after a few dozen.
        sandbox.policy("write: ./out\nexec: true");
        let program = "import subprocess
for number in range(200):
    open('out/%d' % number, 'w').write('x')
    subprocess.run(['true', 'x' * 100000])
print('END')";
        let prefix = small("7m", "1", &place, &copy);
        let command = traced_in(sandbox, &place, &["python3", "-c", program]);
        let ran = Running::start(wrapped(sandbox, &prefix, &command)).finish();
        ran.exits(125).prints("").complains("ENOSPC").complains("the run was stopped");
        nothing_unrecorded(&fs::read_to_string(&copy).expect("a trace"), &sandbox.path("out"));
        let made = fs::read_dir(sandbox.path("out")).expect("out").count();
        assert!((2..200).contains(&made), "{made} files\n{ran}");
        no_rest(sandbox);
    });
}

#[test]
fn a_transfer_that_cannot_be_kept_is_ended_and_all_of_it_that_passed_is_kept() {
    everyone(|sandbox| {
        prepare(sandbox);
        let place = sandbox.directory("../small");
        let sink = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = sink.local_addr().expect("bound").port();
        let (report, received) = mpsc::channel();
        std::thread::spawn(move || {
            for mut client in sink.incoming().flatten() {
                let report = report.clone();
                std::thread::spawn(move || {
                    // The sender breaks off.
                    let mut count = Count(0);
                    let _ = io::copy(&mut client, &mut count);
                    let _ = report.send(count.0);
                });
            }
        });
        sandbox.policy(&format!("write: ./out\nnet: 127.0.0.1:{port}"));
        for first in
            ["b'\\x01'", "b'POST / HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Length: 99999999\\r\\n\\r\\n'"]
        {
            let program = format!(
                "import os, socket
s = socket.create_connection(('127.0.0.1', {port}))
s.sendall({first})
while True: s.sendall(os.urandom(1 << 16))"
            );
            let prefix = small("9m", "1", &place, &sandbox.path("copy"));
            let command = traced_in(sandbox, &place, &["python3", "-c", &program]);
            let ran = Running::start(wrapped(sandbox, &prefix, &command)).finish();
            ran.exits(125).prints("").complains("ENOSPC").complains("the run was stopped");
            let passed: usize = received.recv_timeout(Duration::from_secs(20)).expect("a connection");
            assert!((1 << 20..9 << 20).contains(&passed), "{passed} bytes passed\n{ran}");
            let head = if first.contains("POST") { MOST_OF_A_HEAD } else { 0 };
            let kept = kept_of_the_way_up(&sandbox.path("copy"));
            assert!(kept >= passed - head, "{kept} bytes kept of {passed}\n{ran}");
            no_rest(sandbox);
        }
    });
}

/// What the proxy may send before a body.
const MOST_OF_A_HEAD: usize = 500;

/// The bytes of the one exchange or stream that the trace holds, which verifies with its blobs.
#[track_caller]
fn kept_of_the_way_up(trace: &Path) -> usize {
    let found = verify(trace, &Expectation::default()).expect("a trace");
    assert_eq!(found.outcome, Outcome::Sealed, "{found:?}");
    let text = fs::read_to_string(trace).expect("a trace");
    let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let entry = |op: &str| entries.iter().find(|entry| entry["op"] == op);
    let stream = entry("net.stream").unwrap_or_else(|| panic!("the stream's end is not there: {text}"));
    let size = match entry("http.exchange") {
        Some(exchange) => exchange["args"]["body"]["size"].as_u64(),
        None => stream["result"]["transcript"]["size"].as_u64(),
    };
    usize::try_from(size.unwrap_or_else(|| panic!("no body: {text}"))).expect("it fits")
}

/// Takes bytes and keeps their number.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_state_directory_stops_the_launch() {
    everyone(|sandbox| {
        prepare(sandbox);
        // The agent may read where the trace goes: it is written in the state directory.
        sandbox.policy("read: ..\nwrite: ./out");
        let prefix = small("64k", "1m", &sandbox.beside("state"), &sandbox.path("copy"));
        let ran = Running::start(behind(sandbox, &prefix)).finish();
        ran.exits(125).prints("").complains("ENOSPC");
        assert!(!sandbox.path("out/ran").exists(), "it ran\n{ran}");
        super::nothing_left(sandbox);
    });
}

#[test]
fn the_agent_meets_a_full_disk_as_anyone_does() {
    everyone(|sandbox| {
        prepare(sandbox);
        let program = "
try:
    with open('out/big', 'wb') as file: file.write(b'x' * 1000000)
except OSError as error: print(error.errno)
try:
    with open('out/new', 'wb') as file: file.write(b'x' * 10000)
except OSError as error: print(error.errno)";
        let prefix = small("100k", "1", &sandbox.path("out"), &sandbox.path("copy"));
        let command = sandbox.run_command(&[], &["python3", "-c", program]);
        let ran = super::finish(sandbox, wrapped(sandbox, &prefix, &command));
        ran.exits(0).prints("28\n28\n");
        ran.recorded("fs.write", "path", "out/big");
        super::nothing_left(sandbox);
    });
}
