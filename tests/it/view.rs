//! What a command finds around it: devices, /proc, temporary places, identity, privileges, environment.

use crate::support::{Running, Sandbox, User, everyone, has, skip};

#[test]
fn the_devices_that_programs_need_are_there_and_no_others() {
    everyone(|sandbox| {
        let ran = sandbox.python(
            "import os
names = set(os.listdir('/dev'))
need = set('null zero full random urandom tty ptmx pts fd stdin stdout stderr shm'.split())
print(sorted(need - names), sorted(names - need - {'mqueue', 'console', 'core'}))
print(open('/dev/null').read() == '', open('/dev/zero', 'rb').read(3), len(open('/dev/urandom', 'rb').read(5)))
print(open('/dev/null', 'w').write('x'), len(open('/dev/random', 'rb').read(2)))
try: os.write(os.open('/dev/full', os.O_WRONLY), b'x'); print('full takes bytes')
except OSError: print('full is full')
print(os.readlink('/dev/fd'), os.readlink('/dev/stdin'))
main, side = os.openpty(); os.write(side, b'x'); print(os.read(main, 1), os.ttyname(side).startswith('/dev/pts/'))",
        );
        ran.exits(0).prints(
            "[] []\nTrue b'\\x00\\x00\\x00' 5\n1 2\nfull is full\n/proc/self/fd /proc/self/fd/0\nb'x' True\n",
        );
        ran.denied_nothing();
    });
}

#[test]
fn temporary_places_exist_are_private_and_writable() {
    everyone(|sandbox| {
        sandbox.environment("TMPDIR", "/no/such/place").policy("exec: mktemp\nexec: rm");
        let ran = sandbox.python(
            "import os, stat, subprocess, tempfile
with tempfile.NamedTemporaryFile() as file: file.write(b'x'); print(file.name.startswith(os.environ['TMPDIR']))
print(len({os.environ[name] for name in ('TMPDIR', 'TMP', 'TEMP')}), os.path.isdir(os.environ['TMPDIR']))
print(subprocess.run(['mktemp'], stdout=-3).returncode)
open('/tmp/x', 'w').close(); print(os.listdir('/tmp').count('x'), os.path.isdir('/var/tmp'))
print(os.path.isdir(os.environ['HOME'])); open(os.environ['HOME'] + '/.cache', 'w').close()
open('/dev/shm/x', 'w').write('y'); print(open('/dev/shm/x').read())
print([name for name in os.listdir('/run')][:3] == [] or 'run has entries')",
        );
        ran.exits(0);
        assert!(ran.stdout.starts_with("True\n1 True\n0\n1 "), "{ran}");
        assert!(ran.stdout.contains("True\ny\n"), "{ran}");
        assert!(!std::path::Path::new("/tmp/x").exists() && !std::path::Path::new("/dev/shm/x").exists());
        let again =
            sandbox.python("import os; print(os.path.exists('/tmp/x'), os.path.exists('/dev/shm/x'))");
        again.exits(0).prints("False False\n");
    });
}

#[test]
fn pools_of_processes_work() {
    everyone(|sandbox| {
        let pool = "import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
def square(n): return n * n
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            print(list(pool.map(square, range(4))))
";
        sandbox.file("pool.py", pool);
        let ran = sandbox.run(&["python3", "pool.py"]);
        ran.exits(0).prints(&"[0, 1, 4, 9]\n".repeat(3));
    });
}

#[test]
fn modules_that_older_tools_broke_can_be_used() {
    everyone(|sandbox| {
        let ran = sandbox.python(
            "import ctypes, mimetypes, os, socket, ssl, tempfile, threading, uuid, pwd, grp, locale, zoneinfo
print(mimetypes.guess_type('a.html')[0], len(tempfile.mkdtemp()) > 0, len(os.urandom(4)))
print(pwd.getpwuid(os.getuid()).pw_uid == os.getuid(), grp.getgrgid(os.getgid()).gr_gid == os.getgid())
print(socket.getaddrinfo('localhost', 80)[0][4][0] in ('127.0.0.1', '::1'))
left, right = socket.socketpair(); left.send(b'x'); print(right.recv(1))
print(os.cpu_count() > 0, os.getloadavg() is not None)",
        );
        ran.exits(0).prints("text/html True 4\nTrue True\nTrue\nb'x'\nTrue True\n").denied_nothing();
    });
}

#[test]
fn there_is_no_privilege_left() {
    everyone(|sandbox| {
        let ran = sandbox.python(
            "import os
for line in open('/proc/self/status'):
    if line.split(':')[0] in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp'):
        print(*line.split())
print(os.getuid(), os.getgid(), os.getuid() == os.geteuid())
for act in (lambda: os.setuid(12345), lambda: os.setgroups([0]), lambda: os.chroot('/'), lambda: os.sethostname('x')
            if hasattr(os, 'sethostname') else os.chroot('/')):
    try: act(); print('done')
    except (PermissionError, OSError): print('refused')",
        );
        let user = if sandbox.user == User::Ordinary { 65534 } else { nix::unistd::getuid().as_raw() };
        let group = if sandbox.user == User::Ordinary { 65534 } else { nix::unistd::getgid().as_raw() };
        let none = "0000000000000000";
        ran.exits(0).prints(&format!(
            "CapInh: {none}\nCapPrm: {none}\nCapEff: {none}\nCapBnd: {none}\nCapAmb: {none}\nNoNewPrivs: 1\nSeccomp: 2\n\
             {user} {group} True\nrefused\nrefused\nrefused\nrefused\n"
        ));
    });
}

#[test]
fn the_launcher_and_its_environment_cannot_be_seen() {
    everyone(|sandbox| {
        sandbox.environment("SECRET_TOKEN", "hunter2");
        let ran = sandbox.python(
            "import os
print('SECRET_TOKEN' in os.environ, sorted(name for name in os.listdir('/proc') if name.isdigit())[:1], os.getppid())
for pid in (name for name in os.listdir('/proc') if name.isdigit()):
    for name in ('environ', 'mem', 'maps', 'cwd', 'exe', 'root', 'fd/0', 'fd/3', 'fd/7'):
        if pid == str(os.getpid()): continue
        try:
            path = '/proc/%s/%s' % (pid, name)
            found = os.readlink(path) if name in ('cwd', 'exe', 'root') else open(path, 'rb').read()
            print('saw', path, found)
        except OSError: pass
for pid in ('1', 'self'):
    try: print(b'hunter2' in open('/proc/%s/environ' % pid, 'rb').read())
    except OSError: print('refused')",
        );
        ran.exits(0);
        assert!(!ran.stdout.contains("saw") && !ran.stdout.contains("hunter2"), "{ran}");
        assert!(ran.stdout.starts_with("False ['1'] "), "{ran}");
        assert!(ran.stdout.ends_with("refused\nFalse\n"), "{ran}");
    });
}

#[test]
fn the_environment_is_what_rules_pass() {
    everyone(|sandbox| {
        for (name, value) in
            [("AWS_KEY", "1"), ("AWS_ID", "2"), ("OTHER", "3"), ("LC_TIME", "C"), ("PYTHONPATH", "/x")]
        {
            sandbox.environment(name, value);
        }
        sandbox.policy("env: AWS_*\ndeny: env AWS_ID\nenv: MODE=test");
        let ran = sandbox.python(
            "import os
for name in ('AWS_KEY', 'AWS_ID', 'OTHER', 'LC_TIME', 'PYTHONPATH', 'MODE', 'PATH', 'LANG'): print(name, os.environ.get(name))
print(os.environ['HOME'] != os.environ.get('OTHER') and os.path.isdir(os.environ['HOME']))",
        );
        ran.exits(0);
        let expected = "AWS_KEY 1\nAWS_ID None\nOTHER None\nLC_TIME C\nPYTHONPATH None\nMODE test\nPATH /";
        assert!(ran.stdout.starts_with(expected), "{ran}");
        let passed = ran.of("env.pass")[0].to_string();
        assert!(passed.contains("AWS_KEY") && passed.contains("MODE") && !passed.contains("OTHER"), "{ran}");
        assert!(!ran.entries.iter().any(|entry| entry.to_string().contains("hunter")), "{ran}");
        sandbox.policy("env: HOME");
        let home = sandbox.beside("home");
        let ran = sandbox.python("import os; print(os.environ['HOME'])");
        ran.exits(0).prints(&format!("{}\n", home.display()));
    });
}

#[test]
fn sockets_of_the_host_are_out_of_reach() {
    everyone(|sandbox| {
        sandbox.directory("data");
        let path = sandbox.path("data/host.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, mode).expect("chmod");
        sandbox.policy("read: ./data");
        let ran = sandbox.python(
            "import errno, os, socket
for path in ('data/host.sock', '/run/docker.sock', '/run/dbus/system_bus_socket', '\\0abstract'):
    try: socket.socket(socket.AF_UNIX).connect(path); print('connected')
    except OSError as error: print(errno.errorcode[error.errno])
print(sorted(os.listdir('/run')))",
        );
        ran.exits(0);
        assert!(!ran.stdout.contains("connected") && ran.stdout.starts_with("EACCES\n"), "{ran}");
    });
}

#[test]
fn the_working_directory_is_the_callers_wherever_it_is() {
    everyone(|sandbox| {
        sandbox
            .python("import os; print(os.getcwd())")
            .exits(0)
            .prints(&format!("{}\n", sandbox.path("").display().to_string().trim_end_matches('/')));
    });
}

#[test]
fn a_rule_for_everything_shows_the_working_directory_also_in_a_private_place() {
    everyone(|sandbox| {
        sandbox.file("a.txt", "there");
        let program = "import os; print(open('a.txt').read(), os.path.exists('/tmp/beside'))
try: open('b.txt', 'w')
except OSError as error: print(error.errno)";
        let beside = std::path::Path::new("/tmp/beside");
        let ran = sandbox.policy("read: /").run(&["python3", "-c", program]);
        ran.exits(0).prints("there False\n13\n");
        assert!(!beside.exists());
    });
}

#[test]
fn keys_beside_the_certificates_of_the_system_are_out_of_reach() {
    everyone(|sandbox| {
        let ran = sandbox.python(
            "import os
print(sorted(set(os.listdir('/etc/ssl')) - {'ca-bundle.pem', 'cert.pem', 'certs', 'openssl.cnf'}))
for path in ('/etc/ssl/private', '/etc/pki/tls/private', '/etc/pki/nssdb', '/etc/shadow'):
    try: print(path, os.listdir(path))
    except (FileNotFoundError, PermissionError, NotADirectoryError): pass
print(len(os.listdir('/etc/ssl/certs')) > 0)",
        );
        ran.exits(0).prints("[]\nTrue\n");
    });
}

#[test]
fn files_of_proc_about_the_machine_are_closed_and_those_that_programs_need_are_not() {
    everyone(|sandbox| {
        let program = "import errno
for name in ('keys', 'interrupts', 'timer_list', 'kpagecount', 'kpageflags', 'slabinfo', 'vmallocinfo', 'pagetypeinfo',
             'sched_debug', 'latency_stats', 'kcore', 'kmsg', 'sysrq-trigger'):
    try:
        with open('/proc/' + name, 'rb') as file: print(name, file.read(1))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT): print(name, error)
for name in ('cpuinfo', 'meminfo', 'stat', 'uptime', 'loadavg', 'version', 'filesystems', 'self/status', 'mounts',
             'sys/kernel/osrelease', 'sys/kernel/random/uuid', 'net/tcp'):
    with open('/proc/' + name) as file: assert file.read(1), name
for name in ('/proc/sys/kernel/hostname', '/proc/sys/vm/drop_caches', '/proc/irq/default_smp_affinity', '/proc/bus/x'):
    try: open(name, 'w'); print(name)
    except OSError as error: pass";
        let ran = sandbox.python(program);
        ran.exits(0).prints("").denied("read", "/proc/interrupts").complains("(to allow it: read: /proc/");
        // Who grants one of them has it.
        sandbox.policy("read: /proc/interrupts\nexec: head");
        sandbox.run(&["head", "-c", "1", "/proc/interrupts"]).exits(0).prints(" ");
    });
}

#[test]
fn traces_of_former_runs_are_closed_whatever_their_names() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: cat, rm, mv").directory("runs");
        for name in ["runs/one.jsonl", "runs/two.jsonl"] {
            let policy = sandbox.beside("agentbox.policy").display().to_string();
            sandbox.agentbox(&["run", "-p", &policy, "-t", name, "--", "true"]).exits(0);
        }
        let ran = sandbox.python(
            "import errno, os
for name in ('runs/one.jsonl', 'runs/two.jsonl'):
    for act in (lambda: open(name), lambda: open(name, 'a'), lambda: os.unlink(name), lambda: os.rename(name, 'x'),
                lambda: os.link(name, 'y'), lambda: os.rename('runs', 'z')):
        try: act(); print('done')
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EXDEV): print(error)
open('runs/three.jsonl', 'w').write('x')",
        );
        ran.exits(0).prints("").denied("read", "runs/one.jsonl").denied("write", "runs/two.jsonl");
    });
}

#[test]
fn interfaces_are_listed_and_no_other_netlink_family_is_there() {
    everyone(|sandbox| {
        let ran = sandbox.python(
            "import errno, socket
print(socket.if_nameindex())
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE).close()
for family in range(1, 23):
    try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family); print(family)
    except OSError as error: assert error.errno in (errno.EPROTONOSUPPORT, errno.EACCES, errno.EPERM), error",
        );
        ran.exits(0).prints("[(1, 'lo')]\n");
        if has("node") {
            let listed = "console.log(Object.keys(require('os').networkInterfaces()))";
            sandbox.run(&["node", "-e", listed]).exits(0).prints("[ 'lo' ]\n");
        }
    });
}

#[test]
fn limits_and_priorities_are_set_for_the_runs_own_processes_alone() {
    everyone(|sandbox| {
        let ran = sandbox.python(
            "import errno, os, resource, time
child = os.fork()
if child == 0: time.sleep(60)
acts = (lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)), lambda pid: os.sched_setaffinity(pid, {0}),
        lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
        lambda pid: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)))
for act in acts:
    for pid in (0, child, 1, 4000000):
        try: act(pid); print('done', end=' ')
        except OSError as error: print(errno.errorcode[error.errno], end=' ')
    print()
os.kill(child, 9)",
        );
        ran.exits(0);
        for line in ran.stdout.lines() {
            let said: Vec<_> = line.split_whitespace().collect();
            assert_eq!(said[..3], ["done", "done", "EPERM"], "{ran}");
            assert!(["EPERM", "ESRCH"].contains(&said[3]), "{ran}");
        }
        assert_eq!(ran.stdout.lines().count(), 4, "{ran}");
    });
}

/// Who may mount gives the run's own mounts to nobody, and what is mounted later to no run.
#[test]
fn processes_of_the_host_cannot_be_found_by_their_numbers() {
    everyone(|sandbox| {
        let pid = std::process::id();
        sandbox.directory("out");
        for policy in
            ["write: ./out", "write: ./out\ndeny: read /proc/*/environ", "write: ./out\nread: ./**/*.py"]
        {
            sandbox.policy(policy);
            let ran = sandbox.python(&format!(
                "import errno, os, socket
def act(function, *words):
    try: function(*words); print('done')
    except OSError as error: print(errno.errorcode[error.errno])
def tried(own):
    for path in (own, f'{{own}}/mem', f'{{own}}/environ', f'{{own}}/fd/0', f'{{own}}/cwd', f'{{own}}/root/etc/passwd', f'{{own}}/root/tmp'):
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_CREAT): act(os.open, path, flags)
        act(os.chmod, path, 0o600); act(os.unlink, path); act(os.mkdir, path); act(os.rename, path, 'out/x')
        act(os.link, path, 'out/x'); act(os.posix_spawn, path, ['x'], {{}}); act(os.chdir, path)
        act(socket.socket(socket.AF_UNIX).connect, path)
assert os.getpid() + 100 < {pid}
tried('/proc/{pid}'); print('--'); tried('/proc/4194303')"
            ));
            ran.exits(0);
            let (host, none) = ran.stdout.split_once("--\n").expect("both");
            assert!(host == none && host.contains("ENOENT") && !host.contains("done"), "{ran}");
        }
    });
}

#[test]
fn what_the_host_mounts_meanwhile_is_not_seen() {
    if !nix::unistd::geteuid().is_root() || !has("unshare") {
        return skip("mounts", "they take root and unshare");
    }
    let sandbox = Sandbox::new(User::Caller);
    sandbox.file("root/sub/file", "first");
    for rule in ["read: ./root", "write: ./root"] {
        sandbox.policy(rule);
        let program = "import os, time
print(open('root/sub/file').read(), flush=True)
while not os.path.exists('root/go'): time.sleep(0.02)
print(open('root/sub/file').read(), sorted(os.listdir('root/sub')))";
        let inside = sandbox.run_command(&[], &["python3", "-c", program]);
        let script = "mount --make-rshared / || exit 9
\"$@\" & sleep 1; mount -t tmpfs late root/sub && echo late >root/sub/late; : >root/go; wait $!";
        let environment: Vec<_> =
            inside.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        let mut words: Vec<std::ffi::OsString> =
            ["-m", "--propagation", "private", "sh", "-c", script, "sh"].map(Into::into).into();
        words.push(inside.get_program().to_owned());
        words.extend(inside.get_args().map(ToOwned::to_owned));
        let mut command = std::process::Command::new("unshare");
        command.args(words).current_dir(sandbox.path("")).env_clear();
        command.envs(environment.into_iter().filter_map(|(name, value)| Some((name, value?))));
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let ran = Running::start(command).finish();
        ran.exits(0).prints("first\nfirst ['file']\n");
        std::fs::remove_file(sandbox.path("root/go")).expect("the sign");
    }
}
