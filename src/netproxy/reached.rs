//! What an origin has proved, and what its client is shown for it.

use std::sync::Arc;

use serde_json::json;

use super::authority::Host;
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::Flow;
use super::link::Link;
use super::recorded::{Carries, Playback};
use super::tls::{Facts, H2, HTTP_1_1, OuterStream, StoredLeaf};
use crate::trace::{Event, Kind};

/// Room for the entry of a certificate: its names, and the name of the blob that holds it.
const LEAF_ROOM: u64 = 8 << 10;

/// An origin that has proved who it is, or not.
pub(crate) enum Reached {
    Fresh(Box<OuterStream>, Arc<Facts>),
    Recorded(Box<Playback>, Arc<Facts>),
    Kept(Link),
    /// Nothing is asked of it now: the client is answered without it.
    Waits,
    Failed(NetproxyError),
}

impl Reached {
    /// What was recorded of one that had proved itself to a client that asked for the same.
    pub(crate) fn played(mut playback: Box<Playback>, flow: Option<&Flow>) -> Self {
        if let Some(flow) = flow {
            // Where there is none there are no facts either.
            let _ = flow.settle(&mut playback, Carries::ReadTls);
        }
        match playback.facts() {
            Ok(facts) => Self::Recorded(playback, Arc::new(facts)),
            // It was not asked then either.
            Err(NetproxyError::NotRecorded { .. }) => Self::Waits,
            Err(error) => Self::Failed(error),
        }
    }

    /// What it proved.
    pub(crate) fn facts(&self) -> Option<&Arc<Facts>> {
        match self {
            Self::Fresh(_, facts) | Self::Recorded(_, facts) => Some(facts),
            Self::Kept(link) => link.facts.as_ref(),
            Self::Waits | Self::Failed(_) => None,
        }
    }

    /// What the client is told was agreed on.
    pub(crate) fn protocol(&self, offer: &[Vec<u8>]) -> Option<Vec<u8>> {
        match self {
            Self::Fresh(..) | Self::Recorded(..) | Self::Kept(_) => {
                self.facts().and_then(|facts| facts.protocol.clone())
            }
            // The reason is told in the simplest protocol that the client takes.
            Self::Waits | Self::Failed(_) => {
                [HTTP_1_1, H2].into_iter().map(<[u8]>::to_vec).find(|one| offer.contains(one))
            }
        }
    }
}

impl Reached {
    /// The names in the client's certificate: the one that it asked for, and those of the origin's that
    /// the policy allows. Not in HTTP/2, where a client would send requests for them here (RFC 9113
    /// section 9.1.1), and each would be refused: a connection is for one name.
    pub(crate) fn names(&self, egress: &Egress, host: &Host) -> Vec<Host> {
        let mut names = vec![host.clone()];
        if let Self::Fresh(_, facts) | Self::Recorded(_, facts) = self
            && facts.protocol.as_deref() != Some(H2)
        {
            let allowed = facts.names.iter().filter(|name| egress.judge.name(name).is_ok());
            names.extend(allowed.map(|name| Host::Name(name.clone())).filter(|name| name != host));
        }
        names
    }
}

impl Egress {
    /// Keeps what a client is shown for a replay.
    pub(crate) fn keep_leaf(&self, leaf: StoredLeaf) {
        if !self.replayable {
            return;
        }
        // A failure stays with the recorder, and the run stops for it.
        let Ok(promise) = self.promise(LEAF_ROOM) else { return };
        self.scribe.record(promise, move |desk| {
            let stored = json!(leaf).to_string();
            let stored = desk.store(stored.as_bytes())?.private();
            Ok(Event::new(Kind::Meta, "tls.leaf").arg("names", leaf.names).arg("leaf", stored))
        });
    }
}
