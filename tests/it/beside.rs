//! Files in directories where others were read before: each open means what its path means by then.

use std::fs;

use sha2::{Digest as _, Sha256};

use crate::support::everyone;

/// Files that were read long after they were changed: another read changes nothing about them.
const PROGRAM: &str = "import errno, os, threading
def keep(path, text):
    with open(path, 'w') as file: file.write(text)
    os.utime(path, (4e9, 1))
def read(path):
    try:
        with open(path) as file: return file.read()
    except OSError as error: return errno.errorcode[error.errno]
";

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

const WAYS: [&[&str]; 2] = [&[], &["--no-replay"]];

#[test]
fn a_directory_that_another_has_replaced_is_not_read_in_its_place() {
    everyone(|sandbox| {
        sandbox.policy("write: ./w");
        for options in WAYS {
            let _ = fs::remove_dir_all(sandbox.path("w"));
            sandbox.directory("w");
            let program = format!(
                "{PROGRAM}os.makedirs('w/d')
for name in 'abc': keep(f'w/d/{{name}}', name)
print(*[read(f'w/d/{{name}}') for name in 'abc'])
os.rename('w/d', 'w/e'); os.mkdir('w/d'); keep('w/d/b', 'new')
print(read('w/d/b'), read('w/d/c'), read('w/e/b'), read('w/d/b'))
os.rename('w/d', 'w/f'); os.symlink('e', 'w/d')
print(read('w/d/b'), read('w/d/a'), read('w/f/b'))
os.unlink('w/e/c'); os.symlink('../f/b', 'w/e/c')
print(read('w/e/b'), read('w/e/c'))
os.unlink('w/e/a'); os.mkfifo('w/e/a')
writer = threading.Thread(target=lambda: open('w/e/a', 'w').write('piped')); writer.start()
print(read('w/e/a')); writer.join()"
            );
            let ran = sandbox.run_with(options, &["python3", "-c", &program]);
            ran.exits(0).prints("a b c\nnew ENOENT b new\nb a new\nb new\npiped\n").denied_nothing();
            let read: Vec<(String, String)> = ran
                .of("fs.open_read")
                .iter()
                .filter(|entry| entry["args"]["sha256"] == sha256("new"))
                .map(|entry| {
                    let text = |key: &str| entry["args"][key].as_str().unwrap_or_default().to_owned();
                    (text("path"), text("resolved"))
                })
                .collect();
            let resolved = |name: &str| sandbox.path(name).to_str().expect("a name").to_owned();
            for (path, name) in [("w/d/b", "w/d/b"), ("w/f/b", "w/f/b"), ("w/e/c", "w/f/b")] {
                assert!(read.contains(&(path.to_owned(), resolved(name))), "{path}: {read:?} {ran}");
            }
        }
    });
}

#[test]
fn a_file_beside_others_is_judged_by_itself() {
    everyone(|sandbox| {
        for name in ["src/a", "src/b", "src/.env", "src/sub/c", "other/d"] {
            sandbox.file(name, name);
        }
        sandbox.policy("read: ./src\ndeny: read ./src/**/.env\ndeny: read ./src/sub");
        // No name of theirs makes them readable.
        fs::hard_link(sandbox.beside("agentbox.policy"), sandbox.path("src/policy")).expect("links");
        sandbox.link("../other/d", "src/link");
        for options in WAYS {
            let program = format!(
                "{PROGRAM}names = ('a', 'b', '.env', 'a', 'policy', 'sub/c', 'link', 'none', 'b')
print(*[read(f'src/{{name}}') for name in names])
os.chdir('src'); print(*[read(name) for name in names])
directory = os.open('.', os.O_RDONLY)
for name in ('a', '.env', 'b'):
    try: print(os.read(os.open(name, os.O_RDONLY, dir_fd=directory), 9))
    except OSError as error: print(errno.errorcode[error.errno])"
            );
            let ran = sandbox.run_with(options, &["python3", "-c", &program]);
            let all = "src/a src/b EACCES src/a EACCES EACCES EACCES ENOENT src/b";
            ran.exits(0).prints(&format!("{all}\n{all}\nb'src/a'\nEACCES\nb'src/b'\n"));
            ran.denied("read", "src/.env").denied("read", "src/policy").denied("read", "sub/c");
            assert_eq!(
                ran.recorded("fs.open_read", "path", "src/b")["args"]["sha256"],
                sha256("src/b"),
                "{ran}"
            );
        }
    });
}

#[test]
fn a_writer_that_waits_for_a_reader_has_one_until_it_has_written() {
    everyone(|sandbox| {
        sandbox.policy("write: ./w");
        for options in WAYS {
            let _ = fs::remove_dir_all(sandbox.path("w"));
            sandbox.directory("w");
            let program = format!(
                "{PROGRAM}import sys, time
os.mkfifo('w/pipe')
pipe = os.open('w/pipe', os.O_RDONLY | os.O_NONBLOCK); print(os.read(pipe, 9)); os.close(pipe)
for turn in range(40):
    writer = os.fork()
    if writer == 0:
        with open('w/pipe', 'w') as file: file.write('x')
        os._exit(0)
    if turn % 2: time.sleep(.002)
    if read('w/pipe') != 'x' or os.waitpid(writer, 0)[1] != 0: sys.exit(f'turn {{turn}}')
os.mkdir('w/d')
print(os.listdir('w/d'), sorted(os.listdir('w')), read('w/d/none'))"
            );
            let ran = sandbox.run_with(options, &["python3", "-c", &program]);
            ran.exits(0).prints("b''\n[] ['d', 'pipe'] ENOENT\n").denied_nothing();
            assert_eq!(ran.recorded("fs.open_read", "path", "w/pipe")["args"]["type"], "fifo", "{ran}");
            assert_eq!(ran.recorded("fs.open_read", "path", "w/d")["args"]["type"], "directory", "{ran}");
            assert_eq!(ran.recorded("fs.open_read", "path", "w/d/none")["args"]["exists"], false, "{ran}");
        }
    });
}
