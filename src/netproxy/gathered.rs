//! Writing through a stream to the one that it is around. A small message in pieces, as a head and its body, goes out
//! by one plain write: that takes the kernel less than to gather the pieces itself.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// The most bytes that are worth a copy.
const SMALL: usize = 2 << 10;

/// Writes the pieces, or the first of them, as `poll_write_vectored` does.
pub(crate) fn poll_write<S: AsyncWrite>(
    stream: Pin<&mut S>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if let [only] = slices {
        return stream.poll_write(cx, only);
    }
    if slices.iter().map(|slice| slice.len()).sum::<usize>() > SMALL {
        return stream.poll_write_vectored(cx, slices);
    }
    let (mut gathered, mut length) = ([0; SMALL], 0);
    for slice in slices {
        gathered[length..length + slice.len()].copy_from_slice(slice);
        length += slice.len();
    }
    stream.poll_write(cx, &gathered[..length])
}

/// Lets what is written to a stream go to the one that it is around; `written` is told how much did.
macro_rules! writes_through {
    ([$($bounds:tt)*] $type:ty, |$this:ident| $stream:expr) => {
        writes_through!([$($bounds)*] $type, |$this| $stream, |_written| ());
    };
    ([$($bounds:tt)*] $type:ty, |$this:ident| $stream:expr, |$written:ident| $note:expr) => {
        impl<$($bounds)*> tokio::io::AsyncWrite for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $this = self.get_mut();
                let polled = std::pin::Pin::new($stream).poll_write(cx, bytes);
                if let std::task::Poll::Ready(Ok($written)) = polled {
                    $note;
                }
                polled
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = self.get_mut();
                std::pin::Pin::new($stream).poll_flush(cx)
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = self.get_mut();
                std::pin::Pin::new($stream).poll_shutdown(cx)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                slices: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $this = self.get_mut();
                let polled = $crate::netproxy::gathered::poll_write(std::pin::Pin::new($stream), cx, slices);
                if let std::task::Poll::Ready(Ok($written)) = polled {
                    $note;
                }
                polled
            }

            fn is_write_vectored(&self) -> bool {
                true
            }
        }
    };
}
pub(crate) use writes_through;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// What is written of `pieces` at once, and how much is said to have been.
    fn written(pieces: &[&[u8]]) -> (Vec<u8>, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut out = Vec::new();
        let count = runtime.block_on(poll_fn(|cx| poll_write(Pin::new(&mut out), cx, &slices))).unwrap();
        (out, count)
    }

    #[test]
    fn all_pieces_go_out_in_order() {
        let long = vec![b'x'; SMALL];
        for pieces in
            [&[&b"a"[..]][..], &[b"a", b"", b"bc"], &[&long, b""], &[&long, b"y"], &[b"y", &long], &[]]
        {
            let whole = pieces.concat();
            assert_eq!(written(pieces), (whole.clone(), whole.len()));
        }
    }
}
