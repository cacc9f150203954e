//! One judged request that the recording answers.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::upgrade::OnUpgrade;
use sha2::{Digest as _, Sha256};

use super::super::body::Reply;
use super::super::delays;
use super::super::error::NetproxyError;
use super::super::exchange::{Exchange, Side};
use super::super::forward::Switch;
use super::super::http::Service;
use super::super::informational::Asker;
use super::super::link::Wire;
use super::super::reader::LOOK_AGAIN;
use super::super::received::Received;
use super::super::repeat::Need;
use super::super::secret::{Passing, Treatment};
use super::super::tapped::Tapped;
use super::super::target::Origin;
use super::super::trailers::Trailers;
use super::Recording;
use super::answer::{Answer, unreadable};
use super::exchanges::{MOST, Matched};
use super::gate::Gate;
use crate::trace::hex;

/// A request's body once it has come.
#[derive(Default)]
struct Taken {
    digest: Option<String>,
    /// All of it, where it is small enough.
    content: Option<Vec<u8>>,
}

impl Recording {
    /// Finds the recorded exchange that did not reach its origin either.
    pub(crate) fn note_unsent(&self, exchange: &Exchange, proc: Option<&str>) {
        let matched = self.exchanges.take_unsent(&exchange.asked(None), proc);
        matched.iter().for_each(|matched| exchange.set_matched(matched));
    }
}

impl Service {
    /// Answers from the recording, as `forward` does from the origin.
    pub(crate) async fn replay(
        &self,
        recording: &Arc<Recording>,
        head: http::request::Parts,
        body: Received,
        upgrade: Option<OnUpgrade>,
        origins: &[Origin],
        (mut treatment, exchange): (Treatment, &Arc<Exchange>),
    ) -> Result<Response<Reply>, NetproxyError> {
        let proc = self.proc.as_deref();
        if treatment.filled().is_some() {
            exchange.set_secrets(treatment.fill(&mut head.headers.clone()));
        }
        let trailers = Trailers::of(&self.egress, &head, origins, proc);
        let mut body =
            Tapped::new(treatment.body(body), exchange, Side::Request, &self.heads).with_trailers(trailers);
        let mut slot = self.link.lock().await;
        let need = Need::of(Wire::of(head.version));
        let mut link = match self.link_to(slot.take(), origins, exchange, need).await {
            Ok(link) => link,
            Err(error) => {
                recording.note_unsent(exchange, proc);
                return Err(error);
            }
        };
        link.count(self.stream());
        *slot = link.share();
        drop(slot);
        let flow = self.flow(&link);
        if let Some(matched) = recording.exchanges.take_early(&exchange.asked(None), proc) {
            exchange.set_matched(&matched);
            if matched.exchange.is_broken_off()
                && !matched.exchange.is_answered()
                && let Err(error) = take(&mut body).await
            {
                return Err(treatment.refusal().or_else(|| exchange.refusal()).unwrap_or(error));
            }
            let gate = Arc::new(Gate::default());
            let (most, passing) = (matched.exchange.most(), Arc::clone(&gate));
            tokio::spawn(async move { pass(body, most, &passing).await });
            let switch = self.switch(upgrade, flow, &origins[0].grant, &treatment);
            return self.answer_from(recording, &matched, &head, switch, exchange, Some(gate)).await;
        }
        let taken = match take(&mut body).await {
            Ok(taken) => taken,
            Err(error) => return Err(treatment.refusal().or_else(|| exchange.refusal()).unwrap_or(error)),
        };
        let asked = exchange.asked(taken.digest);
        let content = taken.content.as_deref();
        let Some(matched) = recording.exchanges.take(&asked, content, proc) else {
            let redactor = &self.egress.redactor;
            if let Some(closest) = recording.exchanges.closest(&asked, content, proc, redactor) {
                exchange.set_closest(closest);
            }
            return Err(NetproxyError::NotRecorded { what: format!("{} {}", asked.method, asked.url) });
        };
        exchange.set_matched(&matched);
        let switch = self.switch(upgrade, flow, &origins[0].grant, &treatment);
        self.answer_from(recording, &matched, &head, switch, exchange, None).await
    }

    /// Gives the recorded answer.
    async fn answer_from(
        &self,
        recording: &Arc<Recording>,
        matched: &Matched,
        head: &http::request::Parts,
        switch: Option<Switch>,
        exchange: &Arc<Exchange>,
        gate: Option<Arc<Gate>>,
    ) -> Result<Response<Reply>, NetproxyError> {
        let recorded = &matched.exchange;
        let asker = Asker::of(head);
        let before = recorded.informational(recording.blobs());
        for one in before.map_err(|error| unreadable(recorded.entry, &error))? {
            self.inform(one, exchange, &asker).await?;
        }
        if recording.is_paced() {
            tokio::time::sleep(recorded.first_byte()).await;
        } else {
            delays::long(recorded.first_byte()).await;
        }
        match recorded.answer(&head.method, recording.blobs(), recording.is_paced()) {
            Answer::Failed(error) => {
                if let Some(gate) = gate {
                    poll_fn(|cx| gate.poll(u64::MAX, cx)).await;
                }
                Err(error)
            }
            Answer::Silence => {
                self.heads.reader().leaves(LOOK_AGAIN).await;
                Err(NetproxyError::Abandoned)
            }
            Answer::Head(mut answer, body) => {
                if let Some(spelled) = recorded.respelled(&answer.headers).await {
                    answer.extensions = spelled;
                }
                if let Some(reason) = recorded.reason() {
                    answer.extensions.insert(reason);
                }
                let body = body.read_by(self.heads.reader());
                let body = Box::new(match gate {
                    Some(gate) => body.behind(gate),
                    None => body,
                });
                let origin = Arc::clone(recording).upgraded(recorded.result.clone());
                self.deliver(*answer, Passing::Recorded(body), switch, origin, exchange, head.version)
            }
        }
    }
}

/// Takes a body as far as it was taken, and tells how much has come.
async fn pass(mut body: Tapped, most: Option<u64>, gate: &Gate) {
    let mut taken = 0;
    // A client that breaks off is told by the body itself.
    while most.is_none_or(|most| taken < most)
        && let Some(Ok(frame)) = body.frame().await
    {
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        taken += length;
        gate.add(length);
    }
    gate.end();
}

/// Takes a whole body, which is recorded as it passes.
async fn take(body: &mut Tapped) -> Result<Taken, NetproxyError> {
    let mut taken = Taken { digest: None, content: Some(Vec::new()) };
    let mut hash = Sha256::new();
    let mut any = false;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        any = true;
        hash.update(&data);
        taken.content = taken.content.take().and_then(|content| grown(content, &data));
    }
    taken.digest = any.then(|| hex(&hash.finalize()));
    Ok(taken)
}

fn grown(mut content: Vec<u8>, data: &Bytes) -> Option<Vec<u8>> {
    content.extend_from_slice(data);
    (content.len() <= MOST).then_some(content)
}
