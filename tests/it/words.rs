//! What the commands say: lost output, mistakes on the command line, entries about the run, each in one line.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::support::{Ran, Running, Sandbox, User, everyone};

/// One recorded run that changes a file, packed as well, so that every command has something to say.
fn recorded() -> Sandbox {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("write: .");
    sandbox.run(&["sh", "-c", "echo x >new; exit 0"]).exits(0);
    let trace = sandbox.trace();
    sandbox.agentbox(&["pack", trace.to_str().expect("a name"), "-o", "run.pack"]).exits(0);
    sandbox
}

fn with_output(sandbox: &Sandbox, words: &[&str], output: impl Into<Stdio>) -> Ran {
    let mut command = sandbox.command(words);
    command.stdout(output);
    Running::start(command).finish()
}

#[test]
fn output_that_cannot_be_written_is_said_in_one_line() {
    let sandbox = recorded();
    let trace = sandbox.trace();
    let trace = trace.to_str().expect("a name");
    let policy = sandbox.beside("agentbox.policy");
    let policy = policy.to_str().expect("a name");
    fs::write(sandbox.path("cut.jsonl"), cut_off(trace)).expect("a trace");
    let asked: [&[&str]; 13] = [
        &["--version"],
        &["--help"],
        &["run", "--help"],
        &["verify", trace],
        &["show", trace],
        &["show", "--json", trace],
        &["diff", trace, trace],
        &["diff", "--json", trace, trace],
        &["spec", "-p", policy, "--", "true"],
        &["policy", "show", "-p", policy],
        &["policy", "show", "--json", "-p", policy],
        &["init", "-p", "one.policy"],
        &["init", "-p", "two.policy"],
    ];
    for words in &asked[..12] {
        let full = with_output(&sandbox, words, File::options().write(true).open("/dev/full").expect("full"));
        full.exits(2).complains("agentbox: standard output: ENOSPC");
        assert_eq!(full.stderr.lines().count(), 1, "{full}");
    }
    for words in asked.iter().filter(|words| words[1..] != ["-p", "one.policy"]) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let closed = with_output(&sandbox, words, writer);
        assert_eq!(closed.exits(0).stderr, "", "{closed}");
    }
    // What is worse than lost words keeps its code.
    let full = || File::options().write(true).open("/dev/full").expect("full");
    let cut = with_output(&sandbox, &["verify", "cut.jsonl"], full());
    cut.exits(3).complains("agentbox: standard output: ENOSPC");
    with_output(&sandbox, &["diff", trace, "cut.jsonl"], full())
        .exits(1)
        .complains("standard output: ENOSPC");
}

/// The trace without its last entries.
fn cut_off(trace: &str) -> Vec<u8> {
    let whole = fs::read(trace).expect("the trace");
    let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    lines[..lines.len() - 5].concat()
}

#[test]
fn names_that_the_user_gives_draw_nothing_on_the_terminal() {
    let sandbox = Sandbox::new(User::Caller);
    let odd = "a\nagentbox: forged\u{1b}[2K";
    sandbox.file("good.policy", "read: .\n");
    sandbox.directory(odd);
    let (trace, here) = (format!("{odd}/t.jsonl"), format!("{odd}/none"));
    let cases: [(&[&str], i32); 12] = [
        (&["run", "-p", "good.policy", "-t", &trace, "cat", "/etc/shadow"], 1),
        (&["run", "-p", "good.policy", "-t", &trace, odd], 127),
        (&["run", "-p", "good.policy", "-t", odd, "true"], 2),
        (&["run", "-p", &here, "true"], 2),
        (&["init", "-p", &here], 0),
        (&["init", "-p", &here], 2),
        (&["policy", "show", "-p", odd], 2),
        (&["spec", "-p", odd, "true"], 2),
        (&["show", &format!("{odd}/x")], 2),
        (&["verify", odd], 2),
        (&["replay", "-t", odd], 2),
        (&["diff", odd, &trace], 2),
    ];
    for (words, code) in cases {
        let said = sandbox.agentbox(words);
        said.exits(code);
        let text = format!("{}{}", said.stdout, said.stderr);
        assert!(!text.contains('\u{1b}') && !text.contains("\nagentbox: forged"), "{said}");
    }
}

#[test]
fn a_mistake_on_the_command_line_is_one_line_with_the_remedy() {
    let sandbox = Sandbox::new(User::Caller);
    let cases: [(&[&str], &[&str]); 12] = [
        (&["--frob"], &["unexpected argument '--frob'", "see `agentbox --help`"]),
        (&["frob"], &["'frob'", "agentbox run -- PROGRAM", "see `agentbox --help`"]),
        (&["shwo"], &["'shwo'", "'show'"]),
        (&["run"], &["<CMD>", "see `agentbox run --help`"]),
        (&["run", "-p"], &["--policy", "see `agentbox run --help`"]),
        (&["run", "--observ", "true"], &["'--observ'", "'--observe'"]),
        (&["run", "-q", "-v", "true"], &["unexpected argument '-v'", "see `agentbox run --help`"]),
        (&["run", "--idle-timeout", "x", "true"], &["'x'", "whole number with its unit"]),
        (&["verify", "a", "b"], &["'b'", "see `agentbox verify --help`"]),
        (&["show", "--kind", "x"], &["'x'", "meta, effect, observe, deny"]),
        (&["policy", "show", "--frob"], &["see `agentbox policy show --help`"]),
        (&["show", "--a\nb\u{1b}[2K"], &["see `agentbox show --help`"]),
    ];
    for (words, expected) in cases {
        let said = sandbox.agentbox(words);
        said.exits(2).prints("");
        assert!(said.stderr.starts_with("agentbox: "), "{said}");
        assert_eq!(said.stderr.lines().count(), 1, "{said}");
        assert!(!said.stderr.contains('\u{1b}'), "{said}");
        for part in expected {
            said.complains(part);
        }
    }
}

#[test]
fn a_torn_trace_that_was_moved_without_its_bodies_is_torn() {
    let sandbox = recorded();
    let whole = fs::read(sandbox.trace()).expect("the trace");
    sandbox.file("moved/trace.jsonl", &whole[..whole.len() - 20]);
    let verify = || sandbox.agentbox(&["verify", "moved/trace.jsonl"]);
    let torn = verify();
    assert!(torn.exits(3).stdout.contains("torn"), "{torn}");
    assert!(torn.stdout.contains("without its bodies"), "{torn}");
    sandbox
        .agentbox(&["replay", "-t", "moved/trace.jsonl"])
        .exits(2)
        .complains("its bodies are not beside it");
    sandbox.agentbox(&["pack", "moved/trace.jsonl", "-o", "y.pack"]).exits(2).complains("without its bodies");
    sandbox.file("moved/trace.jsonl", cut_off(sandbox.trace().to_str().expect("a name")));
    assert!(verify().exits(3).stdout.contains("not sealed"));
    // Of a whole one they are part, and so is what is between the lines.
    sandbox.file("moved/trace.jsonl", &whole);
    assert!(verify().exits(1).stdout.contains("TAMPERED"));
    let edited = String::from_utf8_lossy(&whole[..whole.len() - 20]).replacen("\"umask\":", "\"umasc\":", 1);
    sandbox.file("moved/trace.jsonl", edited);
    assert!(verify().exits(1).stdout.contains("TAMPERED"));
}

#[test]
fn a_closed_directory_for_the_trace_is_refused_before_the_start() {
    everyone(|sandbox| {
        if sandbox.user == User::Caller && nix::unistd::geteuid().is_root() {
            return;
        }
        let directory = sandbox.directory("closed");
        for mode in [0o000, 0o300, 0o500, 0o600] {
            // Both ways of writing: under a granted root, and beside it.
            for policy in ["", "write: ."] {
                sandbox.policy(policy);
                fs::set_permissions(&directory, Permissions::from_mode(mode)).expect("chmod");
                let policy = sandbox.beside("agentbox.policy");
                let words = ["run", "-p", policy.to_str().expect("a name"), "-t", "closed/t.jsonl"];
                let said = sandbox.agentbox(&[&words[..], &["--", "sh", "-c", "echo started"]].concat());
                said.exits(2).prints("").complains("EACCES").complains("with -t");
                assert_eq!(said.stderr.lines().count(), 1, "{mode:o}: {said}");
            }
        }
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("chmod");
    });
}

#[test]
fn entries_about_the_run_are_shown_in_words() {
    let sandbox = recorded();
    let trace = sandbox.trace();
    let name = trace.to_str().expect("a name");
    let shown = sandbox.agentbox(&["show", "--kind", "meta", name]);
    for expected in ["exit code 0, ", "umask 022, ", "statuses of files", "entries, head "] {
        assert!(shown.exits(0).stdout.contains(expected), "{expected}: {shown}");
    }
    let raw = shown.stdout.lines().filter(|line| !line.starts_with('#') && line.contains("{\""));
    assert_eq!(raw.count(), 0, "{shown}");
    // The stored lines are what was stored.
    let stored = sandbox.agentbox(&["show", "--json", name]);
    assert_eq!(stored.exits(0).stdout, fs::read_to_string(&trace).expect("the trace"));
}

#[test]
fn a_replay_that_a_variable_prevents_names_what_accepts_it() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("env: MODE").environment("MODE", "first");
    sandbox.run(&["true"]).exits(0);
    sandbox.environment("MODE", "second");
    let trace = sandbox.trace();
    let replay = ["replay", "-t", trace.to_str().expect("a name")];
    sandbox.agentbox(&replay).exits(1).complains("MODE").complains("--lenient environment-changed");
    let lenient = [&replay[..], &["--lenient", "environment-changed"]].concat();
    sandbox.agentbox(&lenient).exits(0).complains("replay ok");
}

#[test]
fn former_traces_are_kept_and_counted() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.run(&["true"]).exits(0);
    let name = |number: usize| sandbox.beside(format!("trace.jsonl.{number}"));
    for number in 1..=19 {
        fs::copy(sandbox.trace(), name(number)).expect("copied");
    }
    let run = |options: &[&str]| Running::start(sandbox.run_command(options, &["true"])).finish();
    // The one in place becomes the twentieth.
    assert!(run(&["-q"]).exits(0).stderr.is_empty());
    assert!(name(20).exists() && (1..=19).all(|number| name(number).exists()));
    run(&[]).exits(0).complains("21 former traces are kept");
}

#[test]
fn what_no_rule_would_allow_is_told_with_its_reason() {
    everyone(|sandbox| {
        sandbox.policy("write: ./w\ndeny: read ./w/sub/token");
        sandbox.file("w/sub/token", "t");
        let ran = sandbox.python(
            "import os\ntry: os.rename('w/sub', 'w/elsewhere')\nexcept PermissionError: print('refused')\n\
             try: os.mknod('w/device', 0o20666, 0x103)\nexcept PermissionError: print('refused')",
        );
        ran.exits(0).prints("refused\nrefused\n");
        ran.complains("write w/sub (a rule decides differently about something below it at the new name)");
        ran.complains("write w/device (devices are never made)");
        assert!(!ran.stderr.contains("to allow it"), "{ran}");
        // Ports that no rule can name have no such rule.
        let ran = sandbox
            .python("import socket\ntry: socket.create_connection(('127.0.0.1', 0))\nexcept OSError: pass");
        ran.exits(0);
        let denials = ran.denials("net");
        assert!(
            !denials.is_empty() && denials.iter().all(|entry| entry["args"].get("remedy").is_none()),
            "{ran}"
        );
    });
}

#[test]
fn the_last_words_are_few_and_the_cause_comes_first() {
    everyone(|sandbox| {
        let dots: Vec<_> = (0..40).map(|number| format!(".dot{number:02}")).collect();
        for name in &dots {
            sandbox.file(sandbox.beside("home").join(name), "x");
        }
        for name in ["data/a", "data/b", "data/c", "other/a", "other/b"] {
            sandbox.file(name, "x");
        }
        sandbox.policy("env: HOME");
        let program = format!(
            "import os, socket, subprocess
def read(name, times):
    for _ in range(times):
        try: open(os.path.expanduser(name))
        except PermissionError: pass
for number in range(40): read('~/.dot%02d' % number, 1)
for name in 'data/a', 'data/b', 'data/c': read(name, 3)
read('other/a', 2); read('other/b', 1)
try: subprocess.run(['/usr/bin/id'])
except PermissionError: pass
for host in '127.0.0.1', '::1':
    try: socket.create_connection((host, {port}))
    except OSError: pass",
            port = 9
        );
        let ran = sandbox.python(&program);
        let lines: Vec<_> =
            ran.exits(0).stderr.lines().filter(|line| line.starts_with("agentbox: denied ")).collect();
        let place = sandbox.path("").canonicalize().expect("there").display().to_string();
        assert_eq!(lines[0], "agentbox: denied 2x: net localhost:9 (to allow it: net: localhost:9)", "{ran}");
        assert!(lines[1].starts_with("agentbox: denied 1x: exec /usr/bin/id (to allow it: exec: "), "{ran}");
        let folded = format!("agentbox: denied 9x: read 3 files of {place}/data (to allow it: read: ./data)");
        assert_eq!(lines[2], folded, "{ran}");
        ran.complains("and 3 more kinds");
        assert_eq!(ran.stderr.matches("~/.dot").count(), 0, "what programs do without comes last\n{ran}");
        let dots = "for number in range(40): read('~/.dot%02d' % number, 1)";
        let ran = sandbox.python(&(program.split(dots).next().expect("a head").to_owned() + dots));
        ran.exits(0).complains(
            "denied 40x: read files of HOME: ~/.dot00, ~/.dot01, ~/.dot02 and 37 more (to allow it: read: ~/.dot00, \
             ~/.dot01, ~/.dot02)",
        );
        let tail = program.split("for host").nth(1).expect("a tail");
        let ran = sandbox.python(&format!("import socket\nfor host{tail}"));
        ran.exits(0).complains("denied 2x: net localhost:9 (to allow it: net: localhost:9)");
        assert_eq!(ran.stderr.matches("denied ").count(), 1, "{ran}");
    });
}
