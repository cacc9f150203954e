//! Odd surroundings of the launcher: signals ignored or blocked, descriptors closed or too many,
//! directories gone, no environment.

use std::fs;

use super::{behind, finish, nothing_left, prepare, ran_nothing, wrapped};
use crate::support::{Ran, Sandbox, everyone};

/// Python that does something and then becomes the launcher.
fn after(what: &str) -> [String; 3] {
    let program = format!("import os, signal, sys\n{what}\nos.execv(sys.argv[1], sys.argv[1:])");
    ["python3".to_owned(), "-c".to_owned(), program]
}

fn run_after(sandbox: &Sandbox, what: &str, program: &str) -> Ran {
    prepare(sandbox);
    let command = sandbox.run_command(&[], &["/bin/sh", "-c", program]);
    finish(sandbox, wrapped(sandbox, &after(what), &command))
}

#[test]
fn an_ignored_end_of_children_is_heard_all_the_same() {
    everyone(|sandbox| {
        let what = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)";
        let ran = run_after(sandbox, what, "(exit 3); echo $?; /bin/sh -c 'exit 4'; echo $?; exit 5");
        ran.exits(5).prints("3\n4\n");
        nothing_left(sandbox);
    });
}

#[test]
fn blocked_and_ignored_signals_are_the_commands_own() {
    everyone(|sandbox| {
        let what =
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2, signal.SIGXFSZ])
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
lines = [line.split() for line in open('/proc/self/status') if line.startswith(('SigBlk', 'SigIgn'))]
open('out/before', 'w').writelines(' '.join(line) + chr(10) for line in lines)";
        let program = "while read name value rest; do
case $name in SigBlk:|SigIgn:) echo $name $value;; esac; done </proc/self/status";
        let ran = run_after(sandbox, what, program);
        ran.exits(0).prints(&fs::read_to_string(sandbox.path("out/before")).expect("the masks"));
    });
}

#[test]
fn closed_standard_descriptors_stay_closed_or_lead_nowhere() {
    everyone(|sandbox| {
        for closed in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
            let what = format!("for number in {closed:?}: os.close(number)");
            let program = "echo said; echo kept >out/kept; read line; exit 7";
            let ran = run_after(sandbox, &what, program);
            ran.exits(7);
            assert_eq!(ran.stdout, if closed.contains(&1) { "" } else { "said\n" }, "{closed:?}\n{ran}");
            // Nothing of the launcher's took the number, so what was said there went nowhere else.
            assert_eq!(fs::read_to_string(sandbox.path("out/kept")).expect("a file"), "kept\n");
            let files = fs::read_dir(sandbox.path("out")).expect("out").count();
            assert_eq!(files, 1, "{closed:?}");
            assert_eq!(ran.of("run.seal").len(), 1, "{ran}");
            nothing_left(sandbox);
        }
    });
}

#[test]
fn none_of_many_inherited_descriptors_reaches_the_command() {
    everyone(|sandbox| {
        let what = "import socket
keep = []
for number in range(3, 300):
    file = os.open('/', os.O_RDONLY) if number % 2 else os.open('/dev/null', os.O_RDWR)
    keep.append(file); os.set_inheritable(file, True)
for end in socket.socketpair(): keep.append(end); os.set_inheritable(end.fileno(), True)";
        let program =
            "i=3; while [ $i -lt 320 ]; do [ -e /proc/self/fd/$i ] && echo $i; i=$((i+1)); done; echo end";
        run_after(sandbox, what, program).exits(0).prints("end\n");
    });
}

#[test]
fn a_working_directory_that_is_gone_stops_the_launch() {
    everyone(|sandbox| {
        let what = "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')";
        prepare(sandbox);
        let ran = finish(sandbox, behind(sandbox, &after(what)));
        ran_nothing(sandbox, &ran, &["working directory", "getcwd", "ENOENT"]);
    });
}

#[test]
fn an_unreadable_working_directory_is_the_commands_too() {
    everyone(|sandbox| {
        let what = "os.makedirs('closed', exist_ok=True); os.chdir('closed'); os.chmod('.', 0o311)";
        let ran = run_after(sandbox, what, "pwd; echo *; /bin/sh -c 'echo child'");
        ran.exits(0);
        assert!(ran.stdout.ends_with("/closed\n*\nchild\n"), "{ran}");
        // One that cannot even be entered: as anyone, the launcher stays where it is or says so.
        let what = "os.makedirs('shut', exist_ok=True); os.chdir('shut'); os.chmod('.', 0)";
        prepare(sandbox);
        let ran = finish(sandbox, behind(sandbox, &after(what)));
        assert!([0, 2, 125, 126].contains(&ran.code), "{ran}");
        nothing_left(sandbox);
    });
}

#[test]
fn a_home_or_path_that_is_missing_or_odd_gives_the_command_usable_ones() {
    everyone(|sandbox| {
        let program = "echo HOME=$HOME; echo PATH=$PATH; echo x >out/x && cd && echo entered";
        for what in [
            "del os.environ['HOME']",
            "os.environ['HOME'] = 'relative'",
            "os.environ['HOME'] = ''",
            "os.environ['HOME'] = '/does/not/exist'",
            "del os.environ['PATH']",
            "os.environ['PATH'] = ''",
            "os.environ['PATH'] = ':relative:/does/not/exist:/usr/bin'",
            "os.environ.clear()",
        ] {
            let ran = run_after(sandbox, what, program);
            ran.exits(0);
            assert!(ran.stdout.starts_with("HOME=/"), "{what}\n{ran}");
            assert!(ran.stdout.contains("\nPATH=/") || what.contains("'PATH'] ="), "{what}\n{ran}");
            assert!(ran.stdout.ends_with("entered\n"), "{what}\n{ran}");
            nothing_left(sandbox);
        }
    });
}

#[test]
fn an_absent_home_is_not_made() {
    everyone(|sandbox| {
        sandbox.environment("HOME", sandbox.beside("absent/home")).environment("XDG_STATE_HOME", "");
        sandbox.policy("exec: true");
        sandbox.run(&["true"]).exits(0);
        let trace = sandbox.trace();
        let ran = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
        ran.exits(0).complains("replay ok");
        assert!(!sandbox.beside("absent").exists(), "{ran}");
    });
}

#[test]
fn an_odd_name_of_the_launcher_changes_nothing() {
    everyone(|sandbox| {
        for name in ["", "\x1b[31m\n/x", "-p", "run"] {
            prepare(sandbox);
            let prefix = ["bash", "-c", "exec -a \"$0\" \"$@\"", name];
            let ran = finish(sandbox, behind(sandbox, &prefix));
            ran.exits(0).prints("RAN\n");
            assert!(!ran.stderr.contains('\x1b'), "{ran}");
        }
    });
}
