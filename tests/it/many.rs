//! Much at once: threads, pipelines, large trees; everything is recorded, nothing is lost.

use std::process::Command;

use crate::support::{everyone, has, skip};

#[test]
fn as_many_denials_are_recorded_as_the_program_counted() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = sandbox.python(
            "import os, socket, subprocess, threading
counts = {'read': 0, 'write': 0, 'exec': 0}
lock = threading.Lock()
def attempt(kind, act):
    try: act()
    except PermissionError:
        with lock: counts[kind] += 1
def work(number):
    for round in range(20):
        attempt('read', lambda: open('secret.txt'))
        attempt('write', lambda: open('made-%d' % (round % 3), 'w'))
        attempt('write', lambda: os.unlink('secret.txt'))
        attempt('exec', lambda: os.posix_spawn('/usr/bin/id', ['id'], {}))
        open('out/%d-%d' % (number, round), 'w').write('x')
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(counts['read'], counts['write'], counts['exec'])",
        );
        ran.exits(0).prints("160 320 160\n");
        for (access, count) in [("read", 160), ("write", 320), ("exec", 160)] {
            let denials = ran.denials(access);
            let counted = denials.iter().map(|entry| entry["count"].as_u64().unwrap_or(1));
            assert_eq!(counted.sum::<u64>(), count, "{access}\n{ran}");
        }
        assert_eq!(ran.of("fs.write").len(), 160, "{ran}");
        assert_eq!(ran.of("run.end")[0]["args"]["totals"]["denials"], 640, "{ran}");
        assert!(ran.stderr.contains("640 denials"), "{ran}");
    });
}

#[test]
fn threads_that_start_programs_at_once_are_each_judged_and_recorded() {
    everyone(|sandbox| {
        sandbox.policy("exec: echo one\nexec: cat");
        let ran = sandbox.python(
            "import os, subprocess, threading
results = []
def work():
    for _ in range(12):
        results.append(subprocess.run(['echo', 'one'], stdout=-1).stdout)
        try: subprocess.run(['echo', 'two']); results.append('started')
        except PermissionError: results.append(None)
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results.count(b'one\\n'), results.count(None))",
        );
        ran.exits(0).prints("144 144\n");
        assert_eq!(ran.of("proc.spawn").len(), 145, "{ran}");
        let lineages: std::collections::BTreeSet<String> =
            ran.of("proc.spawn").iter().map(|entry| entry["proc"].to_string()).collect();
        assert!(lineages.len() > 140, "{lineages:?}");
    });
}

#[test]
fn the_start_does_not_depend_on_how_much_there_is() {
    everyone(|sandbox| {
        for directory in 0..40 {
            for file in 0..100 {
                sandbox.file(format!("tree/{directory}/{file}.txt"), "x");
            }
        }
        let globs: String = (0..40).map(|n| format!("deny: read ./tree/**/{n}.txt\n")).collect();
        sandbox.policy(&format!("read: ./tree\n{globs}"));
        let ran = sandbox.python(
            "def can(path):
    try: open(path); return True
    except PermissionError: return False
print(sum(can('tree/%d/%d.txt' % (d, f)) for d in (0, 39) for f in range(100)))",
        );
        ran.exits(0).prints("120\n");
    });
}

#[test]
fn git_commits_inside_and_leaves_the_repository_clean() {
    everyone(|sandbox| {
        if !has("git") {
            return skip("git", "there is no git");
        }
        let git = |words: &[&str]| {
            let done = Command::new("git")
                .args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@localhost"])
                .args(words)
                .current_dir(sandbox.path("repo"))
                .output()
                .expect("git");
            assert!(done.status.success(), "{done:?}");
            String::from_utf8_lossy(&done.stdout).into_owned()
        };
        sandbox.file("repo/a.txt", "a");
        git(&["init", "--quiet"]);
        sandbox.give("repo");
        sandbox.policy(
            "write: ./repo\ninclude: profile/git\nenv: GIT_AUTHOR_NAME=a\nenv: GIT_AUTHOR_EMAIL=a@b\n\
             env: GIT_COMMITTER_NAME=a\nenv: GIT_COMMITTER_EMAIL=a@b",
        );
        let ran = sandbox.run(&[
            "sh", "-c",
            "cd repo && git add a.txt && git commit --quiet -m first && echo b >b.txt && git add . && git commit --quiet -m second && git log --oneline",
        ]);
        assert_eq!(ran.exits(0).stdout.lines().count(), 2, "{ran}");
        assert_eq!(git(&["status", "--short"]), "");
        assert_eq!(git(&["log", "--format=%s"]), "second\nfirst\n");
    });
}

#[test]
fn an_allowed_file_swapped_for_a_link_leads_nowhere_else() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = sandbox.python(
            "import os, threading
open('out/plain', 'w').write('plain')
stop = False
def swap():
    while not stop:
        for target in ('plain', '../secret.txt'):
            try: os.symlink(target, 'out/new'); os.rename('out/new', 'out/l')
            except OSError: pass
thread = threading.Thread(target=swap); thread.start()
seen = set()
for _ in range(3000):
    try: seen.add(open('out/l').read())
    except OSError: pass
stop = True; thread.join()
print(sorted(seen))",
        );
        ran.exits(0);
        assert!(!ran.stdout.contains("hidden"), "{ran}");
    });
}
