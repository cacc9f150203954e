//! A small message in pieces, as a head and its body, goes out by one plain write: that takes the kernel less than to
//! gather the pieces itself.

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
