//! Answers that precede the one (RFC 9110 section 15.2): kept in the record, and passed on.
//!
//! The library that serves clients of HTTP/1.1 cannot send them. They go out beneath it, while it has nothing to send
//! itself: the answer that follows waits until they have.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::request;
use hyper::header::{CONTENT_LENGTH, HeaderMap, UPGRADE};
use hyper::{Request, Response, StatusCode, Version};
use tokio::sync::Notify;

use super::error::NetproxyError;
use super::exchange::Exchange;
use super::http::Service;
use super::http2::Responder;
use super::link::Link;
use super::outgoing::strip;
use super::received::Received;
use super::repeat::Unanswered;
use super::secret::Place;
use super::spelling::title;
use super::tapped::Tapped;

/// Such answers to one request. An origin that sends more is not waited for.
const MOST: usize = 32;

/// One of them.
pub(crate) struct Informational {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// Those that have come to one request.
#[derive(Default)]
pub(crate) struct Arrivals {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Default)]
struct Waiting {
    all: VecDeque<Informational>,
    count: usize,
}

/// The client of a request, as far as answers that precede its own are concerned.
pub(crate) enum Asker {
    /// A request after another, in a version of HTTP/1.
    Connection(Version),
    /// One of many, in HTTP/2.
    Stream(Arc<Responder>),
}

/// How a request went.
pub(crate) enum Sent {
    Answered(Response<Received>),
    Unanswered(Box<Unanswered>),
    Broken(NetproxyError),
}

impl Arrivals {
    /// Takes those that come to `request` in HTTP/1.1.
    pub(super) fn watch<B>(self: &Arc<Self>, request: &mut Request<B>) {
        let taking = Arc::clone(self);
        hyper::ext::on_informational(request, move |answer| taking.take(answer.status(), answer.headers()));
    }

    /// Takes one. Beyond the most nothing is kept: the exchange fails.
    pub(super) fn take(&self, status: StatusCode, headers: &HeaderMap) {
        let mut waiting = self.lock();
        waiting.count += 1;
        if waiting.count <= MOST {
            waiting.all.push_back(Informational { status, headers: headers.clone() });
        }
        self.arrived.notify_one();
    }

    /// Whether one has come.
    pub(super) fn are_any(&self) -> bool {
        self.lock().count > 0
    }

    fn next(&self) -> Result<Option<Informational>, NetproxyError> {
        let mut waiting = self.lock();
        if waiting.count > MOST {
            return Err(NetproxyError::Informational { most: MOST });
        }
        match waiting.all.pop_front() {
            // In HTTP/2 nothing may switch (RFC 9113 section 8.6).
            Some(one) if one.status == StatusCode::SWITCHING_PROTOCOLS => Err(NetproxyError::Switched),
            next => Ok(next),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asker {
    pub(crate) fn of(head: &request::Parts) -> Self {
        match head.extensions.get() {
            Some(responder) => Self::Stream(Arc::clone(responder)),
            None => Self::Connection(head.version),
        }
    }

    /// The same, where the head is sent on without it.
    pub(crate) fn take(head: &mut request::Parts) -> Self {
        head.extensions.remove().map_or(Self::Connection(head.version), Self::Stream)
    }

    pub(crate) fn version(&self) -> Version {
        match self {
            Self::Connection(version) => *version,
            Self::Stream(_) => Version::HTTP_2,
        }
    }
}

impl Service {
    /// Sends a request, and passes on what precedes its answer.
    pub(crate) async fn send(
        &self,
        link: &mut Link,
        request: Request<Tapped>,
        exchange: &Exchange,
        asker: &Asker,
        place: Option<&Arc<Place>>,
    ) -> Sent {
        let arrivals = Arc::<Arrivals>::default();
        let mut answer = std::pin::pin!(link.send(request, &arrivals));
        loop {
            let answered = tokio::select! {
                biased;
                answered = &mut answer => Some(answered),
                () = arrivals.arrived.notified() => None,
            };
            loop {
                match arrivals.next() {
                    Ok(None) => break,
                    Ok(Some(mut one)) => {
                        if let Some(place) = place {
                            place.mask(&mut one.headers);
                        }
                        if let Err(error) = Box::pin(self.inform(one, exchange, asker)).await {
                            return Sent::Broken(error);
                        }
                    }
                    Err(error) => return Sent::Broken(error),
                }
            }
            match answered {
                None => {}
                Some(Ok(response)) => return Sent::Answered(response),
                Some(Err(error)) => return Sent::Unanswered(Box::new(error)),
            }
        }
    }

    /// Records such an answer and gives it to a client that may understand it (RFC 9110 section 15.2).
    pub(crate) async fn inform(
        &self,
        mut one: Informational,
        exchange: &Exchange,
        asker: &Asker,
    ) -> Result<(), NetproxyError> {
        exchange.add_informational(&one)?;
        strip(&mut one.headers);
        // It has none (RFC 9110 section 8.6): a client that takes it for one would read the next answers otherwise.
        one.headers.remove(CONTENT_LENGTH);
        match asker {
            Asker::Stream(responder) => {
                one.headers.remove(UPGRADE);
                responder.inform(one.status, one.headers).await;
            }
            Asker::Connection(Version::HTTP_11) => {
                self.heads.send_ahead(head(&one));
                poll_fn(|cx| self.heads.poll_sent(cx)).await;
            }
            Asker::Connection(_) => {}
        }
        Ok(())
    }
}

/// As it stands on the wire.
fn head(one: &Informational) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {}\r\n", one.status).into_bytes();
    for (name, value) in &one.headers {
        head.extend_from_slice(title(name.as_str()).as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}
