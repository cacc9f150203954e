//! The outside of a replay that goes on for real from a step: what was recorded until then, the host's network
//! afterwards.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;

use super::egress::Egress;
use super::origin::OriginStream;
use super::recorded::Recording;
use super::resolve::Family;
use super::resolve::{Datagrams, Found, HostNetwork, Outside, Pending, Question, Wanted};
use crate::trace::Turn;

/// How often it is looked whether all is recorded that has happened, and how long at most.
const LOOK: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(2);

/// Either of the two.
pub(super) struct Turning {
    recording: Arc<Recording>,
    host: HostNetwork,
    turn: Arc<Turn>,
}

impl Turning {
    pub(super) fn new(recording: Arc<Recording>, turn: Arc<Turn>) -> Self {
        Self { recording, host: HostNetwork::default(), turn }
    }

    fn now(&self) -> &dyn Outside {
        if self.turn.has_come() { &self.host } else { &*self.recording }
    }
}

impl Outside for Turning {
    fn lookup<'a>(&'a self, asked: Question<'a>, family: Family) -> Pending<'a, Result<Found, String>> {
        self.now().lookup(asked, family)
    }

    fn records<'a>(&'a self, asked: Question<'a>, kind: RecordType) -> Pending<'a, Result<Found, String>> {
        self.now().records(asked, kind)
    }

    fn connect<'a>(&'a self, wanted: Wanted<'a>) -> Pending<'a, io::Result<OriginStream>> {
        self.now().connect(wanted)
    }

    fn datagrams(&self, wanted: Wanted<'_>) -> io::Result<Datagrams> {
        self.now().datagrams(wanted)
    }
}

impl Egress {
    /// The recording, while it answers.
    pub(crate) fn played(&self) -> Option<&Arc<Recording>> {
        let has_turned = self.turn.as_ref().is_some_and(|turn| turn.has_come());
        self.recording.as_ref().filter(|_| !has_turned)
    }

    /// Where what is granted leads now. What has happened may be the step from which on that is the host's network:
    /// it is recorded first.
    pub(crate) async fn outside(&self) -> &Arc<dyn Outside> {
        if let Some(turn) = &self.turn {
            let since = Instant::now();
            while !turn.has_come() && !self.scribe.is_idle() && since.elapsed() < PATIENCE {
                tokio::time::sleep(LOOK).await;
            }
        }
        &self.outside
    }
}
