//! The limit on silence, where the run has one: a stream on which no byte moves for so long is ended.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::Blame;
use super::failure::Failure;

/// The clock of one stream. All that belongs to the stream has a handle of it; without a limit it is none.
#[derive(Clone, Default)]
pub(crate) struct IdleClock(Option<Arc<Stopwatch>>);

struct Stopwatch {
    limit: Duration,
    begun: Instant,
    /// Microseconds from `begun` to the last byte.
    moved: AtomicU64,
    has_expired: AtomicBool,
}

impl IdleClock {
    pub(crate) fn start(limit: Option<Duration>) -> Self {
        let stopwatch = |limit| {
            let (moved, has_expired) = (AtomicU64::new(0), AtomicBool::new(false));
            Arc::new(Stopwatch { limit, begun: Instant::now(), moved, has_expired })
        };
        Self(limit.map(stopwatch))
    }

    /// Bytes move now.
    pub(crate) fn note_bytes(&self) {
        if let Some(stopwatch) = &self.0 {
            let since = u64::try_from(stopwatch.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            stopwatch.moved.store(since, Ordering::Relaxed);
        }
    }

    /// Whether the stream was ended for its silence.
    pub(crate) fn has_expired(&self) -> bool {
        self.0.as_ref().is_some_and(|stopwatch| stopwatch.has_expired.load(Ordering::Relaxed))
    }

    /// Why, for the record.
    pub(crate) fn failure(&self) -> Option<(String, Failure)> {
        let limit = self.0.as_ref().filter(|_| self.has_expired())?.limit;
        Some((format!("no byte moved for {limit:?} (--idle-timeout)"), Failure::new("idle", Blame::Proxy)))
    }

    /// Starts a task that carries a stream on until it ends, or drops it for its silence.
    pub(crate) fn spawn(self, stream: impl Future<Output = ()> + Send + 'static) {
        match &self.0 {
            None => tokio::spawn(stream),
            // Boxed, for what wraps a future holds it twice.
            Some(_) => {
                let limited = self.limit(Box::pin(stream));
                tokio::spawn(async move { _ = limited.await })
            }
        };
    }

    /// Waits for the end of a stream, or until it was silent for too long: none then.
    pub(crate) async fn limit<F: Future>(self, mut stream: Pin<Box<F>>) -> Option<F::Output> {
        let Some(stopwatch) = self.0 else { return Some(stream.await) };
        let mut alarm = Box::pin(sleep(stopwatch.limit));
        poll_fn(move |cx| {
            if let Poll::Ready(end) = stream.as_mut().poll(cx) {
                return Poll::Ready(Some(end));
            }
            while alarm.as_mut().poll(cx).is_ready() {
                let deadline = stopwatch.deadline();
                if Instant::now() >= deadline {
                    stopwatch.has_expired.store(true, Ordering::Relaxed);
                    return Poll::Ready(None);
                }
                alarm.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

impl Stopwatch {
    fn deadline(&self) -> Instant {
        self.begun + Duration::from_micros(self.moved.load(Ordering::Relaxed)) + self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn silence_ends_and_bytes_prolong() {
        run(async {
            let clock = IdleClock::start(Some(Duration::from_millis(200)));
            let moving = async {
                for _ in 0..8 {
                    sleep(Duration::from_millis(50)).await;
                    clock.note_bytes();
                }
            };
            let begun = Instant::now();
            clock
                .clone()
                .limit(Box::pin(async {
                    moving.await;
                    std::future::pending::<()>().await
                }))
                .await;
            assert!(clock.has_expired() && begun.elapsed() >= Duration::from_millis(600));
            assert_eq!(clock.failure().unwrap().0, "no byte moved for 200ms (--idle-timeout)");
        });
    }

    #[test]
    fn without_a_limit_nothing_is_idle() {
        run(async {
            let clock = IdleClock::start(None);
            clock.clone().limit(Box::pin(sleep(Duration::from_millis(20)))).await;
            assert!(!clock.has_expired() && clock.failure().is_none());
        });
    }
}
