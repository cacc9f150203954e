//! Sending a body on a stream of HTTP/2, to a client or to an origin.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::header::UPGRADE;
use http_body::Body;

use super::error::NetproxyError;
use super::outgoing::strip;

/// Sends a body, as fast as it is taken.
///
/// # Errors
/// When the stream has ended before, by a reset or with its connection.
pub(super) async fn give<B>(body: &mut B, stream: &mut SendStream<Bytes>) -> Result<(), h2::Error>
where
    B: Body<Data = Bytes, Error = NetproxyError> + Unpin,
{
    loop {
        let next = poll_fn(|cx| match stream.poll_reset(cx) {
            Poll::Ready(reset) => Poll::Ready(Err(reset.map_or_else(|error| error, Into::into))),
            Poll::Pending => Pin::new(&mut *body).poll_frame(cx).map(Ok),
        });
        let frame = match next.await? {
            None => return stream.send_data(Bytes::new(), true),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                stream.send_reset(reason(&error));
                return Ok(());
            }
        };
        match frame.into_data() {
            Ok(data) => {
                let is_last = body.is_end_stream();
                if !data.is_empty() {
                    make_room(stream).await?;
                }
                stream.send_data(data, is_last)?;
                if is_last {
                    return Ok(());
                }
            }
            Err(frame) => {
                let Ok(mut trailers) = frame.into_trailers() else { continue };
                strip(&mut trailers);
                trailers.remove(UPGRADE);
                stream.reserve_capacity(0);
                return stream.send_trailers(trailers);
            }
        }
    }
}

/// Waits until more is taken. A whole piece is sent then, and what is kept of it is bounded by the piece: room
/// that is asked for sooner, or for all of it, would be kept from other streams (RFC 9113 section 5.2).
async fn make_room(stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        let room = poll_fn(|cx| match stream.poll_reset(cx) {
            Poll::Ready(reset) => Poll::Ready(Some(Err(reset.map_or_else(|error| error, Into::into)))),
            Poll::Pending => stream.poll_capacity(cx),
        });
        // None where the stream has ended.
        room.await.unwrap_or_else(|| Err(Reason::STREAM_CLOSED.into()))?;
    }
    Ok(())
}

/// The code with which a body breaks off: that of the side which broke it off, where it gave one.
fn reason(error: &(dyn Error + 'static)) -> Reason {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(reason) = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
            return reason;
        }
        cause = error.source();
    }
    Reason::INTERNAL_ERROR
}
