//! Descriptors that the guard puts into a program: in time, in full, and none that was not recorded.

use sha2::{Digest as _, Sha256};

use crate::support::everyone;

const FILES: usize = 40;

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_table_that_is_full_is_told_to_the_program_which_goes_on() {
    everyone(|sandbox| {
        for file in 0..FILES {
            sandbox.file(format!("data/{file}"), file.to_string());
        }
        sandbox.policy("read: ./data");
        let ran = sandbox.python(&format!(
            "import errno, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
full = 0
for round in range(30):
    held = []
    for file in range({FILES}):
        try: held.append((file, os.open('data/%d' % file, os.O_RDONLY)))
        except OSError as error:
            assert error.errno == errno.EMFILE, error
            full += 1
    for file, number in held:
        assert os.read(number, 9) == b'%d' % file, file
        os.close(number)
    assert 10 < len(held) < 20, held
print(full > 30)"
        ));
        ran.exits(0).prints("True\n");
        let reads = ran.of("fs.open_read");
        for file in 0..10 {
            let path = format!("data/{file}");
            assert!(reads.iter().any(|entry| entry["args"]["path"] == *path), "{path}\n{ran}");
        }
    });
}

#[test]
fn a_table_that_is_full_changes_no_file() {
    everyone(|sandbox| {
        sandbox.file("data/kept", "kept");
        sandbox.policy("read: ./data\nwrite: ./data");
        let ran = sandbox.python(
            "import errno, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
def tries(path, flags):
    try: return os.open(path, flags)
    except OSError as error:
        assert error.errno == errno.EMFILE, error
        return -1
while tries('/dev/null', os.O_RDONLY) >= 0: pass
made = [('data/kept', os.O_WRONLY | os.O_TRUNC), ('data/new', os.O_WRONLY | os.O_CREAT)]
assert [tries(*one) for one in made] == [-1, -1]
assert os.stat('data/kept').st_size == 4 and not os.path.exists('data/new')
# Descriptors beyond a limit that was lowered since take no room below it.
os.close(9)
resource.setrlimit(resource.RLIMIT_NOFILE, (15, 15))
assert tries('data/new', os.O_WRONLY | os.O_CREAT) == 9
assert tries('data/kept', os.O_WRONLY | os.O_TRUNC) == -1
os.close(8)
assert tries('data/kept', os.O_WRONLY | os.O_TRUNC) == 8
print(os.stat('data/kept').st_size)",
        );
        ran.exits(0).prints("0\n");
    });
}

#[test]
fn threads_that_use_their_descriptors_at_once_read_the_files_that_they_opened() {
    everyone(|sandbox| {
        for file in 0..FILES {
            sandbox.file(format!("data/{file}"), file.to_string());
        }
        sandbox.policy("read: ./data");
        let ran = sandbox.python(&format!(
            "import os, threading
wrong = []
all = os.sched_getaffinity(0)
def work(start):
    for turn in range(400):
        file = (start + turn) % {FILES}
        number = os.open('data/%d' % file, os.O_RDONLY)
        content = os.read(number, 9)
        os.close(number)
        if content != b'%d' % file or os.sched_getaffinity(0) != all or os.get_inheritable(number_of_one): wrong.append(file)
number_of_one = os.open('data/0', os.O_RDONLY)
threads = [threading.Thread(target=work, args=(start,)) for start in range(0, {FILES}, 10)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong)"
        ));
        ran.exits(0).prints("[]\n");
        let reads = ran.of("fs.open_read");
        let counted = reads
            .iter()
            .filter(|entry| entry["args"]["path"].as_str().is_some_and(|path| path.starts_with("data/")))
            .map(|entry| entry["count"].as_u64().unwrap_or(1));
        assert_eq!(counted.sum::<u64>(), 1601, "{ran}");
    });
}

#[test]
fn a_program_that_is_killed_while_it_opens_holds_nobody_up() {
    everyone(|sandbox| {
        sandbox.file("data/file", "content");
        sandbox.policy("read: ./data");
        let ran = sandbox.python(
            "import os, signal, threading, time
def opens():
    while True: os.close(os.open('data/file', os.O_RDONLY))
for round in range(40):
    child = os.fork()
    if child == 0:
        # Of some it is another thread that opens, and execve ends it.
        if round % 4 == 0:
            threading.Thread(target=opens, daemon=True).start()
            time.sleep(0.003)
            os.execv('/proc/self/exe', ['python3', '-c', 'pass'])
        opens()
    if round % 4:
        time.sleep(0.001 * (round % 7))
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (-signal.SIGKILL if round % 4 else 0), (round, status)
    assert open('data/file').read() == 'content'
print('done')",
        );
        ran.exits(0).prints("done\n");
    });
}

#[test]
fn a_path_that_another_thread_rewrites_opens_what_was_judged_or_nothing() {
    everyone(|sandbox| {
        sandbox.file("data/a", "granted");
        sandbox.file("data/b", "granted too");
        sandbox.file("hide/c", "secret");
        sandbox.policy("read: ./data");
        let ran = sandbox.python(
            "import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)
names = [b'data/a', b'data/b', b'hide/c']
path = ctypes.create_string_buffer(names[0], 16)
going = True
def rewrite():
    while going:
        for name in names: ctypes.memmove(path, name, len(name))
thread = threading.Thread(target=rewrite); thread.start()
seen = set()
for _ in range(2000):
    number = libc.open(path, os.O_RDONLY)
    if number >= 0:
        seen.add(os.read(number, 20)); os.close(number)
going = False
thread.join()
print(seen <= {b'granted', b'granted too'})",
        );
        ran.exits(0).prints("True\n");
        for (path, content) in [("data/a", "granted"), ("data/b", "granted too")] {
            let digest = sha256(content);
            let reads = ran.of("fs.open_read");
            let of_path: Vec<_> = reads.iter().filter(|entry| entry["args"]["path"] == *path).collect();
            assert!(of_path.iter().all(|entry| entry["args"]["sha256"] == *digest), "{path}\n{ran}");
        }
    });
}
