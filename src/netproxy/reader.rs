//! Whether a client has read what was sent to it: what follows is then a read of its own, in a replay as in a run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;

use super::{Unread, moments};

/// What comes so far apart is read apart by a client that waits for it.
const MOMENT: Duration = Duration::from_millis(1);

/// Looks at what a client has read, one after the other: it is about to do so.
const LOOKS: usize = 200;

/// Moments in which a client may read what it has got. One that does other things meanwhile is not waited for.
const MOMENTS: usize = 20;

/// The client of one connection.
#[derive(Clone, Default)]
pub(crate) struct Reader(Option<Arc<dyn Fn() -> Option<u32> + Send + Sync>>);

impl Reader {
    /// Who is at the other end.
    pub(crate) fn of(unread: &Unread, client: SocketAddr, server: SocketAddr) -> Self {
        let unread = Arc::clone(unread);
        Self(Some(Arc::new(move || unread(client, server))))
    }

    /// Whether it has read all that was sent; none where nobody can tell.
    pub(crate) fn has_all(&self) -> Option<bool> {
        Some(self.0.as_ref()?()? == 0)
    }

    /// Lets it read what has just been written, and wait for more where it `waits`.
    pub(crate) async fn read(self, waits: bool) {
        if waits || self.has_all().is_none() {
            moments::pass(MOMENT).await;
        } else {
            // What was given is written when this task has nothing more to give.
            for _ in 0..LOOKS {
                yield_now().await;
                if self.has_all() != Some(false) {
                    return;
                }
            }
        }
        for _ in 0..MOMENTS {
            if self.has_all() != Some(false) {
                return;
            }
            moments::pass(MOMENT).await;
        }
    }
}
