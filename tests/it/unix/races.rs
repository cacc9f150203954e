//! Races against the judge of connect(2): the address, the descriptor and the file are exchanged
//! while a call waits.

use super::ASK;
use super::stage::as_each_user;

/// An address in memory that another process rewrites all the time, 20,000 connects by hand.
const FLIP: &str = "
import ctypes, errno, mmap, os, signal, socket, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
own = socket.socket(socket.AF_UNIX)
own.bind('/tmp/own')
own.listen(4096)
def accept():
    while True:
        own.accept()[0].close()
threading.Thread(target=accept, daemon=True).start()
def address(path):
    return struct.pack('H', socket.AF_UNIX) + path.encode().ljust(108, b'\\0')
";

#[test]
fn an_address_that_changes_never_leads_out() {
    as_each_user(|stage| {
        stage.make_directory("read");
        let server = stage.serve("read/s");
        let host = stage.path("read/s");
        let code = format!(
            "{ASK}{FLIP}
memory = mmap.mmap(-1, 4096)
both = [address('/tmp/own'), address({host:?})]
memory[:110] = both[0]
flipper = os.fork()
if flipper == 0:
    while True:
        memory[:110] = both[1]
        memory[:110] = both[0]
where = ctypes.addressof(ctypes.c_char.from_buffer(memory))
seen = set()
for attempt in range(20000):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(attempt % 2 == 0)
    done = libc.connect(s.fileno(), ctypes.c_void_p(where), 110)
    seen.add('connected' if done == 0 else errno.errorcode[ctypes.get_errno()])
    s.close()
os.kill(flipper, signal.SIGKILL)
print(*sorted(seen & {{'connected', 'EACCES'}}))
"
        );
        let ran = stage.python("read: ./read\n", &code);
        assert_eq!(server.connections(), 0, "{ran}");
        // Both ways were tried, or there was no race.
        assert_eq!(ran.lines(), ["EACCES connected"], "{ran}");
    });
}

#[test]
fn a_descriptor_that_changes_never_leads_out() {
    as_each_user(|stage| {
        stage.make_directory("read");
        let server = stage.serve("read/s");
        let host = stage.path("read/s");
        let code = format!(
            "{ASK}{FLIP}
inside, outside = os.open('/tmp/own', os.O_PATH), os.open({host:?}, os.O_PATH)
held = os.dup(inside)
spare = socket.socket(socket.AF_UNIX)
slot = os.dup(spare.fileno())
stop = False
def flip():
    while not stop:
        os.dup2(outside, held)
        os.dup2(inside, held)
        os.dup2(spare.fileno(), slot)
thread = threading.Thread(target=flip)
thread.start()
seen = set()
for attempt in range(5000):
    s = socket.socket(socket.AF_UNIX)
    os.dup2(s.fileno(), slot)
    target = address(f'/proc/self/fd/{{held}}')
    done = libc.connect(slot, target, 110)
    seen.add('connected' if done == 0 else errno.errorcode[ctypes.get_errno()])
    s.close()
stop = True
thread.join()
print('connected' in seen)
"
        );
        let ran = stage.python("read: ./read\n", &code);
        assert_eq!(server.connections(), 0, "{ran}");
        assert_eq!(ran.lines(), ["True"], "{ran}");
    });
}

/// A connect that waits is finished by a thread of the supervisor: meanwhile other calls have the
/// supervisor look at the host's socket.
#[test]
fn connects_at_the_same_time_keep_apart() {
    as_each_user(|stage| {
        stage.make_directory("read");
        let server = stage.serve("read/s");
        let host = stage.path("read/s");
        let code = format!(
            "{ASK}{FLIP}
asking = os.fork()
if asking == 0:
    target = address({host:?})
    s = socket.socket(socket.AF_UNIX)
    while True:
        libc.connect(s.fileno(), target, 110)
target = address('/tmp/own')
for attempt in range(5000):
    s = socket.socket(socket.AF_UNIX)
    assert libc.connect(s.fileno(), target, 110) == 0
    s.close()
os.kill(asking, signal.SIGKILL)
print('done')
"
        );
        let ran = stage.python("read: ./read\n", &code);
        assert_eq!(server.connections(), 0, "{ran}");
        assert_eq!(ran.lines(), ["done"], "{ran}");
    });
}
