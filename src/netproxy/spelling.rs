//! How an origin spells the names of its fields: HTTP/1.1 takes them as the same in any case (RFC 9110 section 5.1),
//! but a client may show them as they came. The library keeps the spelling to itself, so it is read off the bytes.

use std::io::{self, IoSlice};
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
use super::gathered;

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

    /// The names that are not spelled as most are, each once; one that is spelled in two ways as often as it comes.
    pub(crate) fn unusual(&self) -> Vec<String> {
        let seen = self.lock();
        let mut unusual: Vec<&[u8]> = Vec::new();
        for name in names(&seen.bytes).filter(|name| !is_title(name)) {
            if !unusual.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                unusual.push(name);
            }
        }
        let spellings = unusual.into_iter().flat_map(|name| {
            let same = || names(&seen.bytes).filter(move |other| other.eq_ignore_ascii_case(name));
            let count = if same().all(|other| other == name) { 1 } else { usize::MAX };
            same().take(count)
        });
        spellings.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
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

/// The names of the fields of a head, one after another.
fn names(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Behind the status line.
    let mut ends = memchr_iter(b'\n', head).peekable();
    let lines = std::iter::from_fn(move || {
        let end = ends.next()?;
        Some(&head[end + 1..ends.peek().map_or(head.len(), |&next| next)])
    });
    lines.filter_map(|line| Some(&line[..memchr(b':', line)?]))
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
        let usual = title(name.as_str());
        let mut known = unusual.iter().filter(|other| other.eq_ignore_ascii_case(name.as_str()));
        let mut spelled = &usual;
        for _ in fields.get_all(name) {
            spelled = known.next().unwrap_or(spelled);
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
    stream: S,
    spelling: Arc<Spelling>,
    /// Nothing more can be written.
    is_refused: bool,
}

impl<S> Spelled<S> {
    pub(crate) fn new(stream: S, spelling: Arc<Spelling>) -> Self {
        Self { stream, spelling, is_refused: false }
    }
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

impl<S: AsyncWrite + Unpin> Spelled<S> {
    /// An origin that answers early and closes refuses the rest of the request: its answer may be there all the same.
    /// The library would not look for it. What is read next is that answer, or how the connection has ended.
    fn unless_refused<T>(&mut self, cx: &Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let Poll::Ready(Err(_)) = written else { return written };
        self.is_refused = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Spelled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_refused {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_refused(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_refused {
            return Poll::Pending;
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_refused(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_refused {
            return Poll::Pending;
        }
        let written = gathered::poll_write(Pin::new(&mut self.stream), cx, slices);
        self.unless_refused(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

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
        spelling.expect();
        spelling.see(b"HTTP/1.1 200 OK\r\nx-b: 1\r\nX-A: 1\r\nx-a: 2\r\nx-b: 2\r\nX-a: 3\r\n\r\n");
        assert_eq!(spelling.unusual(), ["x-b", "X-A", "x-a", "X-a"]);
    }

    #[tokio::test]
    async fn a_name_is_written_in_each_of_its_spellings() {
        let mut fields = HeaderMap::new();
        for name in ["x-b", "x-a", "x-a", "x-b", "x-a", "c"] {
            fields.append(name, "x".parse().unwrap());
        }
        let unusual = ["x-b", "X-A", "x-a", "X-a"].map(str::to_owned);
        let extensions = respell(&fields, &unusual).await.unwrap();
        let (mut near, far) = duplex(ROOM);
        let mut answer = Response::new(Empty::<Bytes>::new());
        (*answer.headers_mut(), *answer.extensions_mut()) = (fields, extensions);
        let answer = std::sync::Mutex::new(Some(answer));
        let service = hyper::service::service_fn(|_| {
            let answer = answer.lock().unwrap().take().unwrap();
            async { Ok::<_, std::convert::Infallible>(answer) }
        });
        near.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut server = hyper::server::conn::http1::Builder::new();
        server.preserve_header_case(true).serve_connection(TokioIo::new(far), service).await.unwrap();
        let mut head = String::new();
        near.read_to_string(&mut head).await.unwrap();
        for name in ["x-b: x\r\nx-b: x\r\n", "X-A: x\r\nx-a: x\r\nX-a: x\r\n", "C: x\r\n"] {
            assert!(head.contains(name), "{head}");
        }
    }

    /// Refuses what is written, and then gives an answer.
    struct Refusing {
        answer: &'static [u8],
        has_refused: bool,
    }

    impl AsyncRead for Refusing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if !self.has_refused {
                return Poll::Pending;
            }
            buf.put_slice(std::mem::take(&mut self.answer));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Refusing {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            self.has_refused = true;
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn an_answer_is_taken_from_an_origin_that_refuses_the_request() {
        for (answer, status) in
            [(&b"HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n"[..], Some(413)), (b"", None)]
        {
            let stream = Spelled::new(Refusing { answer, has_refused: false }, Arc::new(Spelling::on(None)));
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let answered = sender.send_request(Request::new(Empty::<Bytes>::new())).await;
            assert_eq!(answered.ok().map(|answer| answer.status().as_u16()), status);
        }
    }

    #[test]
    fn most_names_are_titles() {
        assert_eq!(title("content-TYPE"), "Content-Type");
        assert_eq!(title("x--a"), "X--A");
    }
}
