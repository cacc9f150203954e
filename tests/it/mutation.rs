//! Changes other than writing: links, renames, modes, special files, and who may see what they leave.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use sha2::{Digest as _, Sha256};

use crate::support::{Ran, Sandbox, User, everyone, skip};

/// Does each act and prints `done` or the name of its errno.
const ACTS: &str = "import ctypes, errno, os, stat
def act(function, *words, **options):
    try: function(*words, **options); print('done', end=' ')
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
";

fn python(sandbox: &Sandbox, program: &str) -> Ran {
    sandbox.python(&format!("{ACTS}{program}"))
}

#[test]
fn nothing_outside_of_write_roots_is_changed() {
    everyone(|sandbox| {
        sandbox.file("data/in.txt", "in");
        sandbox.file("other.txt", "other");
        sandbox.directory("data/empty");
        sandbox.directory("out");
        sandbox.policy("read: ./data\nwrite: ./out");
        let ran = python(
            sandbox,
            "for path in ('data/in.txt', 'other.txt'):
    act(os.chmod, path, 0o600); act(os.utime, path, (1, 1)); act(os.truncate, path, 0); act(os.unlink, path)
    act(os.rename, path, 'out/taken'); act(os.setxattr, path, 'user.x', b'1'); act(os.chown, path, -1, os.getgid())
for path in ('data/new', 'new'):
    act(os.mkdir, path); act(os.symlink, 'x', path); act(os.mkfifo, path); act(os.mknod, path)
    act(os.rename, 'out', path)
act(os.rmdir, 'data/empty')
open('out/mine', 'w').close(); act(os.rename, 'out/mine', 'data/mine'); act(os.link, 'out/mine', 'mine')
print()",
        );
        ran.exits(0);
        assert!(!ran.stdout.contains("done"), "{ran}");
        for errno in ran.stdout.split_whitespace() {
            assert!(["EACCES", "EXDEV", "EROFS", "EPERM", "EBUSY"].contains(&errno), "{ran}");
        }
        assert_eq!(fs::read(sandbox.path("data/in.txt")).expect("the file"), b"in");
        assert_eq!(fs::read(sandbox.path("other.txt")).expect("the file"), b"other");
        for name in ["data/new", "new", "data/mine", "mine", "out/taken"] {
            assert!(fs::symlink_metadata(sandbox.path(name)).is_err(), "{name} was made");
        }
        ran.denied("write", "data/in.txt").denied("write", "other.txt");
    });
}

#[test]
fn a_change_of_what_is_absent_is_no_such_file_and_no_denial() {
    everyone(|sandbox| {
        sandbox.file("data/in.txt", "in");
        sandbox.file("other.txt", "other");
        sandbox.directory("out");
        for policy in
            ["read: ./data\nwrite: ./out", "read: ./data\nwrite: ./out\ndeny: write **/none, /**/none"]
        {
            sandbox.policy(policy);
            let ran = python(
                sandbox,
                "for path in ('data/none', 'none', 'out/none', '/usr/none', '/none', '/etc/none', 'none/none'):
    act(os.chmod, path, 0o600); act(os.utime, path, (1, 1)); act(os.truncate, path, 0); act(os.unlink, path)
    act(os.rmdir, path); act(os.rename, path, 'out/taken'); act(os.link, path, 'out/taken')
    act(os.setxattr, path, 'user.x', b'1'); act(os.removexattr, path, 'user.x'); act(os.chown, path, -1, -1)
    act(os.open, path, os.O_WRONLY); act(os.open, path, os.O_RDWR | os.O_TRUNC); act(os.open, path, os.O_TMPFILE | os.O_RDWR)
print()
for path in ('data/in.txt/x', 'out/file/x'):
    open('out/file', 'w').close()
    act(os.open, path, os.O_RDONLY); act(os.open, path, os.O_WRONLY); act(os.open, path, os.O_WRONLY | os.O_CREAT)
    act(os.unlink, path); act(os.mkdir, path); act(os.chmod, path, 0o600)
print()",
            );
            ran.exits(0);
            let mut lines = ran.stdout.lines();
            let all = |errno, line: Option<&str>| {
                line.is_some_and(|line| line.split_whitespace().all(|it| it == errno))
            };
            assert!(all("ENOENT", lines.next()) && all("ENOTDIR", lines.next()), "{ran}");
            assert!(ran.stderr.contains(" 0 denials"), "{ran}");
        }
    });
}

#[test]
fn a_hard_link_needs_rights_on_both_names() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        sandbox.file("data/in.txt", "in");
        sandbox.directory("out");
        sandbox.policy("read: ./data\nwrite: ./out");
        let ran = python(
            sandbox,
            "act(os.link, 'secret.txt', 'out/a'); act(os.link, 'data/in.txt', 'out/b'); act(os.link, 'none', 'out/c')
open('out/d', 'w').write('d'); act(os.link, 'out/d', 'out/e'); print(open('out/e').read())",
        );
        ran.exits(0);
        let words: Vec<_> = ran.stdout.split_whitespace().collect();
        assert!(["EACCES", "EXDEV"].contains(&words[0]) && ["EACCES", "EXDEV"].contains(&words[1]), "{ran}");
        assert_eq!(words[2..], ["ENOENT", "done", "d"], "{ran}");
        assert!(!sandbox.path("out/a").exists() && !sandbox.path("out/b").exists());
        assert_eq!(ran.of("fs.link").len(), 1, "{ran}");
    });
}

#[test]
fn renames_and_links_across_roots_are_exdev_and_mv_copies() {
    everyone(|sandbox| {
        sandbox.file("one/a", "a");
        sandbox.directory("two");
        sandbox.policy("write: ./one\nwrite: ./two\nexec: mv");
        let ran = python(
            sandbox,
            "import subprocess
act(os.rename, 'one/a', 'two/a'); act(os.link, 'one/a', 'two/b')
print(subprocess.run(['mv', 'one/a', 'two/c']).returncode)",
        );
        ran.exits(0).prints("EXDEV EXDEV 0\n");
        assert_eq!(fs::read(sandbox.path("two/c")).expect("the file"), b"a");
        assert!(!sandbox.path("one/a").exists());
    });
}

#[test]
fn setuid_and_setgid_modes_and_security_attributes_are_refused() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = python(
            sandbox,
            "open('out/f', 'w').close()
act(os.chmod, 'out/f', 0o4755); act(os.chmod, 'out/f', 0o2755)
act(os.fchmod, os.open('out/f', os.O_RDWR), 0o6755)
act(os.open, 'out/g', os.O_CREAT | os.O_WRONLY, 0o4755)
act(os.mkdir, 'out/d', 0o2755); act(os.mknod, 'out/n', 0o4755 | stat.S_IFREG)
act(os.setxattr, 'out/f', 'security.capability', b'1' * 20)
act(os.mknod, 'out/null', 0o666 | stat.S_IFCHR, os.makedev(1, 3))
act(os.chmod, 'out/f', 0o755)
print()",
        );
        ran.exits(0);
        let words: Vec<_> = ran.stdout.split_whitespace().collect();
        assert!(!words[..8].contains(&"done") && words[8] == "done", "{ran}");
        for (name, times) in [("out/f", 4), ("out/g", 1), ("out/d", 1), ("out/n", 1), ("out/null", 1)] {
            let it = |entry: &&&serde_json::Value| {
                let target = entry["args"]["target"].as_str().unwrap_or_default();
                target.ends_with(name) && entry["rule"].as_str().unwrap_or_default().contains(" never ")
            };
            let denials = ran.denials("write");
            let counts = denials.iter().filter(it).map(|entry| entry["args"]["count"].as_u64().unwrap_or(1));
            assert_eq!(counts.sum::<u64>(), times, "{name}\n{ran}");
        }
        for entry in fs::read_dir(sandbox.path("out")).expect("a directory") {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("metadata").permissions().mode();
            assert_eq!(mode & 0o6000, 0, "{}", entry.path().display());
        }
    });
}

#[test]
fn special_files_work_where_the_agent_may_write() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = python(
            sandbox,
            "import socket, threading
os.mkfifo('out/pipe')
reader = threading.Thread(target=lambda: print(open('out/pipe').read())); reader.start()
with open('out/pipe', 'w') as pipe: pipe.write('through')
reader.join()
server = socket.socket(socket.AF_UNIX); server.bind('out/socket'); server.listen()
client = socket.socket(socket.AF_UNIX); client.connect('out/socket')
peer, _ = server.accept(); client.sendall(b'hi'); print(peer.recv(9))
os.symlink('pipe', 'out/l'); print(os.readlink('out/l'))
file = os.open('out', os.O_TMPFILE | os.O_RDWR, 0o600); print(os.write(file, b'abc'))",
        );
        ran.exits(0).prints("through\nb'hi'\npipe\n3\n").denied_nothing();
    });
}

#[test]
fn files_made_have_the_mode_that_the_umask_leaves() {
    everyone(|sandbox| {
        sandbox.directory("out");
        for policy in ["write: ./out", "write: ./out\ndeny: read **/.env"] {
            sandbox.policy(policy);
            let ran = python(
                sandbox,
                "import shutil
os.umask(0o027); open('out/f', 'w').close(); os.mkdir('out/d')
print(oct(os.stat('out/f').st_mode), oct(os.stat('out/d').st_mode), os.stat('out/f').st_uid == os.getuid())
shutil.rmtree('out/d'); os.unlink('out/f')",
            );
            ran.exits(0).prints("0o100640 0o40750 True\n");
        }
    });
}

#[test]
fn a_descriptor_that_was_opened_stays_good_and_no_other_comes_from_it() {
    everyone(|sandbox| {
        sandbox.file("data/in.txt", "in");
        sandbox.policy("read: ./data");
        let ran = python(
            sandbox,
            "file = os.open('data/in.txt', os.O_RDONLY)
act(os.open, '/proc/self/fd/%d' % file, os.O_RDWR); act(os.open, '/dev/fd/%d' % file, os.O_WRONLY | os.O_TRUNC)
act(os.open, '/proc/self/fd/%d' % file, os.O_RDONLY)
path = os.open('data/in.txt', os.O_PATH); act(os.open, '/proc/self/fd/%d' % path, os.O_RDWR)
act(os.fchmod, file, 0o777); act(os.ftruncate, file, 0)
print()",
        );
        ran.exits(0);
        let words: Vec<_> = ran.stdout.split_whitespace().collect();
        assert_eq!(words.iter().filter(|word| **word == "done").count(), 1, "{ran}");
        assert_eq!(words[2], "done", "{ran}");
        assert_eq!(fs::read(sandbox.path("data/in.txt")).expect("the file"), b"in");
    });
}

/// Else what is written there next would stay in a private directory, and be told of as written.
#[test]
fn a_root_itself_is_neither_removed_nor_moved() {
    everyone(|sandbox| {
        sandbox.file("../home/one/file", "old");
        for name in ["../home/out", "../home/other", "tools", "out"] {
            sandbox.directory(name);
        }
        sandbox.policy("read: .\nwrite: ~/one/file, ~/out, ~/other, ./out");
        let ran = python(
            sandbox,
            "import pwd, shutil
os.chdir(os.path.dirname(os.getcwd()) + '/home')
for way in (os.unlink, os.remove): act(way, 'one/file')
for path in ('out', '../work/out', '/proc/self/cwd/out', 'out/'): act(os.rmdir, path)
act(shutil.rmtree, 'out'); act(os.rename, 'out', 'other'); act(os.rename, 'one/file', 'out/file')
open('out/new', 'w').write('new'); act(os.rename, 'out/new', 'one/file')
rename = ctypes.CDLL(None, use_errno=True).renameat2
print(rename(-100, b'out', -100, b'other', 2), errno.errorcode[ctypes.get_errno()])
open('one/file', 'w').write('new'); os.mkdir('out/inner'); os.rmdir('out/inner')",
        );
        ran.exits(0).prints(&format!("{}-1 EBUSY\n", "EBUSY ".repeat(10)));
        for name in ["../home/one/file", "../home/out/new"] {
            assert_eq!(fs::read(sandbox.path(name)).expect("the file"), b"new", "{name}");
        }
        let count = |op: &str| ran.entries.iter().filter(|entry| entry["op"] == op).count();
        assert_eq!((count("fs.rename"), count("fs.delete")), (0, 1), "{ran}");
    });
}

/// What is written through each descriptor ends under the other name.
#[test]
fn files_that_change_names_while_they_are_written_are_recorded_by_the_last_ones() {
    everyone(|sandbox| {
        sandbox.file("out/a", "");
        sandbox.file("out/b", "");
        sandbox.policy("write: ./out");
        let ran = python(
            sandbox,
            "a, b = (os.open('out/' + name, os.O_WRONLY) for name in 'ab')
print(ctypes.CDLL(None).renameat2(-100, b'out/a', -100, b'out/b', 2))
os.write(a, b'first'); os.write(b, b'second'); os.close(a); os.close(b)",
        );
        ran.exits(0).prints("0\n");
        for (name, content) in [("out/b", "first"), ("out/a", "second")] {
            assert_eq!(fs::read_to_string(sandbox.path(name)).expect("the file"), content);
            let path = sandbox.path(name).display().to_string();
            let mut told =
                ran.of("fs.write").into_iter().filter(|entry| entry["args"]["path"] == path.as_str());
            let digest: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
            let last = told.next_back().unwrap_or_else(|| panic!("no fs.write of {name}: {ran}"));
            assert_eq!(last["args"]["sha256"], digest.as_str(), "{ran}");
        }
    });
}

/// What the host makes there is mounted below a directory of the run's own, which would take it along.
#[test]
fn a_directory_on_the_way_to_a_place_that_may_come_is_not_moved() {
    everyone(|sandbox| {
        let name = format!(
            "/tmp/agentbox-{}-{}",
            std::process::id(),
            sandbox.beside("").file_name().expect("a name").display()
        );
        sandbox.policy(&format!("write: {name}/x/out\ndeny: write {name}/**/*.sh"));
        let ran = python(
            sandbox,
            &format!(
                "os.makedirs('{name}/x'); os.mkdir('{name}.other'); act(os.rename, '{name}', '/tmp/gone')
act(os.rename, '{name}.other', '/tmp/free'); act(os.rename, '{name}/x', '/tmp/gone'); print()"
            ),
        );
        ran.exits(0).prints("EBUSY done EBUSY \n");
    });
}

/// FS_IOC_SETVERSION works through descriptors for reading.
#[test]
fn a_file_that_is_only_read_keeps_its_generation() {
    everyone(|sandbox| {
        sandbox.file("out/locked", "locked");
        sandbox.policy("write: ./out\ndeny: write ./out/locked");
        let ran = python(
            sandbox,
            "import fcntl
file = os.open('out/locked', os.O_RDONLY)
for number in (0x40087602, 0x40086604): act(fcntl.ioctl, file, number, bytes(8))
print()",
        );
        ran.exits(0).prints("ENOTSUP ENOTSUP \n");
    });
}

#[test]
fn what_may_change_among_the_systems_files_is_recorded_when_it_is_read() {
    if !nix::unistd::geteuid().is_root() {
        return skip("all of it", "only root makes a directory in /usr");
    }
    let there = tempfile::tempdir_in("/usr/share").expect("a directory");
    let path = there.path().join("file.txt").display().to_string();
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(&format!("write: {}", there.path().display()));
    let ran = python(&sandbox, &format!("open('{path}', 'w').write('new'); print(open('{path}').read())"));
    ran.exits(0).prints("new\n").recorded("fs.open_read", "path", &path);
}

/// The policy and the trace lie on some disk, by other names or none.
#[test]
fn no_disk_is_opened_as_a_whole() {
    if !nix::unistd::geteuid().is_root() {
        return skip("all of it", "only root opens disks");
    }
    let sandbox = Sandbox::new(User::Caller);
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
    let device = nix::sys::stat::makedev(7, 200);
    let disk = sandbox.path("disk");
    nix::sys::stat::mknod(&disk, nix::sys::stat::SFlag::S_IFBLK, mode, device).expect("a node");
    sandbox.policy("write: .");
    let program = format!("{ACTS}act(open, 'disk'); act(open, 'disk', 'r+b'); print()");
    let ran = sandbox.run_with(&["--observe"], &["python3", "-c", &program]);
    ran.exits(0).prints("EACCES EACCES \n").denied("read", "disk").denied("write", "disk");
    if !std::path::Path::new("/dev/userfaultfd").exists() {
        return skip("userfaultfd", "this kernel has no device for it");
    }
    let program = format!("{ACTS}act(open, '/dev/userfaultfd'); act(open, '/dev/fuse', 'rb'); print()");
    let ran = sandbox.run_with(&["--observe"], &["python3", "-c", &program]);
    ran.exits(0).denied("read", "/dev/userfaultfd");
    assert!(ran.stdout.starts_with("EACCES "), "{ran}");
}

#[test]
fn what_a_mapping_stores_after_its_file_was_closed_is_in_the_last_digest() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = python(
            sandbox,
            "import time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
file = os.open('out/mapped', os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(file, 4096)
at = libc.mmap(None, ctypes.c_size_t(4096), 3, 1, file, ctypes.c_long(0))
os.close(file)
time.sleep(0.3)
ctypes.memmove(at, b'later', 5)",
        );
        ran.exits(0);
        let content = fs::read(sandbox.path("out/mapped")).expect("the file");
        assert_eq!(&content[..5], b"later");
        let digest: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let told = ran.of("fs.write").into_iter().next_back().expect("an entry");
        assert_eq!(told["args"]["sha256"], digest.as_str(), "{ran}");
    });
}
