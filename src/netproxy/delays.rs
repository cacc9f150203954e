//! The times at which answers come, in a replay that leaves waits out.
//!
//! A program whose clock goes at real rate measures how long an answer takes. For such a program it comes when it
//! came, counted from its request: the supervisor leaves the time out, as any other wait, once nothing else of the run
//! goes on. Other programs see the times on their tapes, and an answer comes at once; but for one, or a piece of one,
//! that was long in coming: a client may have waited for it in vain, and given up before.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// What took so long may have come after its client gave up.
const LONG: Duration = Duration::from_millis(100);

/// What waits, and what was left out.
#[derive(Debug)]
struct Delays {
    begun: Instant,
    left_out: Duration,
    is_wanted: bool,
    /// By the time at which it comes.
    waiting: BTreeMap<(Duration, u64), Waker>,
    numbers: u64,
}

/// A process replays one run.
static DELAYS: LazyLock<Mutex<Delays>> = LazyLock::new(|| {
    let (left_out, waiting) = (Duration::ZERO, BTreeMap::new());
    Mutex::new(Delays { begun: Instant::now(), left_out, is_wanted: false, waiting, numbers: 0 })
});

fn delays() -> MutexGuard<'static, Delays> {
    DELAYS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Delays {
    fn now(&self) -> Duration {
        self.begun.elapsed() + self.left_out
    }
}

/// The time of the run, from which [`until`] counts.
pub(crate) fn now() -> Duration {
    delays().now()
}

/// Time of the run that something waits for.
struct Waiting {
    key: (Duration, u64),
}

impl Drop for Waiting {
    fn drop(&mut self) {
        delays().waiting.remove(&self.key);
    }
}

/// Waits for a time of the run at which something came, where answers are to come when they came; else, where it was
/// long in coming, as long `after` what was before it, which has been just now.
pub(crate) async fn until(at: Duration, after: Duration) {
    if delays().is_wanted {
        wait(at).await;
    } else if after >= LONG {
        wait(now().saturating_add(after)).await;
    }
}

/// The time of the run at which that comes which came so long after what has been just now; none where it comes at
/// once.
pub(crate) fn due(after: Duration) -> Option<Duration> {
    let delays = delays();
    (after >= LONG || delays.is_wanted).then(|| delays.now().saturating_add(after))
}

/// Waits for what comes so long after what has been just now, in the same way.
pub(crate) async fn long(after: Duration) {
    until(now().saturating_add(after), after).await;
}

/// Waits for a time of the run.
pub(crate) async fn wait(at: Duration) {
    let waiting = {
        let mut delays = delays();
        if at <= delays.now() {
            return;
        }
        delays.numbers += 1;
        Waiting { key: (at, delays.numbers) }
    };
    loop {
        let left = at.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        let mut passed = pin!(sleep(left));
        let mut is_first = true;
        // It comes by itself, or somebody says that time was left out.
        poll_fn(|context| {
            if passed.as_mut().poll(context).is_ready() || !std::mem::take(&mut is_first) {
                return Poll::Ready(());
            }
            let mut delays = delays();
            delays.waiting.insert(waiting.key, context.waker().clone());
            if at <= delays.now() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Whether answers are to come when they came.
pub fn want(is_wanted: bool) {
    delays().is_wanted = is_wanted;
}

/// How long it is until the next answer.
#[must_use]
pub fn next() -> Option<Duration> {
    let delays = delays();
    delays.waiting.keys().next().map(|(at, _)| at.saturating_sub(delays.now()))
}

/// So much time was left out.
pub fn leave_out(time: Duration) {
    let mut delays = delays();
    delays.left_out += time;
    delays.waiting.values().for_each(Waker::wake_by_ref);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_left_out_is_waited_for_no_more() {
        let long = Duration::from_secs(1000);
        until(now() + long, LONG / 2).await;
        super::long(LONG / 2).await;
        let begun = now();
        super::long(LONG).await;
        assert!(now() - begun >= LONG);
        want(true);
        until(now() + Duration::from_millis(5), Duration::ZERO).await;
        let waits = tokio::spawn(until(now() + long, LONG));
        tokio::task::yield_now().await;
        let left = next().expect("something waits");
        assert!(left <= long && left > long - Duration::from_secs(60), "{left:?}");
        leave_out(left / 2);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        leave_out(left);
        waits.await.expect("comes");
        assert_eq!(next(), None);
        want(false);
    }
}
