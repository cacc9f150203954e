//! Until: a replay that ends at a step, or goes on for real from there.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys::pidfd;
use crate::trace::{Event, Recorder, Turn};

/// What is to become of a run now that something has been recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It goes on as it does.
    Same,
    /// It ends here.
    End,
    /// It goes on for real.
    Live,
}

/// Says what becomes of a run once this was recorded of it; by the recorder it can be waited for that all stands in
/// the trace.
pub type Ahead = Box<dyn Fn(&Event, &Recorder) -> Next + Send + Sync>;

/// How far a run is replayed.
pub struct Until {
    /// Says when it is far enough.
    pub ahead: Ahead,
    /// Comes then, if the run is to go on for real.
    pub turn: Option<Arc<Turn>>,
}

impl Until {
    /// The recorder of a run of which `run` is pid 1.
    pub(super) fn watch(self, recorder: Recorder, run: OwnedFd) -> Recorder {
        let (own, is_over) = (recorder.clone(), AtomicBool::new(false));
        recorder.watched(Arc::new(move |event| {
            if is_over.load(Ordering::Acquire) {
                return;
            }
            let next = (self.ahead)(event, &own);
            if next == Next::Same || is_over.swap(true, Ordering::AcqRel) {
                return;
            }
            match (&self.turn, next) {
                (Some(turn), Next::Live) => turn.come(),
                // It may have ended by itself.
                _ => drop(pidfd::kill(run.as_fd())),
            }
        }))
    }
}

impl std::fmt::Debug for Until {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Until").field("turn", &self.turn).finish_non_exhaustive()
    }
}
