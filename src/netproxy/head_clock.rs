//! How long a request's head may take once it has begun. Between requests a connection may be silent
//! for ever: a client that thinks for minutes must find it open.

use std::io;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// From its first byte to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The alarm of one connection.
#[derive(Default)]
pub(crate) struct HeadClock {
    alarm: Option<Pin<Box<Sleep>>>,
}

impl HeadClock {
    /// Fails when the head that began at `begun` is late; else wakes the task when it will be.
    pub(crate) fn check(&mut self, cx: &mut Context<'_>, begun: Option<Instant>) -> io::Result<()> {
        let Some(begun) = begun else {
            self.alarm = None;
            return Ok(());
        };
        let deadline = begun + HEAD_TIMEOUT;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if alarm.deadline() != deadline {
            alarm.as_mut().reset(deadline);
        }
        if alarm.as_mut().poll(cx).is_ready() || Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the head did not come in time"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    #[test]
    fn only_a_head_that_has_begun_is_late() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(poll_fn(|cx| {
            let mut clock = HeadClock::default();
            let now = Instant::now();
            let Some(long_ago) = now.checked_sub(HEAD_TIMEOUT) else { return Poll::Ready(()) };
            assert!(clock.check(cx, None).is_ok());
            assert!(clock.check(cx, Some(now)).is_ok());
            assert!(clock.check(cx, Some(long_ago)).is_err());
            assert!(clock.check(cx, Some(now)).is_ok());
            assert!(clock.check(cx, None).is_ok());
            Poll::Ready(())
        }));
    }
}
