//! Whether a client has read what was sent to it: what follows is then a read of its own, in a replay as in a run. And
//! whether it is still there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;

use super::{HasLeft, Unread, moments};

/// What comes so far apart is read apart by a client that waits for it.
const MOMENT: Duration = Duration::from_millis(1);

/// Looks at what a client has read, one after the other: it is about to do so.
const LOOKS: usize = 200;

/// Moments in which a client may read what it has got. One that does other things meanwhile is not waited for.
const MOMENTS: usize = 20;

/// How often it is looked whether a client has left to whom nothing comes any more, in a replay.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The same in a run, where any number of them may wait for what comes late.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The client of one connection.
#[derive(Clone, Default)]
pub(crate) struct Reader(Option<Arc<Ends>>);

/// Its connection, and who tells of it.
struct Ends {
    client: SocketAddr,
    server: SocketAddr,
    unread: Unread,
    has_left: HasLeft,
}

impl Reader {
    /// Who is at the other end.
    pub(crate) fn of(unread: &Unread, has_left: &HasLeft, client: SocketAddr, server: SocketAddr) -> Self {
        let (unread, has_left) = (Arc::clone(unread), Arc::clone(has_left));
        Self(Some(Arc::new(Ends { client, server, unread, has_left })))
    }

    /// Whether it has read all that was sent; none where nobody can tell.
    pub(crate) fn has_all(&self) -> Option<bool> {
        let ends = self.0.as_ref()?;
        Some((ends.unread)(ends.client, ends.server)? == 0)
    }

    /// Whether it is known that nobody reads any more.
    pub(crate) fn has_left(&self) -> bool {
        self.0.as_ref().is_some_and(|ends| (ends.has_left)(ends.client, ends.server))
    }

    /// Waits until it is known that nobody reads any more. One that has ended its half, and still listens, has not left.
    pub(crate) async fn leaves(self, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            if self.has_left() {
                return;
            }
        }
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
