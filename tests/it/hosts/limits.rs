//! Limits of the caller (setrlimit(2)): the command keeps them, the launcher says which is too low.

use super::{behind, finish, no_rest, prepare, ran_nothing, wrapped};
use crate::support::{Ran, Running, Sandbox, User, everyone};

/// The words that set a limit by a shell's `ulimit`.
fn under(limit: &str) -> [String; 4] {
    ["bash".to_owned(), "-c".to_owned(), format!("ulimit {limit}; exec \"$@\""), "bash".to_owned()]
}

fn run_under(sandbox: &Sandbox, limit: &str, program: &str) -> Ran {
    prepare(sandbox);
    let command = sandbox.run_command(&[], &["/bin/sh", "-c", program]);
    finish(sandbox, wrapped(sandbox, &under(limit), &command))
}

#[test]
fn few_open_files_stop_the_launch() {
    everyone(|sandbox| {
        for limit in ["-n 32", "-n 16"] {
            prepare(sandbox);
            let ran = finish(sandbox, behind(sandbox, &under(limit)));
            ran_nothing(sandbox, &ran, &["EMFILE", "ulimit -n"]);
        }
    });
}

#[test]
fn the_launcher_takes_the_hard_limit_of_open_files_and_the_command_keeps_its_own() {
    everyone(|sandbox| {
        let limit = "-Sn 64; ulimit -Hn 4096";
        run_under(sandbox, limit, "ulimit -Sn; ulimit -Hn").exits(0).prints("64\n4096\n");
    });
}

#[test]
fn other_limits_are_the_commands() {
    everyone(|sandbox| {
        for (limit, asked) in [("-v 1000000", "-v"), ("-t 100", "-t"), ("-s 4096", "-s"), ("-l 0", "-l")] {
            let value = limit.rsplit(' ').next().unwrap_or_default();
            let ran = run_under(sandbox, limit, &format!("ulimit {asked}"));
            ran.exits(0).prints(&format!("{value}\n"));
        }
        // What a crash would leave could hold what the agent may not keep.
        run_under(sandbox, "-c unlimited", "ulimit -c").exits(0).prints("0\n");
    });
}

#[test]
fn a_command_beyond_its_time_is_killed_and_the_trace_closed() {
    everyone(|sandbox| {
        let ran = run_under(sandbox, "-t 1", "while :; do :; done");
        assert!([128 + 9, 128 + 24].contains(&ran.code), "{ran}");
        assert_eq!(ran.of("run.seal").len(), 1, "{ran}");
        super::nothing_left(sandbox);
    });
}

#[test]
fn no_process_more_stops_the_launch() {
    everyone(|sandbox| {
        // Root is above this limit (setrlimit(2)).
        if sandbox.user == User::Ordinary {
            prepare(sandbox);
            let ran = finish(sandbox, behind(sandbox, &under("-u 1")));
            ran_nothing(sandbox, &ran, &["clone3(CLONE_NEWUSER", "EAGAIN", "ulimit -u"]);
        }
    });
}

#[test]
fn little_memory_stops_the_launch_or_is_enough() {
    everyone(|sandbox| {
        for kibibytes in (16_000..=48_000).step_by(2_000) {
            prepare(sandbox);
            let limit = format!("-v {kibibytes}");
            let mut ran = Running::start(behind(sandbox, &under(&limit))).finish();
            // The standard library's own start, before any of our code, has this one message.
            let before_main = ran.stderr.contains("failed to allocate an alternative stack");
            assert!(before_main || !ran.stderr.contains("panicked"), "{ran}");
            if ran.code == 0 {
                assert!(!before_main, "{ran}");
                ran.prints("RAN\n");
                ran.read_trace(&sandbox.trace());
                assert_eq!(ran.of("run.seal").len(), 1, "{ran}");
            } else {
                // Below, bash or the loader fail before the launcher begins, or it aborts at once.
                let _ = std::fs::remove_dir(sandbox.beside("trace.jsonl.blobs"));
                assert!(!sandbox.path("out/ran").exists(), "it ran\n{ran}");
                assert!(ran.code == 125 || !ran.stderr.starts_with("agentbox: "), "{ran}");
            }
            no_rest(sandbox);
        }
    });
}

/// As many files as their trace has no room for, none of which may be made unrecorded.
const MANY: &str = "i=0; while [ $i -lt 4000 ]; do : >out/f$i; i=$((i+1)); done; echo END";

#[test]
fn a_trace_at_the_limit_of_file_sizes_stops_the_run() {
    everyone(|sandbox| {
        prepare(sandbox);
        let command = sandbox.run_command(&[], &["/bin/sh", "-c", MANY]);
        let ran = Running::start(wrapped(sandbox, &under("-f 400"), &command)).finish();
        ran.exits(125).prints("").complains("EFBIG").complains("ulimit -f");
        let trace = std::fs::read_to_string(sandbox.trace()).expect("a trace");
        super::disk::nothing_unrecorded(&trace, &sandbox.path("out"));
        no_rest(sandbox);
        prepare(sandbox);
        let ran = finish(sandbox, behind(sandbox, &under("-f 2")));
        ran_nothing(sandbox, &ran, &["EFBIG", "ulimit -f"]);
    });
}

#[test]
fn the_command_meets_its_own_limit_of_file_sizes() {
    everyone(|sandbox| {
        let program = "trap : XFSZ; head -c 1000000 /dev/zero >out/big; echo $?";
        sandbox.policy("write: ./out\nexec: head");
        sandbox.directory("out");
        let command = sandbox.run_command(&[], &["/bin/sh", "-c", program]);
        let _ = std::fs::remove_file(sandbox.trace());
        let ran = finish(sandbox, wrapped(sandbox, &under("-f 500"), &command));
        // 1 where head ignores the signal, 153 where it dies of it.
        ran.exits(0);
        assert!(["1\n", "153\n"].contains(&ran.stdout.as_str()), "{ran}");
        let truncate = "import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try: os.truncate('out/big', 1 << 30)
except OSError as error: print(error.errno)";
        // What the file held before has no room beside the trace.
        let command = sandbox.run_command(&["--no-replay"], &["python3", "-c", truncate]);
        let _ = std::fs::remove_file(sandbox.trace());
        finish(sandbox, wrapped(sandbox, &under("-f 500"), &command)).exits(0).prints("27\n");
    });
}
