//! What a host may lack: the run goes on in another way, and the head of the trace says in which.

use nix::libc;
use serde_json::Value;

use super::{finish, prepare, refusing, wrapped};
use crate::support::{Ran, Sandbox, everyone, has, skip};

fn run_refusing(sandbox: &Sandbox, rules: &[String], words: &[&str]) -> Ran {
    let _ = std::fs::remove_file(sandbox.trace());
    let command = sandbox.run_command(&[], words);
    finish(sandbox, wrapped(sandbox, &refusing(sandbox, rules), &command))
}

fn capture(ran: &Ran, channel: &str) -> Value {
    ran.of("run.start")[0]["args"]["capture"][channel].clone()
}

fn mechanism(ran: &Ran, name: &str) -> Value {
    ran.of("run.start")[0]["args"]["mechanisms"][name].clone()
}

#[test]
fn without_clone3_the_older_call_makes_the_namespaces() {
    everyone(|sandbox| {
        prepare(sandbox);
        let rules = [format!("{}={}", libc::SYS_clone3, libc::ENOSYS)];
        let program = "import subprocess, threading
thread = threading.Thread(target=lambda: print('thread'))
thread.start(); thread.join()
open('out/x', 'w').write('x')
try: open('/etc/shadow')
except OSError as error: print(error.errno)";
        let ran = run_refusing(sandbox, &rules, &["python3", "-c", program]);
        ran.exits(0).prints("thread\n13\n").denied("read", "/etc/shadow");
        ran.recorded("fs.write", "path", "out/x");
        super::nothing_left(sandbox);
    });
}

#[test]
fn without_chroot_no_socket_is_bound_where_the_host_could_connect() {
    everyone(|sandbox| {
        prepare(sandbox);
        let rules = [format!("{}={}", libc::SYS_chroot, libc::EPERM)];
        let program = "import os, socket
bound = socket.socket(socket.AF_UNIX)
for _ in range(2):
    try: bound.bind('out/s')
    except OSError as error: print(error.errno, os.listdir('out'))
bound.bind('/tmp/s'); print(os.listdir('/tmp'), os.getcwd() == os.path.realpath('.'))";
        let ran = run_refusing(sandbox, &rules, &["python3", "-c", program]);
        ran.exits(0).prints("1 []\n1 []\n['s'] True\n");
        assert!(ran.of("fs.mknod").is_empty(), "{ran}");
        super::nothing_left(sandbox);
    });
}

#[test]
fn without_nf_tables_the_named_ports_are_carried_and_the_others_refused() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = other.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        use std::io::Write as _;
        for mut client in listener.incoming().flatten() {
            // A client that goes away has what it wanted.
            let _ = client.write_all(b"hello\n");
        }
    });
    everyone(|sandbox| {
        sandbox.policy(&format!("net: localhost:{port}"));
        let program = format!(
            "import socket
print(socket.create_connection(('localhost', {port}), 20).makefile().readline().strip())
for address in ('127.0.0.1', {closed}), ('203.0.113.7', {port}), ('203.0.113.7', 443):
    try: socket.create_connection(address, 20); print('connected')
    except OSError as error: print('refused')
try: socket.getaddrinfo('elsewhere.invalid', 80); print('resolved')
except OSError: print('unknown')"
        );
        for errno in [libc::EPROTONOSUPPORT, libc::EPERM] {
            let rules = [format!("{}:2:{}={errno}", libc::SYS_socket, libc::NETLINK_NETFILTER)];
            let ran = run_refusing(sandbox, &rules, &["python3", "-c", &program]);
            ran.exits(0).prints("hello\nrefused\nrefused\nrefused\nunknown\n");
            assert_eq!(mechanism(&ran, "network"), format!("ports (nf_tables: errno {errno})"), "{ran}");
            assert!(ran.denials("net").len() >= 4, "{ran}");
            sandbox.policy("net: localhost");
            let ran = run_refusing(sandbox, &rules, &["python3", "-c", &program]);
            assert!(
                ran.denials("net")[0]["rule"].as_str().is_some_and(|rule| rule.contains("nf_tables")),
                "{ran}"
            );
            sandbox.policy(&format!("net: localhost:{port}"));
        }
    });
}

/// As before Linux 6.15, where what is kept for a place that may appear has to be attached somewhere.
#[test]
fn where_only_attached_mounts_are_copied_places_that_appear_are_shown_as_well() {
    everyone(|sandbox| {
        // The one that finds that out; others do not follow links.
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_EMPTY_PATH.cast_unsigned();
        let looks = u64::from(flags);
        let program = "import os, re
shm = os.stat('/dev/shm'); open('/dev/shm/own', 'w').write('x')
print(os.listdir('/dev/shm'), os.listdir('/tmp'), os.listdir('.'), re.findall('/(?:work|home|late).* / ', open('/proc/self/mountinfo').read()))
os.makedirs('out/deep'); open('out/deep/x', 'w').write('made'); open('file', 'w').write('made')
try: open('other', 'w')
except OSError as error: print(error.errno)
for path in ('/dev/shm/..', '/dev/shm/../shm', '/tmp'): print(sorted(os.listdir(path))[:1], end=' ')
os.chdir('/dev/shm'); os.chdir('..'); print(os.getcwd(), 'shm' in os.listdir())";
        for rules in [&[][..], &[format!("{}:2:{looks}={}", libc::SYS_open_tree, libc::EINVAL)]] {
            sandbox.policy("write: ./out, ./file, ~/late");
            let ran = run_refusing(sandbox, rules, &["python3", "-c", program]);
            ran.exits(0);
            for name in ["out/deep/x", "file"] {
                assert_eq!(std::fs::read(sandbox.path(name)).expect("it was made"), b"made", "{ran}");
            }
            assert!(ran.stdout.contains("['own'] [] [] []\n13\n"), "{ran}");
            assert!(ran.stdout.ends_with("/dev True\n"), "{ran}");
            std::fs::remove_dir_all(sandbox.path("out")).expect("removed");
            std::fs::remove_file(sandbox.path("file")).expect("removed");
        }
    });
}

#[test]
fn without_landlock_the_view_and_the_supervisor_hold() {
    everyone(|sandbox| {
        prepare(sandbox);
        sandbox.file("secret", "hidden");
        for errno in [libc::ENOSYS, libc::EOPNOTSUPP] {
            let rules = [format!("{}={errno}", libc::SYS_landlock_create_ruleset)];
            let words = ["/bin/sh", "-c", "echo x >out/x; read line <secret || echo refused"];
            let ran = run_refusing(sandbox, &rules, &words);
            ran.exits(0).prints("refused\n").denied("read", "secret");
            assert_eq!(mechanism(&ran, "landlock"), false, "{ran}");
            assert_eq!(capture(&ran, "files read"), "enforced, recorded, racy", "{ran}");
            // Under full mediation the kernel opens nothing by itself.
            let policy = std::fs::read_to_string(sandbox.beside("agentbox.policy")).expect("the policy");
            sandbox.policy(&format!("{policy}\ndeny: read **/.env\n"));
            let ran = run_refusing(sandbox, &rules, &["/bin/true"]);
            assert_eq!(capture(&ran, "files read"), "enforced, recorded", "{ran}");
            sandbox.policy(&policy);
        }
        let ran = run_refusing(sandbox, &[], &["/bin/true"]);
        let kernel_has_it = std::path::Path::new("/sys/kernel/security/landlock").exists()
            || mechanism(&ran, "landlock") == true;
        assert_eq!(mechanism(&ran, "landlock"), kernel_has_it, "{ran}");
        let expected = if kernel_has_it { "enforced, recorded" } else { "enforced, recorded, racy" };
        assert_eq!(capture(&ran, "files read"), expected, "{ran}");
    });
}

/// Its owner would be the foreground group of the caller's terminal.
#[test]
fn without_a_scope_for_signals_no_descriptor_sends_any() {
    everyone(|sandbox| {
        prepare(sandbox);
        let rules = [format!("{}={}", libc::SYS_landlock_create_ruleset, libc::ENOSYS)];
        let program = "import errno, fcntl, os, signal, struct
signal.signal(signal.SIGIO, signal.SIG_IGN)
reader, writer = os.pipe()
def tried(act):
    try: act(); return 'done'
    except OSError as error: return errno.errorcode[error.errno]
print(tried(lambda: fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)),
      tried(lambda: fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGKILL)),
      tried(lambda: fcntl.ioctl(reader, 0x5452, struct.pack('i', 1))),
      tried(lambda: fcntl.fcntl(reader, fcntl.F_SETFL, os.O_NONBLOCK)))";
        run_refusing(sandbox, &rules, &["python3", "-c", program])
            .exits(0)
            .prints("EPERM EPERM EPERM done\n");
    });
}

/// Landlock keeps programs from message queues, which lie in no directory.
#[test]
fn without_landlock_a_message_queue_waits_as_long_in_a_replay() {
    if !has("gcc") {
        return skip("a message queue", "there is no gcc");
    }
    everyone(|sandbox| {
        prepare(sandbox);
        let source = sandbox.file("queue.c", include_str!("queue.c"));
        let built = std::process::Command::new("gcc")
            .arg("-o")
            .arg(sandbox.path("queue"))
            .arg(source)
            .arg("-lrt")
            .status();
        assert!(built.expect("gcc").success());
        sandbox.policy("exec: ./queue");
        let rules = [format!("{}={}", libc::SYS_landlock_create_ruleset, libc::ENOSYS)];
        let ran = run_refusing(sandbox, &rules, &["./queue"]);
        let timed_out = "Connection timed out -1";
        let lines: Vec<_> =
            ran.stdout.lines().map(|line| line.rsplit_once(' ').unwrap_or_default().0).collect();
        assert_eq!(lines, [timed_out, timed_out, timed_out, "done 1"], "{ran}");
        let trace = sandbox.trace();
        let replay = sandbox.command(&["replay", "-t", trace.to_str().expect("text")]);
        let again = finish(sandbox, wrapped(sandbox, &refusing(sandbox, &rules), &replay));
        assert_eq!(again.stdout, ran.stdout, "{again}");
        again.exits(0).complains("replay ok");
    });
}

#[test]
fn without_socket_look_ups_connections_are_recorded_without_their_process() {
    let host = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = host.local_addr().expect("bound").port();
    everyone(|sandbox| {
        prepare(sandbox);
        let rules = [format!("{}:2:{}={}", libc::SYS_socket, libc::NETLINK_SOCK_DIAG, libc::EPERM)];
        sandbox.policy("net: localhost");
        // The host's own, and then a server inside at the same port.
        let program = format!(
            "import socket
socket.create_connection(('127.0.0.1', {port}), 20)
server = socket.create_server(('127.0.0.1', {port}))
socket.create_connection(('127.0.0.1', {port}), 20); server.accept(); print('inside')"
        );
        let ran = run_refusing(sandbox, &rules, &["python3", "-c", &program]);
        ran.exits(0).prints("inside\n");
        assert_eq!(ran.of("net.connect").len(), 1, "{ran}");
        run_refusing(sandbox, &rules, &["/bin/sh", "-c", "echo RAN"]).exits(0).prints("RAN\n");
    });
}

#[test]
fn a_file_system_that_cannot_reserve_is_written_line_by_line() {
    everyone(|sandbox| {
        prepare(sandbox);
        let rules = [format!("{}={}", libc::SYS_fallocate, libc::EOPNOTSUPP)];
        let ran = run_refusing(sandbox, &rules, &["/bin/sh", "-c", "echo x >out/x"]);
        ran.exits(0).recorded("fs.write", "path", "out/x");
    });
}
