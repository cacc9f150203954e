//! Former traces are listed nowhere: not in a run, and not in its replay, whatever has come to lie there since.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Sandbox, everyone};

const LISTS: &str = "
import os, subprocess
for place in ('.', 'traces', 'other'):
    names = sorted(os.listdir(place))
    assert names == sorted(entry.name for entry in os.scandir(place))
    print(place, names, flush=True)
    subprocess.run(['ls', '-a', place], check=True)
with os.scandir('other') as many:
    for entry in many: os.unlink(entry)
print(len(list(os.walk('.'))))
";

fn run(sandbox: &Sandbox, options: &[&str]) -> String {
    let mut words = vec!["run", "-p", "../agentbox.policy"];
    words.extend(options);
    words.extend(["--", "python3", "lists.py"]);
    for number in 0..120 {
        fs::write(sandbox.path(format!("other/{number}")), "x").expect("a file");
        sandbox.give(format!("other/{number}"));
    }
    sandbox.agentbox(&words).exits(0).stdout.clone()
}

#[test]
fn traces_are_listed_neither_in_a_run_nor_in_its_replay() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: ls");
        sandbox.file("lists.py", LISTS);
        sandbox.directory("traces");
        sandbox.directory("other");
        let first = run(sandbox, &[]);
        assert!(
            first.contains("'119'") && first.contains("lists.py") && !first.contains("'trace.jsonl'"),
            "{first}"
        );
        for options in [&[][..], &["-t", "traces/a.jsonl"], &["-t", "traces/a.jsonl"], &["--no-replay"], &[]]
        {
            assert_eq!(run(sandbox, options), first, "{options:?}");
        }
        for trace in ["trace.jsonl", "trace.jsonl.1", "trace.jsonl.3", "traces/a.jsonl", "traces/a.jsonl.1"] {
            assert!(sandbox.path(trace).exists(), "{trace}");
        }
        for trace in ["trace.jsonl", "trace.jsonl.1", "traces/a.jsonl", "traces/a.jsonl.1"] {
            let replayed = sandbox.agentbox(&["replay", "-t", trace]);
            replayed.exits(0).complains("agentbox: replay ok");
            assert_eq!(replayed.stdout, first, "{trace}");
        }
    });
}

#[test]
fn what_came_to_be_since_is_not_there_in_a_replay() {
    everyone(|sandbox| {
        sandbox.file("lists.sh", "ls -a; find . | sort; cat sub/f; [ -e later ] || echo none; ls -a kept\n");
        sandbox.file("sub/f", "f\n");
        sandbox.file("kept/f", "f\n");
        for access in ["read", "write"] {
            sandbox.policy(&format!("{access}: .\nexec: ls, find, sort, cat"));
            let ran = sandbox.run(&["sh", "lists.sh"]);
            ran.exits(0);
            for name in ["later", "sub/later", "new/deep/later", "kept/one", "kept/two"] {
                sandbox.file(name, "later\n");
            }
            let trace = sandbox.trace();
            let replayed = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("a name")]);
            replayed.exits(0).prints(&ran.stdout).complains("agentbox: replay ok");
            replayed.complains("new since it was recorded, so not shown: ").complains("kept/one and 4 more");
            for name in ["later", "sub/later", "new/deep/later", "kept/one", "kept/two"] {
                assert_eq!(fs::read(sandbox.path(name)).expect("untouched"), b"later\n");
                fs::remove_file(sandbox.path(name)).expect("removes");
            }
            fs::remove_dir_all(sandbox.path("new")).expect("removes");
        }
    });
}

/// The call of old C libraries, which has a form of its own (getdents(2)).
const OLD: &str = "
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def names(number, room, place='.'):
    directory, buffer, found = os.open(place, os.O_RDONLY), ctypes.create_string_buffer(room), []
    start = 18 if number == 78 else 19
    while (count := libc.syscall(number, directory, buffer, room)) > 0:
        at = 0
        while at < count:
            length = struct.unpack_from('H', buffer, at + 16)[0]
            found.append(buffer.raw[at + start:at + length].split(b'\\0')[0].decode())
            at += length
    os.close(directory)
    return found if count == 0 else ctypes.get_errno()
for room in (48, 200, 4096): assert names(78, room) == names(217, room) == names(217, 4096), room
print(names(78, 4096))
for room in (-1, 8, 1 << 32 | 8):
    directory = os.open('.', os.O_RDONLY)
    assert libc.syscall(217, directory, bytes(99), ctypes.c_long(room)) == -1 and ctypes.get_errno() == 22, room
";

#[test]
fn the_old_call_lists_what_the_new_one_does() {
    everyone(|sandbox| {
        sandbox.policy("write: .");
        sandbox.file("old.py", OLD);
        // The first one finds no trace beside it.
        for _ in 0..3 {
            let ran = sandbox.agentbox(&["run", "-p", "../agentbox.policy", "--", "python3", "old.py"]);
            let names = ran.exits(0).stdout.clone();
            assert!(names.contains("'old.py'") && !names.contains("trace"), "{names}");
            let replayed = sandbox.agentbox(&["replay", "-t", "trace.jsonl"]);
            replayed.exits(0).complains("agentbox: replay ok");
            assert_eq!(replayed.stdout, names);
        }
    });
}

#[test]
fn a_directory_that_is_another_one_by_a_link_now_hides_nothing() {
    let sandbox = crate::support::Sandbox::new(crate::support::User::Caller);
    sandbox.policy("read: .\nexec: ls");
    sandbox.file("data/x", "x\n");
    sandbox.file("other/x", "x\n");
    sandbox.file("other/y", "y\n");
    let ran = sandbox.run(&["ls", "data", "other"]);
    ran.exits(0);
    fs::rename(sandbox.path("data"), sandbox.path("moved")).expect("moves");
    std::os::unix::fs::symlink("other", sandbox.path("data")).expect("a link");
    let trace = sandbox.trace();
    let replayed = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("a name")]);
    replayed.exits(1).complains("input-changed").complains("data -> ");
}

#[test]
fn directories_of_the_view_list_in_the_recorded_order() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: sh, ls");
        // The way here shows only what rules name; the others are made for the view as well.
        let script = "for place in / /etc /dev /var ..; do echo $place; ls -U $place; done";
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(0);
        let own = ran.of("fs.order").iter().filter(|entry| entry["args"]["own"] == true).count();
        assert!(own >= 3, "{ran}");
        let trace = sandbox.trace();
        for _ in 0..2 {
            let replayed = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("a name")]);
            replayed.exits(0).complains("agentbox: replay ok");
            assert!(!replayed.stderr.contains("new since"), "{replayed}");
            assert_eq!(replayed.stdout, ran.stdout);
        }
    });
}

/// As a container or sudo leaves it.
#[test]
fn a_directory_of_somebody_else_that_came_to_be_since_is_not_there_either() {
    if !nix::unistd::geteuid().is_root() {
        return crate::support::skip("another owner", "only root makes directories of two users");
    }
    for access in ["read", "write"] {
        let sandbox = crate::support::Sandbox::new(crate::support::User::Ordinary);
        sandbox.policy(&format!("{access}: .\nexec: ls"));
        let ran = sandbox.run(&["ls", "-a"]);
        ran.exits(0);
        for directory in ["closed", "open"] {
            let path = sandbox.path(directory);
            fs::create_dir(&path).expect("makes");
            fs::write(path.join("file"), "x").expect("writes");
            let mode = if directory == "closed" { 0o700 } else { 0o755 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("sets the mode");
        }
        let trace = sandbox.trace();
        let replayed = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("a name")]);
        replayed.exits(0).prints(&ran.stdout).complains("agentbox: replay ok").complains("closed and 1 more");
        assert!(sandbox.path("closed/file").exists() && sandbox.path("open/file").exists());
    }
}
