//! What a client speaks, told from its first bytes.
//!
//! It errs towards HTTP: what an origin could take for a request is judged as one. Bytes that are
//! neither HTTP nor TLS pass as they are, wherever the destination itself is granted.

use std::time::Duration;

use tokio::io::AsyncBufReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::client::{Client, MAX_HEAD};
use super::error::NetproxyError;
use super::link::Wire;
use super::moments;
use super::origin::OriginStream;
use super::recorded::Playback;
use super::request_line::{begins_known, is_blank, is_request_line, may_be_request};
use super::standstill;
use super::tls::OuterStream;

/// How long the rest of a request line or ClientHello may take once it has begun.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long text that may yet become an unknown kind of request is held back.
const TEXT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a client has for its first bytes in a replay where it is not clear who is to speak first: on a busy machine
/// it comes late to what it says at once.
const CLIENT_FIRST: Duration = Duration::from_secs(1);

/// The first line of HTTP/2's preface (RFC 9113 section 3.4), and where its newline is.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
const PREFACE_LINE: usize = PREFACE.len() - 1;

/// What a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// A TLS handshake record has begun.
    Tls,
    /// An HTTP/1 request has begun.
    Http,
    /// An HTTP/2 connection has begun without asking (RFC 9113 section 3.3).
    Http2,
    /// Something else, or the server speaks first.
    Opaque,
}

impl Speech {
    /// The version of HTTP, where it is one that is read.
    pub(crate) fn wire(self) -> Option<Wire> {
        match self {
            Self::Http => Some(Wire::Http1),
            Self::Http2 => Some(Wire::Http2),
            Self::Tls | Self::Opaque => None,
        }
    }
}

/// Who may be the first to speak, besides the client.
pub(crate) enum Server<'a> {
    None,
    Plain(&'a TcpStream),
    Recorded(&'a Playback),
    Tls(&'a mut OuterStream),
}

impl<'a> Server<'a> {
    pub(crate) fn of(stream: &'a OriginStream) -> Self {
        match stream {
            OriginStream::Socket(socket) => Self::Plain(socket),
            OriginStream::Recorded(playback) => Self::Recorded(playback),
        }
    }
}

/// Reads until it is clear what the client speaks. Where the server is the first to speak, the
/// bytes are opaque.
pub(crate) async fn listen(client: &mut Client, mut server: Server<'_>) -> Result<Speech, NetproxyError> {
    let mut begun = None;
    loop {
        let glance = classify(client.prefix());
        let patience = match glance {
            Glance::Clear(speech) => return Ok(speech),
            Glance::Request if client.prefix().len() >= MAX_HEAD => return Ok(Speech::Http),
            Glance::Text if client.prefix().len() >= MAX_HEAD => return Ok(doubtful(client)),
            Glance::Nothing => None,
            Glance::Request => Some(HEAD_TIMEOUT),
            Glance::Text => Some(TEXT_TIMEOUT),
        };
        let deadline = patience.map(|patience| *begun.get_or_insert_with(Instant::now) + patience);
        let read = tokio::select! {
            read = read_before(client, deadline) => read,
            () = server_speaks(&mut server) => return Ok(doubtful(client)),
        };
        match (read, glance) {
            (Some(Ok(0)), Glance::Request) => return Ok(Speech::Http),
            (Some(Ok(0)), _) => return Ok(Speech::Opaque),
            (None, Glance::Text) => return Ok(doubtful(client)),
            (Some(Ok(_)), _) => {}
            (Some(Err(source)), _) => return Err(NetproxyError::Client { source }),
            (None, _) => {
                let reason = "the request line did not come in time".to_owned();
                return Err(NetproxyError::Request { reason });
            }
        }
    }
}

/// Bytes that are passed on unread, and looked at further where they could yet become what is read.
fn doubtful(client: &mut Client) -> Speech {
    if classify(client.prefix()) != Glance::Nothing {
        client.doubt();
    }
    Speech::Opaque
}

async fn read_before(client: &mut Client, deadline: Option<Instant>) -> Option<std::io::Result<usize>> {
    match deadline {
        None => Some(client.read_ahead().await),
        Some(deadline) => timeout_at(deadline, client.read_ahead()).await.ok(),
    }
}

/// Returns when the server has sent, closed or failed; never without a server. One of HTTP/2 may be the
/// first to send as well, and its client says so in a moment.
async fn server_speaks(server: &mut Server<'_>) {
    let mut first = [0; 9];
    let settings = match server {
        Server::Plain(stream) => {
            let seen = stream.peek(&mut first).await.unwrap_or(0);
            is_settings(&first[..seen])
        }
        Server::Recorded(playback) => return recorded_speaks(playback).await,
        Server::Tls(stream) => is_settings(stream.fill_buf().await.unwrap_or_default()),
        Server::None => true,
    };
    if settings {
        std::future::pending().await
    }
}

/// The same of what is played. Where the recorded connections to a place differ, the client says first which of them it
/// is, if it says anything.
async fn recorded_speaks(playback: &Playback) {
    match playback.opening() {
        Some(opening) if is_settings(opening) => std::future::pending().await,
        Some(_) if !playback.is_mixed() => {}
        None if !playback.is_mixed() => standstill::comes().await,
        _ => moments::pass(CLIENT_FIRST).await,
    }
}

/// Whether a server's first bytes are those of a SETTINGS frame (RFC 9113 sections 4.1 and 6.5).
fn is_settings(bytes: &[u8]) -> bool {
    matches!(bytes, [0, 0, _, 4, 0, 0, 0, 0, 0, ..])
}

/// What a prefix says so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// It is clear what the client speaks.
    Clear(Speech),
    /// No byte yet.
    Nothing,
    /// The beginning of a request with a known method, or empty lines before one.
    Request,
    /// A line of text that has not ended, which could yet be a request.
    Text,
}

/// Tells from the first bytes of a stream what its client speaks.
#[must_use]
pub fn classify(bytes: &[u8]) -> Glance {
    if let Some(glance) = tls(bytes) {
        return glance;
    }
    // Servers skip empty lines before a request (RFC 9112 section 2.2), some of them any number and
    // for any time, and some skip blanks: were they passed on after a while, a request could follow them unread.
    let start = bytes.iter().position(|byte| !is_blank(*byte) && *byte != b'\n');
    let Some(text) = start.map(|start| &bytes[start..]) else {
        let lines = bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        return match bytes {
            [] => Glance::Nothing,
            _ if lines => Glance::Request,
            _ => Glance::Text,
        };
    };
    match text.iter().position(|&byte| byte == b'\n') {
        Some(PREFACE_LINE) if text.starts_with(PREFACE) && start == Some(0) => Glance::Clear(Speech::Http2),
        Some(end) if is_request_line(&text[..end]) => Glance::Clear(Speech::Http),
        Some(_) => Glance::Clear(Speech::Opaque),
        None if begins_known(text) => Glance::Request,
        None if may_be_request(text) => Glance::Text,
        None => Glance::Clear(Speech::Opaque),
    }
}

/// Whether some server takes the bytes for the beginning of TLS; none where they are something else.
fn tls(bytes: &[u8]) -> Option<Glance> {
    match bytes {
        // TLSPlaintext: type handshake, legacy version 3.x (RFC 8446 section 5.1).
        [0x16, 3, ..] => Some(Glance::Clear(Speech::Tls)),
        // Go's servers look at the version no closer, and skip empty records and warnings.
        [0x16, 0..=0x0f, _, 0, 0, ..]
        | [0x16, 0..=0x0f, _, _, _, 1, ..]
        | [0x15, 0..=0x0f, _, 0, 2, 1, ..] => Some(Glance::Clear(Speech::Tls)),
        // A hello in the form of SSL 2.0 for a later version (RFC 5246 appendix E.2), which OpenSSL takes.
        [0x80..=0xff, _, 1, 3, ..] => Some(Glance::Clear(Speech::Tls)),
        [0x16] | [0x16, 0..=0x0f] | [0x16, 0..=0x0f, _] => Some(Glance::Text),
        [0x16, 0..=0x0f, _, _] | [0x16, 0..=0x0f, _, _, _] => Some(Glance::Text),
        [0x15] | [0x15, 0..=0x0f] | [0x15, 0..=0x0f, _] => Some(Glance::Text),
        [0x15, 0..=0x0f, _, 0] | [0x15, 0..=0x0f, _, 0, 2] => Some(Glance::Text),
        [0x80..=0xff] | [0x80..=0xff, _] | [0x80..=0xff, _, 1] => Some(Glance::Text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: Glance = Glance::Clear(Speech::Http);
    const OPAQUE: Glance = Glance::Clear(Speech::Opaque);

    #[test]
    fn tells_http_from_other_lines() {
        let cases: [(&[u8], Glance); 25] = [
            (b"", Glance::Nothing),
            (b"GET / HTTP/1.1\r\n", HTTP),
            (b"\r\n\r\nGET / HTTP/1.1\r\n", HTTP),
            (b"get / http/1.1\n", HTTP),
            (b"GET /\r\n", HTTP),
            (b"BREW /pot HTTP/1.1\r\n", HTTP),
            (b"CONNECT a:443 HTTP/1.1\r\n", HTTP),
            (b"G", Glance::Request),
            (b"GET /unfinished", Glance::Request),
            (b"BREW /unfinished", Glance::Text),
            (b"hello", Glance::Text),
            (b"\r\n", Glance::Request),
            (b"PRI * HTTP/2.0\r\n", Glance::Clear(Speech::Http2)),
            (b"\nPRI * HTTP/2.0\r\n", HTTP),
            (b"PRI * HTTP/1.1\r\n", HTTP),
            (b"\nPRI /x HTTP/2.0\r\n", HTTP),
            (b"OPTIONS sip:a@b SIP/2.0\r\n", OPAQUE),
            (b"OPTIONS rtsp://a/b RTSP/1.0\r\n", OPAQUE),
            (b"PING\r\n", OPAQUE),
            (b"*1\r\n$4\r\nPING\r\n", OPAQUE),
            (b"SSH-2.0-OpenSSH_9.2\r\n", OPAQUE),
            (b"get key\r\n", OPAQUE),
            (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", OPAQUE),
            (b"GET\x00", OPAQUE),
            (b"GET \x01", Glance::Request),
        ];
        for (bytes, expected) in cases {
            assert_eq!(classify(bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn blanks_hide_no_request() {
        for line in [
            &b" GET / HTTP/1.1\r\n"[..],
            b"\x0bBREW\x0c/\x1fhttp/1.0\n",
            b"\r\n\t\x85PUT\xa0/\r\n",
            b"GET\r/x\r\n",
        ] {
            assert_eq!(classify(line), HTTP, "{}", line.escape_ascii());
        }
        for (bytes, expected) in [(&b"\t"[..], Glance::Text), (b" G", Glance::Request), (b"COPY\r\n", OPAQUE)]
        {
            assert_eq!(classify(bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_method_has_any_length() {
        let line = [&[b'X'; 200][..], b" / HTTP/1.1\r\n"].concat();
        assert_eq!(classify(&line), HTTP);
        assert_eq!(classify(&line[..150]), Glance::Text);
    }

    #[test]
    fn pieces_are_taken_for_what_the_whole_is() {
        let lines: [&[u8]; 10] = [
            b"\x0bGET\x0c/ HTTP/1.1\r\n",
            b" \x85\xa0BREW\x1f/ HTTP/1.1\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            b"\x16\x02\x00\x02\x00\x01",
            b"\x15\x03\x01\x00\x02\x01\x5a",
            b"\xa0\x2e\x01\x03\x03",
            b"GET /\x01 HTTP/1.1\r\n",
            b"BREW /\x00 HTTP/1.1\r\n",
            b"\r\n\nBREW\t/\x7f HTTP/1.1\n",
            b"PRI * HTTP/2.0\r\n",
        ];
        for line in lines {
            let whole = classify(line);
            for end in 0..line.len() {
                let piece = classify(&line[..end]);
                assert!(piece == whole || !matches!(piece, Glance::Clear(_)), "{piece:?} at {end}");
            }
        }
    }

    #[test]
    fn tells_tls() {
        assert_eq!(classify(b"\x16\x03\x01\x02\x00"), Glance::Clear(Speech::Tls));
        assert_eq!(classify(b"\x16"), Glance::Text);
        assert_eq!(classify(b"\x16\x02\x00\x02\x00\x01"), Glance::Clear(Speech::Tls));
        assert_eq!(classify(b"\x16\x02\x00\x02\x00\x02"), OPAQUE);
        assert_eq!(classify(b"\x16\x10"), OPAQUE);
        // A warning first, and the form of SSL 2.0.
        assert_eq!(classify(b"\x15\x03\x01\x00\x02\x01\x5a"), Glance::Clear(Speech::Tls));
        assert_eq!(classify(b"\x80\x2e\x01\x03\x03"), Glance::Clear(Speech::Tls));
        assert_eq!(classify(b"\x80\x2e\x00"), OPAQUE);
    }
}
