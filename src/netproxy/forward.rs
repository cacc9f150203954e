//! One judged request to its origin and the response back, both streaming.

use std::sync::Arc;

use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderMap};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::Reply;
use super::decide::Grant;
use super::error::NetproxyError;
use super::exchange::{Exchange, Side};
use super::flow::Flow;
use super::http::{Beneath, Scope, Service};
use super::informational::{Asker, Sent};
use super::intercept::Secure;
use super::link::{Link, Wire};
use super::outgoing::{fit, prepare, strip};
use super::plain::Plain;
use super::received::Received;
use super::relay::relay;
use super::repeat::{self, Need};
use super::secret::{Lookout, Masking, Passing, Place, Treatment, Watching};
use super::tapped::Tapped;
use super::target::Origin;
use super::trailers::Trailers;
use super::transcript::Transcript;
use super::{alternative, attempts};

/// A client that asked for another protocol, the record of its stream, and what looks at what it will say.
pub(crate) struct Switch {
    pub(crate) client: OnUpgrade,
    pub(crate) flow: Arc<Flow>,
    pub(crate) lookout: Lookout,
}

impl Service {
    /// Sends the request to the first of `origins` that can be reached, and returns its response.
    pub(crate) async fn forward(
        &self,
        mut head: http::request::Parts,
        body: Received,
        upgrade: Option<OnUpgrade>,
        origins: &[Origin],
        mut treatment: Treatment,
        exchange: &Arc<Exchange>,
    ) -> Result<Response<Reply>, NetproxyError> {
        // Entries and bodies that wait to be stored hold back the next request.
        self.egress.scribe.ready().await?;
        self.egress.outside().await;
        if let Some(recording) = self.egress.played() {
            let how = (treatment, exchange);
            return Box::pin(self.replay(recording, head, body, upgrade, origins, how)).await;
        }
        let asker = Asker::take(&mut head);
        let client = asker.version();
        let trailers = Trailers::of(&self.egress, &head, origins, self.proc.as_deref());
        let mut head = prepare(head, &origins[0], upgrade.is_some());
        exchange.set_secrets(treatment.fill(&mut head.headers));
        let body =
            Tapped::new(treatment.body(body), exchange, Side::Request, &self.heads).with_trailers(trailers);
        let mut request = Request::from_parts(head, body);
        let mut need = Need::of(Wire::of(client));
        loop {
            let mut slot = self.link.lock().await;
            let mut link = self.link_to(slot.take(), origins, exchange, need).await?;
            link.serve(origins[0].host.as_ref());
            let reused = link.count(self.stream());
            // Where a connection takes many requests at once, none waits for another.
            *slot = link.share();
            let slot = slot.is_none().then_some(slot);
            exchange.set_tls(link.facts.as_ref());
            let copy = if reused && !need.is_new { repeat::copy(&request) } else { None };
            fit(&mut request, &origins[0], link.wire());
            match self.send(&mut link, request, exchange, &asker, treatment.place.as_ref()).await {
                Sent::Answered(response) => {
                    self.note_spelling(&response, &link, exchange, treatment.place.as_deref());
                    let flow = self.flow(&link);
                    link.end_unless(exchange.has_sent());
                    if let Some(mut slot) = slot {
                        *slot = Some(link);
                    }
                    let switch = self.switch(upgrade, flow, &origins[0].grant, &treatment);
                    return self.finish(response, switch, exchange, client, &treatment);
                }
                Sent::Unanswered(mut failed) => {
                    need.after(&mut failed, &link);
                    request = self.again(*failed, reused, copy, exchange).map_err(|error| {
                        let refusal = treatment.refusal().or_else(|| exchange.refusal());
                        refusal.unwrap_or_else(|| link.failure(error, !reused))
                    })?;
                    self.uncount(&link);
                }
                Sent::Broken(error) => return Err(error),
            }
        }
    }

    /// Keeps for a replay how the head of an answer is written.
    fn note_spelling(
        &self,
        response: &Response<Received>,
        link: &Link,
        exchange: &Exchange,
        place: Option<&Place>,
    ) {
        if self.egress.replayable {
            // Where it can hold a secret the client does not get it either.
            let reason = response.extensions().get::<ReasonPhrase>().filter(|_| place.is_none());
            let mut names = link.unusual();
            names.retain(|name| place.is_none_or(|place| !place.is_named(name)));
            exchange.set_spelled(names, reason.map(ReasonPhrase::as_bytes));
        }
    }

    /// The kept connection when it leads to one of `origins`, else a new one.
    pub(crate) async fn link_to(
        &self,
        kept: Option<Link>,
        origins: &[Origin],
        exchange: &Exchange,
        need: Need,
    ) -> Result<Link, NetproxyError> {
        // What stands for a recorded one leads nowhere else.
        let kept = kept.filter(|link| !link.is_recorded() || self.egress.played().is_some());
        if let Some(mut link) = kept {
            let origin = origins.iter().find(|origin| origin.grant.destination == link.destination);
            if let Some(origin) = origin
                && link.ready().await
            {
                exchange.set_origin(&origin.grant);
                return Ok(link);
            }
            if let (None, Scope::Open(_)) = (origin, &self.scope) {
                Plain::leave(&self.egress, link);
            }
        }
        Box::pin(self.another_link(origins, exchange, need)).await
    }

    /// A connection that is dialled, or that an earlier client has left.
    async fn another_link(
        &self,
        origins: &[Origin],
        exchange: &Exchange,
        need: Need,
    ) -> Result<Link, NetproxyError> {
        if let (Some(secure), Some(origin)) = (self.secure(), origins.first()) {
            exchange.set_origin(&origin.grant);
            return secure.link(&self.egress, &origin.grant, need).await;
        }
        let Some(origin) = origins.first() else {
            return Err(NetproxyError::Request { reason: "its target names no origin".to_owned() });
        };
        exchange.set_origin(&origin.grant);
        if let Scope::Bound { beneath: Beneath::Plain(plain), .. } = &self.scope
            && let Some((grant, link)) = plain.link(self, origins, need).await?
        {
            exchange.set_origin(&grant);
            return Ok(link);
        }
        if let Scope::Open(named) = &self.scope {
            let (grant, link) = named.link(self, origins, need).await?;
            exchange.set_origin(&grant);
            return Ok(link);
        }
        let grants: Vec<_> = origins.iter().map(|origin| origin.grant.clone()).collect();
        let proc = self.proc.as_deref();
        let dialled = attempts::first(&self.egress, &grants, None, origin.door, proc, &self.idle).await;
        let (grant, upstream) = dialled?;
        exchange.set_origin(&grant);
        Link::open(upstream, need.wire, grant.destination).await
    }

    pub(crate) fn secure(&self) -> Option<&Secure> {
        match &self.scope {
            Scope::Bound { beneath: Beneath::Secure(secure), .. } => Some(secure),
            Scope::Bound { .. } | Scope::Open(_) => None,
        }
    }

    /// The record of the client's stream, where it is of one destination.
    pub(crate) fn stream(&self) -> Option<&Arc<Flow>> {
        match &self.scope {
            Scope::Bound { beneath: Beneath::Secure(secure), .. } => secure.flow.as_ref(),
            Scope::Bound { beneath: Beneath::Plain(plain), .. } => Some(plain.flow()),
            Scope::Open(_) => None,
        }
    }

    /// The record of the stream that a request on `link` belongs to.
    pub(crate) fn flow(&self, link: &Link) -> Option<Arc<Flow>> {
        link.flow().or_else(|| self.stream().map(Arc::clone))
    }

    /// The change of protocol that a request asks for.
    pub(crate) fn switch(
        &self,
        upgrade: Option<OnUpgrade>,
        flow: Option<Arc<Flow>>,
        grant: &Grant,
        treatment: &Treatment,
    ) -> Option<Switch> {
        let (client, flow) = upgrade.zip(flow)?;
        let lookout = Lookout::new(&self.egress, grant, treatment.filled(), self.proc.as_deref());
        Some(Switch { client, flow, lookout })
    }

    /// Turns the origin's response into the client's.
    fn finish(
        &self,
        mut response: Response<Received>,
        switch: Option<Switch>,
        exchange: &Arc<Exchange>,
        client: Version,
        treatment: &Treatment,
    ) -> Result<Response<Reply>, NetproxyError> {
        let place = treatment.place.as_ref();
        let upgraded = hyper::upgrade::on(&mut response);
        let (mut head, body) = response.into_parts();
        let (masking, is_framed) = (place.map(Arc::clone), is_websocket(&head.headers));
        let origin = async move {
            Some(Masking::new(TokioIo::new(upgraded.await.ok()?), masking.as_ref(), is_framed))
        };
        let body = match place {
            Some(place) => {
                let decoder = place.mask_head(&mut head);
                let decoder = decoder.map_err(|coding| NetproxyError::Unsearchable {
                    reason: format!("it is coded {coding}"),
                })?;
                let opened = self.egress.secrets.unpacks(&decoder)?;
                Passing::masked(body, &head.headers, (decoder, opened), place)
            }
            None => body.into(),
        };
        self.deliver(head, body, switch, origin, exchange, client)
    }

    /// Gives an answer to the client; where it switches protocols, what `origin` leads to is joined with it.
    pub(crate) fn deliver<S>(
        &self,
        mut head: http::response::Parts,
        body: Passing,
        switch: Option<Switch>,
        origin: impl Future<Output = Option<S>> + Send + 'static,
        exchange: &Arc<Exchange>,
        client: Version,
    ) -> Result<Response<Reply>, NetproxyError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if exchange.is_abandoned(exchange.elapsed(), &self.heads) {
            return Err(NetproxyError::Abandoned);
        }
        let switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
        if switched && switch.is_none() {
            // What follows is no answer, and nobody here knows what it is (RFC 9110 section 15.2.2).
            return Err(NetproxyError::Switched);
        }
        if let (true, Some(mut switch)) = (switched, switch) {
            self.heads.stop();
            if is_websocket(&head.headers) {
                switch.lookout.unmask();
            }
            let transcript = exchange.transcribe();
            let splice = splice(switch, origin, transcript, Arc::clone(exchange));
            self.idle.clone().spawn(splice);
        }
        exchange.set_response(&head)?;
        if !switched {
            if head.headers.contains_key(header::TRANSFER_ENCODING) {
                // The chunks say where the body ends, whatever the other says (RFC 9112 section 6.3).
                head.headers.remove(header::CONTENT_LENGTH);
            }
            strip(&mut head.headers);
            head.headers.remove(header::UPGRADE);
            if alternative::withhold(&mut head.headers) {
                exchange.set_withheld(header::ALT_SVC.as_str());
            }
        }
        head.version = if client == Version::HTTP_2 { client } else { Version::HTTP_11 };
        // An HTTP/1.0 client takes the close for the end, where no length was told (RFC 9112 section 6.3).
        let ends_by_close = client < Version::HTTP_11 && !head.headers.contains_key(header::CONTENT_LENGTH);
        let body = Tapped::new(body, exchange, Side::Response, &self.heads);
        let body = if ends_by_close { body.ending_by_close() } else { body };
        Ok(Response::from_parts(head, Reply::Origin(Box::new(body))))
    }
}

/// Whether a change of protocol makes a WebSocket (RFC 6455 section 4.2.2).
fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Relays what an upgrade has made of a connection.
async fn splice<S>(
    Switch { client, flow, lookout }: Switch,
    origin: impl Future<Output = Option<S>>,
    transcript: Arc<Transcript>,
    exchange: Arc<Exchange>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    flow.set_protocol("upgrade");
    let (Ok(client), Some(mut origin)) = (client.await, origin.await) else {
        exchange.set_error("the upgrade failed");
        return flow.set_end("the upgrade failed");
    };
    let mut client = TokioIo::new(client);
    let end = relay(&mut Watching::new(&mut client, lookout), &mut origin, &transcript).await;
    exchange.set_relayed(&end);
    flow.set_relayed(&end);
}
