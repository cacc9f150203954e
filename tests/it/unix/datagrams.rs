//! Datagrams between Unix sockets: refused, with an answer that programs survive.

use super::allow;
use super::stage::as_each_user;

/// A datagram names its receiver in memory that can change after it was judged. Loggers live without.
#[test]
fn programs_that_log_or_notify_by_datagrams_go_on() {
    as_each_user(|stage| {
        stage.make_directory("write");
        let host = std::os::unix::net::UnixDatagram::bind(stage.path("write/log")).expect("a socket");
        host.set_nonblocking(true).expect("a mode");
        allow(stage, "write/log");
        let code = "
import logging.handlers, os, socket, syslog
syslog.syslog('one')
handler = logging.handlers.SysLogHandler('write/log')
logging.raiseExceptions = False
handler.handle(logging.makeLogRecord({'msg': 'two'}))
def notify(path):
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b'READY=1', path)
    except OSError as error:
        print(os.strerror(error.errno))
notify('write/log'); notify('\\0abstract')
print('went on')
";
        let ran = stage.python("read: ./write\nwrite: ./write\nnet: unix:./write/log\n", code);
        let refused = "Protocol not supported";
        assert_eq!(ran.lines(), [refused, refused, "went on"], "{ran}");
        assert!(host.recv(&mut [0; 8]).is_err(), "a datagram came");
        assert!(!ran.denied("net").is_empty(), "{ran}");
    });
}
