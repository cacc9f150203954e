//! The command line: usage, `init`, `show`, `verify` and exit codes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::support::{Running, Sandbox, User, everyone};

fn caller() -> Sandbox {
    Sandbox::new(User::Caller)
}

#[test]
fn version_and_help_go_to_stdout() {
    let sandbox = caller();
    let version = sandbox.agentbox(&["--version"]);
    version.exits(0).prints(concat!("agentbox ", env!("CARGO_PKG_VERSION"), "\n"));
    let help = sandbox.agentbox(&["--help"]);
    assert_eq!(help.exits(0).stderr, "");
    for word in ["init", "run", "show", "verify", "spec", "policy", "125", "Examples"] {
        assert!(help.stdout.contains(word), "help lacks {word}\n{help}");
    }
    for command in ["init", "run", "show", "verify"] {
        assert_eq!(sandbox.agentbox(&[command, "--help"]).exits(0).stderr, "");
    }
}

#[test]
fn mistakes_on_the_command_line_exit_2_and_print_nothing_on_stdout() {
    let sandbox = caller();
    for words in
        [&[][..], &["run"], &["frob"], &["run", "--frob", "true"], &["run", "-p"], &["verify", "a", "b"]]
    {
        sandbox.agentbox(words).exits(2).prints("");
    }
    for words in [
        ["run", "--dry-run", "true"],
        ["run", "--sign=key", "true"],
        ["verify", "--key", "x"],
        ["show", "--tree", "x"],
        ["show", "-f", "x"],
    ] {
        let said = sandbox.agentbox(&words);
        said.exits(2).prints("").complains("agentbox: this version does not have `-");
        assert_eq!(said.stderr.lines().count(), 1, "{said}");
    }
    // What stands behind the command is the command's.
    assert_eq!(sandbox.run(&["echo", "--dry-run"]).stdout, "--dry-run\n");
}

#[test]
fn init_writes_a_policy_that_runs_and_never_overwrites() {
    everyone(|sandbox| {
        sandbox.agentbox(&["init"]).exits(0);
        let policy = sandbox.path("agentbox.policy");
        let text = fs::read_to_string(&policy).expect("the policy");
        sandbox.file("in.txt", "hello");
        sandbox
            .agentbox(&["run", "--", "sh", "-c", "read -r line <in.txt; echo $line"])
            .exits(0)
            .prints("hello\n");
        sandbox.agentbox(&["init"]).exits(2).complains("exists already");
        assert_eq!(fs::read_to_string(&policy).expect("the policy"), text);

        let elsewhere = sandbox.beside("elsewhere");
        sandbox.link(&elsewhere, "link.policy");
        sandbox.agentbox(&["init", "-p", "link.policy"]).exits(2);
        assert!(!elsewhere.exists(), "a dangling link was followed");
    });
}

#[test]
fn every_exit_code_of_the_command_is_the_exit_code() {
    let sandbox = caller();
    for code in [0, 1, 2, 3, 77, 124, 125, 126, 127, 128, 200, 255] {
        sandbox.run(&["sh", "-c", &format!("exit {code}")]).exits(code);
    }
}

#[test]
fn a_signal_that_ends_the_command_is_128_and_its_number() {
    everyone(|sandbox| {
        for signal in [1, 2, 3, 6, 9, 11, 13, 14, 15, 31, 34, 50, 64] {
            let ran = sandbox.run(&["sh", "-c", &format!("ulimit -c 0; kill -{signal} $$")]);
            ran.exits(128 + signal);
            assert_eq!(ran.of("run.end")[0]["args"]["returncode"], -signal, "{ran}");
        }
    });
}

#[test]
fn what_is_not_found_is_127_and_what_cannot_be_executed_is_126() {
    everyone(|sandbox| {
        sandbox.run(&["no-such-program"]).exits(127).complains("no-such-program");
        sandbox.run(&["./no-such-program"]).exits(127);
        sandbox.run(&["/no/such/program"]).exits(127);
        sandbox.run(&[""]).exits(127);
        sandbox.file("plain.txt", "no program\n");
        sandbox.run(&["./plain.txt"]).exits(126).complains("plain.txt");
        sandbox.run(&["/etc"]).exits(126);
        sandbox.script("wrong", "#!/no/such/interpreter\n");
        let ran = sandbox.run(&["./wrong"]);
        assert!([126, 127].contains(&ran.code), "{ran}");
        let broken = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 200]].concat();
        sandbox.script("broken", broken);
        sandbox.run(&["./broken"]).exits(126);
    });
}

#[test]
fn the_launcher_says_nothing_on_stdout() {
    everyone(|sandbox| {
        let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
        sandbox.file("bytes", &bytes);
        sandbox.policy("read: ./bytes");
        let ran = sandbox.python("import sys; sys.stdout.buffer.write(open('bytes', 'rb').read())");
        assert!(ran.exits(0).bytes == bytes, "stdout was altered");
    });
}

#[test]
fn the_last_words_count_and_name_the_rules_that_would_allow() {
    everyone(|sandbox| {
        for name in ["a.txt", "b.txt", "c.txt", "d.txt", ".env"] {
            sandbox.file(name, name);
        }
        let ran = sandbox.python(
            "for name, times in [('d.txt', 1), ('a.txt', 4), ('b.txt', 3), ('c.txt', 2)]:
                for _ in range(times):
                    try: open(name)
                    except PermissionError: pass",
        );
        ran.exits(0);
        let lines: Vec<_> = ran.stderr.lines().collect();
        assert_eq!(lines.len(), 6, "{ran}");
        assert_eq!(lines[4], "agentbox: and 1 more kind: agentbox show --denied", "{ran}");
        // What the first one was, and the rule that mends it, is the last thing on the screen.
        assert!(lines[5].starts_with("agentbox: denied first: read "), "{ran}");
        assert!(lines[5].ends_with("/d.txt (to allow it: read: ./d.txt)"), "{ran}");
        let place = sandbox.trace();
        assert!(lines[0].starts_with("agentbox: recorded 0 effects, "), "{ran}");
        assert!(lines[0].ends_with(&format!(" observations, 10 denials -> {}", place.display())), "{ran}");
        for (line, (times, name)) in lines[1..].iter().zip([(4, "a.txt"), (3, "b.txt"), (2, "c.txt")]) {
            assert!(line.starts_with(&format!("agentbox: denied {times}x: read ")), "{ran}");
            assert!(line.contains(&format!("(to allow it: read: ./{name})")), "{ran}");
        }
        let counted: u64 = ran.denials("read").iter().map(|entry| entry["count"].as_u64().unwrap_or(1)).sum();
        assert_eq!(counted, 10, "{ran}");
        // No rule helps against a `deny:`; a word that names no program is told of.
        sandbox.policy("read: .\ndeny: read **/.env\nexec: nosuchprogram");
        let ran =
            sandbox.python("import contextlib\nwith contextlib.suppress(PermissionError): open('.env')");
        ran.exits(0).complains("/.env (denied by ").complains("agentbox.policy:2 `deny: read **/.env`)");
        assert!(!ran.stderr.contains("to allow it"), "{ran}");
        ran.complains("no such program along PATH, so the rule allows nothing: `nosuchprogram` (");
    });
}

#[test]
fn a_command_that_fails_is_told_what_it_could_not_see() {
    everyone(|sandbox| {
        sandbox.policy("read: ./data");
        sandbox.file("data/in.txt", "in");
        sandbox.file("helpers.py", "");
        sandbox.file("main.py", "import helpers");
        let told = "was listed, and shows only what rules name in it (to show all of it: read: .)";
        sandbox.run(&["python3", "main.py"]).exits(1).complains("ModuleNotFoundError").complains(told);
        let ran = sandbox.python("import os; os.listdir('.'); os.listdir('/'); os.listdir('/etc')");
        assert!(!ran.exits(0).stderr.contains("was listed"), "{ran}");
        let ran =
            sandbox.python("import os; os.listdir('/'); os.listdir('/etc'); os.listdir('data'); exit(1)");
        assert!(!ran.exits(1).stderr.contains("was listed"), "{ran}");
        let told = "~/.npmrc was looked for (to show it: env: HOME and read: ~/.npmrc)";
        sandbox.run(&["sh", "-c", "read line <~/.npmrc || exit 4"]).exits(4).complains(told);
        let ran = sandbox.run(&["sh", "-c", "[ -e ~/.npmrc ] || read line <~/.npmrc || exit 0"]);
        assert!(!ran.exits(0).stderr.contains("HOME was private"), "{ran}");
    });
}

#[test]
fn refused_files_of_home_are_told_in_one_line() {
    everyone(|sandbox| {
        for name in [".npmrc", ".gitconfig", ".config/tool"] {
            sandbox.file(sandbox.beside("home").join(name), "x");
        }
        sandbox.policy("env: HOME");
        let script = "import os\nfor name in ['.npmrc', '.npmrc', '.gitconfig', '.config/tool']:\n    try: \
                      open(os.path.expanduser('~/' + name))\n    except PermissionError: pass";
        let ran = sandbox.python(script);
        let told = "denied 4x: read files of HOME: ~/.npmrc, ~/.config/tool, ~/.gitconfig (to allow it: read: ~/.npmrc, \
                    ~/.config/tool, ~/.gitconfig)";
        ran.exits(0).complains(told);
        assert_eq!(ran.stderr.matches("denied ").count(), 1, "{ran}");
    });
}

#[test]
fn where_a_trace_is_written_meanwhile_is_not_said() {
    everyone(|sandbox| {
        for policy in ["read: ..", ""] {
            sandbox.policy(policy);
            let ran = sandbox.run(&["true"]);
            // After what the policy is warned about.
            let first =
                ran.exits(0).stderr.lines().find(|line| line.starts_with("agentbox: ")).unwrap_or_default();
            let end = format!(" -> {}", sandbox.trace().display());
            assert!(first.starts_with("agentbox: recorded ") && first.ends_with(&end), "{ran}");
        }
    });
}

#[test]
fn a_refusal_is_recorded_with_the_rule_that_would_allow_it() {
    everyone(|sandbox| {
        sandbox.file("a.txt", "a");
        let ran = sandbox.python(
            "import contextlib, socket, subprocess
with contextlib.suppress(PermissionError): open('a.txt')
with contextlib.suppress(PermissionError): subprocess.run(['true'])
with contextlib.suppress(PermissionError): socket.create_connection(('192.0.2.1', 80), 3)",
        );
        ran.exits(0);
        for (op, remedy) in [("read", "read: ./a.txt"), ("exec", "exec: true"), ("net", "net: 192.0.2.1:80")]
        {
            let found = ran.denials(op).iter().any(|entry| entry["args"]["remedy"] == remedy);
            assert!(found, "{op}: {ran}");
        }
        let told = ran.stderr.lines().filter(|line| line.contains("192.0.2.1")).count();
        assert_eq!(told, 1, "{ran}");
    });
}

#[test]
fn observe_refuses_nothing_and_records_what_it_would_have_refused() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        let program = "import subprocess
print(open('secret.txt').read(), flush=True)
open('made.txt', 'w').write('x')
subprocess.run(['true'], check=True)";
        let ran = sandbox.run_with(&["--observe"], &["python3", "-c", program]);
        ran.exits(0)
            .prints("hidden\n")
            .denied("read", "secret.txt")
            .denied("write", "made.txt")
            .denied("exec", "true");
        assert!(sandbox.path("made.txt").exists(), "{ran}");
        for entry in ran.entries.iter().filter(|entry| entry["kind"] == "deny") {
            assert_eq!(entry["args"]["enforced"], false, "{ran}");
        }
        assert_eq!(ran.of("run.start")[0]["args"]["enforced"], false);
    });
}

#[test]
fn observe_records_the_hosts_own_temporary_places() {
    everyone(|sandbox| {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).expect("chmod");
        let program = format!(
            "import os
os.chdir('{}')
with open('a', 'w') as file: file.write('x')
os.rename('a', 'b'); print(open('b').read()); os.chmod('b', 0o600); os.unlink('b')",
            place.path().display()
        );
        let ran = sandbox.run_with(&["--observe"], &["python3", "-c", &program]);
        ran.exits(0).prints("x\n");
        for op in ["fs.open_write", "fs.rename", "fs.open_read", "fs.meta", "fs.delete"] {
            let entry = ran.of(op).into_iter().find(|entry| entry["rule"] == "--observe");
            assert!(entry.is_some(), "{op}\n{ran}");
        }
        assert!(ran.denials("write").is_empty() && ran.denials("read").is_empty(), "{ran}");
    });
}

#[test]
fn a_missing_or_unreadable_policy_starts_nothing() {
    everyone(|sandbox| {
        let touch = ["--", "sh", "-c", "echo started"];
        let run = |policy: &str| sandbox.agentbox(&[&["run", "-p", policy], &touch[..]].concat());
        run("missing.policy").exits(2).prints("").complains("missing.policy");
        sandbox.directory("directory.policy");
        run("directory.policy").exits(2).prints("").complains("directory.policy");
        sandbox.file("binary.policy", b"read: ./a\xff\n");
        run("binary.policy").exits(2).prints("").complains("binary.policy");
        assert!(!sandbox.path("trace.jsonl").exists(), "a trace of nothing");
        if sandbox.user == User::Ordinary {
            let policy = sandbox.file("closed.policy", "");
            fs::set_permissions(policy, fs::Permissions::from_mode(0o000)).expect("chmod");
            run("closed.policy").exits(2).prints("").complains("ermission denied");
        }
    });
}

#[test]
fn verify_tells_intact_unsealed_torn_tampered_and_no_trace_apart() {
    let sandbox = caller();
    sandbox.run(&["true"]).exits(0);
    let trace = sandbox.trace();
    let whole = fs::read(&trace).expect("the trace");
    let name = trace.to_str().expect("a name");
    let verify = |bytes: &[u8]| {
        fs::write(&trace, bytes).expect("the trace");
        sandbox.agentbox(&["verify", "-t", name])
    };
    verify(&whole).exits(0);
    let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    verify(&lines[..lines.len() - 1].concat()).exits(3);
    verify(&whole[..whole.len() - 20]).exits(3);
    verify(&[&whole, b"{\"i\":".as_slice()].concat()).exits(1);
    verify(&[lines[0], &lines[2..].concat()].concat()).exits(1);
    let edited = String::from_utf8_lossy(&whole).replacen("\"true\"", "\"fals\"", 1);
    verify(edited.as_bytes()).exits(1);
    verify(b"hello\nworld\n").exits(2);
    verify(b"\x00\xff\x00").exits(2);
    sandbox.agentbox(&["verify", "missing.jsonl"]).exits(2);
    verify(&whole).exits(0);
    let last: serde_json::Value = serde_json::from_slice(lines[lines.len() - 1]).expect("an entry");
    let head = last["sha"].as_str().expect("a hash");
    sandbox.agentbox(&["verify", name, "--head", head]).exits(0);
    sandbox.agentbox(&["verify", name, "--head", &"0".repeat(64)]).exits(1);
}

#[test]
fn show_says_when_nothing_matches() {
    let sandbox = caller();
    sandbox.run(&["true"]).exits(0);
    let trace = sandbox.trace();
    let show = ["show", trace.to_str().expect("a name")];
    for filter in [["--op", "fs.opened"], ["--proc", "0.77"], ["--host", "nowhere.test"]] {
        let shown = sandbox.agentbox(&[&show[..], &filter[..]].concat());
        shown.exits(0).prints("").complains("no entry matches");
    }
    assert!(!sandbox.agentbox(&[show[0], show[1], "--op", "run.*"]).stderr.contains("no entry"));
}

#[test]
fn show_survives_torn_foreign_and_closed() {
    let sandbox = caller();
    sandbox.run(&["true"]).exits(0);
    let trace = sandbox.trace();
    let name = trace.to_str().expect("a name").to_owned();
    let whole = fs::read(&trace).expect("the trace");
    fs::write(&trace, &whole[..whole.len() - 20]).expect("the trace");
    let torn = sandbox.agentbox(&["show", &name]);
    assert!(torn.exits(0).complains("torn").stdout.contains("run.start"), "{torn}");
    fs::write(&trace, "not a trace\n").expect("the trace");
    sandbox.agentbox(&["show", &name]).exits(2).prints("");
    sandbox.agentbox(&["show", "missing.jsonl"]).exits(2).prints("");

    fs::write(&trace, whole).expect("the trace");
    let mut command = sandbox.command(&["show", &name]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command.stdout(Stdio::from(writer));
    let closed = Running::start(command).finish();
    assert_eq!(closed.exits(0).stderr, "");
}

#[test]
fn standard_streams_may_be_closed() {
    everyone(|sandbox| {
        let quoted: Vec<String> = {
            let command = sandbox.run_command(&[], &["sh", "-c", "exit 5"]);
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(|word| format!("'{}'", word.to_str().expect("a word"))).collect()
        };
        for closing in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let mut command = sandbox.command(&["--version"]);
            let shell = format!("{} {closing}", quoted.join(" "));
            let mut sh = std::process::Command::new("sh");
            sh.args(["-c", &shell]).current_dir(sandbox.path("")).env_clear();
            sh.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            sh.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.arg("--version");
            let ran = Running::start(sh).finish();
            ran.exits(5);
        }
    });
}
