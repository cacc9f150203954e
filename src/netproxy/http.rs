//! HTTP/1 on the inner side: each request of a connection is judged, recorded and sent on anew.

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use hyper::body::Incoming;
use hyper::header::{TRANSFER_ENCODING, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::sync::Mutex;

use super::authority::{Authority, Host};
use super::body::{Reply, refusal, refusal_to};
use super::client::{Client, MAX_HEAD};
use super::connect;
use super::decide::{Claim, Grant, Refusal};
use super::drain::drain;
use super::egress::Egress;
use super::error::NetproxyError;
use super::exchange::Exchange;
use super::flow::Door;
use super::framing;
use super::head_tap::HeadTap;
use super::http2;
use super::idle::IdleClock;
use super::intercept::Secure;
use super::link::{Link, Wire};
use super::named::Named;
use super::plain::Plain;
use super::reader::PATIENCE;
use super::received::Received;
use super::requests;
use super::secret;
use super::stream;
use super::target::Origin;
use crate::policy::{canonical_address, is_loopback};

/// The port of `http://` targets that name none.
pub(super) const HTTP_PORT: u16 = 80;

/// What the requests of one connection may be for.
pub(crate) enum Scope {
    /// One destination, which the stream was granted.
    Bound { grant: Grant, door: Door, beneath: Beneath },
    /// Whatever each request names: the proxy's own port.
    Open(Box<Named>),
}

/// What carries the requests.
pub(crate) enum Beneath {
    Plain(Box<Plain>),
    Secure(Box<Secure>),
}

/// One connection on the inner side.
pub(crate) struct Service {
    pub(crate) egress: Arc<Egress>,
    pub(crate) scope: Scope,
    pub(crate) proc: Option<String>,
    pub(crate) heads: Arc<HeadTap>,
    pub(crate) idle: IdleClock,
    /// When it was opened, until its first request has come.
    pub(crate) opened: StdMutex<Option<f64>>,
    /// The connection to the origin, kept from request to request.
    pub(crate) link: Mutex<Option<Link>>,
}

/// Serves HTTP until the client or the origin ends it. `link` leads to an origin that was dialled
/// before it was clear that the client speaks HTTP.
pub(crate) async fn serve(egress: Arc<Egress>, client: Client, scope: Scope, link: Option<Link>, wire: Wire) {
    let service = Arc::new(Service {
        egress,
        scope,
        proc: client.proc.clone(),
        heads: client.heads(),
        idle: client.idle(),
        opened: StdMutex::new(Some(client.opened)),
        link: Mutex::new(link),
    });
    let ended: Result<(), Box<dyn Error + Send + Sync>> = match wire {
        Wire::Http1 => serve_one(client, &service).await.map_err(Into::into),
        Wire::Http2 => http2::serve(client, &service).await.map_err(Into::into),
    };
    if let Err(error) = ended {
        service.note_malformed(&*error);
        if let Some(flow) = service.stream() {
            flow.set_end(&format!("client: {error}"));
        }
    }
    let link = service.link.lock().await.take();
    match (&service.scope, link) {
        (Scope::Bound { grant, beneath: Beneath::Secure(secure), .. }, Some(link)) => {
            secure.leave(&service.egress, grant, link);
        }
        (_, Some(link)) => Plain::leave(&service.egress, link),
        (_, None) => {}
    }
}

/// HTTP/1: one request after another.
async fn serve_one(client: Client, service: &Arc<Service>) -> hyper::Result<()> {
    let answering = Arc::clone(service);
    let answer = service_fn(move |request: Request<Incoming>| {
        let service = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(service.answer(request.map(Received::from)).await) }
    });
    client.heads().start();
    http1::Builder::new()
        .header_read_timeout(None) // It would cut silent connections too: see `HeadClock`.
        .max_buf_size(MAX_HEAD)
        .half_close(true)
        .auto_date_header(false)
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(client), answer)
        .with_upgrades()
        .await
}

impl Service {
    /// Answers one request, from the origin or with the reason why not. Each connection has room for this future, and
    /// each request moves it: what few need is boxed.
    pub(super) async fn answer(self: &Arc<Self>, mut request: Request<Received>) -> Response<Reply> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let has_body = !hyper::body::Body::is_end_stream(request.body());
        let head_bytes = self.heads.take(has_body, request.headers().contains_key(TRANSFER_ENCODING));
        let upgrade = forwardable_upgrade(&mut request);
        let (mut head, body) = request.into_parts();
        let admitted = framing::check_length(&head, &head_bytes).and_then(|()| framing::authority(&head));
        let authority = match admitted {
            Ok(authority) => authority,
            Err(error) => return self.refuse_request(&head, &error),
        };
        if head.method == Method::CONNECT && matches!(self.scope, Scope::Open(_)) {
            return Box::pin(connect::answer(self, authority, upgrade)).await;
        }
        let origins = match self.origins(&head, authority).await {
            Ok(origins) => requests::admit(&self.egress, &mut head, origins, self.proc.as_deref()),
            Err(error) => Err(error),
        };
        let origins = match origins {
            Ok(origins) => origins,
            Err(error @ NetproxyError::Request { .. }) => return self.refuse_request(&head, &error),
            Err(error) => return Box::pin(self.turn_away(&head, body, &error)).await,
        };
        // The judgement may have left it out.
        let upgrade = upgrade.filter(|_| head.headers.contains_key(UPGRADE));
        let Some(first) = origins.first() else {
            return refusal(&unnamed("its target names no origin"));
        };
        if head.method == Method::CONNECT && head.version == Version::HTTP_2 {
            return self.refuse_request(&head, &unnamed("CONNECT within HTTP/2 is not offered"));
        }
        let proved = self.secure().map(|secure| &secure.host);
        let proc = self.proc.as_deref();
        let treatment = match secret::admit(&self.egress, &mut head, first, proved, proc) {
            Ok(treatment) => treatment,
            Err(error) => return Box::pin(self.turn_away(&head, body, &error)).await,
        };
        let place = match self.egress.places.take(head_size(&head)).await {
            Ok(place) => place,
            Err(error) => return self.refuse_request(&head, &error),
        };
        let url = first.url(&head.uri);
        let rule = first.grant.rule();
        match Exchange::begin(&self.egress, &head, url, rule, proc, self.idle.clone(), place) {
            Ok(exchange) => {
                exchange.set_opened(opened);
                let response = tokio::select! {
                    biased;
                    response = self.forward(head, body, upgrade, &origins, treatment, &exchange) => response,
                    () = self.is_left() => Err(NetproxyError::Abandoned),
                };
                response.unwrap_or_else(|error| {
                    exchange.fail(&error);
                    refusal(&error)
                })
            }
            Err(error) => refusal(&error),
        }
    }

    /// Returns when nobody waits for an answer any more. In a replay the recording says whether there is one.
    async fn is_left(&self) {
        match self.egress.played() {
            None => self.heads.reader().leaves(PATIENCE).await,
            Some(_) => std::future::pending().await,
        }
    }

    /// Where the request may go: the judgement of its target.
    async fn origins(
        &self,
        head: &http::request::Parts,
        authority: Option<Authority>,
    ) -> Result<Vec<Origin>, NetproxyError> {
        let (grant, door, secure) = match &self.scope {
            Scope::Bound { grant, door, .. } => (grant, *door, self.secure()),
            Scope::Open(_) => return Box::pin(self.named_origins(head, authority)).await,
        };
        let proc = self.proc.as_deref();
        let Some(authority) = authority else {
            self.egress.check_trace()?;
            return Ok(vec![Origin { grant: grant.clone(), host: None, door, secure: secure.is_some() }]);
        };
        let port = grant.destination.port();
        if authority.port.is_some_and(|claimed| claimed != port) && !grant.observed {
            let refusal = wrong_port(&authority, grant);
            self.egress.refuse(&refusal, proc)?;
            if self.egress.enforce {
                return Err(NetproxyError::Denied(Box::new(refusal)));
            }
        }
        let claim = match &authority.host {
            Host::Address(address) if !same_machine(*address, grant.destination.ip()) => {
                return self.foreign_address(&authority, grant, door);
            }
            host => Claim::of(host),
        };
        let grant = match secure {
            Some(secure) => self.judge_secure(grant, secure, &authority.host)?,
            None => self.egress.judge_claim(grant, claim, proc)?,
        };
        let others = self.other_addresses().iter();
        let others = others.filter_map(|other| self.egress.judge.destination(other.destination, claim).ok());
        let host = Some(authority.host.clone());
        let origin = |grant| Origin { grant, host: host.clone(), door, secure: secure.is_some() };
        Ok(std::iter::once(grant).chain(others).map(origin).collect())
    }

    /// Where else the stream may go that was granted to one host.
    fn other_addresses(&self) -> &[Grant] {
        match &self.scope {
            Scope::Bound { beneath: Beneath::Plain(plain), .. } => plain.others(),
            Scope::Bound { .. } | Scope::Open(_) => &[],
        }
    }

    /// The origins of an absolute-form request.
    async fn named_origins(
        &self,
        head: &http::request::Parts,
        authority: Option<Authority>,
    ) -> Result<Vec<Origin>, NetproxyError> {
        if head.uri.scheme_str() != Some("http") {
            return Err(unnamed(
                "a request to the proxy's port needs an absolute http:// target, or CONNECT",
            ));
        }
        let Some(authority) = authority else { return Err(unnamed("its target names no host")) };
        let port = authority.port.unwrap_or(HTTP_PORT);
        let proc = self.proc.as_deref();
        let grants = self.egress.grants(&authority.host, port, Claim::Literal, proc).await?;
        let origin =
            |grant| Origin { grant, host: Some(authority.host.clone()), door: Door::Proxy, secure: false };
        Ok(grants.into_iter().map(origin).collect())
    }

    /// The client names an address other than the one that it dialled.
    fn foreign_address(
        &self,
        authority: &Authority,
        grant: &Grant,
        door: Door,
    ) -> Result<Vec<Origin>, NetproxyError> {
        let refusal = Refusal {
            target: format!("{}:{}", authority.host, grant.destination.port()),
            name: None,
            address: Some(grant.destination.ip()),
            port: Some(grant.destination.port()),
            reason: "the request names an address other than the one that was connected to".into(),
            rule: None,
            remedy: None,
        };
        if !grant.observed {
            self.egress.refuse(&refusal, self.proc.as_deref())?;
        }
        if self.egress.enforce {
            return Err(NetproxyError::Denied(Box::new(refusal)));
        }
        let host = Some(authority.host.clone());
        let secure = self.secure().is_some();
        Ok(vec![Origin { grant: grant.clone(), host, door, secure }])
    }

    /// Within TLS a request is for the host that the client asked for in its ClientHello, and for no
    /// other: the origin has proved to be that one alone.
    fn judge_secure(&self, grant: &Grant, secure: &Secure, host: &Host) -> Result<Grant, NetproxyError> {
        let proc = self.proc.as_deref();
        if *host == secure.host {
            return self.egress.judge_claim(grant, Claim::of(host), proc);
        }
        let error = NetproxyError::Misdirected { name: host.to_string(), connected: secure.host.to_string() };
        let refused = match host {
            Host::Name(name) => self.egress.judge.name(name).err(),
            Host::Address(_) => None,
        };
        let refusal = match &refused {
            Some(refusal) => refusal.clone().on_port(Some(grant.destination.port())),
            None => stream::unreadable(grant, &error),
        };
        if !grant.observed {
            self.egress.refuse(&refusal, proc)?;
        }
        match refused {
            _ if !self.egress.enforce => Ok(grant.clone()),
            Some(_) => Err(NetproxyError::Denied(Box::new(refusal))),
            None => Err(error),
        }
    }

    /// Answers a request that was refused. What it still sends is taken first, so that the connection stays usable.
    async fn turn_away(
        self: &Arc<Self>,
        head: &http::request::Parts,
        body: Received,
        error: &NetproxyError,
    ) -> Response<Reply> {
        if let Err(error) = self.note_unresolved(head, error).await {
            return refusal(&error);
        }
        if drain(&head.headers, body).await {
            self.heads.resume();
        }
        refusal_to(&head.headers, error)
    }
}

/// The client's half of an upgrade, where one was asked for (CONNECT, or RFC 9110 section 7.8).
fn forwardable_upgrade(request: &mut Request<Received>) -> Option<hyper::upgrade::OnUpgrade> {
    let asked = request.method() == Method::CONNECT || request.headers().contains_key(hyper::header::UPGRADE);
    asked.then(|| hyper::upgrade::on(request))
}

/// The bytes of a head, roughly.
fn head_size(head: &http::request::Parts) -> usize {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64);
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    target + fields.sum::<usize>()
}

fn wrong_port(authority: &Authority, grant: &Grant) -> Refusal {
    let port = authority.port.unwrap_or(HTTP_PORT);
    Refusal {
        target: format!("{}:{port}", authority.host),
        name: match &authority.host {
            Host::Name(name) => Some(name.clone()),
            Host::Address(_) => None,
        },
        address: Some(grant.destination.ip()),
        port: Some(port),
        reason: format!("the request names port {port} on a connection to port {}", grant.destination.port()),
        rule: None,
        remedy: None,
    }
}

/// Whether a literal in a request means the address that was connected to. All spellings of
/// loopback mean the one machine.
fn same_machine(claimed: IpAddr, connected: IpAddr) -> bool {
    let (claimed, connected) = (canonical_address(claimed), canonical_address(connected));
    claimed == connected || (is_loopback(claimed) && is_loopback(connected))
}

fn unnamed(reason: &str) -> NetproxyError {
    NetproxyError::Request { reason: reason.to_owned() }
}

/// The status that an error is answered with.
pub(crate) fn status_of(error: &NetproxyError) -> StatusCode {
    match error {
        NetproxyError::Denied(_) => StatusCode::FORBIDDEN,
        NetproxyError::Trace { .. } => StatusCode::SERVICE_UNAVAILABLE,
        NetproxyError::Request { .. } | NetproxyError::Unclear(_) => StatusCode::BAD_REQUEST,
        NetproxyError::Misdirected { .. } => StatusCode::MISDIRECTED_REQUEST,
        NetproxyError::Exhausted { .. } => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::BAD_GATEWAY,
    }
}
