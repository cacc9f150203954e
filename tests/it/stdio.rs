//! Standard input, output and error of a run: every byte arrives, in order, and is digested; what
//! the command gets leads nowhere else. Each test runs as the caller and, for root, as another user.

mod place;

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::until;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use place::{places, random, sha256};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(55);

#[test]
fn every_byte_arrives_and_is_digested() {
    for place in places() {
        let (one, other) = (random(1 << 20), random(1 << 20));
        place.write("one", &one);
        place.write("other", &other);
        let output = place.shell("cat one; cat other >&2").output().expect("runs");
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout == one);
        // The launcher's own lines stand around the command's.
        let at = output.stderr.windows(64).position(|part| part == &other[..64]).expect("it arrived");
        assert!(output.stderr[at..].starts_with(&other));
        for (stream, content) in [("stdout", &one), ("stderr", &other)] {
            assert_eq!(
                place.stream(stream),
                json!({
                    "stream": stream,
                    "sha256": sha256(content),
                    "size": content.len(),
                    "content": {"blob": sha256(content), "private": true, "size": content.len()},
                })
            );
        }
        assert_eq!(place.manifest()["stdout"], "recorded");
        assert_eq!(place.manifest()["stdin"], "not covered (the null device)");
    }
}

#[test]
fn both_streams_keep_their_order_in_one_place() {
    let script = "i=0; while [ $i -lt 300 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let wanted: String = (0..300).map(|i| format!("out {i}\nerr {i}\n")).collect();
    for place in places() {
        let file = File::create(place.path("both")).expect("a file");
        let copy = file.try_clone().expect("a copy");
        let status = place.shell(script).stdout(file).stderr(copy).status().expect("runs");
        assert!(status.success());
        let text = fs::read_to_string(place.path("both")).expect("text");
        let own: String = text
            .lines()
            .filter(|line| !line.starts_with("agentbox:"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(own, wanted);
        assert_eq!(place.stream("stdout")["sha256"], sha256(wanted.as_bytes()));
        assert_eq!(place.stream("stderr"), json!({"stream": "stderr", "same_as": "stdout"}));
    }
}

#[test]
fn a_command_whose_reader_leaves_gets_sigpipe() {
    for place in places() {
        let mut child =
            place.quiet("while :; do echo line; done").stdout(Stdio::piped()).spawn().expect("starts");
        let mut line = [0; 5];
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_exact(&mut line).expect("a line");
        drop(stdout);
        assert_eq!(child.wait().expect("ends").code(), Some(141));
        place.verify();
    }
}

#[test]
fn closed_descriptors_are_the_null_device() {
    let script =
        "read x; echo out; echo err >&2; [ -c /dev/stdin ] || exit 8; [ -c /dev/stdout ] && exit 7; exit 0";
    for place in places() {
        for (starter, code, stdout) in [
            ("exec \"$@\" <&-", 0, "out\n"),
            ("exec \"$@\" >&-", 7, ""),
            ("exec \"$@\" 2>&-", 0, "out\n"),
            ("exec \"$@\" <&- >&- 2>&-", 7, ""),
        ] {
            let output = place.through_shell(starter, script).output().expect("runs");
            assert_eq!(output.status.code(), Some(code), "{starter}: {output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), stdout);
            place.verify();
        }
    }
}

#[test]
fn a_file_is_read_from_its_offset_and_never_written() {
    for place in places() {
        place.write("input", b"first\nsecond\nthird\n");
        for write in [false, true] {
            let mut input = File::options().read(true).write(write).open(place.path("input")).expect("opens");
            input.seek(SeekFrom::Start(6)).expect("seeks");
            let script = "read x; echo $x; cat /dev/stdin; echo bad >&0; echo bad > /proc/self/fd/0; \
                          chmod 777 /dev/stdin";
            let output =
                place.shell(script).stdin(input.try_clone().expect("a copy")).output().expect("runs");
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                "second\nfirst\nsecond\nthird\n",
                "{output:?}"
            );
            assert_eq!(fs::read(place.path("input")).expect("read"), b"first\nsecond\nthird\n");
            assert_eq!(input.stream_position().expect("an offset"), 13, "what was read is read for all");
            let digest = sha256(b"second\nthird\n");
            let content = json!({"blob": digest, "size": 13, "private": true});
            let stdin = json!({"stream": "stdin", "kind": "file", "offset": 6, "content": content,
                "sha256": digest, "size": 13});
            assert_eq!(place.stream("stdin"), stdin);
        }
    }
}

#[test]
fn a_deleted_file_is_relayed() {
    for place in places() {
        place.write("input", b"text\n");
        let input = File::open(place.path("input")).expect("opens");
        fs::remove_file(place.path("input")).expect("removed");
        let output = place.shell("cat").stdin(input).output().expect("runs");
        assert_eq!(output.stdout, b"text\n");
        assert_eq!(place.stream("stdin")["sha256"], sha256(b"text\n"));
    }
}

#[test]
fn a_pipe_is_passed_with_its_end() {
    for place in places() {
        let mut child = place
            .quiet("cat; echo end")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(b"hello\n").expect("written");
        let mut stdout = child.stdout.take().expect("a pipe");
        let mut line = [0; 6];
        stdout.read_exact(&mut line).expect("it answers before the end of its input");
        assert_eq!(&line, b"hello\n");
        drop(stdin);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("read");
        assert_eq!(rest, "end\n");
        assert!(child.wait().expect("ends").success());
        let stdin = place.stream("stdin");
        assert_eq!((&stdin["kind"], &stdin["sha256"]), (&json!("pipe"), &json!(sha256(b"hello\n"))));
        assert_eq!(stdin["content"]["private"], true);
    }
}

#[test]
fn what_the_command_closes_is_closed_for_the_other_end() {
    for place in places() {
        let mut child = place
            .quiet("exec <&- >&-; sleep 60")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut nothing = Vec::new();
        let began = Instant::now();
        child.stdout.take().expect("a pipe").read_to_end(&mut nothing).expect("an end");
        let mut stdin = child.stdin.take().expect("a pipe");
        // Each stream has a thread of its own, which closes it in its time.
        until("nobody reads", || {
            let written = stdin.write_all(b"x");
            written.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        });
        assert!(began.elapsed() < PATIENCE);
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("signalled");
        assert_eq!(child.wait().expect("ends").code(), Some(143));
    }
}

#[test]
fn sockets_are_not_handed_in() {
    for place in places() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let input = OwnedFd::from(theirs.try_clone().expect("a copy"));
        let script = "read x; echo \"$x\"; [ -p /dev/stdin ] && [ -p /dev/stdout ] && echo pipes";
        let mut child =
            place.quiet(script).stdin(input).stdout(OwnedFd::from(theirs)).spawn().expect("starts");
        let mut ours = ours;
        ours.write_all(b"question\n").expect("written");
        let mut answer = [0; 15];
        ours.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"question\npipes\n");
        assert!(child.wait().expect("ends").success());
        assert_eq!(place.stream("stdin")["sha256"], sha256(b"question\n"));
        assert_eq!(place.stream("stdout")["sha256"], sha256(b"question\npipes\n"));
    }
}

#[test]
fn what_is_passed_keeps_its_mode() {
    for place in places() {
        let null = File::options().read(true).write(true).open("/dev/null").expect("opens");
        let output =
            place.shell("chmod 666 /dev/stdin || chmod 666 /dev/null").stdin(null).output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("'/dev/stdin': Operation not permitted"), "{stderr}");
        assert!(stderr.contains("'/dev/null': Read-only file system"), "{stderr}");
    }
}

#[test]
fn a_directory_is_refused() {
    for place in places() {
        let directory = File::open(place.path("")).expect("opens");
        let output = place.shell("cat /dev/stdin/.").stdin(directory).output().expect("runs");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard input is a directory"));
    }
}

#[test]
fn a_slow_reader_slows_the_command() {
    let content = random(4 << 20);
    for place in places() {
        place.write("big", &content);
        let mut child = place.quiet("cat big").stdout(Stdio::piped()).spawn().expect("starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        let mut all = vec![0];
        stdout.read_exact(&mut all).expect("it has begun");
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().expect("a status").is_none(), "it waits for its reader");
        stdout.read_to_end(&mut all).expect("the rest");
        assert!(all == content);
        assert!(child.wait().expect("ends").success());
        assert_eq!(place.stream("stdout")["sha256"], sha256(&content));
    }
}

#[test]
fn a_pipe_that_somebody_made_non_blocking_loses_nothing() {
    let content = random(1 << 20);
    for place in places() {
        place.write("big", &content);
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("set");
        let mut child = place.quiet("cat big").stdout(writer).spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(200));
        let mut all = Vec::new();
        File::from(reader).read_to_end(&mut all).expect("read");
        assert!(all == content);
        assert!(child.wait().expect("ends").success());
    }
}

#[test]
fn a_child_that_holds_the_output_does_not_hold_the_run() {
    for place in places() {
        let began = Instant::now();
        let output = place.shell("sleep 60 & echo done").output().expect("runs");
        assert_eq!(output.stdout, b"done\n");
        assert!(output.status.success());
        assert!(began.elapsed() < PATIENCE);
    }
}

#[test]
fn a_full_disk_stops_the_run() {
    for place in places() {
        let full = File::options().write(true).open("/dev/full").expect("opens");
        let began = Instant::now();
        let output = place.shell("echo lost; sleep 60; echo more").stdout(full).output().expect("runs");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("agentbox: standard output cannot be written: "), "{stderr}");
        assert!(began.elapsed() < PATIENCE);
        assert_eq!(place.stream("stdout")["error"], "No space left on device");
        place.verify();
    }
}

#[test]
fn a_reader_that_takes_nothing_does_not_outlast_a_signal() {
    for place in places() {
        place.write("big", &random(1 << 20));
        let mut child = place
            .shell("cat big & echo ready >&2; wait")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut stderr = child.stderr.take().expect("a pipe");
        let mut seen = Vec::new();
        while !seen.ends_with(b"ready\n") {
            let mut byte = [0];
            stderr.read_exact(&mut byte).expect("more");
            seen.extend(byte);
        }
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("signalled");
        assert_eq!(child.wait().expect("ends").code(), Some(143));
        assert!(began.elapsed() < PATIENCE);
        assert_eq!(place.stream("stdout")["complete"], false);
        place.verify();
    }
}

/// What lies in it is for others to read, too: a shell that starts one run for each line of it.
#[test]
fn nothing_is_put_into_the_pipe_that_is_read() {
    let program = "import ctypes, errno, os, threading
read, write = os.pipe()
paths = [*(f'/proc/{who}/fd/0' for who in ('self', 'thread-self', os.getpid())), '/dev/stdin', '/dev/fd/0']
for path in paths:
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_TRUNC):
        try: os.write(os.open(path, flags), b'evil'); print('written')
        except OSError as error: print(errno.errorcode[error.errno], end=' ')
for act in (lambda: os.fchmod(0, 0o600), lambda: os.chmod('/dev/stdin', 0o600), lambda: os.utime('/proc/self/fd/0')):
    try: act(); print('changed')
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
print()
# The path that was judged means another one when the kernel reads it.
spellings = [b'/proc/self/fd/%d' % write, b'/dev/tty', b'/dev/null', b'/dev/ptmx']
libc = ctypes.CDLL(None)
for harmless in spellings:
    path = ctypes.create_string_buffer(40); done = False
    def change():
        while not done: path.value = b'/proc/self/fd/0'; path.value = harmless
    racer = threading.Thread(target=change); racer.start()
    own = os.fstat(0).st_ino
    for _ in range(1500):
        file = libc.open(path, os.O_RDWR | os.O_NONBLOCK)
        if file >= 0:
            if os.fstat(file).st_ino == own: os.write(file, b'evil'); print('raced')
            os.close(file)
    done = True; racer.join()
print(os.read(0, 100))";
    crate::support::everyone(|sandbox| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"first\n").expect("written");
        let mut command = sandbox.run_command(&["--no-replay"], &["python3", "-c", program]);
        command.stdin(reader.try_clone().expect("a copy"));
        let ran = crate::support::Running::start(command).finish();
        let refused = format!("{}{}", "EACCES ".repeat(20), "EPERM ".repeat(3));
        ran.exits(0).prints(&format!("{refused}\nb'first\\n'\n"));
        drop(writer);
        let mut left = String::new();
        (&reader).read_to_string(&mut left).expect("what is left");
        assert_eq!(left, "");
    });
}
