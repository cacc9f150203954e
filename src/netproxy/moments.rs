//! Moments in which all threads of the proxy sleep, and something goes on by itself afterwards: a replay, which
//! leaves out the waits of the program, must not take them for rest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;

/// Moments that have begun and not ended.
static MOMENTS: AtomicUsize = AtomicUsize::new(0);

/// One of them.
struct Moment;

impl Moment {
    fn begin() -> Self {
        MOMENTS.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        MOMENTS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for what comes within a moment, or is done without.
pub(crate) async fn within<T>(moment: Duration, wait: impl Future<Output = T>) -> Option<T> {
    let _moment = Moment::begin();
    timeout(moment, wait).await.ok()
}

/// Lets a moment pass.
pub(crate) async fn pass(moment: Duration) {
    let _moment = Moment::begin();
    tokio::time::sleep(moment).await;
}

/// Whether there is one now.
#[must_use]
pub fn any() -> bool {
    MOMENTS.load(Ordering::Relaxed) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_moment_ends_with_what_waits_for_it() {
        let mut passing = Box::pin(pass(Duration::from_secs(60)));
        assert_eq!(within(Duration::from_millis(1), &mut passing).await, None);
        assert!(any());
        drop(passing);
        assert_eq!(within(Duration::from_secs(60), async { any() }).await, Some(true));
    }
}
