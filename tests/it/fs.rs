//! Files: what a rule shows and what it hides, globs, denials, digests, and names of every kind.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use sha2::{Digest as _, Sha256};

use nix::sys::signal::Signal;

use crate::support::{Ran, Running, Sandbox, everyone, until};

/// What opening says: the content, or the name of the errno.
const OPEN: &str = "import errno, os
def try_open(path, mode='r'):
    try:
        with open(path, mode) as file: return file.read() if mode == 'r' else file.write('x')
    except OSError as error: return errno.errorcode[error.errno]
";

fn python(sandbox: &Sandbox, program: &str) -> Ran {
    sandbox.python(&format!("{OPEN}{program}"))
}

pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn only_what_a_rule_names_is_read_and_each_file_is_recorded_with_its_digest() {
    everyone(|sandbox| {
        let big = vec![b'x'; 3_000_000];
        sandbox.file("data/small.txt", "small");
        sandbox.file("data/big.bin", &big);
        sandbox.file("secret.txt", "hidden");
        sandbox.policy("read: ./data");
        let ran = python(
            sandbox,
            "print(try_open('data/small.txt'), len(try_open('data/big.bin')))
print(try_open('secret.txt'), try_open('data/../secret.txt'), try_open('data/none'), try_open('none'))
print(try_open('data/new', 'w'), try_open('data/small.txt', 'w'), try_open('new', 'w'))",
        );
        ran.exits(0).prints("small 3000000\nEACCES EACCES ENOENT ENOENT\nEACCES EACCES EACCES\n");
        ran.denied("read", "secret.txt").denied("write", "data/new").denied("write", "data/small.txt");
        for (name, content) in [("data/small.txt", b"small".as_slice()), ("data/big.bin", &big)] {
            let entry = ran.recorded("fs.open_read", "path", name);
            assert_eq!(entry["args"]["sha256"], sha256(content), "{ran}");
            assert!(entry["rule"].as_str().is_some_and(|rule| rule.ends_with("policy:1")), "{ran}");
        }
        assert!(!sandbox.path("new").exists() && !sandbox.path("data/new").exists());
    });
}

#[test]
fn a_write_root_is_written_read_and_recorded_with_the_final_digest() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out");
        sandbox.directory("out");
        let ran = python(
            sandbox,
            "os.makedirs('out/a/b')
for text in ('first', 'second and last'):
    with open('out/a/b/file', 'w') as file: file.write(text)
print(try_open('out/a/b/file'))
os.rename('out/a/b/file', 'out/moved')
open('out/gone', 'w').close(); os.unlink('out/gone')
os.rmdir('out/a/b')",
        );
        ran.exits(0).prints("second and last\n").denied_nothing();
        assert_eq!(fs::read(sandbox.path("out/moved")).expect("the file"), b"second and last");
        let digest = sha256("second and last");
        assert!(ran.of("fs.write").iter().any(|entry| entry["args"]["sha256"] == *digest), "{ran}");
        ran.recorded("fs.mkdir", "path", "out/a");
        ran.recorded("fs.delete", "path", "out/gone");
        assert_eq!(ran.of("fs.rename").len(), 1, "{ran}");
        assert_eq!(ran.of("fs.delete").len(), 2, "{ran}");
    });
}

#[test]
fn a_program_that_opens_many_files_has_the_processors_that_it_chose() {
    everyone(|sandbox| {
        sandbox.file("data/file", "content");
        sandbox.policy("read: ./data");
        let ran = python(
            sandbox,
            "import threading
def seen():
    masks = set()
    for _ in range(300):
        with open('data/file', 'rb', buffering=0) as file: masks.add(frozenset(os.sched_getaffinity(0)))
    return masks
all = os.sched_getaffinity(0)
print(seen() == {frozenset(all)})
thread = threading.Thread(target=lambda: print(seen() == {frozenset(all)})); thread.start(); thread.join()
one = {max(all)}; os.sched_setaffinity(0, one)
print(seen() == {frozenset(one)})",
        );
        ran.exits(0).prints("True\nTrue\nTrue\n");
        assert!(
            ran.of("fs.open_read").iter().any(|entry| entry["args"]["sha256"] == *sha256("content")),
            "{ran}"
        );
    });
}

#[test]
fn what_a_shared_mapping_stores_is_in_the_digest_of_the_next_open() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        // Later stores leave the time of the first; digests are remembered after two seconds.
        let ran = python(
            sandbox,
            "import mmap, time
with open('out/file', 'w') as file: file.write('..........')
with open('out/file', 'r+b') as file: memory = mmap.mmap(file.fileno(), 0)
memory[:1] = b'1'; time.sleep(3.1)
print(try_open('out/file'))
memory[1:2] = b'2'
print(try_open('out/file'))",
        );
        ran.exits(0).prints("1.........\n12........\n");
        let reads = ran.of("fs.open_read");
        let reads: Vec<_> = reads.iter().filter_map(|entry| entry["args"]["sha256"].as_str()).collect();
        assert_eq!(reads, [sha256("1........."), sha256("12........")], "{ran}");
    });
}

#[test]
fn globs_and_denials_hold_for_files_that_are_made_later() {
    everyone(|sandbox| {
        sandbox.file("src/a.py", "a");
        sandbox.file("src/deep/b.py", "b");
        sandbox.file("src/c.txt", "c");
        sandbox.file("out/.env", "key");
        sandbox.policy("read: ./src/**/*.py\nwrite: ./out\ndeny: read **/.env\ndeny: write ./out/*.lock");
        let ran = python(
            sandbox,
            "print(try_open('src/a.py'), try_open('src/deep/b.py'), try_open('src/c.txt'), try_open('src/d.txt'))
print(try_open('out/.env'), try_open('out/x.lock', 'w'), try_open('out/plain', 'w'))
os.makedirs('out/later'); print(try_open('out/later/.env'))
open('out/later/env', 'w').write('key')
for act in (lambda: os.rename('out/later/env', 'out/later/.env'), lambda: os.link('out/later/env', 'out/y.lock'),
            lambda: os.symlink('env', 'out/z.lock'), lambda: os.rename('out/later/env', 'out/w.lock')):
    try: act(); print('done')
    except OSError as error: print(errno.errorcode[error.errno])
print(try_open('out/later/.env'), sorted(os.listdir('out')))",
        );
        ran.exits(0);
        let lines: Vec<_> = ran.stdout.lines().collect();
        assert_eq!(lines[0], "a b EACCES ENOENT", "{ran}");
        assert_eq!(lines[1], "EACCES EACCES 1", "{ran}");
        assert_eq!(lines[2], "ENOENT", "{ran}");
        assert_eq!(lines[4..7], ["EACCES"; 3], "{ran}");
        assert!(lines[7] == "EACCES ['.env', 'later', 'plain']" || lines[7].starts_with("ENOENT"), "{ran}");
        ran.denied("read", "out/.env").denied("write", "x.lock").denied("read", "src/c.txt");
        assert!(!sandbox.path("out/x.lock").exists() && !sandbox.path("out/y.lock").exists());
    });
}

#[test]
fn a_denial_wins_wherever_it_stands_and_nested_rules_add_up() {
    everyone(|sandbox| {
        for name in ["t/open.txt", "t/closed/a.txt", "t/closed/again/b.txt", "t/out/c.txt"] {
            sandbox.file(name, name);
        }
        sandbox.policy("deny: read ./t/closed\nread: ./t\nread: ./t/closed/again\nwrite: ./t/out\ndeny: write ./t/out/c.txt");
        let ran = python(
            sandbox,
            "print(try_open('t/open.txt'), try_open('t/closed/a.txt'), try_open('t/closed/again/b.txt'))
print(try_open('t/out/c.txt'), try_open('t/out/c.txt', 'w'), try_open('t/out/d.txt', 'w'), try_open('t/e.txt', 'w'))
print(try_open('t/closed/new', 'w'))",
        );
        ran.exits(0).prints("t/open.txt EACCES EACCES\nt/out/c.txt EACCES 1 EACCES\nEACCES\n");
    });
}

#[test]
fn symlinks_grant_nothing_and_both_spellings_of_a_root_match() {
    everyone(|sandbox| {
        sandbox.file("real/in.txt", "in");
        sandbox.file("secret.txt", "hidden");
        sandbox.link("real", "alias");
        sandbox.link("../secret.txt", "real/leak");
        sandbox.link("/nowhere/at/all", "real/dangling");
        sandbox.directory("out");
        sandbox.policy("read: ./alias\nwrite: ./out");
        let ran = python(
            sandbox,
            "print(try_open('alias/in.txt'), try_open('real/in.txt'), try_open('alias/leak'), try_open('real/leak'))
print(try_open('real/dangling'))
os.symlink('../secret.txt', 'out/l'); print(try_open('out/l'), try_open('out/l', 'w'))
os.symlink('new', 'out/m'); print(try_open('out/m', 'w'))",
        );
        ran.exits(0).prints("in in EACCES EACCES\nENOENT\nEACCES EACCES\n1\n");
        let entry = ran.recorded("fs.open_read", "path", "alias/in.txt");
        assert_eq!(entry["args"]["resolved"], sandbox.path("real/in.txt").to_str().expect("a name"), "{ran}");
    });
}

#[test]
fn names_of_every_kind_are_recorded_without_loss_and_forge_no_row() {
    everyone(|sandbox| {
        let names: [&[u8]; 6] = [
            b"a\nb",
            b"a\x1b[31m\x1b]0;x\x07b",
            b"a\xff\xfeb",
            b"a\tb 'c' \"d\"\\",
            b"\xe2\x80\xa8a",
            b"a,b#c",
        ];
        for name in names {
            sandbox.file(OsStr::from_bytes(&[b"data/", name].concat()), "x");
            sandbox.file(OsStr::from_bytes(&[b"closed/", name].concat()), "x");
        }
        sandbox.directory("out");
        sandbox.policy("read: ./data\nwrite: ./out");
        let ran = python(
            sandbox,
            "for name in sorted(os.listdir(b'data')):
    assert try_open(b'data/' + name) == 'x'
    assert try_open(b'closed/' + name) == 'EACCES'
    assert try_open(b'out/' + name, 'w') == 1",
        );
        ran.exits(0).denied("read", "a\nb");
        // The directory is read as well.
        for (op, count) in [("fs.open_read", 7), ("fs.open_write", 6), ("read", 6), ("fs.write", 6)] {
            assert_eq!(ran.of(op).len(), count, "{op}\n{ran}");
        }
        let bytes = |entry: &serde_json::Value| entry["args"]["path_hex"].as_str().map(str::to_owned);
        assert!(
            ran.of("fs.open_read").into_iter().filter_map(bytes).any(|hex| hex.ends_with("61fffe62")),
            "{ran}"
        );
        let trace = sandbox.trace();
        let shown = sandbox.agentbox(&["show", "-t", trace.to_str().expect("a name")]);
        let rows = shown.exits(0).stdout.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(rows, ran.entries.len(), "{shown}");
        assert!(!shown.stdout.contains('\x1b') && !shown.stdout.contains('\x07'), "{shown}");
        assert!(!ran.stderr.contains('\x1b'), "{ran}");
    });
}

#[test]
fn special_spellings_of_a_path_lead_nowhere_else() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        sandbox.file("data/in.txt", "in");
        sandbox.policy("read: ./data");
        let ran = python(
            sandbox,
            "here = os.getcwd()
for path in ('./data/./in.txt', 'data//in.txt', here + '/data/in.txt', '/proc/self/cwd/data/in.txt',
             '/proc/self/root' + here + '/data/in.txt'):
    print(try_open(path), end=' ')
print()
for path in ('/proc/self/cwd/secret.txt', '/proc/self/root' + here + '/secret.txt', 'data/../secret.txt', here + '//./secret.txt'):
    assert try_open(path) in ('EACCES', 'EPERM'), (path, try_open(path))
for path in ('/proc/1/root' + here + '/secret.txt', '/proc/1/cwd/secret.txt'):
    assert try_open(path) in ('EACCES', 'EPERM', 'ENOENT'), (path, try_open(path))
directory = os.open('data', os.O_RDONLY)
print(os.read(os.open('in.txt', os.O_RDONLY, dir_fd=directory), 9))
try: os.open('../secret.txt', os.O_RDONLY, dir_fd=directory)
except OSError as error: print(errno.errorcode[error.errno])
try: os.stat('/etc/shadow')
except OSError as error: print(errno.errorcode[error.errno])
print(try_open('/etc/shadow'))",
        );
        ran.exits(0).prints("in in in in in \nb'in'\nEACCES\nENOENT\nEACCES\n");
    });
}

#[test]
fn extensions_in_c_and_other_libraries_are_confined_alike() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = python(
            sandbox,
            "import ctypes, sqlite3
libc = ctypes.CDLL(None, use_errno=True)
print(libc.open(b'secret.txt', 0), errno.errorcode[ctypes.get_errno()])
print(libc.syscall(257, -100, b'secret.txt', 0), errno.errorcode[ctypes.get_errno()])
try: sqlite3.connect('outside.db').execute('create table t (a)')
except sqlite3.OperationalError as error: print(error)
base = sqlite3.connect('out/inside.db'); base.execute('create table t (a)'); base.commit(); print('made')",
        );
        ran.exits(0).prints("-1 EACCES\n-1 EACCES\nunable to open database file\nmade\n");
        assert!(!sandbox.path("outside.db").exists());
    });
}

#[test]
fn the_tree_of_the_host_stays_as_it_was() {
    everyone(|sandbox| {
        for name in ["repo/.git/config", "repo/src/a.py", "repo/out/old.txt"] {
            sandbox.file(name, name);
        }
        sandbox.policy(
            "read: ./repo\nwrite: ./repo/out\nread: ./absent/deep\nread: ./repo/none.txt\ndeny: read ./repo/.git/hooks\n\
             deny: write ./repo/.npmrc\ndeny: read **/.env\nwrite: ./repo/later",
        );
        let before = tree(sandbox);
        python(
            sandbox,
            "print(try_open('repo/src/a.py'), try_open('repo/.npmrc', 'w'), try_open('repo/x', 'w'))",
        )
        .exits(0);
        assert_eq!(tree(sandbox), before);
        // The launcher is killed in the middle.
        let _ = fs::remove_file(sandbox.trace());
        let program = "print('there', flush=True)\nimport time; time.sleep(60)";
        let running = Running::start(sandbox.run_command(&[], &["python3", "-c", program]));
        until("the trace tells of the start", || {
            fs::read_to_string(sandbox.trace()).is_ok_and(|trace| trace.contains("proc.image"))
        });
        running.signal(Signal::SIGKILL);
        running.finish();
        assert_eq!(tree(sandbox), before);
    });
}

/// Every name below `work`, with its kind, mode and content.
fn tree(sandbox: &Sandbox) -> String {
    let listed = std::process::Command::new("sh")
        .args([
            "-c",
            "find . -printf '%p %y %m %U %s %T@\\n' | sort; find . -type f | sort | xargs sha256sum",
        ])
        .current_dir(sandbox.path(""))
        .output()
        .expect("find");
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

/// openat(2) gives handles; openat2(2), whose flags could change after they were judged, says that
/// it is not there, as on older kernels.
#[test]
fn handles_come_from_openat_alone() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out");
        sandbox.directory("out");
        let ran = python(
            sandbox,
            "import ctypes, struct
os.symlink('nowhere', 'out/link')
flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
found, link = os.fstat(os.open('out/link', flags)), os.lstat('out/link')
print((found.st_dev, found.st_ino) == (link.st_dev, link.st_ino))
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(437, -100, b'out/link', struct.pack('QQQ', flags, 0, 0), 24), errno.errorcode[ctypes.get_errno()])",
        );
        ran.exits(0).prints("True\n-1 ENOSYS\n");
    });
}
