//! Takes what a refused request still sends, so that its connection stays usable.

use std::time::Duration;

use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt as _;

use super::moments::within;
use super::received::Received;

/// What is taken of one body; the connection is closed when there is more.
const MAX_DRAINED: usize = 256 * 1024;

/// How long it may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether the body of a request with these fields has come to its end.
pub(crate) async fn drain(fields: &HeaderMap, body: Received) -> bool {
    // A client that waits for 100 has sent nothing.
    !fields.contains_key(EXPECT) && within(DRAIN_TIMEOUT, ends(body)).await == Some(true)
}

async fn ends(mut body: Received) -> bool {
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        taken += frame.data_ref().map_or(0, |data| data.len());
        if taken > MAX_DRAINED {
            return false;
        }
    }
    true
}
