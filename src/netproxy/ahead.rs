//! Reading TLS in larger pieces: the library asks for 4 KiB at once, where a record has 16, and hands out one record.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::gathered::writes_through;
use super::origin::acknowledge_head;

/// The most that is read ahead.
const PIECE: usize = 64 * 1024;

/// The longest record, that of TLS 1.2 (RFC 5246 section 6.2.3), with its header.
const LONGEST_RECORD: usize = (1 << 14) + 2048 + 5;

/// A stream of which more is read than was asked for, as long as it brings so much. While it waits, it
/// holds nothing: there may be many at once.
pub(crate) struct Ahead<S> {
    stream: S,
    /// What was read and not taken yet.
    piece: Option<Piece>,
    /// The last read brought all that there was room for.
    busy: bool,
}

struct Piece {
    bytes: Box<[u8]>,
    taken: usize,
    filled: usize,
}

impl<S> Ahead<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, piece: None, busy: false }
    }

    /// The stream, for what is no reading.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Whether a whole record was read ahead, however long it is.
    fn holds_record(&self) -> bool {
        self.piece.as_ref().is_some_and(|piece| piece.filled - piece.taken >= LONGEST_RECORD)
    }

    /// Hands out what was read ahead; false when there is none.
    fn take(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let Some(piece) = &mut self.piece else { return false };
        let rest = &piece.bytes[piece.taken..piece.filled];
        let length = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..length]);
        piece.taken += length;
        if piece.taken == piece.filled && !self.busy {
            self.piece = None;
        }
        length > 0
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 || this.take(buf) {
            return Poll::Ready(Ok(()));
        }
        if !this.busy {
            let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
            this.busy = polled.is_ready() && buf.remaining() == 0;
            return polled;
        }
        let piece = this.piece.get_or_insert_with(|| Piece {
            bytes: vec![0; PIECE].into_boxed_slice(),
            taken: 0,
            filled: 0,
        });
        let mut room = ReadBuf::new(&mut piece.bytes);
        match Pin::new(&mut this.stream).poll_read(cx, &mut room) {
            Poll::Ready(Ok(())) => {
                (piece.taken, piece.filled) = (0, room.filled().len());
                this.busy = room.remaining() == 0;
                this.take(buf);
                Poll::Ready(Ok(()))
            }
            other => {
                this.piece = None;
                other
            }
        }
    }
}

writes_through!([S: AsyncWrite + Unpin] Ahead<S>, |this| &mut this.stream);

/// A TLS stream of which as many records are read at once as there is room for, where each is one read
/// by itself: what follows costs a step for each piece, not for each byte.
pub(crate) struct Filling(pub(crate) TlsStream<Ahead<TcpStream>>);

impl AsyncRead for Filling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        loop {
            let before = buf.filled().len();
            let polled = Pin::new(&mut self.0).poll_read(cx, buf);
            if before > start && !matches!(polled, Poll::Ready(Ok(()))) {
                // It comes again: nothing follows a failure of TLS but the same.
                return Poll::Ready(Ok(()));
            }
            ready!(polled)?;
            let more = buf.filled().len() > before && buf.remaining() > 0;
            // Only what is here already, for which the stream is not asked.
            if !(more && self.0.get_ref().0.holds_record()) {
                acknowledge_head(&buf.filled()[start..], self.0.get_ref().0.stream());
                return Poll::Ready(Ok(()));
            }
        }
    }
}

writes_through!([] Filling, |this| &mut this.0);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[test]
    fn all_comes_in_order_whatever_the_pieces() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let sent: Vec<u8> =
                (0..1_000_000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
            let (mut far, near) = duplex(100_000);
            let bytes = sent.clone();
            tokio::spawn(async move {
                for (number, part) in bytes.chunks(70_001).enumerate() {
                    far.write_all(part).await.unwrap();
                    if number % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            });
            let (mut ahead, mut got) = (Ahead::new(near), Vec::new());
            let mut room = [0; 4096];
            loop {
                match ahead.read(&mut room).await.unwrap() {
                    0 => break,
                    read => got.extend_from_slice(&room[..read]),
                }
            }
            assert!(got == sent);
            assert!(ahead.piece.is_none(), "it holds nothing at the end");
        });
    }
}
