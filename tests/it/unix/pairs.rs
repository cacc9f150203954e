//! Sockets that we make in a program's place are the run's own.

use super::allow;
use super::stage::as_each_user;

/// What is sent by such a pair reaches its other end, whatever name stands in the call.
#[test]
fn pairs_of_datagram_sockets_stay_within_the_run() {
    as_each_user(|stage| {
        stage.make_directory("write");
        let host = std::os::unix::net::UnixDatagram::bind(stage.path("write/host")).expect("a socket");
        host.set_nonblocking(true).expect("a mode");
        allow(stage, "write/host");
        let code = "
import array, errno, fcntl, os, socket
for kind in [socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK]:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    if kind & socket.SOCK_NONBLOCK:
        try:
            other.recv(9)
        except BlockingIOError:
            print('nothing yet')
    one.send(b'first'); one.send(b''); one.sendto(b'second', 'write/host')
    one.sendmsg([b'third'], [], 0, 'write/host')
    print([other.recv(100) for _ in range(4)], fcntl.fcntl(one, fcntl.F_GETFD))
    read, write = os.pipe()
    socket.send_fds(other, [b'take'], [write])
    os.write(socket.recv_fds(one, 9, 1)[1][0], b'through'); print(os.read(read, 9))
libc = __import__('ctypes').CDLL(None, use_errno=True)
def pair(protocol, at):
    before = len(os.listdir('/proc/self/fd'))
    print(libc.socketpair(1, 2, protocol, at), errno.errorcode[__import__('ctypes').get_errno()])
    assert len(os.listdir('/proc/self/fd')) == before
pair(0, None)
pair(7, None)
";
        let ran = stage.python("write: ./write\nread: ./write\n", code);
        let sent = "[b'first', b'', b'second', b'third'] 1";
        let through = "b'through'";
        let refused = ["-1 EFAULT", "-1 EPROTONOSUPPORT"];
        let expected = [&[sent, through, sent, through, "nothing yet", sent, through][..], &refused].concat();
        assert_eq!(ran.lines(), expected, "{ran}");
        assert!(host.recv(&mut [0; 8]).is_err(), "a datagram came");
        assert!(ran.denied("net").is_empty(), "{ran}");
    });
}

/// Descriptors that we make for it are none of the host's network.
#[test]
fn no_socket_is_one_of_the_hosts_network() {
    as_each_user(|stage| {
        let code = "
import array, fcntl, os, socket, struct
def interfaces(socket):
    names = array.array('B', bytes(4096))
    answer = fcntl.ioctl(socket, 0x8912, struct.pack('iL', 4096, names.buffer_info()[0]))
    return [names.tobytes()[at:at + 16].strip(b'\\0') for at in range(0, struct.unpack('iL', answer)[0], 40)]
print(interfaces(os.open('/dev/urandom', os.O_RDONLY)), interfaces(socket.socketpair(type=socket.SOCK_DGRAM)[0]))
";
        let ran = stage.python("", code);
        assert_eq!(ran.lines(), ["[b'lo'] [b'lo']"], "{ran}");
    });
}

/// Pid 1 binds in a program's place: without room for a descriptor the launcher would wait for ever.
#[test]
fn pid_1_keeps_its_limits() {
    as_each_user(|stage| {
        let code = "
import resource, socket
try:
    resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))
except PermissionError:
    print('refused')
socket.socket(socket.AF_UNIX).bind('/tmp/s')
print('bound')
";
        let ran = stage.python("", code);
        assert_eq!(ran.lines(), ["refused", "bound"], "{ran}");
    });
}
