//! Which process each connection belongs to: the guard learns it at connect(2) and, for datagrams, at
//! bind(2); the proxy asks when it accepts or receives.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Connections that are remembered; a connection is accepted soon after it was asked for.
const REMEMBERED: usize = 8192;

/// Lineages by socket cookie (SO_COOKIE).
#[derive(Debug, Default)]
pub struct Connections {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    lineages: HashMap<u64, String>,
    order: VecDeque<u64>,
}

impl Connections {
    /// The socket `cookie` is about to be connected or bound by process `lineage`.
    pub fn opened(&self, cookie: u64, lineage: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.lineages.insert(cookie, lineage.to_owned()).is_none() {
            inner.order.push_back(cookie);
        }
        while inner.order.len() > REMEMBERED {
            if let Some(oldest) = inner.order.pop_front() {
                inner.lineages.remove(&oldest);
            }
        }
    }

    /// The process that connected or bound the socket `cookie`.
    #[must_use]
    pub fn lineage(&self, cookie: u64) -> Option<String> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).lineages.get(&cookie).cloned()
    }
}
