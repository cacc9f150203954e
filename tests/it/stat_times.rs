//! A replay shows files with the times and numbers that they had: stat(2), and what programs make of it.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use crate::support::{Forged, Ran, Sandbox, User, everyone, has, skip};

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
os.mkfifo('p'); look('p'); import socket; socket.socket(socket.AF_UNIX).bind('sock'); look('sock'); look('.')
r, w = os.pipe(); os.fchmod(w, 0o600); print(oct(os.fstat(w).st_mode))
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
             git config user.name a; git config gc.auto 0; git config maintenance.auto false; echo x > a; mkdir d; echo y > d/b; git add .; git commit -qm one; git rev-parse HEAD; \
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
             tar xf out.tar; ls -lai --full-time . old new; ls -i new; echo 'print(1)' > m.py; python3 -m compileall -q .; \
             sha256sum __pycache__/*"
        );
        is_exact(sandbox, &[], &["sh", "-c", &script]);
    });
}

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static void show(const char *name, struct stat *s) {
    printf("%s %ld.%ld %ld.%ld %lu %lu\n", name, s->st_mtim.tv_sec, s->st_mtim.tv_nsec, s->st_ctim.tv_sec,
           s->st_ctim.tv_nsec, s->st_ino, s->st_dev);
}
int main(void) {
    struct stat s;
    struct statx x;
    int fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "x", 1);
    close(fd);
    syscall(SYS_stat, "out", &s), show("stat", &s);
    syscall(SYS_lstat, "out", &s), show("lstat", &s);
    syscall(SYS_newfstatat, AT_FDCWD, "./out", &s, AT_SYMLINK_NOFOLLOW), show("newfstatat", &s);
    fd = open("out", O_RDONLY);
    syscall(SYS_fstat, fd, &s), show("fstat", &s);
    syscall(SYS_newfstatat, fd, "", &s, AT_EMPTY_PATH), show("empty", &s);
    unlink("out");
    syscall(SYS_fstat, fd, &s), printf("%ld %lu\n", s.st_mtim.tv_nsec, s.st_ino);
    close(fd);
    close(open("out", O_WRONLY | O_CREAT, 0644));
    syscall(SYS_statx, AT_FDCWD, "out", 0, STATX_BASIC_STATS | STATX_BTIME, &x);
    printf("%u %lld.%u %lld.%u %llu %u\n", x.stx_mask & STATX_BTIME, x.stx_mtime.tv_sec, x.stx_mtime.tv_nsec,
           x.stx_btime.tv_sec, x.stx_btime.tv_nsec, x.stx_ino, x.stx_dev_minor);
    /* What the kernel refuses is refused as it does. */
    errno = 0, syscall(SYS_stat, "out", (void *)8), printf("%d\n", errno);
    errno = 0, syscall(SYS_stat, (void *)8, &s), printf("%d\n", errno);
    errno = 0, syscall(SYS_stat, "none", &s), printf("%d\n", errno);
    errno = 0, syscall(SYS_fstat, 99, &s), printf("%d\n", errno);
    errno = 0, syscall(SYS_newfstatat, AT_FDCWD, "out", &s, 1 << 30), printf("%d\n", errno);
    errno = 0, syscall(SYS_statx, AT_FDCWD, "out", 0, 1u << 31, &x), printf("%d\n", errno);
    return 0;
}
"#;

#[test]
fn links_that_mean_whoever_asks_show_their_own_times() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3\n");
        let script = format!(
            "{LOOK}
import time
for name in '/dev/fd', '/dev/stdin', '/dev//./stderr', '/etc/mtab', '/dev/ptmx', '/dev/pts/ptmx': look(name)
for name in '/proc/self', '/proc/thread-self': s = os.lstat(name); print(s.st_mtime_ns, oct(s.st_mode), s.st_size)
at, now = os.open('/proc', os.O_RDONLY), time.time()
def near(name, s): print(name, oct(s.st_mode), now - 2 < s.st_mtime <= time.time())
for name in 'mounts', 'net', 'self/fd/0', 'self/status', 'self/task', '1/fd':
    near(name, os.lstat('/proc/' + name)); near(name, os.stat(name, dir_fd=at, follow_symlinks=False))
near('fd', os.stat('/proc/self/fd')); near('0', os.lstat('/dev/fd/0'))
"
        );
        let ran = sandbox.run_with(&[], &["python3", "-c", &script]);
        ran.exits(0);
        sleep(Duration::from_secs(3));
        let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
        again.exits(0).prints(&ran.stdout);
        assert!(!ran.stdout.contains("False"), "{ran}");
    });
}

#[test]
fn what_a_run_lists_without_changing_it_keeps_its_times() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3\n");
        sandbox.file("sub/f", "f\n");
        let script = format!("{LOOK}\nlook('sub'); os.listdir('sub'); look('sub')");
        is_exact(sandbox, &[], &["python3", "-c", &script]);
    });
}

/// The trace is hidden in it, which a replay does by another file system.
#[test]
fn the_working_directory_shows_what_it_was() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nwrite: ./out, ./new\nexec: python3\n");
        sandbox.directory("d");
        sandbox.directory("out");
        let script = format!("{LOOK}\nfor name in ('d', '.', 'd/..', 'out'): look(name)");
        is_exact(sandbox, &[], &["python3", "-c", &script]);
        let within = ["run", "-p", "../agentbox.policy", "-t", "trace.jsonl", "--", "python3", "-c", &script];
        let ran = sandbox.agentbox(&within);
        ran.exits(0);
        let again = sandbox.agentbox(&["replay", "-t", "trace.jsonl"]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

/// Lists name what lies below it, stat(2) what lies over it.
#[test]
fn what_is_closed_has_its_number_in_lists() {
    everyone(|sandbox| {
        sandbox.file("agentbox.policy", "write: .\ndeny: read ./closed\nexec: python3\n");
        for name in ["closed", "a", "b"] {
            sandbox.file(name, "x");
        }
        let script = format!(
            "{LOOK}\nfor e in os.scandir('.'): look(e.name, e.inode())\nopen('c', 'w').write('c')\n\
             for e in os.scandir('.'): look(e.name, e.inode())"
        );
        let trace = sandbox.trace();
        let trace = trace.to_str().expect("text");
        let ran = sandbox.agentbox(&["run", "-t", trace, "--", "python3", "-c", &script]);
        ran.exits(0);
        let again = sandbox.agentbox(&["replay", "-t", trace]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

/// Each process of the machine is a link of /proc.
#[test]
fn what_else_runs_on_the_machine_does_not_show() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: .\nexec: stat\n");
    sandbox.run_with(&[], &["stat", "-c", "%h", "/proc"]).exits(0);
    let replay = || sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]).stdout;
    let alone = replay();
    let mut others: Vec<_> =
        (0..20).map(|_| Command::new("sleep").arg("60").spawn().expect("starts")).collect();
    let beside = replay();
    for other in &mut others {
        other.kill().expect("ends");
        other.wait().expect("ended");
    }
    assert!(!alone.is_empty());
    assert_eq!(alone, beside);
}

#[test]
fn when_a_file_was_made_is_as_recorded() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: stat\nexec: sh\n");
        sandbox.file("old", "old\n");
        sandbox.file("sub/f", "f\n");
        let script = "stat -c '%n %w' . old sub sub/f /dev/shm /etc/mtab; echo x >> old; echo y > new; stat -c '%n %w' . old new";
        let ran = is_exact(sandbox, &[], &["sh", "-c", script]);
        assert!(!ran.stdout.contains(" -"), "{}", ran.stdout);
    });
}

#[test]
fn every_call_of_a_static_program_shows_them() {
    everyone(|sandbox| {
        let source = sandbox.file("../source.c", PROGRAM);
        let program = sandbox.path("program");
        let built = Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).output();
        if !built.is_ok_and(|built| built.status.success()) {
            return skip("all of it", "no static C programs are built here");
        }
        sandbox.give("program");
        sandbox.policy("write: .\nexec: ./program\n");
        let ran = is_exact(sandbox, &[], &["./program"]);
        let errnos: Vec<_> = ran.stdout.lines().rev().take(6).collect();
        assert_eq!(errnos, ["22", "22", "9", "2", "14", "14"], "{ran}");
    });
}

#[test]
fn what_no_run_has_recorded_of_files_is_refused() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("write: .\nexec: sh\nexec: ls\n");
    sandbox.run_with(&[], &["sh", "-c", "echo x > f; ls -la --full-time"]).exits(0);
    let path = sandbox.beside("forged.jsonl");
    let policy = sandbox.beside("agentbox.policy").display().to_string();
    let f = sandbox.path("f").display().to_string();
    let replay = |forge: &dyn Fn(&mut Forged)| {
        let mut forged = Forged::of(&sandbox.trace(), &path);
        forge(&mut forged);
        forged.write();
        let ran = sandbox.agentbox(&["replay", "-t", path.to_str().expect("text"), "-p", &policy]);
        assert!(!ran.stderr.contains("panicked"), "{ran}");
        ran
    };
    let samples = |text: String| {
        replay(&move |forged| {
            let blob = forged.blob(text.as_bytes());
            forged.first("fs.status")["args"]["samples"] = blob;
        })
    };
    for text in [
        String::new(),
        "x".to_owned(),
        format!("c 1 100644 1 99999999999999999999 1 1 1 1 1 1 1 - {f}\0"),
        format!("c 1 7777777 1 1 1 1 1 1 1 1 1 - {f}\0"),
        format!("c 1 100644 1 1 1 1 1 1 1 1 99999999999999999999 - {f}\0"),
        "c 1 100644 1 1 1 1 1 1 1 1 1 - ../f\0".to_owned(),
        "c 1 100644 1 1 1 1 1 1 1 1 1 - /\0".repeat(100_000),
    ] {
        samples(text).exits(2).prints("").complains("cannot be replayed");
    }
    replay(&|forged| forged.first("fs.status")["args"] = json!({"samples": 5})).exits(2).prints("");
    // The most that can be said is shown, and nothing else happens.
    let most = u64::MAX;
    for time in [i64::MIN, i64::MAX] {
        let text = format!(
            "s 0 40755 1 1 1 1 1 1 1 1 1 - /\0c 1 100644 1 {most} {} 1 {} {} {time} {time} {time} {time} {f}\0",
            u32::MAX,
            i64::MAX,
            u32::MAX
        );
        samples(text).exits(1);
    }
}

const BOUNDS: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
long, pointer = ctypes.c_long, ctypes.c_void_p
libc.mmap.restype, libc.mmap.argtypes = pointer, [pointer, long, long, long, long, long]
libc.mprotect.argtypes = [pointer, long, long]
at = libc.mmap(None, 4 * 4096, 3, 0x22, -1, 0)
def call(number, *words):
    done = libc.syscall(long(number), *[long(word) if isinstance(word, int) else word for word in words])
    if done < 0: return os.strerror(ctypes.get_errno())
    return done if number != 217 else "listed"
def calls(place):
    name, d = ctypes.c_char_p(b"f"), os.open(".", os.O_RDONLY)
    f = os.open("f", os.O_RDONLY)
    print(call(4, name, place), call(5, f, place), call(332, -100, name, 0, 0x7ff, place), call(217, d, place, 2000),
          call(318, place, 150, 0), call(318, place, 1 << 17, 0), call(228, 0, place), call(96, place, 0))
    os.close(d), os.close(f)
open("f", "w").write("text")
os.listdir(".")
libc.mprotect(at + 4096, 4096, 0)
libc.mprotect(at + 3 * 4096, 4096, 0)
for place in at, at + 4096 - 8, at + 4096, at + 2 * 4096, at + 3 * 4096 - 8, 0, -4096: calls(place)
print(ctypes.string_at(at + 2 * 4096, 4096 - 150).count(0) > 0)
libc.mprotect(at, 4096, 1)
calls(at)
import threading
thread = threading.Thread(target=calls, args=(at,))
thread.start(), thread.join()
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
calls(at)
libc.mprotect(at, 4096, 3)
calls(at)
stop.set()
"#;

/// As by the kernel: into no page that the program may not write itself.
#[test]
fn an_answer_is_written_where_the_program_may_write() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: python3\n");
        sandbox.file("old", "old");
        let ran = is_exact(sandbox, &[], &["python3", "-c", BOUNDS]);
        let outside =
            Command::new("python3").args(["-c", BOUNDS]).current_dir(sandbox.directory("../out")).output();
        ran.prints(&String::from_utf8(outside.expect("runs").stdout).expect("text"));
    });
}

/// A replay looks at some files in the run's stead, from the namespaces of the host.
#[test]
fn interfaces_of_the_host_are_no_more_there_than_they_were() {
    everyone(|sandbox| {
        sandbox.policy("exec: python3\n");
        let ran = is_exact(
            sandbox,
            &[],
            &["python3", "-c", "import os; print(os.path.exists('/proc/sys/net/core/netdev_rss_key'))"],
        );
        ran.prints("False\n");
    });
}
