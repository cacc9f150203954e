//! The life of a TLS stream that is read: first the origin proves who it is, then the client is
//! answered with a certificate of the run's.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::{AlertDescription, Error};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::authority::{Host, target};
use super::client::Client;
use super::decide::{Grant, Refusal};
use super::egress::Egress;
use super::error::NetproxyError;
use super::failure::Failure;
use super::flow::{Door, Flow};
use super::http::{self, Beneath, Scope};
use super::link::{Link, Wire};
use super::origin::OriginStream;
use super::pool::{Carrier, Destination};
use super::reached::Reached;
use super::recorded::{Carries, Playback};
use super::relay::relay;
use super::repeat::Need;
use super::secret::{Lookout, Masking, Watching};
use super::sniff::{Server, Speech, listen};
use super::stream::{self, unreadable};
use super::tls::{self, Facts, H2, Hello, OuterStream, Tls};
use super::unread;

/// How long a client may take to end the handshake that it began.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a client whose origin cannot be had is waited for, to be told why.
const TELL_TIMEOUT: Duration = Duration::from_secs(5);

/// What the requests within one TLS stream have in common.
pub(crate) struct Secure {
    /// Whom the client asked for, and was answered as.
    pub(crate) host: Host,
    /// What origins are offered for it.
    offer: Vec<Vec<u8>>,
    /// The record of the client's stream.
    pub(crate) flow: Option<Arc<Flow>>,
    /// Why the origin could not be had: told to the first request.
    failure: Mutex<Option<NetproxyError>>,
}

impl Secure {
    /// A connection to the origin, which has proved to be the one, or the reason why there is none.
    pub(crate) async fn link(
        &self,
        egress: &Egress,
        grant: &Grant,
        need: Need,
    ) -> Result<Link, NetproxyError> {
        if let Some(failure) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(failure);
        }
        if egress.played().is_some() {
            return Ok(Link::recorded(None, grant.destination));
        }
        let kept = || egress.pool.take(&destination(&self.host, grant, &self.offer));
        if let Some(link) = (!need.is_new).then(kept).flatten() {
            return Ok(link);
        }
        let Some((stream, facts)) = self.connect(egress, grant).await? else {
            return Ok(Link::recorded(None, grant.destination));
        };
        // Where nothing was agreed on, the client has begun without asking.
        let agreed = |protocol| if protocol == H2 { Wire::Http2 } else { Wire::Http1 };
        let wire = facts.protocol.as_deref().map_or(need.wire, agreed);
        Link::secure(stream, wire, Arc::new(facts), grant.destination).await
    }

    /// A new connection, on which the origin proves who it is. None in a replay.
    async fn connect(
        &self,
        egress: &Egress,
        grant: &Grant,
    ) -> Result<Option<(OuterStream, Facts)>, NetproxyError> {
        let Some(tls) = &egress.tls else {
            return Err(NetproxyError::Request { reason: "TLS is not read in this run".to_owned() });
        };
        let OriginStream::Socket(stream) = stream::reach(egress, grant.destination).await? else {
            return Ok(None);
        };
        tls.outer.connect(&self.host, grant.destination, self.offer.clone(), stream).await.map(Some)
    }

    /// Leaves a connection to whoever comes next.
    pub(crate) fn leave(&self, egress: &Egress, grant: &Grant, link: Link) {
        egress.pool.keep(destination(&self.host, grant, &self.offer), link);
    }

    /// Why the stream fails.
    fn fail(&self, error: &NetproxyError) {
        if let Some(flow) = &self.flow {
            flow.fail(&error.to_string(), Failure::of(error));
        }
    }
}

fn destination(host: &Host, grant: &Grant, offer: &[Vec<u8>]) -> Destination {
    Destination { host: host.clone(), address: grant.destination, carrier: Carrier::Tls(offer.to_vec()) }
}

/// Whether the client has said that it speaks HTTP.
fn speaks_http(offer: &[Vec<u8>]) -> bool {
    offer.iter().any(|one| tls::is_http(one))
}

/// What leads to the origin.
pub(crate) enum Leg {
    Dialled(OriginStream),
    /// Left by an earlier client.
    Kept(Link),
    /// Whatever is asked is refused now: nothing is dialled for it.
    Waits,
    Failed(NetproxyError),
}

/// A connection that an earlier client has left, for the one that sent `hello`.
pub(crate) fn kept(egress: &Egress, hello: &Hello, grant: &Grant) -> Option<Link> {
    let offer = tls::offer(&hello.protocols);
    egress.pool.take(&destination(&host(hello, grant), grant, &offer))
}

/// Whom the client asks for.
fn host(hello: &Hello, grant: &Grant) -> Host {
    match &hello.name {
        Some(name) => Host::Name(name.clone()),
        None => Host::Address(grant.destination.ip()),
    }
}

/// A stream that is to be read.
pub(crate) struct Reading {
    pub(crate) client: Client,
    pub(crate) hello: Hello,
    /// What the client asked for is granted.
    pub(crate) grant: Grant,
    pub(crate) door: Door,
    /// The record of the stream, unless it has ended with a failed dial.
    pub(crate) flow: Option<Arc<Flow>>,
}

/// Serves it.
pub(crate) async fn serve(egress: Arc<Egress>, tls: Arc<Tls>, reading: Reading, leg: Leg) {
    let Reading { mut client, hello, grant, door, flow } = reading;
    let host = host(&hello, &grant);
    if let Some(flow) = &flow {
        client.count_for(flow);
    }
    let offer = tls::offer(&hello.protocols);
    let outer = match leg {
        Leg::Dialled(OriginStream::Recorded(playback)) => Reached::played(playback, flow.as_deref()),
        Leg::Dialled(OriginStream::Socket(stream)) => {
            match tls.outer.connect(&host, grant.destination, offer.clone(), stream).await {
                Ok((stream, facts)) => Reached::Fresh(Box::new(stream), Arc::new(facts)),
                Err(error) => Reached::Failed(error),
            }
        }
        Leg::Kept(link) => Reached::Kept(link),
        Leg::Waits => Reached::Waits,
        Leg::Failed(error) => Reached::Failed(error),
    };
    let protocol = outer.protocol(&offer);
    if let (Some(flow), Some(facts)) = (&flow, outer.facts()) {
        flow.set_tls(facts, !matches!(outer, Reached::Kept(_)));
    }
    let secure = Secure { host, offer, flow, failure: Mutex::default() };
    let names = outer.names(&egress, &secure.host);
    let config = match tls.leaves.config(names, protocol.as_deref()) {
        Ok(leaf) => {
            leaf.made.into_iter().for_each(|made| egress.keep_leaf(made));
            leaf.config
        }
        Err(error) => {
            secure.fail(&error);
            return client.reset();
        }
    };
    let proc = client.proc.clone();
    match timeout(HANDSHAKE_TIMEOUT, hello.answer(client, config)).await {
        Ok(Ok(stream)) => {
            let scope = Inside { egress, grant, door, secure, protocol };
            Box::pin(scope.converse(Client::within(stream), outer)).await;
        }
        Ok(Err(error)) => note_refusal(&egress, &grant, &secure, &error, proc.as_deref()),
        Err(_) => secure.fail(&NetproxyError::Client { source: io::ErrorKind::TimedOut.into() }),
    }
}

/// What is known of a stream once its handshake is done.
struct Inside {
    egress: Arc<Egress>,
    grant: Grant,
    door: Door,
    secure: Secure,
    /// What was agreed on with the client.
    protocol: Option<Vec<u8>>,
}

impl Inside {
    /// Carries what is said within TLS.
    async fn converse(self, mut client: Client, outer: Reached) {
        let (mut stream, facts) = match outer {
            Reached::Failed(error) => return self.tell(client, error).await,
            Reached::Kept(link) => return self.go_on(client, Some(link)).await,
            Reached::Waits => return self.go_on(client, None).await,
            Reached::Recorded(playback, facts) => return self.play(client, *playback, facts).await,
            Reached::Fresh(stream, facts) => (*stream, facts),
        };
        let speech = match self.speech(&mut client, Server::Tls(&mut stream)).await {
            Ok(speech) => speech,
            Err(error) => return self.give_up(client, &error),
        };
        let Some(wire) = speech.wire() else {
            return self.pass(client, &mut stream, break_off).await;
        };
        match Link::secure(stream, wire, facts, self.grant.destination).await {
            Ok(link) => self.exchange(client, Some(link), wire).await,
            Err(error) => self.tell(client, error).await,
        }
    }

    /// The same where no connection was made for it.
    async fn go_on(self, mut client: Client, link: Option<Link>) {
        let speech = match self.speech(&mut client, Server::None).await {
            Ok(speech) => speech,
            Err(error) => return self.give_up(client, &error),
        };
        let said = match (&link, speech.wire()) {
            // The origin and the client have agreed on the same (RFC 7301).
            (Some(link), Some(_)) if speaks_http(&self.secure.offer) => Some(link.wire()),
            (_, said) => said,
        };
        if let Some(wire) = said {
            let link = link.filter(|link| link.wire() == wire);
            return self.exchange(client, link, wire).await;
        }
        drop(link);
        match self.secure.connect(&self.egress, &self.grant).await {
            Ok(Some((mut stream, _))) => self.pass(client, &mut stream, break_off).await,
            Ok(None) => self.give_up(client, &NetproxyError::NotRecorded { what: "bytes".to_owned() }),
            Err(error) => self.give_up(client, &error),
        }
    }

    /// The same for what was recorded.
    async fn play(self, mut client: Client, mut playback: Playback, facts: Arc<Facts>) {
        match self.speech(&mut client, Server::Recorded(&playback)).await {
            Err(error) => self.give_up(client, &error),
            Ok(speech) => match speech.wire() {
                None => {
                    if let Some(flow) = &self.secure.flow {
                        // Its first reader is told.
                        let _ = flow.settle(&mut playback, Carries::Within);
                    }
                    self.pass(client, &mut playback, |_| {}).await;
                }
                Some(wire) => {
                    let link = Link::recorded(Some(facts), self.grant.destination);
                    self.exchange(client, Some(link), wire).await;
                }
            },
        }
    }

    /// What the client speaks: HTTP where it said so, else what its first bytes are.
    async fn speech(&self, client: &mut Client, server: Server<'_>) -> Result<Speech, NetproxyError> {
        match self.protocol.as_deref() {
            Some(H2) => Ok(Speech::Http2),
            _ if speaks_http(&self.secure.offer) => Ok(Speech::Http),
            _ => {
                self.set_protocol("tls");
                listen(client, server).await
            }
        }
    }

    async fn exchange(self, client: Client, link: Option<Link>, wire: Wire) {
        self.set_protocol("https");
        let beneath = Beneath::Secure(Box::new(self.secure));
        let scope = Scope::Bound { grant: self.grant, door: self.door, beneath };
        Box::pin(http::serve(self.egress, client, scope, link, wire)).await;
    }

    /// Answers an HTTP client with the reason, and ends every other stream.
    async fn tell(self, mut client: Client, error: NetproxyError) {
        self.secure.fail(&error);
        let speech = timeout(TELL_TIMEOUT, self.speech(&mut client, Server::None)).await;
        let Ok(Ok(Some(wire))) = speech.map(|speech| speech.map(Speech::wire)) else {
            return client.reset();
        };
        *self.secure.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.exchange(client, None, wire).await;
    }

    /// Relays bytes that are no HTTP.
    async fn pass<S>(self, mut client: Client, stream: &mut S, reset: impl FnOnce(&S))
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if let Err(error) = unread::admit(&self.egress, &self.grant, client.proc.as_deref()) {
            return self.give_up(client, &error);
        }
        let Some(flow) = &self.secure.flow else { return client.reset() };
        client.heads().stop();
        let transcript = flow.transcribe();
        let lookout = Lookout::new(&self.egress, &self.grant, None, client.proc.as_deref());
        let place = self.egress.secrets.place_of(&self.secure.host, self.grant.destination.port());
        let mut masking = Masking::new(&mut *stream, place, false);
        let end = relay(&mut Watching::new(&mut client, lookout), &mut masking, &transcript).await;
        flow.set_relayed(&end);
        stream::break_off(&self.egress, client, || reset(stream), &self.grant, end);
    }

    fn give_up(self, client: Client, error: &NetproxyError) {
        self.secure.fail(error);
        if matches!(error, NetproxyError::Request { .. }) {
            // A failing trace closes the stream as well: there is nothing more to do.
            let _ = self.egress.refuse_always(&unreadable(&self.grant, error), client.proc.as_deref());
        }
        client.reset();
    }

    fn set_protocol(&self, protocol: &'static str) {
        if let Some(flow) = &self.secure.flow {
            flow.set_protocol(protocol);
        }
    }
}

/// Lets a stream end with a reset.
fn break_off(stream: &OuterStream) {
    // The kernel refuses it for dead sockets alone.
    let _ = stream.get_ref().0.stream().set_zero_linger();
}

/// Records that the client broke the handshake off, and what helps a client that knows the origin's
/// certificate and takes no other.
fn note_refusal(egress: &Egress, grant: &Grant, secure: &Secure, error: &io::Error, proc: Option<&str>) {
    let Some(reason) = distrust(error) else {
        let error = NetproxyError::Hello { reason: error.to_string() };
        secure.fail(&error);
        let _ = egress.refuse_always(&unreadable(grant, &error), proc);
        return;
    };
    let error = NetproxyError::Distrusted { name: secure.host.to_string(), reason };
    secure.fail(&error);
    let name = match &secure.host {
        Host::Name(name) => Some(name.clone()),
        Host::Address(_) => None,
    };
    let to = grant.destination;
    let port = if egress.judge.is_pinned(grant) { format!(":{}", to.port()) } else { String::new() };
    let refusal = Refusal {
        target: target(name.as_deref(), to),
        name,
        address: Some(to.ip()),
        port: Some(to.port()),
        reason: format!("{error}: have it trust the file that SSL_CERT_FILE names (npm: `cafile`)"),
        rule: Some(grant.rule().to_owned()),
        remedy: Some(format!("net: {}{port} tunnel", secure.host)),
    };
    let _ = egress.refuse_always(&refusal, proc);
}

/// What a client said that does not take our certificate; none when the handshake failed for
/// another reason.
fn distrust(error: &io::Error) -> Option<String> {
    use AlertDescription as Alert;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::AlertReceived(alert)) => {
            let about_it = matches!(
                alert,
                Alert::UnknownCA
                    | Alert::BadCertificate
                    | Alert::UnsupportedCertificate
                    | Alert::CertificateRevoked
                    | Alert::CertificateExpired
                    | Alert::CertificateUnknown
                    | Alert::AccessDenied
            );
            about_it.then(|| format!("it answered with the alert {alert:?}"))
        }
        Some(_) => None,
        None => matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        )
        .then(|| "it closed the connection when it saw it".to_owned()),
    }
}
