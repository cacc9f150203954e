//! Sockets that the run binds in places of the host: its own to connect to, and nobody else's.

use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;

use super::ASK;
use super::stage::{Ran, Stage, as_each_user};

/// `serve(address)` listens there and answers `own:` and what it was sent.
const SERVE: &str = "
import socket, threading, time
came = []
def serve(address, kind=socket.SOCK_STREAM):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(address)
    server.listen(8)
    def answer():
        while True:
            stream, _ = server.accept()
            text = stream.recv(100)
            came.append(text)
            stream.sendall(b'own:' + text)
            stream.close()
    threading.Thread(target=answer, daemon=True).start()
    return server
def attempt(call):
    try:
        print(call())
    except OSError as error:
        print(errno.errorcode[error.errno])
";

/// Runs `code`, which makes `write/ready`, looks from the host then, and lets the run go on by `write/done`.
fn beside<T: Send>(
    stage: &Stage,
    (policy, options): (&str, &[&str]),
    code: &str,
    look: impl FnOnce() -> T + Send,
) -> (Ran, Option<T>) {
    for name in ["write/ready", "write/done"] {
        let _ = std::fs::remove_file(stage.path(name));
    }
    let code = format!("{ASK}{SERVE}{code}");
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let ready = (0..6_000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                stage.path("write/ready").exists()
            });
            let seen = ready.then(look);
            std::fs::write(stage.path("write/done"), "").expect("written");
            seen
        });
        let ran = stage.run_with(policy, options, &["/usr/bin/python3", "-c", &code]);
        (ran, host.join().expect("it looked"))
    })
}

/// Where the host looks for them.
const NAMES: [&str; 6] = ["s", "linked", "renamed", "symbolic", "magic", "inner/p"];

const MEANWHILE: &str = "
open('write/ready', 'w').close()
while not os.path.exists('write/done'):
    time.sleep(0.01)
";

#[test]
fn no_process_of_the_host_connects_to_a_socket_of_the_run() {
    let ways: [(&str, &[&str]); 5] = [
        ("write: ./write\n", &[]),
        ("write: ./write\n", &["--no-replay"]),
        ("write: ./write\n", &["--observe"]),
        ("write: ./write\ndeny: write ./write/kept\n", &[]),
        ("write: ./write\ndeny: read ./write/**/*.kept\n", &["--no-replay"]),
    ];
    for way in ways {
        as_each_user(|stage| {
            stage.make_directory("write");
            stage.make_directory("write/inner");
            let code = format!(
                "
kept = [serve('write/s'), serve(os.path.abspath('write/inner/p'), socket.SOCK_SEQPACKET)]
os.link('write/s', 'write/linked')
kept.append(serve('write/t'))
os.rename('write/t', 'write/renamed')
os.symlink('s', 'write/symbolic')
kept.append(serve('/proc/self/cwd/write/magic'))
{MEANWHILE}
for name in ['s', 'linked', 'renamed', 'symbolic', 'magic']:
    ask('write/' + name)
print(came)
for name in ['s', 'linked', 'renamed', 'symbolic', 'magic', 'inner/p']:
    os.unlink('write/' + name)
"
            );
            let (ran, seen) = beside(stage, way, &code, || {
                NAMES.map(|name| {
                    let path = stage.path("write").join(name);
                    let is_socket = path.metadata().is_ok_and(|status| status.file_type().is_socket());
                    let came = UnixStream::connect(path).map_err(|error| error.raw_os_error());
                    (name, is_socket, came.map(drop))
                })
            });
            // To packets by a stream: EPROTOTYPE if it were there.
            let refused = NAMES.map(|name| (name, true, Err(Some(Errno::ECONNREFUSED as i32))));
            assert_eq!(seen, Some(refused), "{way:?} {ran}");
            let lines = ran.lines();
            assert_eq!(lines[..5], ["own:hi"; 5], "{way:?} {ran}");
            assert_eq!(lines[5..], [format!("[{}]", ["b'hi'"; 5].join(", "))], "{way:?} {ran}");
            assert!(ran.denied("net").is_empty(), "{ran}");
            let made = ran.entries("fs.mknod");
            assert_eq!(made.iter().filter(|entry| entry["args"]["type"] == "socket").count(), 4, "{ran}");
        });
    }
}

#[test]
fn an_address_is_as_it_was_spelled() {
    as_each_user(|stage| {
        stage.make_directory("write");
        stage.make_directory("write/inner");
        let code = "
os.symlink('inner', 'write/way')
long = 'write/' + './' * 50
names = ['write/a', os.path.abspath('write/b'), 'write/../write/./c', 'write//way/d', '/proc/self/cwd/write/e',
         long + 'f' * (107 - len(long)), '../../../../../..' + os.path.abspath('write/g')]
for name in names:
    server = serve(name)
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    client.sendall(b'hi')
    client.recv(100)
    print(server.getsockname() == client.getpeername() == name, os.path.exists(name))
# Without a zero byte at its end.
import ctypes, struct
path = long + 'u' * (108 - len(long))
server = socket.socket(socket.AF_UNIX)
raw = struct.pack('H', socket.AF_UNIX) + path.encode()
print(len(raw), ctypes.CDLL(None).bind(server.fileno(), raw, len(raw)), server.getsockname() == path)
os.chdir('write/inner')
for name in ['h', '../i']:
    server = serve(name)
    client = socket.socket(socket.AF_UNIX)
    client.connect(os.path.abspath(name))
    client.sendall(b'hi')
    client.recv(100)
    print(server.getsockname() == client.getpeername() == name)
    print(struct.unpack('3i', client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0] == os.getpid())
";
        let ran = stage.python("write: ./write\n", &format!("{ASK}{SERVE}{code}"));
        let expected = [vec!["True True"; 7], vec!["110 0 True"], vec!["True"; 4]].concat();
        assert_eq!(ran.lines(), expected, "{ran}");
    });
}

/// In a place of the host and in one of the run's own all is the same.
const BOUND: &str = "
import stat
os.chmod('write/closed', 0o500)
for directory in ['write', '/tmp']:
    name = directory + '/s'
    def bind(path=name, bound=None):
        bound = bound or socket.socket(socket.AF_UNIX)
        bound.bind(path)
        return bound
    mode = lambda path=name: oct(os.stat(path).st_mode)
    former = os.umask(0o027)
    first = bind()
    print(mode())
    attempt(bind)
    attempt(lambda: bind(directory + '/other', first))
    print(os.path.exists(directory + '/other'))
    ask(name)
    first.close()
    ask(name)
    attempt(bind)
    os.unlink(name)
    ask(name)
    os.umask(former)
    second = socket.socket(socket.AF_UNIX)
    os.fchmod(second.fileno(), 0o750)
    bind(bound=second)
    print(mode(), os.stat(name).st_uid == os.geteuid(), stat.S_ISSOCK(os.stat(name).st_mode))
    second.listen()
    os.chmod(name, 0)
    attempt(lambda: socket.socket(socket.AF_UNIX).connect(name))
    os.chmod(name, 0o200)
    attempt(lambda: socket.socket(socket.AF_UNIX).connect(name))
    os.unlink(name)
    attempt(lambda: socket.socket(socket.AF_UNIX).connect(name))
    attempt(lambda: bind(directory + '/absent/s'))
    attempt(lambda: bind(directory + '/slash/'))
    os.symlink('nowhere', directory + '/dangling')
    attempt(lambda: bind(directory + '/dangling'))
    third = serve(name)
    ask(name)
    os.unlink(name)
    fourth = serve(name)
    ask(name)
    os.rename(name, directory + '/moved')
    ask(directory + '/moved')
    serve(name)
    os.rename(directory + '/moved', name)
    ask(name)
    print('--')
attempt(lambda: socket.socket(socket.AF_UNIX).bind('write/closed/s'))
";

#[test]
fn a_name_in_a_place_of_the_host_is_taken_and_given_back() {
    as_each_user(|stage| {
        stage.make_directory("write");
        stage.make_directory("write/closed");
        let ran = stage.python("write: ./write\n", &format!("{ASK}{SERVE}{BOUND}"));
        let expected = [
            "0o140750",
            "EADDRINUSE",
            "EINVAL",
            "False",
            "ECONNREFUSED",
            "ECONNREFUSED",
            "EADDRINUSE",
            "ENOENT",
            "0o140750 True True",
            "EACCES",
            "None",
            "ENOENT",
            "ENOENT",
            "ENOENT",
            "EADDRINUSE",
            "own:hi",
            "own:hi",
            "own:hi",
            "own:hi",
            "--",
        ];
        assert_eq!(ran.lines(), [&expected[..], &expected, &["EACCES"]].concat(), "{ran}");
    });
}

#[test]
fn a_replay_binds_and_connects_as_the_run_did() {
    as_each_user(|stage| {
        stage.make_directory("write");
        let code = "
for name in ['write/a', os.path.abspath('write/b'), '/tmp/c']:
    server = serve(name)
    ask(name)
    print(server.getsockname(), oct(os.stat(name).st_mode), os.stat(name).st_ino)
os.unlink('write/a')
";
        let ran = stage.python("write: ./write\n", &format!("{ASK}{SERVE}{code}"));
        assert_eq!(ran.lines().iter().filter(|line| *line == "own:hi").count(), 3, "{ran}");
        std::fs::remove_file(stage.path("write/b")).expect("the node stays");
        let again = stage.command().args(["replay", "-t", "trace.jsonl"]).output().expect("it runs");
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
        assert_eq!(String::from_utf8_lossy(&again.stdout), ran.stdout());
        assert!(!stage.path("write/b").exists());
    });
}

#[test]
fn sockets_that_are_gone_make_room_for_others() {
    as_each_user(|stage| {
        stage.make_directory("write");
        let code = "
for turn in range(300):
    server = serve('write/s')
    ask('write/s')
    os.unlink('write/s')
kept = [serve(f'write/{number}') for number in range(100)]
for number in range(100):
    ask(f'write/{number}')
";
        let ran = stage.python("write: ./write\n", &format!("{ASK}{SERVE}{code}"));
        assert_eq!(ran.lines(), ["own:hi"; 400], "{ran}");
    });
}
