//! A connection to an origin: one request after another in HTTP/1.1, many at once in HTTP/2.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Weak};

use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::ahead::Filling;
use super::authority::Host;
use super::client::MAX_HEAD;
use super::error::NetproxyError;
use super::failure::Failure;
use super::flow::Flow;
use super::informational::Arrivals;
use super::lent::Holder;
use super::metered::Metered;
use super::multiplexed::Multiplexed;
use super::origin::OriginStream;
use super::received::Received;
use super::recorded::{Carries, Played};
use super::repeat::Unanswered;
use super::spare::{may_leave_its_body, needs_chunks, proves_a_connection};
use super::spelling::{Spelled, Spelling};
use super::tapped::Tapped;
use super::tls::{Facts, OuterStream};

/// The longest header section in HTTP/2, fields and their overhead counted (RFC 9113 section 6.5.2).
pub(crate) const MAX_HEADER_LIST: u32 = 64 * 1024;

/// The version of HTTP on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Http1,
    Http2,
}

/// A connection to an origin.
pub(crate) struct Link {
    sender: Sender,
    pub(crate) destination: SocketAddr,
    /// Weak, for the record of the stream ends with the stream and not with this connection. None
    /// where the client's leg is counted.
    flow: Weak<Flow>,
    /// Whose bytes it counts, and the record of that stream, where it is lent to one.
    holder: Arc<Holder>,
    lent: Option<Arc<Flow>>,
    /// A request was sent on it.
    pub(crate) used: bool,
    /// What the origin proved, over TLS.
    pub(crate) facts: Option<Arc<Facts>>,
    /// Who the client is was proved for the connection and not for each request (NTLM, Negotiate), which
    /// is of HTTP/1.1 alone.
    personal: bool,
    /// The host that the requests on it are for; none once there were two.
    host: Option<Host>,
    /// Whoever comes next may have it.
    is_spare: bool,
    /// The origin's last answer was one of HTTP/1.0, and so are further requests.
    is_old: bool,
    /// No request follows.
    is_last: bool,
}

enum Sender {
    One(http1::SendRequest<Tapped>, Arc<Spelling>),
    Many(Multiplexed),
    /// In a replay: requests are answered without it.
    Recorded(Arc<Standing>),
}

/// A connection that is none: it stands for one that was recorded.
pub(crate) struct Standing {
    /// The record of the stream, which lasts as long as this does.
    _flow: Option<Arc<Flow>>,
    played: Option<Arc<Played>>,
}

impl Wire {
    /// What a client of this version speaks.
    pub(crate) fn of(version: Version) -> Self {
        if version == Version::HTTP_2 { Self::Http2 } else { Self::Http1 }
    }
}

impl Link {
    /// Begins HTTP on a leg that was dialled.
    pub(crate) async fn open(
        mut upstream: Metered<OriginStream>,
        wire: Wire,
        destination: SocketAddr,
    ) -> Result<Self, NetproxyError> {
        let flow = Arc::clone(upstream.flow());
        flow.set_protocol("http");
        let weak = Arc::downgrade(&flow);
        if let OriginStream::Recorded(playback) = upstream.stream_mut() {
            // Requests that are on no recorded connection are answered each by itself.
            let _ = flow.settle(playback, Carries::Requests);
        }
        if let Some(played) = upstream.stream().played() {
            let played = Some(Arc::clone(played));
            let sender = Sender::Recorded(Arc::new(Standing { _flow: Some(flow), played }));
            return Ok(Self::new(sender, destination, weak, None));
        }
        let sender = match wire {
            Wire::Http1 => {
                let told = Arc::downgrade(&flow);
                one(upstream, destination, move || told.upgrade(), None).await?
            }
            Wire::Http2 => Multiplexed::open(upstream, destination).await.map(Sender::Many)?,
        };
        Ok(Self::new(sender, destination, weak, None))
    }

    /// The same for a client whose own leg is counted: when it has gone, another may have the connection. `flow` is
    /// the record of the stream.
    pub(crate) async fn plain(
        upstream: OriginStream,
        wire: Wire,
        destination: SocketAddr,
        flow: &Arc<Flow>,
    ) -> Result<Self, NetproxyError> {
        let OriginStream::Socket(stream) = upstream else {
            return Self::open(flow.meter(upstream), wire, destination).await;
        };
        flow.set_protocol("http");
        let (holder, socket) = (Arc::<Holder>::default(), Some(stream.as_raw_fd()));
        let sender = match wire {
            Wire::Http1 => {
                let stream = OriginStream::Socket(stream);
                let stream = Metered { stream, flow: Arc::clone(&holder) };
                let (first, later) = (Arc::downgrade(flow), Arc::clone(&holder));
                one(stream, destination, move || first.upgrade().or_else(|| later.flow()), socket).await?
            }
            Wire::Http2 => Multiplexed::open(stream, destination).await.map(Sender::Many)?,
        };
        Ok(Self { is_spare: true, holder, ..Self::new(sender, destination, Weak::new(), None) })
    }

    /// The same for a client whose own leg is not counted, for it may have several connections at once.
    pub(crate) async fn lent(
        upstream: Metered<OriginStream>,
        wire: Wire,
        destination: SocketAddr,
    ) -> Result<Self, NetproxyError> {
        if wire == Wire::Http2 || !matches!(upstream.stream(), OriginStream::Socket(_)) {
            return Self::open(upstream, wire, destination).await;
        }
        let (upstream, flow) = upstream.into_inner();
        let mut link = Self::plain(upstream, wire, destination, &flow).await?;
        link.lend(flow);
        Ok(link)
    }

    /// It serves the stream of this record until it is given back.
    pub(crate) fn lend(&mut self, flow: Arc<Flow>) {
        flow.set_protocol("http");
        self.holder.set(&flow);
        self.lent = Some(flow);
    }

    /// It serves no stream any more.
    pub(crate) fn give_back(&mut self) {
        self.holder.clear();
        self.lent = None;
    }

    /// The record of the stream that it is lent to, as long as nothing was said on it.
    pub(crate) fn unsaid(&self) -> Option<Arc<Flow>> {
        self.lent.as_ref().filter(|flow| flow.requests() == 0).map(Arc::clone)
    }

    /// The same over TLS.
    pub(crate) async fn secure(
        upstream: OuterStream,
        wire: Wire,
        facts: Arc<Facts>,
        destination: SocketAddr,
    ) -> Result<Self, NetproxyError> {
        let socket = Some(upstream.get_ref().0.stream().as_raw_fd());
        let sender = match wire {
            Wire::Http1 => one(Filling(upstream), destination, || None, socket).await?,
            Wire::Http2 => Multiplexed::open(Filling(upstream), destination).await.map(Sender::Many)?,
        };
        Ok(Self { is_spare: true, ..Self::new(sender, destination, Weak::new(), Some(facts)) })
    }

    /// In a replay: one over TLS.
    pub(crate) fn recorded(facts: Option<Arc<Facts>>, destination: SocketAddr) -> Self {
        let sender = Sender::Recorded(Arc::new(Standing { _flow: None, played: None }));
        Self::new(sender, destination, Weak::new(), facts)
    }

    fn new(sender: Sender, destination: SocketAddr, flow: Weak<Flow>, facts: Option<Arc<Facts>>) -> Self {
        Self {
            sender,
            destination,
            flow,
            holder: Arc::default(),
            lent: None,
            used: false,
            facts,
            personal: false,
            host: None,
            is_spare: false,
            is_old: false,
            is_last: false,
        }
    }

    /// Whether it is none.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.sender, Sender::Recorded(_))
    }

    /// Another handle of the same connection, where it takes many requests at once.
    pub(crate) fn share(&self) -> Option<Self> {
        let sender = match &self.sender {
            Sender::One(..) => return None,
            Sender::Many(sender) => Sender::Many(sender.clone()),
            Sender::Recorded(standing) => Sender::Recorded(Arc::clone(standing)),
        };
        Some(Self {
            sender,
            destination: self.destination,
            flow: Weak::clone(&self.flow),
            holder: Arc::clone(&self.holder),
            lent: self.lent.clone(),
            used: self.used,
            facts: self.facts.clone(),
            personal: self.personal,
            host: self.host.clone(),
            is_spare: self.is_spare,
            is_old: self.is_old,
            is_last: self.is_last,
        })
    }

    pub(crate) fn wire(&self) -> Wire {
        match self.sender {
            Sender::One(..) | Sender::Recorded(_) => Wire::Http1,
            Sender::Many(_) => Wire::Http2,
        }
    }

    pub(crate) fn flow(&self) -> Option<Arc<Flow>> {
        self.lent.clone().or_else(|| self.flow.upgrade())
    }

    /// Waits until it takes a request. False when it has ended.
    pub(crate) async fn ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::One(..) if self.is_last => false,
            Sender::One(sender, _) => sender.ready().await.is_ok(),
            Sender::Many(sender) => sender.is_open(),
            Sender::Recorded(standing) => standing.played.as_ref().is_none_or(|played| played.takes_more()),
        }
    }

    /// Whether it can still take requests, now or later.
    pub(crate) fn is_open(&self) -> bool {
        match &self.sender {
            Sender::One(sender, _) => !sender.is_closed(),
            Sender::Many(sender) => sender.is_open(),
            // Nobody may take it over: what is recorded of a stream is its own.
            Sender::Recorded(_) => false,
        }
    }

    /// Whether the origin has sent nothing since it last answered, its end included: bytes that nobody asked for
    /// would be taken for the answer to the next request.
    pub(crate) fn is_silent(&self) -> bool {
        match &self.sender {
            Sender::One(_, spelling) => spelling.is_silent(),
            Sender::Many(_) | Sender::Recorded(_) => true,
        }
    }

    /// Whether another client may have it: not where the origin takes all that comes on it to be one client's.
    pub(crate) fn is_spare(&self) -> bool {
        self.is_spare && !self.personal && !self.is_last
    }

    /// No further request goes out on it where the origin has answered before it had all of this one: it may take the
    /// rest for the next.
    pub(crate) fn end_unless(&mut self, has_all: bool) {
        self.is_last |= !has_all;
    }

    /// No further request goes out on it where it carries many and takes none.
    pub(crate) fn leave(&self) {
        if let Sender::Many(sender) = &self.sender {
            sender.leave();
        }
    }

    /// A request on it is for `host`.
    pub(crate) fn serve(&mut self, host: Option<&Host>) {
        if !self.used {
            self.host = host.cloned();
        } else if self.host.as_ref() != host {
            self.host = None;
        }
    }

    /// The one host that all requests on it were for.
    pub(crate) fn only_host(&self) -> Option<Host> {
        self.host.clone()
    }

    /// Sends a request; what precedes its answer is among `arrivals`.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<Tapped>,
        arrivals: &Arc<Arrivals>,
    ) -> Result<Response<Received>, Unanswered> {
        if self.is_old && needs_chunks(&request) {
            return Err(Unanswered::before(request, "HTTP/1.0 has no chunks".into()));
        }
        match &mut self.sender {
            Sender::One(sender, spelling) => {
                spelling.expect();
                self.personal |= proves_a_connection(request.headers());
                self.is_last |= may_leave_its_body(&request);
                arrivals.watch(&mut request);
                let failed = |error| Unanswered::of(error, !self.personal && spelling.is_unheard());
                let answer = sender.try_send_request(request).await.map_err(failed)?;
                self.is_old = answer.version() == Version::HTTP_10;
                self.is_spare &= !self.is_old && answer.status() != StatusCode::SWITCHING_PROTOCOLS;
                Ok(answer.map(Received::from))
            }
            Sender::Many(sender) => sender.send(request, arrivals).await,
            // Requests of a replay are answered before they are sent.
            Sender::Recorded(_) => std::future::pending().await,
        }
    }

    /// The names of the last answer's fields that are spelled as few are.
    pub(crate) fn unusual(&self) -> Vec<String> {
        match &self.sender {
            Sender::One(_, spelling) => spelling.unusual(),
            Sender::Many(_) | Sender::Recorded(_) => Vec::new(),
        }
    }

    /// Counts a request that is sent on it; whether there was one before. `stream` is the record of the client's
    /// stream, where it is not the connection's.
    pub(crate) fn count(&mut self, stream: Option<&Arc<Flow>>) -> bool {
        if let Some(flow) = self.flow().as_ref().or(stream) {
            flow.count_request();
        }
        if let Sender::Recorded(standing) = &self.sender
            && let Some(played) = &standing.played
        {
            played.count_request();
        }
        std::mem::replace(&mut self.used, true)
    }

    /// Takes a request out of the count: not a byte of it was sent.
    pub(crate) fn uncount(&self, stream: Option<&Arc<Flow>>) {
        if let Some(flow) = self.flow().as_ref().or(stream) {
            flow.uncount_request();
        }
    }
}

/// The record that `told` gives is told how it fails; `socket` is the one below, where others may have the connection later.
async fn one<S>(
    stream: S,
    destination: SocketAddr,
    told: impl Fn() -> Option<Arc<Flow>> + Send + 'static,
    socket: Option<RawFd>,
) -> Result<Sender, NetproxyError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let spelling = Arc::new(Spelling::on(socket));
    let stream = Spelled::new(stream, Arc::clone(&spelling));
    let (sender, connection) = http1::Builder::new()
        .preserve_header_case(true)
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|source| NetproxyError::Origin { address: destination, source: source.into() })?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await
            && let Some(flow) = told()
        {
            let failure = NetproxyError::Origin { address: destination, source: error.into() };
            flow.fail(&failure.to_string(), Failure::of(&failure));
        }
    });
    Ok(Sender::One(sender, spelling))
}
