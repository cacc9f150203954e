//! Policies and traces around a run: mistakes, sizes, places, and rules that this version has not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agentbox::trace::{Expectation, Outcome, verify};

use crate::support::{Ran, Running, Sandbox, User, everyone};

/// Runs under a policy in `work/p`, with a trace in `work`.
fn run(sandbox: &Sandbox, policy: &str, command: &[&str]) -> Ran {
    sandbox.file("p", policy);
    sandbox.agentbox(&[&["run", "-p", "p", "--"], command].concat())
}

#[test]
fn every_mistake_is_told_at_once_with_its_place_and_nothing_starts() {
    everyone(|sandbox| {
        let ran = run(
            sandbox,
            "read: ./a\nwirte: ./out\n\nraed ./b\nexec: 'x\nnet: 127.0.0.0/8\nallow: read ./a, write ./b\nread:\n",
            &["sh", "-c", "echo started >out; echo started"],
        );
        ran.exits(2).prints("");
        for place in ["p:2:", "p:4:", "p:5:", "p:6:", "p:7:", "p:8:"] {
            ran.complains(place);
        }
        ran.complains("write").complains("^").complains("cidr/127.0.0.0/8");
        assert!(!sandbox.path("out").exists() && !sandbox.path("trace.jsonl").exists(), "{ran}");
    });
}

#[test]
fn rules_that_are_not_enforced_yet_are_refused_by_name() {
    let sandbox = Sandbox::new(User::Caller);
    for rule in ["read-once: ./a", "write: ./out @10MB", "limit: pids 256"] {
        let ran = run(&sandbox, &format!("read: ./data\n{rule}\n"), &["sh", "-c", "echo started"]);
        ran.exits(2).prints("").complains("p:2:");
    }
}

#[test]
fn ten_thousand_rules_load_and_decide() {
    everyone(|sandbox| {
        let lines = (0..5000).map(|n| format!("read: ./d/{n}.txt\ndeny: write ./d/{n}.lock\n"));
        let policy: String = lines.chain(["write: ./d\n".to_owned()]).collect();
        sandbox.file("d/4999.txt", "last");
        sandbox.file("e/1.txt", "other");
        let program = "read -r line <d/4999.txt; echo $line; (echo >d/77.lock) 2>/dev/null || echo refused
(read -r line <e/1.txt) 2>/dev/null || echo refused; echo >d/77.txt && echo written";
        run(sandbox, &policy, &["sh", "-c", program]).exits(0).prints("last\nrefused\nrefused\nwritten\n");
    });
}

#[test]
fn arguments_and_variables_as_long_as_the_kernel_takes() {
    everyone(|sandbox| {
        let longest = "a".repeat(131_071);
        sandbox.run(&["sh", "-c", "echo ${#1}", "sh", &longest]).exits(0).prints("131071\n");
        let many: Vec<String> = (0..9000).map(|n| format!("{n:0100}")).collect();
        let words: Vec<&str> =
            ["sh", "-c", "echo $#", "sh"].into_iter().chain(many.iter().map(String::as_str)).collect();
        sandbox.run(&words).exits(0).prints("9000\n");
        sandbox.environment("LONG", "b".repeat(131_066)).policy("env: LONG");
        sandbox.run(&["sh", "-c", "echo ${#LONG}"]).exits(0).prints("131066\n");
        let inner = "import subprocess, sys
print(subprocess.run(['echo', 'c' * 131071], stdout=-1).stdout.count(b'c'))
try: subprocess.run(['echo', 'c' * 131072])
except OSError as error: print(error.errno)
print(subprocess.run(['echo'] + ['d' * 1000] * 1000, stdout=-1).stdout.count(b'd'))";
        sandbox.policy("exec: echo");
        sandbox.python(inner).exits(0).prints("131071\n7\n1000000\n");
    });
}

#[test]
fn the_trace_under_a_write_root_is_out_of_the_agents_reach() {
    everyone(|sandbox| {
        sandbox.file("p", "write: .\n");
        let program = "import os
seen = []
for name in ('trace.jsonl', 'p', 'trace.jsonl.blobs'):
    for act in (lambda: open(name), lambda: open(name, 'a'), lambda: os.unlink(name), lambda: os.rename(name, 'moved'),
                lambda: os.link(name, 'linked'), lambda: os.mkdir(name), lambda: os.symlink('x', name), lambda: os.chmod(name, 0)):
        try: act(); seen.append(name)
        except OSError: pass
print(seen); open('mine', 'w').write('x')";
        for _ in 0..2 {
            let ran = sandbox.agentbox(&["run", "-p", "p", "--", "python3", "-c", program]);
            ran.exits(0).prints("[]\n").complains("trace.jsonl");
            let trace = sandbox.path("trace.jsonl");
            let found = verify(&trace, &Expectation::default()).expect("a trace");
            assert_eq!(found.outcome, Outcome::Sealed, "{ran}");
            let mode = fs::metadata(&trace).expect("the trace").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{ran}");
        }
        let rotated = fs::read_dir(sandbox.path("")).expect("work").filter_map(Result::ok);
        let names: Vec<_> = rotated.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        // Each with its blobs.
        assert_eq!(names.iter().filter(|name| name.starts_with("trace.jsonl")).count(), 4, "{names:?}");
        assert_eq!(fs::read_to_string(sandbox.path("p")).expect("the policy"), "write: .\n");
    });
}

/// Where its base lies, and its links, are the choice of whoever can write in it.
#[test]
fn a_virtualenv_that_the_agent_can_write_shows_nothing_but_runtimes() {
    everyone(|sandbox| {
        let keys = sandbox.beside("home/.keys");
        sandbox.file("../home/.keys/key", "secret");
        sandbox.directory(".venv/bin");
        let link =
            |target: &Path, name| std::os::unix::fs::symlink(target, sandbox.path(name)).expect("a link");
        link(Path::new("/usr/bin/python3"), ".venv/bin/python3");
        link(&keys, ".venv/lib");
        let program = format!("import os\nprint(os.path.exists({:?}))", keys.join("key"));
        for base in ["", "Cellar/x", "Cellar/x/bin"] {
            sandbox.file(".venv/pyvenv.cfg", format!("home = {}\n", keys.join(base).display()));
            for policy in ["write: .\n", "write: .\nexec: ./.venv/bin/python3\n"] {
                run(sandbox, policy, &[".venv/bin/python3", "-S", "-c", &program]).exits(0).prints("False\n");
            }
        }
    });
}

/// So is where a script and a link lead: to the tree of a program that the user has elsewhere, or to any file.
#[test]
fn what_the_agent_can_change_chooses_no_tree_and_no_file_of_the_users() {
    everyone(|sandbox| {
        let tree = sandbox.beside("home/apart");
        sandbox.file("../home/apart/lib/key", "secret");
        sandbox.file("../home/apart/pyvenv.cfg", "home = /usr/bin\n");
        sandbox.file("../home/notes", "print('secret')\n");
        sandbox.directory("../home/apart/bin");
        let link = |target: &Path, place: &Path| std::os::unix::fs::symlink(target, place).expect("a link");
        link(Path::new("/usr/bin/python3"), &tree.join("bin/python3"));
        sandbox.directory("bin");
        link(&tree.join("bin/python3"), &sandbox.path("bin/python3"));
        link(&tree, &sandbox.path("env"));
        link(&sandbox.beside("home/notes"), &sandbox.path("notes.py"));
        let program = format!("import os\nprint(os.path.exists({:?}))", tree.join("lib/key"));
        let script = sandbox.file("tool", format!("#!{}\n{program}\n", tree.join("bin/python3").display()));
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
        let commands: [&[&str]; 3] =
            [&["./tool"], &["bin/python3", "-S", "-c", &program], &["env/bin/python3", "-S", "-c", &program]];
        for command in commands {
            run(sandbox, "write: .\n", command).exits(0).prints("False\n");
            run(sandbox, "read: .\n", command).exits(0).prints("True\n");
            let rule = format!("write: .\nread: {}\n", tree.display());
            run(sandbox, &rule, command).exits(0).prints("True\n");
        }
        let shown = "write: .\nexec: ./bin/python3\n";
        run(sandbox, shown, &["/usr/bin/python3", "-S", "-c", &program]).exits(0).prints("False\n");
        run(sandbox, "read: .\n", &["python3", "notes.py"]).exits(0).prints("secret\n");
        let ran = run(sandbox, "write: .\n", &["python3", "notes.py"]);
        ran.exits(2).prints("").complains("to allow it: read: ").complains("home/notes");
    });
}

#[test]
fn the_directory_of_the_trace_stays_where_it_is() {
    everyone(|sandbox| {
        sandbox.file("p", "write: .\n");
        sandbox.directory("a/b");
        let program = "import os
os.mkdir('empty')
for act in (lambda: os.rmdir('a/b'), lambda: os.rename('a/b', 'x'), lambda: os.rename('a', 'x'), lambda: os.rename('empty', 'a/b')):
    try: act(); print('done')
    except PermissionError: print('refused')";
        let ran = sandbox.agentbox(&["run", "-p", "p", "-t", "a/b/t", "--", "python3", "-c", program]);
        ran.exits(0).prints(&"refused\n".repeat(4)).complains("it holds a file of the launcher");
        let found = verify(&sandbox.path("a/b/t"), &Expectation::default()).expect("a trace");
        assert_eq!(found.outcome, Outcome::Sealed, "{ran}");
    });
}

#[test]
fn a_link_that_an_earlier_run_left_is_no_grant() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.file("apart/secret", "secret\n");
        sandbox.policy("write: ./out\nwrite: ./out/cache\nread: ./out/notes");
        let plant = "import os\nos.symlink('../apart', 'out/cache'); os.symlink('../apart', 'out/notes')\n\
             try: print(open('out/notes/secret').read())\nexcept PermissionError: print('refused')";
        sandbox.python(plant).exits(0).prints("refused\n");
        let ran = Running::start(sandbox.run_command(&[], &["cat", "out/notes/secret"])).finish();
        ran.exits(2).prints("").complains("which the command can change under `write: ./out`");
        assert_eq!(ran.stderr.matches("error: this leads to ").count(), 2, "{ran}");
    });
}

#[test]
fn a_trace_is_not_written_over_another_file() {
    everyone(|sandbox| {
        let notes = sandbox.file("notes.txt", "my notes\n");
        sandbox.file("p", "");
        let words =
            |more: &[&'static str]| [&["run", "-p", "p", "-t", "notes.txt"], more, &["--", "true"]].concat();
        sandbox.agentbox(&words(&[])).exits(2).complains("notes.txt");
        assert_eq!(fs::read(&notes).expect("the notes"), b"my notes\n");
        sandbox.agentbox(&words(&["--force"])).exits(0);
        verify(&notes, &Expectation::default()).expect("a trace");
        sandbox.agentbox(&["run", "-p", "p", "-t", "no/such/directory/t", "--", "true"]).exits(2);
        sandbox.directory("dir");
        sandbox.agentbox(&["run", "-p", "p", "-t", "dir", "--", "true"]).exits(2);
    });
}

#[test]
fn concurrent_runs_on_one_trace_name_lose_nothing() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.file("p", "");
    let words = ["run", "-p", "p", "--", "sh", "-c", "exit 0"];
    let started: Vec<_> = (0..3).map(|_| Running::start(sandbox.command(&words))).collect();
    for running in started {
        let ran = running.finish();
        assert!([0, 2, 125].contains(&ran.code), "{ran}");
    }
    let names =
        fs::read_dir(sandbox.path("")).expect("work").filter_map(Result::ok).map(|entry| entry.path());
    let traces: Vec<_> = names.filter(|path| path.to_string_lossy().contains("trace.jsonl")).collect();
    assert!(!traces.is_empty());
    for trace in traces.iter().filter(|path| path.is_file()) {
        let found = verify(trace, &Expectation::default()).expect("a trace");
        assert_eq!(found.outcome, Outcome::Sealed, "{}", trace.display());
    }
}

#[test]
fn a_home_and_a_working_directory_behind_links_work() {
    everyone(|sandbox| {
        sandbox.file("../home/.config/tool.conf", "conf");
        sandbox.link("home", "../linked-home");
        sandbox.link("work", "../linked-work");
        sandbox.file("in.txt", "in");
        sandbox.file("p", "read: ~/.config\nread: ./in.txt\nenv: HOME\n");
        let mut command = sandbox.command(&[
            "run",
            "-p",
            "p",
            "--",
            "sh",
            "-c",
            "read a <~/.config/tool.conf; read b <in.txt; echo $a $b",
        ]);
        command.env("HOME", sandbox.beside("linked-home")).current_dir(sandbox.beside("linked-work"));
        Running::start(command).finish().exits(0).prints("conf in\n");
    });
}

#[test]
fn what_a_rule_names_and_is_absent_is_a_note_and_nothing_is_made() {
    everyone(|sandbox| {
        let ran = run(
            sandbox,
            "read: ./none\nwrite: ./later/deep\nexec: no-such-program\ndeny: read ./never\n",
            &["true"],
        );
        ran.exits(0);
        for name in ["none", "later", "never"] {
            assert!(!sandbox.path(name).exists(), "{name} was made");
        }
        let ran = run(
            sandbox,
            "write: ./later\n",
            &[
                "python3",
                "-c",
                "import os; os.mkdir('later'); open('later/x', 'w').write('x'); print(os.listdir('later'))",
            ],
        );
        ran.exits(0).prints("['x']\n");
        assert!(Path::new(&sandbox.path("later/x")).exists());
    });
}

#[test]
fn what_the_system_lacks_is_absent_each_time_and_looked_for_on_record_where_a_rule_names_it() {
    everyone(|sandbox| {
        let program = "for _ in range(3):
    for name in ('/usr/local/include/agentbox-named', '/usr/local/include/agentbox-other', '/usr/local/none/x'):
        try: open(name)
        except OSError as error: print(error.errno)";
        sandbox.policy("read: /usr/local/include/agentbox-named");
        let ran = sandbox.python(program);
        ran.exits(0).prints(&"2\n".repeat(9));
        assert!(ran.stderr.contains(" 0 denials"), "{ran}");
        let looks = ran.of("fs.open_read");
        let named = looks.iter().filter(|look| look["args"]["path"] == "/usr/local/include/agentbox-named");
        let looks: u64 = named.map(|look| look["count"].as_u64().unwrap_or(1)).sum();
        assert_eq!(looks, 3, "{ran}");
    });
}

#[test]
fn odd_values_in_quotes_are_taken_as_they_are() {
    everyone(|sandbox| {
        for name in ["a,b", "c#d", "e f", "g\"h"] {
            sandbox.file(name, name);
        }
        let policy = "read: \"./a,b\", \"./c#d\", ./e f\nread: \"./g\\\"h\"\n";
        let program = "print(*[open(name).read() for name in ('a,b', 'c#d', 'e f', 'g\"h')], sep='|')";
        run(sandbox, policy, &["python3", "-c", program]).exits(0).prints("a,b|c#d|e f|g\"h\n");
    });
}

/// Whether the socket waits or not: what nobody listens for is refused, and each refusal is recorded.
#[test]
fn a_loopback_port_that_nobody_serves_is_recorded_for_every_kind_of_socket() {
    everyone(|sandbox| {
        sandbox.policy("");
        let ran = sandbox.python(
            "import socket
for blocking in (True, False):
    client = socket.socket()
    client.setblocking(blocking)
    print(client.connect_ex(('127.0.0.1', 9)) != 0)",
        );
        ran.exits(0).prints("True\nTrue\n");
        let refused = ran.entries.iter().filter(|entry| entry["kind"] == "deny" && entry["op"] == "net");
        let count: u64 = refused.map(|entry| entry["count"].as_u64().unwrap_or(1)).sum();
        assert_eq!(count, 2, "{ran}");
    });
}

#[test]
fn directories_on_the_way_of_a_pattern_are_listed() {
    everyone(|sandbox| {
        sandbox.policy("read: ./src/**/*.py\ndeny: read **/closed");
        sandbox.file("src/pkg/__init__.py", "x = 1\n");
        sandbox.file("src/pkg/deep/__init__.py", "y = 2\n");
        sandbox.file("src/pkg/notes.txt", "secret\n");
        sandbox.file("src/closed/a.py", "");
        sandbox.file("other/a.py", "");
        let program = "import errno, glob, os, pkg, pkg.deep\n\
             def attempt(function, name):\n    try: function(name); print('done')\n    \
             except OSError as error: print(errno.errorcode[error.errno])\n\
             print(pkg.x, pkg.deep.y, sorted(glob.glob('src/**/*.py', recursive=True)))\n\
             attempt(open, 'src/pkg/notes.txt'); attempt(os.listdir, 'src/closed'); attempt(os.listdir, 'other')\n\
             attempt(os.mkdir, 'src/pkg/new')\n";
        sandbox.file("src/main.py", program);
        let ran = sandbox.run(&["python3", "src/main.py"]);
        ran.exits(0).prints(
            "1 2 ['src/main.py', 'src/pkg/__init__.py', 'src/pkg/deep/__init__.py']\nEACCES\nEACCES\nEACCES\nEACCES\n",
        );
        assert!(ran.of("fs.open_read").iter().any(|entry| entry["args"]["partial"] == true), "{ran}");
    });
}
