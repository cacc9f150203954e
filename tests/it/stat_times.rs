//! A replay shows files with the times and numbers that they had: stat(2), and what programs make of it.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::support::{Ran, Sandbox, everyone, has, skip};

/// Records, and replays twice, the second time after inputs were touched; all must be the same to the byte.
fn is_exact(sandbox: &Sandbox, touched: &[&str], words: &[&str]) -> Ran {
    let ran = sandbox.run_with(&[], words);
    ran.exits(0);
    sleep(Duration::from_millis(20));
    for _ in 0..2 {
        let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
        let lines = ran.stdout.lines().zip(again.stdout.lines());
        let other: Vec<_> = lines.filter(|(recorded, live)| recorded != live).collect();
        assert!(other.is_empty(), "recorded, live: {other:#?}");
        again.exits(0).prints(&ran.stdout).complains("replay ok");
        for name in touched {
            let path = sandbox.path(name);
            fs::write(&path, fs::read(&path).expect("reads")).expect("writes");
        }
    }
    ran
}

const LOOK: &str = "
import os
def look(name, *more):
    s = os.lstat(name)
    print(name, *more, s.st_mtime_ns, s.st_ctime_ns, s.st_atime_ns, s.st_ino, s.st_dev, s.st_nlink, s.st_size,
          s.st_blocks, oct(s.st_mode), s.st_uid, s.st_gid)
";

#[test]
fn what_a_run_writes_shows_its_recorded_times() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: python3\n");
        sandbox.file("old", "old\n");
        sandbox.file("moved", "moved\n");
        sandbox.file("gone/f", "gone\n");
        let script = format!(
            "{LOOK}
look('.', 'first')
open('new', 'w').write('x' * 10); look('new')
f = open('new', 'a'); look('new', 'open'); f.write('y'); f.close(); look('new', 'again')
os.chmod('new', 0o600); look('new', 'chmod')
os.utime('new', ns=(5, 7)); look('new', 'utime')
os.link('new', 'hard'); look('hard'); look('new')
os.rename('new', 'name'); look('name'); os.unlink('hard'); look('name')
os.mkdir('d'); look('d'); open('d/f', 'w').close(); look('d'); look('d/f'); os.mkdir('d/e'); look('d')
os.symlink('d', 'l'); look('l'); look('l/f')
look('old'); open('old', 'a').write('z'); look('old')
os.rename('moved', 'd/moved'); look('d/moved'); look('.')
os.remove('gone/f'); look('gone'); os.rename('gone', 'went'); look('went')
fd = os.open('fd', os.O_RDWR | os.O_CREAT); os.write(fd, b'1'); os.close(fd)
fd = os.open('fd', os.O_RDONLY); print(os.fstat(fd).st_mtime_ns, os.stat(fd).st_ino)
open('/tmp/own', 'w').write('t'); look('/tmp/own'); look('/tmp')
os.mkfifo('p'); look('p')
"
        );
        is_exact(sandbox, &[], &["python3", "-c", &script]);
    });
}

#[test]
fn what_was_there_before_shows_what_it_was() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nread: ../in\nexec: python3\n");
        sandbox.file("read", "read\n");
        sandbox.file("seen", "seen\n");
        sandbox.file("tree/f", "f\n");
        sandbox.file("../in/file", "in\n");
        let script = format!(
            "{LOOK}
look('read'); open('read').read(); look('read')
look('seen'); look('tree'); look('.'); os.listdir('.'); look('../in'); look('../in/file')
open('../in/file').read(); open('new', 'w').close(); look('.')
"
        );
        is_exact(sandbox, &[], &["python3", "-c", &script]);
        // The same content, written again.
        let script = format!(
            "{LOOK}\nopen('read').read(); look('read'); open('../in/file').read(); look('../in/file')"
        );
        is_exact(sandbox, &["read", "../in/file"], &["python3", "-c", &script]);
    });
}

#[test]
fn an_index_of_git_is_the_same() {
    if !has("git") {
        return skip("all of it", "there is no git");
    }
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: sh\nexec: git\nexec: sha256sum\nexec: mkdir\n");
        sandbox.file("old", "old\n");
        let script = "set -e; export GIT_CONFIG_GLOBAL=/dev/null; git init -q .; git config user.email a@b; \
             git config user.name a; echo x > a; mkdir d; echo y > d/b; git add .; git commit -qm one; git rev-parse HEAD; \
             sha256sum .git/index; echo z >> a; git status --short; git commit -qam two; git gc -q; git status; \
             sha256sum .git/index";
        is_exact(sandbox, &[], &["sh", "-c", script]);
    });
}

#[test]
fn archives_are_the_same() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: sh\nexec: tar\nexec: gzip\nexec: zip\nexec: sha256sum\nexec: python3\nexec: ls\nexec: mkdir\n");
        sandbox.file("old/f", "old\n");
        let zip = if has("zip") { "zip -qr out.zip old new; sha256sum out.zip;" } else { "" };
        let script = format!(
            "set -e; mkdir new; echo x > new/g; tar cf out.tar old new; sha256sum out.tar; \
             tar c --format=pax old new | sha256sum; gzip -k new/g; sha256sum new/g.gz; {zip} \
             tar xf out.tar; ls -la --full-time . old new; echo 'print(1)' > m.py; python3 -m compileall -q .; \
             sha256sum __pycache__/*"
        );
        is_exact(sandbox, &[], &["sh", "-c", &script]);
    });
}
