//! Bytes that were sent over TCP and are still in the kernel's hands.
//!
//! A small piece waits until the one before it is acknowledged (Nagle), which the other side puts off for some
//! 40 ms: both sleep, and go on by themselves. The timer that would send the one before again tells of it. That
//! of a window that is closed does not: there the other side does not read.

use std::fs;
use std::io;

/// The states in which a connection can have bytes under way, and those that tell of its end (`enum` in
/// include/net/tcp_states.h): ESTABLISHED, FIN_WAIT1, CLOSE_WAIT, LAST_ACK, CLOSING.
const SENDING: [&str; 5] = ["01", "04", "08", "09", "0B"];
/// A timer to send something again.
const RETRANSMIT: &str = "01";

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Transit {
    /// How many segments had been sent when there were none the last time.
    rested_at: Option<u64>,
}

impl Transit {
    /// Whether there are none in the network of the run, whose pid 1 is `init`; false as well where that cannot be
    /// told.
    ///
    /// To read the table takes some 10 ms, for the kernel walks through that of the whole machine. Where nothing was
    /// sent since it was read there is still nothing: a piece waits for one that was sent alone.
    pub(super) fn is_empty(&mut self, init: i32) -> bool {
        let sent = segments_sent(init);
        if sent.is_some() && self.rested_at == sent {
            return true;
        }
        let rests =
            sent == Some(0) || ["tcp", "tcp6"].into_iter().all(|name| rests(init, name) == Some(true));
        self.rested_at = sent.filter(|_| rests);
        rests
    }
}

/// Whether none is in a table of this network; `None` where that cannot be told.
fn rests(init: i32, name: &str) -> Option<bool> {
    match fs::read_to_string(format!("/proc/{init}/net/{name}")) {
        Ok(table) => Some(table.lines().skip(1).all(|line| !is_under_way(line))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && name == "tcp6" => Some(true),
        Err(_) => None,
    }
}

/// How many segments of TCP were sent in this network, over IPv6 as well, but for those that were sent again
/// (`OutSegs` in /proc/net/snmp, RFC 4022).
fn segments_sent(init: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{init}/net/snmp")).ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let place = lines.next()?.split_ascii_whitespace().position(|name| name == "OutSegs")?;
    lines.next()?.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// Whether a line of /proc/net/tcp (proc_net_tcp.rst) tells of bytes that come in a moment. What
/// was sent again already is lost, or nobody takes it.
fn is_under_way(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace().skip(3);
    let [Some(state), Some(_queues), Some(timer), Some(again)] = [(); 4].map(|()| words.next()) else {
        return false;
    };
    SENDING.contains(&state)
        && timer.split(':').next() == Some(RETRANSMIT)
        && again.bytes().all(|digit| digit == b'0')
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_what_was_sent_and_is_not_acknowledged_is_under_way() {
        let line = |state: &str, timer: &str, again: &str| {
            format!(
                "   1: 0100007F:46A0 0100007F:D2F0 {state} 00000006:00000000 {timer}:00000014 {again}     0        0 1 2"
            )
        };
        assert!(is_under_way(&line("01", "01", "00000000")) && is_under_way(&line("08", "01", "00000000")));
        for (state, timer, again) in [
            ("01", "00", "00000000"),
            ("01", "04", "00000000"),
            ("01", "01", "00000001"),
            ("02", "01", "00000000"),
        ] {
            assert!(!is_under_way(&line(state, timer, again)), "{state} {timer} {again}");
        }
        assert!(!is_under_way("") && !is_under_way("  sl  local_address"));
    }

    #[test]
    fn a_piece_that_waits_for_the_one_before_is_under_way() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        let (mut server, _) = listener.accept().expect("accepts");
        // Small pieces in both directions make it one that answers late.
        for _ in 0..3 {
            client.write_all(b"1").expect("writes");
            server.read_exact(&mut [0]).expect("reads");
            server.write_all(b"2").expect("writes");
            client.read_exact(&mut [0]).expect("reads");
        }
        client.write_all(b"3").expect("writes");
        client.write_all(b"4").expect("writes");
        let sent = segments_sent(std::process::id().cast_signed());
        let own = |line: &&str| line.contains(&format!(":{:04X} ", client.local_addr().expect("one").port()));
        let table = fs::read_to_string("/proc/self/net/tcp").expect("a table");
        let held = table.lines().filter(own).any(is_under_way);
        let mut both = [0; 2];
        server.read_exact(&mut both).expect("reads");
        assert!(held && both == *b"34", "{table}");
        // What was held back is sent now.
        assert!(sent.is_some() && sent < segments_sent(std::process::id().cast_signed()));
    }

    #[test]
    fn the_table_is_read_again_once_something_was_sent() {
        let own = std::process::id().cast_signed();
        let mut transit = Transit { rested_at: segments_sent(own) };
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let _client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        let rested_at = transit.rested_at;
        transit.is_empty(own);
        assert!(rested_at.is_some() && transit.rested_at != rested_at);
        assert_eq!(segments_sent(-1), None);
        assert!(!Transit::default().is_empty(-1));
    }
}
