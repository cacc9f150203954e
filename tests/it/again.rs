//! What goes wrong in a run goes wrong again in its replay, and is no difference; what was changed is one.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use crate::support::{Ran, Running, Sandbox, everyone, has, skip};

/// Answers each request with 404 and all values of a byte; ends with the tests.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 4096]);
            let body: Vec<u8> = (0..=255).collect();
            let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 256\r\nConnection: close\r\n\r\n";
            let _ = client.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    port
}

fn replay(sandbox: &Sandbox) -> Ran {
    let trace = sandbox.trace();
    sandbox.agentbox(&["replay", "-t", trace.to_str().expect("a name")])
}

#[test]
fn failures_are_the_same_failures() {
    let port = serve();
    everyone(|sandbox| {
        sandbox.file("odd", b"\xff\xfe not UTF-8");
        sandbox.policy(&format!("read: .\nexec: python3\nnet: localhost:{port}"));
        sandbox.file(
            "agent.py",
            format!(
                "import os, subprocess, sys, threading, urllib.error, urllib.request
def get():
    try: urllib.request.urlopen('http://localhost:{port}/x')
    except urllib.error.HTTPError as error: return error.code, error.read()
    return 'no answer'
print(get()[0], get()[1] == bytes(range(256)), flush=True)
sys.stdout.buffer.write(open('odd', 'rb').read() + bytes(range(256)))
try: subprocess.run(['no-such-program'])
except FileNotFoundError: print('missing')
try: open('odd').read()
except UnicodeDecodeError: print('odd')
lock = threading.Lock(); said = []
def work(number):
    for _ in range(20):
        with lock: said.append((number, open('odd', 'rb').read(1)))
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(said), flush=True)
os._exit(3)
"
            ),
        );
        // Twice in one run: each process has its own place in the record.
        let twice =
            "python3 agent.py; echo first $?; python3 agent.py; code=$?; echo second $code; exit $code";
        let ran = sandbox.run(&["sh", "-c", twice]);
        ran.exits(3);
        assert!(ran.stdout.contains("404 True") && ran.stdout.contains("second 3"), "{ran}");
        replay(sandbox).exits(0).complains("replay ok");
        sandbox.file("odd", b"\xff\xfe not UTF-9");
        replay(sandbox).exits(1).complains("odd");
    });
}

#[test]
fn an_empty_input_can_be_written_to_as_it_could() {
    for (writes, said) in [(true, "written\n"), (false, "not\n")] {
        everyone(|sandbox| {
            sandbox.policy("read: .");
            let _ = fs::remove_file(sandbox.trace());
            let mut command =
                sandbox.run_command(&[], &["sh", "-c", "echo in >&0 && echo written || echo not"]);
            command.stdin(File::options().read(true).write(writes).open("/dev/null").expect("opens"));
            Running::start(command).finish().exits(0).prints(said);
            replay(sandbox).exits(0).prints(said).complains("replay ok");
        });
    }
}

#[test]
fn the_last_byte_of_a_large_input_counts() {
    everyone(|sandbox| {
        let mut input = vec![b'x'; 1_000_001];
        sandbox.file("input", &input);
        sandbox.policy("read: .\nexec: cat");
        sandbox.run(&["sh", "-c", "cat input >/dev/null"]).exits(0);
        replay(sandbox).exits(0).complains("replay ok");
        input[1_000_000] = b'y';
        sandbox.file("input", &input);
        replay(sandbox).exits(1).complains("input");
    });
}

#[test]
fn promises_of_node_may_come_in_any_order() {
    if !has("node") {
        return skip("node", "it is not installed");
    }
    let port = serve();
    everyone(|sandbox| {
        sandbox.policy(&format!("read: .\nnet: localhost:{port}"));
        let program = "const http = require('http'), get = (path, wait) => new Promise(done => setTimeout(() =>
                http.get(`http://localhost:${process.argv[1]}${path}`, answer => { let size = 0
                    answer.on('data', piece => size += piece.length).on('end', () => done(`${path} ${answer.statusCode} ${size}`)) }), wait))
            Promise.all([get('/slow', 300), get('/fast', 0), get('/middle', 100)]).then(all => console.log(all.join('\\n')))";
        let ran = sandbox.run(&["node", "-e", program, &port.to_string()]);
        ran.exits(0).prints("/slow 404 256\n/fast 404 256\n/middle 404 256\n");
        replay(sandbox).exits(0).complains("replay ok");
    });
}

/// Runs a command whose reader leaves after the first of its output.
fn run_with_a_reader_that_leaves(sandbox: &Sandbox, words: &[&str]) -> Option<i32> {
    let _ = fs::remove_file(sandbox.trace());
    let mut command = sandbox.run_command(&["-q"], words);
    let mut child = command.stderr(Stdio::null()).spawn().expect("starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 2]).expect("the first of it");
    drop(stdout);
    child.wait().expect("ends").code()
}

#[test]
fn a_reader_that_left_leaves_again() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nwrite: ./out\nexec: **/yes\nexec: **/seq\nexec: python3");
        sandbox.file("out", "");
        let survivor = "
import os, signal
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
try:
    while True: os.write(1, b'x' * 1000)
except BrokenPipeError: open('out', 'w').write('nobody reads')
";
        for (words, code) in [
            (&["yes"][..], 141),
            (&["seq", "1000000"], 141),
            (&["sh", "-c", "while :; do echo line || exit 3; done"], 141),
            (&["python3", "-c", survivor], 0),
        ] {
            assert_eq!(run_with_a_reader_that_leaves(sandbox, words), Some(code), "{words:?}");
            let again = replay(sandbox);
            again.exits(0).complains("replay ok");
            assert!(again.stdout.len() >= 2, "{again}");
        }
    });
}

#[test]
fn what_was_written_before_the_reader_left_is_written_again() {
    everyone(|sandbox| {
        sandbox.policy("read: .");
        let script = "echo first; read x; echo second; echo third >&2";
        let _ = fs::remove_file(sandbox.trace());
        let mut command = sandbox.run_command(&["-q"], &["sh", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_exact(&mut [0; 6]).expect("a line");
        drop(stdout);
        child.stdin.take().expect("a pipe").write_all(b"on\n").expect("writes");
        let output = child.wait_with_output().expect("ends");
        let code = output.status.code();
        assert!(code == Some(141) || code == Some(0), "{output:?}");
        let again = replay(sandbox);
        again.exits(0).complains("replay ok").prints("first\n");
    });
}

#[test]
fn a_run_that_was_stopped_was_made_here_all_the_same() {
    everyone(|sandbox| {
        sandbox.policy("exec: sh");
        let mut command = sandbox.run_command(&[], &["sh", "-c", "echo lost"]);
        command.stdout(File::options().write(true).open("/dev/full").expect("opens"));
        assert_eq!(command.status().expect("runs").code(), Some(125));
        let ran = replay(sandbox);
        ran.exits(1).prints("lost\n").complains("No space left on device").complains("replay diverged");
        sandbox.environment("XDG_STATE_HOME", sandbox.beside("home"));
        let list = sandbox.beside("home/agentbox/heads/list");
        replay(sandbox)
            .exits(2)
            .complains(&format!("{} does not list it", list.display()))
            .complains("set HOME and XDG_STATE_HOME as they were");
    });
}
