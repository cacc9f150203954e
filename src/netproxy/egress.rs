//! What all tasks of one run's proxy share, and the two ways in which they record a decision.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::decide::{Claim, Grant, Judge, Refusal};
use super::error::NetproxyError;
use super::pins::Pins;
use super::places::Places;
use super::pool::Pool;
use super::recorded::Recording;
use super::resolve::Outside;
use super::scribe::Scribe;
use super::secret::Secrets;
use super::tls::Tls;
use super::{HasLeft, Unread, WhoAsked};
use crate::policy::Transport;
use crate::trace::redact::Redactor;
use crate::trace::{Event, Kind, Promise, Recorder, Turn};

/// What a denial says about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
}

/// The state of one run's way out.
pub(crate) struct Egress {
    pub(crate) judge: Judge,
    pub(crate) pins: Arc<Pins>,
    pub(crate) recorder: Recorder,
    /// Stores bodies, and the entries that name them.
    pub(crate) scribe: Arc<Scribe>,
    /// Hides credentials in what is recorded.
    pub(crate) redactor: Redactor,
    pub(crate) who: WhoAsked,
    pub(crate) unread: Unread,
    pub(crate) has_left: HasLeft,
    /// None: no TLS is read.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Connections to origins that wait for a client.
    pub(crate) pool: Arc<Pool>,
    /// What the program has placeholders of.
    pub(crate) secrets: Secrets,
    /// How long a stream may be silent; none: for ever.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) outside: Arc<dyn Outside>,
    /// The same, where it is a recording.
    pub(crate) recording: Option<Arc<Recording>>,
    /// When that is no longer asked, and the host's network is.
    pub(crate) turn: Option<Arc<Turn>>,
    /// What a replay needs besides is kept.
    pub(crate) replayable: bool,
    /// Requests that may be under way at once.
    pub(crate) places: Arc<Places>,
    /// Queries that may wait for the outside at once; further ones wait to be read.
    pub(crate) lookups: Arc<Semaphore>,
    /// False: everything passes, and what would have been refused is recorded.
    pub(crate) enforce: bool,
    /// The run is over: what is still open ends for that reason.
    pub(crate) ending: AtomicBool,
    /// Streams that have not ended.
    pub(crate) open: AtomicUsize,
    /// Bytes moved so far, so that the end can tell a busy stream from a silent one.
    pub(crate) moved: AtomicU64,
}

impl Egress {
    /// Refuses everything once the trace has failed: what cannot be recorded must not happen.
    pub(crate) fn check_trace(&self) -> Result<(), NetproxyError> {
        match self.recorder.failure() {
            Some(reason) => Err(NetproxyError::Trace { reason: reason.to_string() }),
            None => Ok(()),
        }
    }

    /// Records one entry.
    pub(crate) fn record(&self, event: Event) -> Result<(), NetproxyError> {
        self.recorder.record(event).map_err(|error| NetproxyError::Trace { reason: error.to_string() })
    }

    /// Keeps room for the entry, of about so many bytes, of what is about to begin.
    pub(crate) fn promise(&self, bytes: u64) -> Result<Promise, NetproxyError> {
        self.recorder.promise(bytes).map_err(|error| NetproxyError::Trace { reason: error.to_string() })
    }

    /// Judges a destination. A refusal is recorded here, whoever asked.
    pub(crate) fn judge(
        &self,
        destination: SocketAddr,
        claim: Claim<'_>,
        proc: Option<&str>,
    ) -> Result<Grant, NetproxyError> {
        self.check_trace()?;
        let refusal = match self.judge.destination(destination, claim) {
            Ok(grant) => return Ok(grant),
            Err(refusal) => refusal,
        };
        self.refuse(&refusal, proc)?;
        if self.enforce {
            return Err(NetproxyError::Denied(Box::new(refusal)));
        }
        let names = match claim {
            Claim::Name(name) => vec![name.to_owned()],
            _ => self.pins.names_for(destination.ip()),
        };
        let names = Arc::new(names.into_iter().map(|name| (name, "--observe".to_owned())).collect());
        Ok(Grant { destination, names, literal: None, observed: true })
    }

    /// The same for datagrams, which say nothing about whom they mean.
    pub(crate) fn judge_datagram(
        &self,
        destination: SocketAddr,
        proc: Option<&str>,
    ) -> Result<Grant, NetproxyError> {
        self.check_trace()?;
        let refusal = match self.judge.datagram(destination) {
            Ok(grant) => return Ok(grant),
            Err(refusal) => refusal,
        };
        self.refuse(&refusal, proc)?;
        if self.enforce {
            return Err(NetproxyError::Denied(Box::new(refusal)));
        }
        let names = self.pins.names_for(destination.ip()).into_iter();
        let names = Arc::new(names.map(|name| (name, "--observe".to_owned())).collect());
        Ok(Grant { destination, names, literal: None, observed: true })
    }

    /// Judges what a client claims on a stream that was granted already.
    pub(crate) fn judge_claim(
        &self,
        grant: &Grant,
        claim: Claim<'_>,
        proc: Option<&str>,
    ) -> Result<Grant, NetproxyError> {
        if grant.observed {
            // The stream's own refusal stands in the trace already.
            self.check_trace()?;
            return Ok(grant.clone());
        }
        self.judge(grant.destination, claim, proc)
    }

    /// What reads the TLS of a stream; none where it is relayed unread.
    pub(crate) fn reads(&self, grant: &Grant) -> Option<Arc<Tls>> {
        self.tls.as_ref().filter(|_| !self.judge.tunnels(grant)).map(Arc::clone)
    }

    /// Records a denial.
    pub(crate) fn refuse(&self, refusal: &Refusal, proc: Option<&str>) -> Result<(), NetproxyError> {
        self.deny(refusal, self.enforce, None, proc)
    }

    /// Records the denial of a request.
    pub(crate) fn refuse_request(
        &self,
        refusal: &Refusal,
        line: RequestLine<'_>,
        proc: Option<&str>,
    ) -> Result<(), NetproxyError> {
        self.deny(refusal, self.enforce, Some(line), proc)
    }

    /// Records that a rate is used up for the first time since something was let through.
    pub(crate) fn limit_hit(&self, refusal: &Refusal, proc: Option<&str>) -> Result<(), NetproxyError> {
        let mut event = Event::new(Kind::Meta, "limit.hit")
            .arg("limit", "rate")
            .arg("target", refusal.target.as_str())
            .arg("reason", refusal.reason.as_str())
            .rule(refusal.rule.as_deref().unwrap_or("no rule"));
        if let Some(proc) = proc {
            event = event.proc(proc);
        }
        self.record(event)
    }

    /// Records a refusal that `--observe` does not lift.
    pub(crate) fn refuse_always(&self, refusal: &Refusal, proc: Option<&str>) -> Result<(), NetproxyError> {
        self.deny(refusal, true, None, proc)
    }

    /// The process behind a datagram.
    pub(crate) fn sender(&self, client: SocketAddr, destination: SocketAddr) -> Option<String> {
        (self.who)(Transport::Udp, client, destination)
    }

    /// The process behind a stream that came from `client` and was accepted at `server`.
    pub(crate) fn proc_of(&self, client: SocketAddr, server: SocketAddr) -> Option<String> {
        (self.who)(Transport::Tcp, client, server)
    }

    pub(crate) fn ends(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    fn deny(
        &self,
        refusal: &Refusal,
        enforced: bool,
        line: Option<RequestLine<'_>>,
        proc: Option<&str>,
    ) -> Result<(), NetproxyError> {
        let mut event = Event::new(Kind::Deny, "net")
            .arg("target", refusal.target.as_str())
            .arg("enforced", enforced)
            .arg("reason", refusal.reason.as_str())
            .rule(refusal.rule.as_deref().unwrap_or("no rule"));
        if let Some(line) = line {
            event = event.arg("method", line.method).arg("url", self.redactor.url(line.url));
        }
        if let Some(name) = &refusal.name {
            event = event.arg("name", name.as_str());
        }
        if let Some(address) = refusal.address {
            event = event.arg("address", address.to_string());
        }
        if let Some(port) = refusal.port {
            event = event.arg("port", port);
        }
        if let Some(remedy) = &refusal.remedy {
            event = event.arg("remedy", remedy.as_str());
        }
        if let Some(proc) = proc {
            event = event.proc(proc);
        }
        self.recorder.deny(event).map_err(|error| NetproxyError::Trace { reason: error.to_string() })
    }
}
