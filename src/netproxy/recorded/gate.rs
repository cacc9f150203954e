//! Holds back what an origin said in the middle of a request, until as much of the request has come.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// How much of a request has come.
#[derive(Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Default)]
struct State {
    bytes: u64,
    has_ended: bool,
    waiting: Option<Waker>,
}

impl Gate {
    /// So many bytes more have come.
    pub(super) fn add(&self, bytes: u64) {
        self.change(|state| state.bytes += bytes);
    }

    /// No more will come.
    pub(super) fn end(&self) {
        self.change(|state| state.has_ended = true);
    }

    /// Whether so many bytes have come, or none will any more.
    pub(super) fn poll(&self, bytes: u64, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.bytes >= bytes || state.has_ended {
            return Poll::Ready(());
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
