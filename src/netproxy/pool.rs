//! Connections to origins that no client uses at the moment: the next one for the same name and
//! address takes them over. Each is one client's alone while it is used.
//!
//! A request is judged before it gets here, so a connection that another process has left behind
//! changes no decision.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::authority::Host;
use super::link::Link;

/// How long a connection is kept unused: shorter than servers do (5 s is the shortest in use), so
/// that none is taken over that is being closed.
const IDLE: Duration = Duration::from_secs(4);

/// Connections that are kept for one origin, and for all together.
const MAX_OF_ONE: usize = 16;
const MAX: usize = 128;

/// How long the end of a response may take to reach the connection's own task.
const SETTLE: Duration = Duration::from_millis(100);

/// What a connection is good for: the host that it is for, its address, and what carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    /// Over TLS the one that the origin has proved to be, else the one that all requests on it named.
    pub(crate) host: Host,
    pub(crate) address: SocketAddr,
    pub(crate) carrier: Carrier,
}

/// What carries HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Carrier {
    Plain,
    /// TLS in which these protocols were offered.
    Tls(Vec<Vec<u8>>),
}

/// The connections of one run.
#[derive(Default)]
pub(crate) struct Pool {
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    kept: HashMap<Destination, Vec<(Instant, Link)>>,
    count: usize,
    /// What closes those that were kept for too long.
    sweep: Option<AbortHandle>,
}

impl Pool {
    /// Whether there may be one to `address`.
    pub(crate) fn knows(&self, address: SocketAddr) -> bool {
        self.lock().kept.keys().any(|destination| destination.address == address)
    }

    /// Takes the one that was used last.
    pub(crate) fn take(&self, destination: &Destination) -> Option<Link> {
        let mut shelf = self.lock();
        let links = shelf.kept.get_mut(destination)?;
        let (mut found, mut gone) = (None, 0);
        while let Some((since, link)) = links.pop() {
            gone += 1;
            if since.elapsed() < IDLE && link.is_open() && link.is_silent() {
                found = Some(link);
                break;
            }
        }
        if links.is_empty() {
            shelf.kept.remove(destination);
        }
        shelf.count -= gone;
        found
    }

    /// Keeps one that its client has left, once its last response has ended.
    pub(crate) fn keep(self: &Arc<Self>, destination: Destination, mut link: Link) {
        if !link.is_open() || !link.is_spare() {
            return;
        }
        link.give_back();
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            if timeout(SETTLE, link.ready()).await == Ok(true) {
                pool.put(destination, link);
            }
        });
    }

    fn put(self: &Arc<Self>, destination: Destination, link: Link) {
        let mut shelf = self.lock();
        if shelf.count >= MAX {
            return;
        }
        let links = shelf.kept.entry(destination).or_default();
        if links.len() >= MAX_OF_ONE {
            return;
        }
        links.push((Instant::now(), link));
        shelf.count += 1;
        if shelf.sweep.is_none() {
            shelf.sweep = Some(tokio::spawn(sweep(Arc::clone(self))).abort_handle());
        }
    }

    /// Closes all: no client comes any more.
    pub(crate) fn clear(&self) {
        let shelf = std::mem::take(&mut *self.lock());
        if let Some(sweep) = shelf.sweep {
            sweep.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what has been kept for too long, until nothing is kept.
async fn sweep(pool: Arc<Pool>) {
    loop {
        sleep(IDLE).await;
        let mut shelf = pool.lock();
        for links in shelf.kept.values_mut() {
            links.retain(|(since, link)| since.elapsed() < IDLE && link.is_open());
        }
        shelf.kept.retain(|_, links| !links.is_empty());
        shelf.count = shelf.kept.values().map(Vec::len).sum();
        if shelf.count == 0 {
            shelf.sweep = None;
            return;
        }
    }
}
