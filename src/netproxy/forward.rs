//! One judged request to its origin and the response back, both streaming.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::authority::Host;
use super::body::Reply;
use super::client::MAX_HEAD;
use super::decide::Grant;
use super::error::NetproxyError;
use super::exchange::{Exchange, Side, Tapped};
use super::failure::Failure;
use super::flow::{Door, Flow, Metered};
use super::framing::origin_form;
use super::http::Service;
use super::relay::relay;
use super::stream;
use super::transcript::Transcript;

/// Fields that belong to one connection (RFC 9110 section 7.6.1), besides those that Connection
/// names.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// A place that a request may be sent to.
pub(crate) struct Origin {
    pub(crate) grant: Grant,
    /// The host as the request names it; none for HTTP/1.0 requests without a Host field.
    pub(crate) host: Option<Host>,
    pub(crate) door: Door,
}

impl Origin {
    /// The host and port as a Host field has them.
    fn authority(&self) -> String {
        let destination = self.grant.destination;
        let host = match &self.host {
            Some(host) => host.to_string(),
            None => Host::Address(destination.ip()).to_string(),
        };
        match destination.port() {
            80 => host,
            port => format!("{host}:{port}"),
        }
    }

    /// The whole URL for the record.
    pub(crate) fn url(&self, uri: &Uri) -> String {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        format!("http://{}{path}", self.authority())
    }
}

/// A connection to an origin, ready for one request after another.
pub(crate) struct Link {
    sender: SendRequest<Tapped>,
    destination: SocketAddr,
    /// Weak, for the record of the stream ends with the stream and not with this connection.
    flow: Weak<Flow>,
    used: bool,
}

impl Link {
    /// Begins HTTP on a leg that was dialled.
    pub(crate) async fn open(
        upstream: Metered<TcpStream>,
        destination: SocketAddr,
    ) -> Result<Self, NetproxyError> {
        let flow = Arc::clone(upstream.flow());
        flow.set_protocol("http");
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(upstream))
            .await
            .map_err(|source| NetproxyError::Origin { address: destination, source })?;
        let ending = Arc::clone(&flow);
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                let failure = NetproxyError::Origin { address: destination, source: error };
                ending.fail(&failure.to_string(), Failure::of(&failure));
            }
        });
        Ok(Self { sender, destination, flow: Arc::downgrade(&flow), used: false })
    }
}

impl Service {
    /// Sends the request to the first of `origins` that can be reached, and returns its response.
    pub(crate) async fn forward(
        &self,
        mut head: http::request::Parts,
        body: Incoming,
        upgrade: Option<OnUpgrade>,
        origins: &[Origin],
        exchange: &Arc<Exchange>,
    ) -> Result<Response<Reply>, NetproxyError> {
        // Entries and bodies that wait to be stored hold back the next request.
        self.egress.scribe.ready().await?;
        prepare(&mut head, &origins[0], upgrade.is_some());
        let body = Tapped::new(body, exchange, Side::Request, &self.heads);
        let mut request = Request::from_parts(head, body);
        let mut slot = self.link.lock().await;
        loop {
            let mut link = self.link_to(slot.take(), origins, exchange).await?;
            let reused = std::mem::replace(&mut link.used, true);
            match link.sender.try_send_request(request).await {
                Ok(response) => {
                    let flow = link.flow.upgrade();
                    *slot = Some(link);
                    return Ok(self.finish(response, upgrade, flow, exchange));
                }
                Err(mut error) => match error.take_message() {
                    // The origin closed an idle connection before any byte of this request went out.
                    Some(unsent) if reused => request = unsent,
                    _ => {
                        let source = error.into_error();
                        return Err(NetproxyError::Origin { address: link.destination, source });
                    }
                },
            }
        }
    }

    /// The kept connection when it leads to one of `origins`, else a new one.
    async fn link_to(
        &self,
        kept: Option<Link>,
        origins: &[Origin],
        exchange: &Exchange,
    ) -> Result<Link, NetproxyError> {
        if let Some(mut link) = kept {
            let origin = origins.iter().find(|origin| origin.grant.destination == link.destination);
            if let Some(origin) = origin
                && link.sender.ready().await.is_ok()
            {
                exchange.set_origin(link.destination, origin.grant.name_list());
                return Ok(link);
            }
        }
        let mut failure = None;
        for origin in origins {
            let destination = origin.grant.destination;
            exchange.set_origin(destination, origin.grant.name_list());
            let proc = self.proc.as_deref();
            match stream::open(&self.egress, &origin.grant, origin.door, proc).await {
                Ok(upstream) => return Link::open(upstream, destination).await,
                Err(error @ NetproxyError::Dial { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failure
            .unwrap_or_else(|| NetproxyError::Request { reason: "its target names no origin".to_owned() }))
    }

    /// Turns the origin's response into the client's.
    fn finish(
        &self,
        mut response: Response<Incoming>,
        upgrade: Option<OnUpgrade>,
        flow: Option<Arc<Flow>>,
        exchange: &Arc<Exchange>,
    ) -> Response<Reply> {
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let (true, Some(client), Some(flow)) = (switched, upgrade, flow) {
            let origin = hyper::upgrade::on(&mut response);
            self.heads.stop();
            let transcript = exchange.transcribe();
            tokio::spawn(splice(client, origin, flow, transcript, Arc::clone(exchange)));
        }
        let (mut head, body) = response.into_parts();
        exchange.set_response(&head);
        if !switched {
            strip(&mut head.headers);
            head.headers.remove(header::UPGRADE);
        }
        head.version = Version::HTTP_11;
        let body = Tapped::new(body, exchange, Side::Response, &self.heads);
        Response::from_parts(head, Reply::Origin(body))
    }
}

/// Relays what an upgrade has made of a connection.
async fn splice(
    client: OnUpgrade,
    origin: OnUpgrade,
    flow: Arc<Flow>,
    transcript: Arc<Transcript>,
    exchange: Arc<Exchange>,
) {
    flow.set_protocol("upgrade");
    let (Ok(client), Ok(origin)) = (client.await, origin.await) else {
        exchange.set_error("the upgrade failed");
        return flow.set_end("the upgrade failed");
    };
    let end = relay(&mut TokioIo::new(client), &mut TokioIo::new(origin), &transcript).await;
    exchange.set_relayed(&end);
    flow.set_relayed(&end);
}

/// Makes of the client's head the one that the origin gets.
fn prepare(head: &mut http::request::Parts, origin: &Origin, upgrades: bool) {
    let upgrade = head.headers.get(header::UPGRADE).cloned();
    strip(&mut head.headers);
    // 100 is answered by the inner side as soon as the body is wanted.
    head.headers.remove(header::EXPECT);
    match upgrade {
        Some(protocol) if upgrades => {
            head.headers.insert(header::UPGRADE, protocol);
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        _ => {
            head.headers.remove(header::UPGRADE);
        }
    }
    if head.uri.authority().is_some()
        && let Ok(host) = HeaderValue::try_from(origin.authority())
    {
        head.headers.insert(header::HOST, host);
    }
    head.uri = origin_form(&head.method, &head.uri);
    head.version = Version::HTTP_11;
}

/// Takes away what belongs to one connection.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // A field that frames or names the message is never one that a connection may drop.
        .filter(|name| !matches!(*name, header::HOST | header::CONTENT_LENGTH | header::UPGRADE))
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}
