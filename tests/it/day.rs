//! A replay on another day: what the clock of the machine says does not matter, nor what it says of itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::{Ran, Running, Sandbox, User, everyone, has, skip};
use crate::tls::{Origin, Shown};

/// Moves the time of day of the program that it is loaded into; the kernel's stays.
const OTHER_DAY: &str = r#"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static const long days = DAYS * 86400L;
int clock_gettime(clockid_t clock, struct timespec *time) {
    int done = syscall(SYS_clock_gettime, clock, time);
    if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += days;
    return done;
}
int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec, time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return at ? *at = now.tv_sec : now.tv_sec;
}
"#;

/// A library that makes it so many days later; `None` without a compiler.
fn days_later(directory: &TempDir, days: i32) -> Option<PathBuf> {
    if !has("gcc") {
        skip("on another day", "there is no gcc");
        return None;
    }
    let (source, library) = (directory.path().join("day.c"), directory.path().join(format!("day{days}.so")));
    std::fs::write(&source, OTHER_DAY).expect("a file");
    let mut compile = Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(format!("-DDAYS={days}L")).arg(&source);
    assert!(compile.status().expect("gcc").success());
    std::os::unix::fs::chown(directory.path(), None, None).expect("chown");
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    Some(library)
}

/// Replays with this library in agentbox.
fn replay(sandbox: &Sandbox, library: &Path) -> Ran {
    let mut command = sandbox.command(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
    command.env("LD_PRELOAD", library);
    Running::start(command).finish()
}

#[test]
fn certificates_are_as_valid_as_they_were() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let origin = Origin::start(Shown::Good);
    everyone(|sandbox| {
        let Some(library) = days_later(&directory, 4000) else { return };
        let ran = origin.curl(sandbox, "net: {}", &[], &["-w", "%{ssl_verify_result} %{certs}"]);
        ran.exits(0);
        assert!(ran.stdout.contains("page\n0 "), "{ran}");
        replay(sandbox, &library).exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

#[test]
fn files_and_clocks_show_the_recorded_day() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    everyone(|sandbox| {
        let Some(library) = days_later(&directory, 400) else { return };
        sandbox.policy(
            "write: .\nexec: sh\nexec: date\nexec: ls\nexec: touch\nexec: find\nexec: make\nexec: stat\nexec: sleep\n\
             exec: sort\nexec: test\n",
        );
        sandbox.file("in", "in\n");
        sandbox.file("Makefile", "out: in\n\tdate > out\n");
        let script = "date; date -r in; touch new; ls -l; ls -la --full-time . .. /dev/shm /var; [ new -nt in ] && echo newer; \
                      find . -newermt '1 hour ago' | sort; find . -mmin +100 | sort; touch -d 'next year' far; ls -l far; \
                      make; make; sleep 2; touch in; make; stat -c '%y %z %w %x' out in new .";
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(0);
        let again = replay(sandbox, &library);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

#[test]
fn the_machine_says_of_itself_what_it_said() {
    everyone(|sandbox| {
        sandbox.policy(
            "write: .\nread: /var/tmp\nexec: sh\nexec: grep\nexec: cut\nexec: uptime\nexec: cat\nexec: python3\nexec: ls\n\
             exec: stat\nexec: nproc\nexec: sha256sum\nexec: sleep\n",
        );
        let script = "grep btime /proc/stat; uptime -s; cut -d. -f1 /proc/uptime; cat /proc/loadavg; grep MemTotal /proc/meminfo; \
                      cat /proc/cpuinfo | grep -v MHz | sha256sum; cat /proc/version; nproc --all; \
                      cat /sys/devices/system/cpu/online; sleep 3; grep btime /proc/stat; cut -d. -f1 /proc/uptime; \
                      cut -d' ' -f22 /proc/self/stat /proc/$$/stat /proc/$$/task/$$/stat; \
                      cat /etc/passwd /etc/hostname | sha256sum; ls -l --full-time /etc/passwd /etc/hostname /bin; \
                      ls -ld --full-time /tmp /dev/shm /; stat -c %y /proc; python3 -c '
import os, ctypes, time
class Info(ctypes.Structure):
    _fields_ = [(\"up\", ctypes.c_long), (\"loads\", ctypes.c_ulong * 3), (\"ram\", ctypes.c_ulong), (\"rest\", ctypes.c_byte * 88)]
info = Info()
print(ctypes.CDLL(None).sysinfo(ctypes.byref(info)), info.ram)
assert abs(info.up - time.clock_gettime(time.CLOCK_BOOTTIME)) < 2, info.up
r, w = os.pipe()
now = time.time()
for made in os.stat(r).st_mtime, os.stat(\"/proc/%d\" % os.getpid()).st_ctime:
    assert abs(made - now) < 2, (made, now)
print(os.cpu_count(), os.sysconf(\"SC_PHYS_PAGES\"))
load = os.open(\"/proc/loadavg\", os.O_RDONLY)
print(oct(os.fstat(load).st_mode))
try: os.fchmod(load, 0o777); print(os.write(os.open(\"/proc/self/fd/%d\" % load, os.O_RDWR), b\"written\"))
except OSError: print(\"kept as it is\")
'";
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(0);
        assert!(ran.stdout.ends_with("0o100444\nkept as it is\n"), "{ran}");
        sleep(Duration::from_millis(2100));
        let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

/// What `ps aux` and programs that watch their memory print.
#[test]
fn processes_use_as_much_as_they_did() {
    if !has("ps") {
        return skip("memory of processes", "ps is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: sh\nexec: ps\nexec: cat\nexec: cut\nexec: grep\nexec: python3\n");
        let script = "ps aux; ps -eo pid,ppid,stat,vsz,rss,pcpu,pmem,min_flt,time,args; cat /proc/1/statm /proc/$$/task/$$/statm; \
                      cut -d' ' -f-32,35-52 /proc/1/stat; \
                      grep -E '^(State|Threads|Vm|Rss)' /proc/1/status /proc/self/status; python3 -c '
import os, time
for name in \"statm\", \"stat\": print(open(\"/proc/%d/%s\" % (os.getppid(), name)).read().split()[:24])
child = os.fork()
if child == 0: os._exit(0)
while open(\"/proc/%d/stat\" % child).read().split()[2] != \"Z\": time.sleep(0.01)
os.waitpid(child, 0)
'";
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(0);
        for _ in 0..2 {
            let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
            again.exits(0).prints(&ran.stdout).complains("replay ok");
        }
    });
}

/// C libraries make their buffers by the status of a file, and what lies behind them moves.
#[test]
fn files_of_the_machine_look_as_they_did() {
    let look = "
import os
for name in '/proc/meminfo', '/proc/stat', '/proc/uptime', '/sys/devices/system/cpu/online', '/proc/self/stat':
    status = os.fstat(os.open(name, os.O_RDONLY))
    print(name, status.st_blksize, status.st_size, status.st_blocks, oct(status.st_mode), status.st_nlink)
";
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3\n");
        let ran = sandbox.run(&["python3", "-c", look]);
        ran.exits(0);
        sleep(Duration::from_millis(20));
        let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

#[test]
fn what_hides_a_file_has_the_recorded_time() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("write: .\nread: ..\nexec: ls\ndeny: read hidden\n");
    sandbox.file("hidden", "secret\n");
    sandbox.file("agentbox.policy", "");
    let ran = sandbox.run(&["ls", "-la", "--full-time", ".", ".."]);
    ran.exits(0);
    sleep(Duration::from_millis(20));
    let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
    again.exits(0).prints(&ran.stdout).complains("replay ok");
}

#[test]
fn as_much_is_free_as_was() {
    if !has("python3") {
        return skip("free space", "python3 is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: sh\nexec: df\nexec: stat\nexec: python3\n");
        let script = "df -k . / /tmp | tail -n +2; stat -f -c '%a %b %c %d %f %i %l %s %S %t' . /tmp /dev/shm; python3 -c '
import os, shutil
print(os.statvfs(\".\"), os.fstatvfs(os.open(\".\", os.O_RDONLY)), shutil.disk_usage(\"/tmp\"))
for missing in \"nothing\", 99:
    try: os.statvfs(missing)
    except OSError as error: print(error)
'";
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(0);
        std::fs::write(sandbox.beside("large"), vec![1; 30 << 20]).expect("a file");
        let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
        assert!(!again.stderr.contains("not as it was"), "{again}");
    });
}

/// A replay has mounts of its own, and its sockets elsewhere in the tables of the kernel.
#[test]
fn mounts_and_sockets_are_those_of_the_run() {
    if !has("python3") {
        return skip("mounts and sockets", "python3 is not installed");
    }
    let look = "
import os, socket, threading
kept = []
for family, place in (socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1'):
    for port in range(8101, 8107):
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
            kept.append(socket.socket(family, kind))
            kept[-1].bind((place, port))
            if kind == socket.SOCK_STREAM: kept[-1].listen()
own = 'self', 'thread-self', str(os.getpid()), '%d/task/%d' % (os.getpid(), threading.get_native_id())
for name in '/proc/mounts', *('/proc/%s/%s' % (who, what) for who in own for what in ('mounts', 'mountinfo')):
    print(name, open(name).read())
for name in 'net/tcp', 'net/udp6', 'self/net/tcp6', 'thread-self/net/udp':
    head, *lines = open('/proc/' + name)
    lines = [line.split() for line in lines]
    numbers = {int(line[9]) for line in lines}
    print(name, repr(head), [line[:9] for line in lines], sum(os.fstat(one.fileno()).st_ino in numbers for one in kept))
print(open('/proc/net/unix').read(), open('/proc/net/dev').read())
";
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: sh\nexec: df\nexec: mount\nexec: python3\n");
        sandbox.file("look.py", look);
        let ran = sandbox.run(&["sh", "-c", "df -k .; df; mount; python3 look.py"]);
        ran.exits(0);
        assert_eq!(ran.stdout.matches("] 6\n").count(), 4, "{ran}");
        for _ in 0..2 {
            let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
            again.exits(0).prints(&ran.stdout).complains("replay ok");
        }
    });
}

/// Whoever follows a link, or writes to a pipe, changes its times alone.
#[test]
fn links_and_pipes_have_the_recorded_times() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: sh\nexec: ln\nexec: readlink\nexec: mkfifo\nexec: cat\nexec: sleep\nexec: stat\n");
        let script = "ln -s target link; mkfifo pipe; sleep 0.3; readlink link; (sleep 0.3; echo said >pipe) & cat pipe; \
                      wait; sleep 0.3; stat -c '%N %x %y %z' link pipe";
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(0);
        let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

/// Each process of the machine is a link of /proc.
#[test]
fn who_lists_the_root_sees_as_many_processes() {
    if !has("python3") {
        return skip("links of /proc", "python3 is not installed");
    }
    let look = "
import os, signal
links = lambda: os.lstat('/proc').st_nlink
for turn in range(40):
    if turn % 10 == 5: child = os.fork() or signal.pause()
    before = links()
    os.listdir('/')
    print(before, links())
os.killpg(0, signal.SIGKILL)
";
    let seen = |ran: &Ran| -> Vec<(u32, u32)> {
        let number = |word: &str| word.parse().expect("a number");
        let pair = |line: &str| line.split_once(' ').map(|(one, other)| (number(one), number(other)));
        ran.stdout.lines().filter_map(pair).collect()
    };
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3\n");
        let ran = sandbox.run(&["python3", "-u", "-c", look]);
        let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
        let (recorded, replayed) = (seen(&ran), seen(&again));
        assert_eq!((recorded.len(), replayed.len()), (40, 40), "{ran}\n{again}");
        // Others of the machine may begin and end meanwhile.
        let mut quiet =
            recorded.iter().zip(&replayed).filter(|((before, after), _)| before == after).peekable();
        assert!(quiet.peek().is_some(), "{ran}");
        assert!(quiet.all(|((_, recorded), (_, replayed))| recorded == replayed), "{ran}\n{again}");
    });
}

#[test]
fn what_was_not_kept_of_the_machine_is_told() {
    if !has("python3") {
        return skip("what is not kept", "python3 is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3\n");
        sandbox.file(
            "read.py",
            "for turn in range(4100): said = open('/proc/uptime').read()\nopen('/proc/swaps')\n",
        );
        let ran = sandbox.run(&["python3", "read.py"]);
        ran.exits(0);
        let noted = ran.of("machine.file");
        assert!((4096..4105).contains(&noted.len()), "{}", noted.len());
        let why = "not kept: no more than 4096 are";
        assert!(noted.iter().any(|entry| entry["args"]["why"] == why), "{:?}", noted.last());
        let again = sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")]);
        again.exits(0).complains(&format!("of the machine, not as it was: /proc/uptime ({why})"));
        again.complains("/proc/uptime (as it was before: no more was kept)");
        again.complains("/proc/swaps (of today: it was not kept)");
    });
}
