//! A packed trace replays where the directories that it listed are not: their names are there, and no content.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::pack::{elsewhere, pack};
use crate::support::{Ran, Running, Sandbox, everyone};

/// What lists, and calls that look at what they name, tell of everything.
const WALKER: &str = "
import os
for around, directories, files in os.walk('.'):
    for name in ['.'] + directories + files:
        path = os.path.join(around, name); s = os.lstat(path)
        print(path, oct(s.st_mode), s.st_size, s.st_mtime_ns, s.st_ino, s.st_dev, s.st_nlink, s.st_blocks)
        if os.path.islink(path): print(os.readlink(path))
";

fn record_walker(sandbox: &Sandbox, rules: &str, also: &str) -> Ran {
    sandbox.policy(&format!("{rules}\nexec: sh\nexec: ls\nexec: find\nexec: python3\nexec: cat\n"));
    for (name, content) in
        [("data/a", "a\n"), ("data/deep/b", "bbb\n"), ("data/none", ""), ("read", "read\n")]
    {
        sandbox.file(name, content);
    }
    sandbox.directory("data/empty");
    fs::set_permissions(sandbox.path("data/a"), fs::Permissions::from_mode(0o751)).expect("chmod");
    nix::unistd::mkfifo(&sandbox.path("data/fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    fs::File::create(sandbox.path("data/large")).and_then(|file| file.set_len(5 << 20)).expect("a file");
    sandbox.file("walk.py", WALKER);
    sandbox.give("");
    symlink("deep/b", sandbox.path("data/link")).expect("links");
    symlink("nowhere", sandbox.path("data/loose")).expect("links");
    let script = format!("ls -laR data; find . ; echo data/* ; cat read; python3 walk.py; {also}");
    let ran = sandbox.run_with(&["--capture"], &["sh", "-c", &script]);
    ran.exits(0);
    ran
}

/// Replays the packed run where nothing of what it saw is.
fn replay_without(sandbox: &Sandbox) -> Ran {
    pack(sandbox, "../run.pack", "");
    elsewhere(sandbox);
    fs::remove_dir_all(sandbox.path("")).expect("removed");
    let mut command = sandbox.command(&["replay", "-t", "run.pack", "-p", "agentbox.policy"]);
    command.current_dir(sandbox.beside(""));
    Running::start(command).finish()
}

#[test]
fn what_was_listed_alone_need_not_be_there() {
    for (rules, also) in [
        ("read: .", ""),
        ("write: .", ""),
        ("write: .", "echo new > data/new; ls -la data"),
        ("read: .\nwrite: data/deep", "echo more >> data/deep/b; ls -la data/deep"),
    ] {
        everyone(|sandbox| {
            let ran = record_walker(sandbox, rules, also);
            let replayed = replay_without(sandbox);
            replayed.exits(0).prints(&ran.stdout).complains("replay ok").complains("shown without content");
            assert!(!sandbox.path("").exists());
        });
    }
}

#[test]
fn what_was_listed_alone_is_not_read() {
    everyone(|sandbox| {
        sandbox.directory("../flags");
        let other = "[ -e ../flags/on ] && { cat data/a data/link data/large data/none; echo x >> data/a; \
                     mv data/a data/moved; cat data/moved read; }; true";
        let ran = record_walker(sandbox, "write: .\nread: ../flags\nexec: mv", other);
        // That a file was looked for is not seen.
        sandbox.file("../flags/on", "");
        let replayed = replay_without(sandbox);
        replayed.exits(1).prints(&format!("{}read\n", ran.stdout)).complains("replay diverged");
        for name in ["a", "link", "large", "none", "moved"] {
            replayed.complains(&format!("cat: data/{name}: Permission denied"));
        }
        replayed.complains("the recorded run listed it alone, so its content is not in the trace");
    });
}
