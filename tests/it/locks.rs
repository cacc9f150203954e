//! Locks: shared ones everywhere, exclusive ones where the agent may write.

use crate::support::{Ran, Sandbox, everyone, has, skip};

/// Takes a lock and prints `done` or the name of the errno.
const LOCK: &str = "import errno, fcntl, os, signal, subprocess, sys, threading, time
def lock(path, operation, flags=os.O_RDONLY):
    file = os.open(path, flags)
    try: fcntl.flock(file, operation); print('done', end=' ')
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
    return file
";

fn python(sandbox: &Sandbox, program: &str) -> Ran {
    sandbox.python(&format!("{LOCK}{program}\nprint()"))
}

#[test]
fn what_may_only_be_read_takes_no_exclusive_lock() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.file("data/file", "x");
        sandbox.directory("out");
        sandbox.policy("read: ./data\nwrite: ./out");
        let ran = python(
            sandbox,
            "for path in ('data/file', 'data', '/etc/passwd', '/usr'):
    for kind in (0, fcntl.LOCK_NB): os.close(lock(path, fcntl.LOCK_SH | kind)); os.close(lock(path, fcntl.LOCK_EX | kind))
file = lock('data/file', fcntl.LOCK_SH)
try: fcntl.flock(file, fcntl.LOCK_EX)
except OSError as error: print(errno.errorcode[error.errno], end=' ')
fcntl.flock(file, fcntl.LOCK_UN)
print()
for path in ('out/file', '/tmp/file'):
    os.close(lock(path, fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT)); os.close(lock(path, fcntl.LOCK_EX))
os.close(lock('out', fcntl.LOCK_EX | fcntl.LOCK_NB)); lock('/dev/null', fcntl.LOCK_EX)
try: fcntl.flock(999, fcntl.LOCK_EX)
except OSError as error: print(errno.errorcode[error.errno])
file = os.open('/tmp', os.O_PATH)
try: fcntl.flock(file, fcntl.LOCK_EX)
except OSError as error: print(errno.errorcode[error.errno])",
        );
        let refused = "done EACCES done EACCES ".repeat(4);
        ran.exits(0);
        let lines: Vec<_> = ran.stdout.lines().collect();
        assert_eq!(lines[0], format!("{refused}done EACCES "), "{ran}");
        assert_eq!(lines[1], format!("{}EBADF", "done ".repeat(6)), "{ran}");
        assert_eq!(lines[2], "EBADF", "{ran}");
        ran.denied("write", "data/file").complains("write ");
    });
}

#[test]
fn exclusive_locks_wait_for_each_other_and_for_signals() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = python(
            sandbox,
            "first = lock('out/lock', fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT)
lock('out/lock', fcntl.LOCK_EX | fcntl.LOCK_NB, os.O_RDWR)
waiting = threading.Thread(target=lambda: lock('out/lock', fcntl.LOCK_EX, os.O_RDWR)); waiting.start()
time.sleep(.1); print('waits', end=' ', flush=True)
fcntl.flock(first, fcntl.LOCK_UN); waiting.join(); sys.stdout.flush()
child = os.fork()
if child == 0:
    def stop(*_): raise LookupError
    signal.signal(signal.SIGALRM, stop); signal.setitimer(signal.ITIMER_REAL, .1)
    try: lock('out/held', fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT); lock('out/held', fcntl.LOCK_EX, os.O_RDWR)
    except LookupError: print('interrupted', end=' ', flush=True)
    os._exit(0)
os.waitpid(child, 0)
lock('out/held', fcntl.LOCK_EX, os.O_RDWR)
child = os.fork()
if child == 0: lock('out/held', fcntl.LOCK_EX, os.O_RDWR); os._exit(0)
time.sleep(.1); os.kill(child, signal.SIGKILL); os.waitpid(child, 0); print('killed', end=' ')",
        );
        ran.exits(0).prints("done EAGAIN waits done done interrupted done killed \n").denied_nothing();
    });
}

#[test]
fn sqlite_reads_in_a_read_root_and_writes_in_a_write_root() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.directory("data");
        sandbox.directory("out");
        sandbox.policy("write: ./data\nwrite: ./out");
        let fill = "import sqlite3
for path in ('data/a.db', 'out/b.db'):
    base = sqlite3.connect(path); base.execute('create table t (n)'); base.execute('insert into t values (7)')
    base.commit(); print(base.execute('select n from t').fetchone()[0])";
        sandbox.python(fill).exits(0).prints("7\n7\n").denied_nothing();
        sandbox.policy("read: ./data\nwrite: ./out");
        let read = "import sqlite3
base = sqlite3.connect('file:data/a.db?mode=ro', uri=True); print(base.execute('select n from t').fetchone()[0])
base = sqlite3.connect('out/b.db'); base.execute('pragma journal_mode=wal'); base.execute('update t set n = 8')
base.commit(); print(base.execute('select n from t').fetchone()[0])";
        sandbox.python(read).exits(0).prints("7\n8\n").denied_nothing();
    });
}
