//! HTTP/1 on the inner side: each request of a connection is judged, recorded and sent on anew.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{EXPECT, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::authority::{Authority, Host};
use super::body::{Reply, refusal, refusal_to};
use super::client::{Client, HeadTap, MAX_HEAD};
use super::connect;
use super::decide::{Claim, Grant, Refusal};
use super::egress::Egress;
use super::error::NetproxyError;
use super::exchange::Exchange;
use super::flow::{Door, Metered};
use super::forward::{Link, Origin};
use super::framing;
use super::requests;
use crate::policy::{canonical_address, is_loopback};

/// The port of `http://` targets that name none.
const HTTP_PORT: u16 = 80;

/// What is taken of the body of a refused request; the connection is closed when there is more.
const MAX_DRAINED: usize = 256 * 1024;

/// How long it may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// What the requests of one connection may be for.
pub(crate) enum Scope {
    /// One destination, which the stream was granted.
    Bound { grant: Grant, door: Door },
    /// Whatever each request names: the proxy's own port.
    Open,
}

/// One connection on the inner side.
pub(crate) struct Service {
    pub(crate) egress: Arc<Egress>,
    pub(crate) scope: Scope,
    pub(crate) proc: Option<String>,
    pub(crate) heads: Arc<HeadTap>,
    /// The connection to the origin, kept from request to request.
    pub(crate) link: Mutex<Option<Link>>,
}

/// Serves HTTP until the client or the origin ends it. `upstream` is the leg that was dialled
/// before it was clear that the client speaks HTTP.
pub(crate) async fn serve(
    egress: Arc<Egress>,
    client: Client,
    scope: Scope,
    upstream: Option<Metered<TcpStream>>,
) {
    let link = match (upstream, &scope) {
        (Some(upstream), Scope::Bound { grant, .. }) => Link::open(upstream, grant.destination).await.ok(),
        _ => None,
    };
    let service = Arc::new(Service {
        egress,
        scope,
        proc: client.proc.clone(),
        heads: client.heads(),
        link: Mutex::new(link),
    });
    let answering = Arc::clone(&service);
    let answer = service_fn(move |request| {
        let service = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new()) // Heads have 30 s, the library's own limit; bodies have none.
        .max_buf_size(MAX_HEAD)
        .half_close(true)
        .auto_date_header(false)
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(client), answer)
        .with_upgrades();
    if let Err(error) = connection.await {
        service.note_malformed(&error);
    }
}

impl Service {
    /// Answers one request, from the origin or with the reason why not.
    async fn answer(self: &Arc<Self>, mut request: Request<Incoming>) -> Response<Reply> {
        let has_body = !hyper::body::Body::is_end_stream(request.body());
        let head_bytes = self.heads.take(has_body);
        let upgrade = forwardable_upgrade(&mut request);
        let (mut head, body) = request.into_parts();
        let admitted = match framing::check_length(&head, &head_bytes) {
            Ok(()) => framing::authority(&head),
            Err(error) => Err(error),
        };
        let authority = match admitted {
            Ok(authority) => authority,
            Err(error) => return self.refuse_request(&head, &error),
        };
        if head.method == Method::CONNECT && matches!(self.scope, Scope::Open) {
            return connect::answer(self, authority, upgrade).await;
        }
        let origins = match self.origins(&head, authority).await {
            Ok(origins) => requests::admit(&self.egress, &mut head, origins, self.proc.as_deref()),
            Err(error) => Err(error),
        };
        let origins = match origins {
            Ok(origins) => origins,
            Err(error @ NetproxyError::Request { .. }) => return self.refuse_request(&head, &error),
            Err(error) => return self.turn_away(&head, body, &error).await,
        };
        // The judgement may have left it out.
        let upgrade = upgrade.filter(|_| head.headers.contains_key(UPGRADE));
        let Some(first) = origins.first() else {
            return refusal(&unnamed("its target names no origin"));
        };
        let url = first.url(&head.uri);
        let rule = first.grant.rule();
        let exchange = Exchange::begin(&self.egress, &head, &url, rule, self.proc.as_deref());
        match self.forward(head, body, upgrade, &origins, &exchange).await {
            Ok(response) => response,
            Err(error) => {
                exchange.fail(&error);
                refusal(&error)
            }
        }
    }

    /// Where the request may go: the judgement of its target.
    async fn origins(
        &self,
        head: &http::request::Parts,
        authority: Option<Authority>,
    ) -> Result<Vec<Origin>, NetproxyError> {
        let (grant, door) = match &self.scope {
            Scope::Bound { grant, door } => (grant, *door),
            Scope::Open => return self.named_origins(head, authority).await,
        };
        let proc = self.proc.as_deref();
        let Some(authority) = authority else {
            self.egress.check_trace()?;
            return Ok(vec![Origin { grant: grant.clone(), host: None, door }]);
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
        let grant = self.egress.judge_claim(grant, claim, proc)?;
        Ok(vec![Origin { grant, host: Some(authority.host), door }])
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
        let origin = |grant| Origin { grant, host: Some(authority.host.clone()), door: Door::Proxy };
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
        Ok(vec![Origin { grant: grant.clone(), host: Some(authority.host.clone()), door }])
    }

    /// Answers a request that was refused. What it still sends is taken first, so that the connection stays usable.
    async fn turn_away(
        &self,
        head: &http::request::Parts,
        body: Incoming,
        error: &NetproxyError,
    ) -> Response<Reply> {
        // A client that waits for 100 has sent nothing.
        let waits = head.headers.contains_key(EXPECT);
        if !waits && matches!(timeout(DRAIN_TIMEOUT, drained(body)).await, Ok(true)) {
            self.heads.resume();
        }
        refusal_to(&head.headers, error)
    }

    /// Answers and records a request that cannot be judged.
    fn refuse_request(&self, head: &http::request::Parts, error: &NetproxyError) -> Response<Reply> {
        let target = match &self.scope {
            Scope::Bound { grant, .. } => grant.destination.to_string(),
            Scope::Open => head.uri.authority().map_or("<none>", |host| host.as_str()).to_owned(),
        };
        match self.record_malformed(target, error.to_string()) {
            Ok(()) => refusal(error),
            Err(failed) => refusal(&failed),
        }
    }

    /// The library answers what is no HTTP by itself (400, 431): the refusal is recorded all the same.
    fn note_malformed(&self, error: &hyper::Error) {
        if !(error.is_parse() || error.is_parse_too_large() || error.is_timeout()) {
            return;
        }
        let target = match &self.scope {
            Scope::Bound { grant, .. } => grant.destination.to_string(),
            Scope::Open => "<none>".to_owned(),
        };
        // The connection has ended already.
        let _ = self.record_malformed(target, format!("the request cannot be read: {error}"));
    }

    fn record_malformed(&self, target: String, reason: String) -> Result<(), NetproxyError> {
        let refusal =
            Refusal { target, name: None, address: None, port: None, reason, rule: None, remedy: None };
        self.egress.refuse_always(&refusal, self.proc.as_deref())
    }
}

/// The client's half of an upgrade, where one was asked for (CONNECT, or RFC 9110 section 7.8).
fn forwardable_upgrade(request: &mut Request<Incoming>) -> Option<hyper::upgrade::OnUpgrade> {
    let asked = request.method() == Method::CONNECT || request.headers().contains_key(hyper::header::UPGRADE);
    asked.then(|| hyper::upgrade::on(request))
}

/// Whether a body came to its end within what is taken of one that goes nowhere.
async fn drained(mut body: Incoming) -> bool {
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        taken += frame.data_ref().map_or(0, |data| data.len());
        if taken > MAX_DRAINED {
            return false;
        }
    }
    true
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
        NetproxyError::Exhausted { .. } => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::BAD_GATEWAY,
    }
}
