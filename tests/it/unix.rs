//! Unix sockets: those of the host by rule alone and as bytes alone, those of the run freely.

mod datagrams;
mod nodes;
mod pairs;
mod races;
mod stage;

use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener};

use nix::sys::socket::{ControlMessage, MsgFlags, recvmsg, sendmsg};
use stage::{Server, Stage, as_each_user};

/// `ask(path)` prints the answer or the errno.
pub(crate) const ASK: &str = "
import errno, os, socket, sys
def ask(path, text=b'hi'):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path)
        s.sendall(text)
        print(s.recv(100).decode())
    except OSError as error:
        print(errno.errorcode[error.errno])
";

fn asking(paths: &[&str]) -> String {
    paths.iter().fold(ASK.to_owned(), |code, path| format!("{code}\nask({path:?})"))
}

#[test]
fn a_named_socket_is_reached_wherever_it_is() {
    as_each_user(|stage| {
        let long = format!("deep/{}/s", "d".repeat(120));
        for directory in ["read", "write", "apart", long.trim_end_matches("/s")] {
            stage.make_directory(directory);
        }
        symlink(stage.path("apart/b"), stage.path("link")).expect("a link");
        let names = ["read/a", "write/a", "apart/b", &long];
        let servers = names.map(|name| stage.serve(name));
        let policy = format!(
            "read: ./read\nwrite: ./write\nnet: unix:./read/a, unix:./write/a, unix:./link, unix:./{long}\n"
        );
        let code = format!(
            "{}\nos.chdir({:?})\nask('s')",
            asking(&["read/a", "write/a", "apart/b", "link"]),
            long.trim_end_matches("/s")
        );
        let ran = stage.python(&policy, &code);
        assert_eq!(ran.lines(), ["host:hi"; 5], "{ran}");
        assert_eq!(servers.map(|server| server.connections()), [1, 1, 2, 1]);
        assert!(ran.denied("net").is_empty(), "{ran}");
        let streams = ran.entries("net.stream");
        assert_eq!(streams.len(), 5);
        for stream in streams {
            assert_eq!(stream["args"]["via"], "unix");
            assert_eq!(stream["result"]["up"], 2);
            assert_eq!(stream["result"]["down"], 7);
            assert_eq!(stream["rule"], "agent.policy:3");
        }
    });
}

#[test]
fn a_pattern_stands_for_the_sockets_that_are_there() {
    as_each_user(|stage| {
        stage.make_directory("many/one");
        stage.make_directory("many/two/deeper");
        let found = [stage.serve("many/one/s"), stage.serve("many/two/s")];
        let others = [stage.serve("many/two/other"), stage.serve("many/two/deeper/s")];
        let code = asking(&["many/one/s", "many/two/s", "many/two/other", "many/two/deeper/s"]);
        let ran = stage.python("net: unix:./many/*/s\n", &code);
        assert_eq!(ran.lines(), ["host:hi", "host:hi", "EACCES", "EACCES"], "{ran}");
        assert_eq!(found.map(|server| server.connections()), [1, 1]);
        assert_eq!(others.map(|server| server.connections()), [0, 0]);
        assert_eq!(ran.denied("net").len(), 2);
    });
}

#[test]
fn a_rule_that_denies_wins() {
    as_each_user(|stage| {
        stage.make_directory("many");
        let servers = [stage.serve("many/a"), stage.serve("many/b")];
        let policy = "read: ./many\nnet: unix:./many/*, unix:./many/b\ndeny: net unix:./many/b\n";
        let ran = stage.python(policy, &asking(&["many/a", "many/b"]));
        assert_eq!(ran.lines(), ["host:hi", "EACCES"], "{ran}");
        assert_eq!(servers.map(|server| server.connections()), [1, 0]);
        let denial = ran.entries("net").into_iter().find(|entry| entry["kind"] == "deny").expect("a denial");
        assert_eq!(denial["rule"], "agent.policy:3");
    });
}

#[test]
fn no_way_leads_to_a_socket_that_no_rule_names() {
    as_each_user(|stage| {
        for directory in ["read", "write", "apart"] {
            stage.make_directory(directory);
        }
        let servers = ["read/docker.sock", "write/s", "apart/s"].map(|name| stage.serve(name));
        let code = format!(
            "{ASK}
for path in ['read/docker.sock', 'write/s', 'apart/s']:
    ask(path)
    ask(os.path.abspath(path))
for link in ['/tmp/link', 'write/link']:
    os.symlink(os.path.abspath('apart/s'), link)
    ask(link)
    os.unlink(link)
for path in ['read/docker.sock', 'write/s']:
    for link in ['/tmp/link', 'write/link']:
        os.symlink(os.path.abspath(path), link)
        ask(link)
        os.unlink(link)
    held = os.open(path, os.O_PATH)
    ask(f'/proc/self/fd/{{held}}')
    ask(f'/proc/{{os.getpid()}}/fd/{{held}}')
    ask(f'/dev/fd/{{held}}')
    ask(f'/proc/thread-self/fd/{{held}}')
    ask('/proc/self/cwd/' + path)
    ask('/proc/self/root' + os.path.abspath(path))
    ask('write/../' + path)
    directory, name = os.path.split(path)
    here = os.getcwd()
    os.chdir(directory)
    ask(name)
    ask('./' + name)
    os.chdir(here)
os.rename('write/s', 'write/renamed')
ask('write/renamed')
os.link('write/renamed', 'write/s')
ask('write/s')
"
        );
        let ran = stage.python("read: ./read\nwrite: ./write\n", &code);
        assert!(ran.lines().iter().all(|line| line == "EACCES"), "{ran}");
        assert_eq!(ran.lines().len(), 32, "{ran}");
        assert_eq!(servers.map(|server| server.connections()), [0; 3]);
        let denied = ran.denied("net");
        for name in ["read/docker.sock", "write/s", "apart/s", "write/renamed"] {
            let target = format!("unix:{}", stage.path(name).display());
            assert!(denied.contains(&target), "{name}: {denied:?}");
        }
        let errors = String::from_utf8_lossy(&ran.output.stderr);
        assert!(errors.contains("to allow it: net: unix:"), "{errors}");
    });
}

#[test]
fn observing_reaches_it_and_says_so() {
    as_each_user(|stage| {
        stage.make_directory("apart");
        let server = stage.serve("apart/s");
        let ran =
            stage.run_with("env: LANG\n", &["--observe"], &["/usr/bin/python3", "-c", &asking(&["apart/s"])]);
        assert_eq!(ran.lines(), ["host:hi"], "{ran}");
        assert_eq!(server.connections(), 1);
        let denial = ran.entries("net").into_iter().find(|entry| entry["kind"] == "deny").expect("a denial");
        assert_eq!(denial["args"]["enforced"], false);
    });
}

#[test]
fn a_named_socket_cannot_be_exchanged_for_another() {
    as_each_user(|stage| {
        stage.make_directory("write");
        let (named, other) = (stage.serve("write/named"), stage.serve("write/other"));
        let code = format!(
            "{ASK}
os.rename('write/other', 'write/named')
ask('write/named')
os.rename('write/named', 'write/other')
os.symlink('other', 'write/named')
ask('write/named')
os.unlink('write/named')
os.link('write/other', 'write/named')
ask('write/named')
"
        );
        let ran = stage.python("write: ./write\nnet: unix:./write/named\n", &code);
        assert_eq!(ran.lines().len(), 3, "{ran}");
        assert_eq!(other.connections(), 0, "{ran}");
        // The one that the rule meant answers, wherever its name went.
        assert!(named.connections() <= 3);
    });
}

#[test]
fn a_directory_on_the_way_cannot_be_exchanged_either() {
    as_each_user(|stage| {
        stage.make_directory("write");
        stage.make_directory("write/inner");
        stage.make_directory("apart");
        let (named, other) = (stage.serve("write/inner/s"), stage.serve("apart/s"));
        let code = format!(
            "{ASK}
os.rename('write/inner', 'write/moved')
os.symlink({:?}, 'write/inner')
ask('write/inner/s')
os.unlink('write/inner')
os.mkdir('write/inner')
os.symlink({:?}, 'write/inner/s')
ask('write/inner/s')
",
            stage.path("apart"),
            stage.path("apart/s")
        );
        let ran = stage.python("write: ./write\nnet: unix:./write/inner/s\n", &code);
        assert_eq!(ran.lines().len(), 2, "{ran}");
        assert_eq!(other.connections(), 0, "{ran}");
        assert!(named.connections() <= 2);
    });
}

#[test]
fn a_server_that_starts_later_or_again_is_reached_where_the_agent_cannot_write() {
    as_each_user(|stage| {
        for directory in ["read", "signal"] {
            stage.make_directory(directory);
        }
        let first = UnixListener::bind(stage.path("read/again")).expect("bind");
        let code = format!(
            "{ASK}
import time
ask('read/later')
open('signal/go', 'w').close()
while not os.path.exists('signal/done'):
    time.sleep(0.01)
ask('read/later')
ask('read/again')
"
        );
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    if stage.path("signal/go").exists() {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                drop(first);
                std::fs::remove_file(stage.path("read/again")).expect("removed");
                let _servers = (stage.serve("read/again"), stage.serve("read/later"));
                std::fs::write(stage.path("signal/done"), "").expect("written");
            });
            stage.python("read: ./read\nwrite: ./signal\nnet: unix:./read/later, unix:./read/again\n", &code)
        });
        assert_eq!(ran.lines(), ["ENOENT", "host:hi", "host:hi"], "{ran}");
    });
}

#[test]
fn sockets_of_the_run_need_no_rule() {
    as_each_user(|stage| {
        stage.make_directory("write");
        let code = "
import asyncio, os, socket, threading
def converse(address, connect_to=None, kind=socket.SOCK_STREAM):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(address)
    server.listen(4)
    def serve():
        stream, _ = server.accept()
        stream.sendall(b'own:' + stream.recv(100))
    threading.Thread(target=serve).start()
    client = socket.socket(socket.AF_UNIX, kind)
    client.connect(connect_to or address)
    client.sendall(b'hi')
    print(client.recv(100).decode())
converse('/tmp/s')
converse('/run/packets', kind=socket.SOCK_SEQPACKET)
converse('write/s')
os.chdir('write')
converse('t', os.path.abspath('t'))
os.symlink('u', 'link')
converse('u', 'link')
converse('v', '/proc/self/cwd/v')
converse('\\0abstract')
a, b = socket.socketpair()
a.sendall(b'own:hi'); print(b.recv(100).decode())
async def waiting():
    async def serve(reader, writer):
        writer.write(b'own:' + await reader.read(100)); await writer.drain(); writer.close()
    async with await asyncio.start_unix_server(serve, '/tmp/async'):
        reader, writer = await asyncio.open_unix_connection('/tmp/async')
        writer.write(b'hi'); writer.write_eof()
        print((await reader.read()).decode())
asyncio.run(waiting())
";
        let ran = stage.python("write: ./write\n", code);
        assert_eq!(ran.lines(), ["own:hi"; 9], "{ran}");
        assert!(ran.denied("net").is_empty(), "{ran}");
    });
}

#[test]
fn abstract_sockets_of_the_host_are_elsewhere() {
    as_each_user(|stage| {
        let name = format!("agentbox-test-{}-{}", std::process::id(), stage.path("").display());
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let server = Server::start(UnixListener::bind_addr(&address).expect("bind"));
        let ran = stage.python("env: LANG\n", &asking(&[&format!("\0{name}")]).replace("\\0", "\\x00"));
        assert_eq!(ran.lines(), ["ECONNREFUSED"], "{ran}");
        assert_eq!(server.connections(), 0);
    });
}

#[test]
fn descriptors_cross_in_neither_direction() {
    as_each_user(|stage| {
        stage.make_directory("apart");
        let listener = UnixListener::bind(stage.path("apart/s")).expect("bind");
        allow(stage, "apart/s");
        let secret = std::fs::File::open("/etc/passwd").expect("it opens");
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accept");
            let mut bytes = [0; 8];
            let mut room = nix::cmsg_space!([i32; 4]);
            let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::empty();
            let came =
                recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut room), flags).expect("recvmsg");
            assert_eq!(came.bytes, 2);
            assert_eq!(came.cmsgs().expect("whole").count(), 0, "a descriptor came out");
            let fds = [secret.as_raw_fd()];
            let parts = [std::io::IoSlice::new(b"take")];
            let rights = [ControlMessage::ScmRights(&fds)];
            sendmsg::<()>(stream.as_raw_fd(), &parts, &rights, MsgFlags::empty(), None).expect("sendmsg");
        });
        let code = "
import array, socket
s = socket.socket(socket.AF_UNIX)
s.connect('apart/s')
s.sendmsg([b'hi'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1]))])
print(s.recvmsg(100, 1000)[:2])
";
        let ran = stage.python("net: unix:./apart/s\n", code);
        server.join().expect("nothing crossed");
        assert_eq!(ran.lines(), ["(b'take', [])"], "{ran}");
        let target = format!("unix:{}", stage.path("apart/s").display());
        assert_eq!(ran.denied("net"), [target.clone(), target], "{ran}");
    });
}

fn allow(stage: &Stage, name: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(stage.path(name), PermissionsExt::from_mode(0o777)).expect("mode");
}

#[test]
fn datagrams_and_packets_to_the_host_are_refused() {
    as_each_user(|stage| {
        stage.make_directory("apart");
        let server = stage.serve("apart/s");
        let code = "
import errno, socket
def attempt(call):
    try:
        call()
        print('done')
    except OSError as error:
        print(errno.errorcode[error.errno])
attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_RAW))
attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('apart/s'))
attempt(lambda: socket.socket(socket.AF_UNIX).sendto(b'x', 'apart/s'))
";
        let ran = stage.python("net: unix:./apart/s\n", code);
        let expected = ["EPROTONOSUPPORT", "EPROTONOSUPPORT", "EPROTOTYPE", "ENOTSUP"];
        assert_eq!(ran.lines(), expected, "{ran}");
        assert_eq!(server.connections(), 0);
    });
}

#[test]
fn agents_for_keys_work_inside() {
    as_each_user(|stage| {
        let script =
            "ssh-add -l; test $? = 1 && ssh-agent -a /tmp/second ssh-add -l; test $? = 1 && echo served";
        let ran = stage.run(
            "exec: ssh-agent\nexec: ssh-add\nexec: /bin/sh\n",
            &["/usr/bin/ssh-agent", "/bin/sh", "-c", script],
        );
        assert_eq!(ran.lines().last().map(String::as_str), Some("served"), "{ran}");
        assert!(ran.denied("net").is_empty(), "{ran}");
    });
}
