//! How many requests may be under way at once in the whole run: it bounds what their bodies hold in memory. Further ones
//! wait, as long as their heads are not too much by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::NetproxyError;

/// Requests of all connections together.
pub(crate) const MAX_REQUESTS: usize = 2048;

/// Bytes of heads that may wait: those of some ten thousand ordinary requests.
const MAX_WAITING: usize = 64 << 20;

/// What a head is counted as, besides its bytes.
const HEAD: usize = 2 << 10;

/// The places of one run.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The place of one request.
pub(crate) type Place = Option<OwnedSemaphorePermit>;

impl Default for Places {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(MAX_REQUESTS)), waiting: AtomicUsize::new(0) }
    }
}

impl Places {
    /// Waits for a place for a request whose head has so many bytes.
    ///
    /// # Errors
    /// When too many wait already.
    pub(crate) async fn take(&self, head: usize) -> Result<Place, NetproxyError> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(Some(place));
        }
        let waiting = Waiting::begin(&self.waiting, head + HEAD);
        if self.waiting.load(Ordering::Relaxed) > MAX_WAITING {
            return Err(NetproxyError::Request { reason: "too many requests wait already".to_owned() });
        }
        let place = Arc::clone(&self.free).acquire_owned().await;
        drop(waiting);
        // They are never closed.
        Ok(place.ok())
    }
}

/// A head that waits; its client may go away meanwhile.
struct Waiting<'a> {
    all: &'a AtomicUsize,
    bytes: usize,
}

impl<'a> Waiting<'a> {
    fn begin(all: &'a AtomicUsize, bytes: usize) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { all, bytes }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn so_many_wait_and_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let places = Arc::new(Places::default());
            let mut taken = Vec::new();
            for _ in 0..MAX_REQUESTS {
                taken.push(places.take(MAX_WAITING).await.unwrap());
            }
            let waits = tokio::time::timeout(Duration::from_millis(20), places.take(1000));
            assert!(waits.await.is_err());
            assert_eq!(places.waiting.load(Ordering::Relaxed), 0);
            assert!(places.take(MAX_WAITING).await.is_err());
            let waiter = tokio::spawn({
                let places = Arc::clone(&places);
                async move { places.take(1000).await.is_ok() }
            });
            tokio::task::yield_now().await;
            taken.pop();
            assert!(waiter.await.unwrap());
        });
    }
}
