//! Who has the outer leg of a connection that clients have one after another: its bytes are counted for that one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::flow::Flow;
use super::metered::Owner;

/// The record of the stream that a connection serves at present; none where the client's own leg is counted. Weak,
/// for that record ends with the stream and not with the connection.
#[derive(Default)]
pub(crate) struct Holder(Mutex<Weak<Flow>>);

impl Holder {
    /// From now on it serves this stream.
    pub(crate) fn set(&self, flow: &Arc<Flow>) {
        *self.lock() = Arc::downgrade(flow);
    }

    /// It serves none.
    pub(crate) fn clear(&self) {
        *self.lock() = Weak::new();
    }

    pub(crate) fn flow(&self) -> Option<Arc<Flow>> {
        self.lock().upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, Weak<Flow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner for Arc<Holder> {
    fn tell(&self, what: impl FnOnce(&Flow)) {
        if let Some(flow) = self.flow() {
            what(&flow);
        }
    }
}
