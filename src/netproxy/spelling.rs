//! How an origin spells the names of its fields: HTTP/1.1 takes them as the same in any case (RFC 9110 section 5.1),
//! but a client may show them as they came. The library keeps the spelling to itself, so it is read off the bytes.

use std::io;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use memchr::{memchr, memchr_iter};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, duplex};

use super::client::MAX_HEAD;
use super::gathered::writes_through;

/// Room for a head whose fields hold [`MAX_HEAD`] bytes.
const ROOM: usize = 4 * MAX_HEAD;

/// Room that is kept for the next head.
const KEPT: usize = 2 << 10;

/// The head of the present answer, as it comes.
pub(crate) struct Spelling {
    seen: Mutex<Seen>,
    /// The socket below, as long as it is open; else -1.
    socket: AtomicI32,
}

#[derive(Default)]
struct Seen {
    expects: bool,
    /// Something has come of it.
    begun: bool,
    bytes: Vec<u8>,
}

impl Spelling {
    /// Of answers that come over `socket`.
    pub(crate) fn on(socket: Option<RawFd>) -> Self {
        Self { seen: Mutex::default(), socket: AtomicI32::new(socket.unwrap_or(-1)) }
    }

    /// Whether nothing waits in the socket, the end of the stream included. Asked on the thread that closes it.
    pub(crate) fn is_silent(&self) -> bool {
        let socket = self.socket.load(Ordering::Relaxed);
        socket >= 0
            && recv(socket, &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) == Err(Errno::EAGAIN)
    }

    /// An answer comes next.
    pub(crate) fn expect(&self) {
        let mut seen = self.lock();
        (seen.expects, seen.begun) = (true, false);
        seen.bytes.clear();
    }

    /// Whether nothing of it has come, nor of what precedes it.
    pub(crate) fn is_unheard(&self) -> bool {
        !self.lock().begun
    }

    /// The names that are not spelled as most are.
    pub(crate) fn unusual(&self) -> Vec<String> {
        let seen = self.lock();
        let mut unusual: Vec<String> = Vec::new();
        // Behind the status line.
        let mut ends = memchr_iter(b'\n', &seen.bytes).peekable();
        while let Some(end) = ends.next() {
            let line = &seen.bytes[end + 1..ends.peek().map_or(seen.bytes.len(), |&next| next)];
            let Some(name) = memchr(b':', line).map(|at| &line[..at]).filter(|name| !is_title(name)) else {
                continue;
            };
            if !unusual.iter().any(|other| other.as_bytes() == name) {
                unusual.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        unusual
    }

    fn see(&self, bytes: &[u8]) {
        let mut seen = self.lock();
        if !seen.expects {
            return;
        }
        seen.begun |= !bytes.is_empty();
        let room = MAX_HEAD - seen.bytes.len().min(MAX_HEAD);
        seen.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        while let Some(end) = end_of_head(&seen.bytes) {
            if is_interim(&seen.bytes) {
                seen.bytes.drain(..end);
                continue;
            }
            seen.bytes.truncate(end);
            if seen.bytes.capacity() > KEPT {
                seen.bytes.shrink_to_fit();
            }
            seen.expects = false;
            return;
        }
        seen.expects = bytes.len() <= room;
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the empty line ends.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    memchr_iter(b'\n', bytes).map(|at| at + 1).find_map(|line| match bytes.get(line..)? {
        [b'\n', ..] => Some(line + 1),
        [b'\r', b'\n', ..] => Some(line + 2),
        _ => None,
    })
}

/// Whether another head follows (RFC 9110 section 15.2): not after 101.
fn is_interim(bytes: &[u8]) -> bool {
    let status = bytes.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    status.first() == Some(&b'1') && !status.starts_with(b"101")
}

/// `Content-Type`: each word with a capital.
pub(crate) fn title(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters.map(|letter| letter.to_ascii_lowercase())).collect::<String>()
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

/// Whether a name is spelled so.
fn is_title(name: &[u8]) -> bool {
    let mut begins = true;
    name.iter().all(|&letter| {
        let is_right = if begins { !letter.is_ascii_lowercase() } else { !letter.is_ascii_uppercase() };
        begins = letter == b'-';
        is_right
    })
}

/// A head that the library writes with the names of its fields as they were spelled: those that are `unusual`, and
/// the others as most are. None where it cannot be written so.
pub(crate) async fn respell(fields: &HeaderMap, unusual: &[String]) -> Option<http::Extensions> {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for name in fields.keys() {
        let spelled = unusual.iter().find(|other| other.eq_ignore_ascii_case(name.as_str()));
        let spelled = spelled.cloned().unwrap_or_else(|| title(name.as_str()));
        for _ in fields.get_all(name) {
            // The values do not matter here, but those that frame a message must do so.
            let value = if name == http::header::CONTENT_LENGTH { "0" } else { "chunked" };
            head.extend_from_slice(format!("{spelled}: {value}\r\n").as_bytes());
        }
    }
    head.extend_from_slice(b"\r\n");
    if head.len() > ROOM {
        return None;
    }
    let (near, mut far) = duplex(ROOM);
    let builder = &mut http1::Builder::new();
    let builder = builder.preserve_header_case(true).max_buf_size(ROOM);
    let (mut sender, connection) = builder.handshake(TokioIo::new(near)).await.ok()?;
    let answer = async move {
        let _ = far.read(&mut [0; 256]).await;
        let _ = far.write_all(&head).await;
        std::future::pending::<()>().await;
    };
    let request = Request::new(Empty::<Bytes>::new());
    tokio::select! {
        response = sender.send_request(request) => response.ok().map(Response::into_parts).map(|(head, _)| head.extensions),
        _ = connection => None,
        () = answer => None,
    }
}

/// A stream whose answers are looked at.
pub(crate) struct Spelled<S> {
    pub(crate) stream: S,
    pub(crate) spelling: Arc<Spelling>,
}

impl<S> Drop for Spelled<S> {
    fn drop(&mut self) {
        // Its number may be another's from now on.
        self.spelling.socket.store(-1, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Spelled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.spelling.see(&buf.filled()[before..]);
        polled
    }
}

writes_through!([S: AsyncWrite + Unpin] Spelled<S>, |this| &mut this.stream);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_off_the_last_head_alone() {
        let spelling = Spelling::on(None);
        spelling.see(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n");
        assert!(spelling.unusual().is_empty(), "nothing was expected");
        spelling.expect();
        for piece in [
            &b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-"[..],
            b"Type: b\r\nx-a: b\r\n\r",
            b"\nbody: x\r\n\r\n",
        ] {
            spelling.see(piece);
        }
        assert_eq!(spelling.unusual(), ["ETag", "x-a"]);
    }

    #[test]
    fn most_names_are_titles() {
        assert_eq!(title("content-TYPE"), "Content-Type");
        assert_eq!(title("x--a"), "X--A");
    }
}
