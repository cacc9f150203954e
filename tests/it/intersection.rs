//! Replays of traces from elsewhere under another policy than theirs: what either denies is denied, and what is
//! seen is what both show.

use std::fs;

use crate::support::{Ran, Running, Sandbox, User};

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

const CURIOUS: &str = r#"
import sys
for name in sys.argv[1:]:
    try: print(open(name).read())
    except OSError as error: print(type(error).__name__)
"#;

/// The words of a policy are the user's: a trace brings a PATH of its own, and a command around whose program, and in
/// whose script, lies what no rule of the user's names.
#[test]
fn a_trace_from_elsewhere_shows_no_virtualenv_and_no_script_of_the_user() {
    let sandbox = Sandbox::new(User::Caller);
    let policy = "read: ./agent.py\nexec: python3\n";
    let private = sandbox.beside("private");
    sandbox.file("agent.py", CURIOUS);
    sandbox.file("../private/pyvenv.cfg", "home = /usr/bin\n");
    sandbox.file("../private/lib/notes", "SECRET");
    sandbox.file("../private/script.py", "print('SECRET')\n");
    sandbox.directory("../private/bin");
    sandbox.link("/usr/bin/python3", "../private/bin/python3");
    let (python, notes) = (private.join("bin/python3"), private.join("lib/notes"));
    let (python, notes) = (python.to_str().expect("text"), notes.to_str().expect("text"));
    let user = sandbox.beside("user.policy");
    fs::write(&user, policy).expect("written");
    let script = private.join("script.py");
    let along = format!("{}/bin:/usr/bin:/bin", private.display());
    for (rules, path, words) in [
        (policy, along.as_str(), ["python3", "agent.py", notes]),
        (&format!("read: ./agent.py\nexec: {python}\n"), "/usr/bin:/bin", [python, "agent.py", notes]),
        (policy, "/usr/bin:/bin", ["python3", script.to_str().expect("text"), ""]),
    ] {
        sandbox.policy(rules);
        let _ = fs::remove_file(sandbox.trace());
        let _ = fs::remove_dir_all(format!("{}.blobs", sandbox.trace().display()));
        let mut command = sandbox.run_command(&[], &words);
        command.env("PATH", path);
        Running::start(command).finish().exits(0).prints("SECRET\n");
        let trace = sandbox.trace();
        let words = ["replay", "--force", "-t", trace.to_str().expect("text"), "-p"];
        let mut command = sandbox.command(&[&words[..], &[user.to_str().expect("text")]].concat());
        command.env("PATH", "/usr/bin:/bin").env("XDG_STATE_HOME", sandbox.beside("elsewhere"));
        let again = Running::start(command).finish();
        assert!(again.code != 0 && !again.stdout.contains("SECRET"), "{words:?}\n{again}");
    }
}
