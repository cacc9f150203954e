//! Replays of traces from elsewhere under another policy than theirs: what either denies is denied, and what is
//! seen is what both show.

use std::fs;

use crate::support::{Ran, Sandbox, User};

const AGENT: &str = r#"
import os, socket, subprocess
def look(name):
    try: print(name, open(name).read())
    except OSError as error: print(name, type(error).__name__)
def call(port):
    try: socket.create_connection(("127.0.0.1", port), 2); print("connected")
    except OSError as error: print(type(error).__name__)
for name in ("a/1", "a/2", "b/1", "c/1", "d/x.txt", "d/x.key"): look(name)
print(sorted(name for name in os.listdir(".") if len(name) == 1))
for name in ("out/x", "a/new"):
    try: open(name, "w").write("x"); print("wrote", name)
    except OSError as error: print(name, type(error).__name__)
print(os.environ.get("ONE"), os.environ.get("TWO"))
try: print(subprocess.run(["cat", "a/1"], capture_output=True).returncode)
except OSError as error: print(type(error).__name__)
"#;

const ITS: &str = "read: ./agent.py\nread: ./a\nread: ./b\nread: ./d/*.txt\nwrite: ./out\ndeny: read ./a/2\nexec: python3\nexec: cat\nenv: ONE\nenv: TWO\n";

/// Records under the one policy, and replays elsewhere under the other.
fn replayed(other: &str, options: &[&str]) -> (Ran, Ran) {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(ITS);
    for name in ["a/1", "a/2", "b/1", "c/1", "d/x.txt", "d/x.key"] {
        sandbox.file(name, "text");
    }
    sandbox.directory("out");
    sandbox.file("agent.py", AGENT);
    sandbox.environment("ONE", "1").environment("TWO", "2");
    let ran = sandbox.run(&["python3", "agent.py"]);
    ran.exits(0);
    let policy = sandbox.beside("other.policy");
    fs::write(&policy, other).expect("written");
    // Another machine has seen no such head.
    sandbox.environment("XDG_STATE_HOME", sandbox.beside("elsewhere"));
    let (trace, policy) = (sandbox.trace(), policy.to_str().expect("text").to_owned());
    let words = [&["replay", "-t", trace.to_str().expect("text"), "-p", &policy], options].concat();
    (ran, sandbox.agentbox(&words))
}

#[test]
fn a_wider_policy_allows_no_more() {
    let wide = "read: .\nwrite: .\nexec: python3\nexec: cat\nexec: ls\nenv: *\n";
    let (ran, again) = replayed(wide, &[]);
    again.exits(0).prints(&ran.stdout).complains("what either of the two denies is denied");
    assert!(ran.stdout.contains("a/2 PermissionError") && ran.stdout.contains("['a', 'b', 'd']"), "{ran}");
}

#[test]
fn a_narrower_policy_denies_more() {
    let narrow =
        "read: ./agent.py\nread: ./a\nread: ./d\nwrite: ./a\nexec: python3\nenv: ONE\ndeny: read **/x.txt\n";
    let (_, again) = replayed(narrow, &["--force"]);
    again.exits(1).complains("denial-changed");
    for line in [
        "a/1 text",
        "a/2 PermissionError",
        "b/1 PermissionError",
        "c/1 PermissionError",
        "d/x.txt PermissionError",
        "d/x.key PermissionError",
        "['a', 'd']",
        "out/x PermissionError",
        "a/new PermissionError",
        "1 None",
    ] {
        assert!(again.stdout.lines().any(|found| found == line), "{line}\n{again}");
    }
}
