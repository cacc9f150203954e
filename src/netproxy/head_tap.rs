//! What the HTTP library keeps to itself of a client's connection: the bytes of each request's head, whether an
//! answer broke off, what is to be sent before an answer, and whether the client has read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use tokio::time::Instant;

use super::client::MAX_HEAD;
use super::reader::Reader;

/// Room that is kept for the next head.
const KEPT: usize = 1 << 10;

/// A copy of the bytes of the present request's head. The HTTP library drops a Content-Length that
/// stands beside a Transfer-Encoding; only the bytes show that there was one.
#[derive(Default)]
pub(crate) struct HeadTap {
    seen: Mutex<Seen>,
    has_broken_off: AtomicBool,
    ahead: Mutex<Ahead>,
    reader: Reader,
}

/// What is sent before the answer to the present request.
#[derive(Default)]
struct Ahead {
    bytes: Bytes,
    /// Who waits until it has been.
    waker: Option<Waker>,
}

#[derive(Default)]
struct Seen {
    expected: Expected,
    bytes: Vec<u8>,
    /// When the first of them came.
    begun: Option<Instant>,
}

/// What the client says next.
#[derive(Default, PartialEq, Eq)]
enum Expected {
    /// What is no HTTP/1.
    #[default]
    Other,
    /// A head.
    Head,
    /// A body, whose bytes are none of a head.
    Body,
}

impl HeadTap {
    pub(crate) fn of(reader: Reader) -> Self {
        Self { reader, ..Self::default() }
    }

    /// Who reads the answers.
    pub(crate) fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// HTTP/1 begins on this stream.
    pub(crate) fn start(&self) {
        *self.lock() = Seen { expected: Expected::Head, ..Seen::default() };
    }

    /// Whether the client is known to have read what it was sent.
    pub(crate) fn has_read(&self) -> bool {
        self.reader.has_all() == Some(true)
    }

    /// Whether the client is known to have left.
    pub(crate) fn has_left(&self) -> bool {
        self.reader.has_left()
    }

    /// Takes what was read since the last request where that `is_wanted`, and pauses when a body follows.
    pub(crate) fn take(&self, body_follows: bool, is_wanted: bool) -> Vec<u8> {
        let mut seen = self.lock();
        if seen.expected != Expected::Other {
            seen.expected = if body_follows { Expected::Body } else { Expected::Head };
        }
        seen.begun = None;
        if is_wanted || seen.bytes.capacity() > KEPT {
            return std::mem::take(&mut seen.bytes);
        }
        seen.bytes.clear();
        Vec::new()
    }

    /// The request's body has ended: what follows is a head.
    pub(crate) fn resume(&self) {
        let mut seen = self.lock();
        if seen.expected == Expected::Body {
            seen.expected = Expected::Head;
        }
    }

    /// The bytes are HTTP/1 no longer.
    pub(crate) fn stop(&self) {
        *self.lock() = Seen::default();
    }

    /// The answer to the present request broke off, in a way that a close would hide.
    pub(crate) fn break_off(&self) {
        // In HTTP/2 an answer is a stream of its own.
        let is_http_1 = self.lock().expected != Expected::Other;
        self.has_broken_off.fetch_or(is_http_1, Ordering::Relaxed);
    }

    /// Sends bytes beneath the library, once it has sent what it has.
    pub(crate) fn send_ahead(&self, bytes: Vec<u8>) {
        self.lock_ahead().bytes = bytes.into();
    }

    /// Whether they have been.
    pub(crate) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ahead = self.lock_ahead();
        if ahead.bytes.is_empty() {
            return Poll::Ready(());
        }
        ahead.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn ahead(&self) -> Option<Bytes> {
        let bytes = self.lock_ahead().bytes.clone();
        (!bytes.is_empty()).then_some(bytes)
    }

    pub(crate) fn sent(&self, length: usize) {
        let mut ahead = self.lock_ahead();
        ahead.bytes.advance(length);
        if ahead.bytes.is_empty()
            && let Some(waker) = ahead.waker.take()
        {
            waker.wake();
        }
    }

    fn lock_ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_broken_off(&self) -> bool {
        self.has_broken_off.load(Ordering::Relaxed)
    }

    /// When the head that is being read began.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.lock().begun
    }

    pub(crate) fn see(&self, bytes: &[u8]) {
        let mut seen = self.lock();
        if seen.expected == Expected::Head && seen.bytes.len() < MAX_HEAD {
            seen.begun = seen.begun.or_else(|| Some(Instant::now()));
            seen.bytes.extend_from_slice(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
