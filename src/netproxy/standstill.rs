//! The standstill of a replay: every task waits for another, or for an answer that never comes.
//!
//! Programs that part from their recording can wait for an answer that is due only once they have said more, and so
//! for ever. The supervisor sees that nothing of the run can go on, and says so here; whatever waits for the client of
//! such a connection ends then.

use std::pin::Pin;

use tokio::sync::Notify;

/// A process replays one run.
static STANDSTILL: Notify = Notify::const_new();

/// Comes with the next standstill.
pub(crate) type Standstill = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Waits for the next standstill from now on.
pub(crate) fn comes() -> Standstill {
    Box::pin(STANDSTILL.notified())
}

/// Nothing of the run can go on.
pub fn tell() {
    STANDSTILL.notify_waiters();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn whoever_waits_is_told() {
        let waits = tokio::spawn(comes());
        tokio::task::yield_now().await;
        tell();
        waits.await.expect("told");
    }
}
