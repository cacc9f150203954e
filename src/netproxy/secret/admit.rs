//! The judgement of one request: where a placeholder stands in it, and whether it may.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method, Uri, request};

use super::super::authority::{Host, target};
use super::super::decide::{Grant, Refusal};
use super::super::disguise;
use super::super::egress::{Egress, RequestLine};
use super::super::error::NetproxyError;
use super::super::received::Received;
use super::super::target::Origin;
use super::body::{Passing, Refused};
use super::place::Place;
use super::unpacked::{TooMany, Unpacked};
use super::watch::{Watch, find};

/// Requests that an origin answers with what it was sent, or with anything at all.
const ECHOING: [&str; 4] = ["TRACE", "TRACK", "DEBUG", "CONNECT"];

/// What becomes of a request and of its answer.
#[derive(Default)]
pub(crate) struct Treatment {
    /// What the answers may hold: they are searched for it.
    pub(crate) place: Option<Arc<Place>>,
    /// The request gets the values: it is for the very host that has proved who it is.
    is_proved: bool,
    watch: Option<Box<(Watch, Option<Unpacked>, Alarm)>>,
    refused: Refused,
}

impl Treatment {
    /// The request's body as it may pass.
    pub(crate) fn body(&mut self, body: Received) -> Passing {
        match self.watch.take() {
            Some(watch) => {
                let (watch, unpacked, alarm) = *watch;
                Passing::watched(body, watch, unpacked, alarm)
            }
            None => body.into(),
        }
    }

    /// The place that gets values.
    pub(crate) fn filled(&self) -> Option<&Arc<Place>> {
        self.place.as_ref().filter(|_| self.is_proved)
    }

    /// Writes values where placeholders stand; the variables whose values are there now.
    pub(crate) fn fill(&self, headers: &mut HeaderMap) -> Vec<String> {
        self.filled().map(|place| place.fill(headers)).unwrap_or_default()
    }

    /// Why the request's body was broken off, if it was.
    pub(crate) fn refusal(&self) -> Option<NetproxyError> {
        self.refused.get().map(|refusal| NetproxyError::Denied(Box::new(refusal.clone())))
    }
}

/// Judges a request that goes to `origin`, and leaves out what asks for an answer that could not be searched: before it is
/// recorded, for the record has what is sent. `secure` is who the origin has proved to be. A refusal is recorded here.
pub(crate) fn admit(
    egress: &Arc<Egress>,
    head: &mut request::Parts,
    origin: &Origin,
    secure: Option<&Host>,
    proc: Option<&str>,
) -> Result<Treatment, NetproxyError> {
    let secrets = &egress.secrets;
    if secrets.all.is_empty() {
        return Ok(Treatment::default());
    }
    let destination = origin.grant.destination;
    // Under --observe a request may be for another host than the one that its connection is to.
    let is_proved = secure.is_some() && secure == origin.host.as_ref();
    let place = match secure {
        Some(Host::Name(proved)) if is_proved => secrets.place(proved, destination.port()).map(Arc::clone),
        // Who answers then may have got a value before, for any of these names.
        _ if secrets.is_known_at(destination.port()) => {
            let asked = [secure, origin.host.as_ref()].into_iter().flatten().filter_map(name_of);
            let granted = origin.grant.names.iter().map(|(name, _)| name.as_str());
            let resolved = egress.pins.names_for(destination.ip());
            let names: Vec<&str> = asked.chain(granted).chain(resolved.iter().map(String::as_str)).collect();
            secrets.place_of_any(&names, destination.port())
        }
        _ => None,
    };
    let refused = Refused::default();
    let alarm = Alarm {
        egress: Arc::clone(egress),
        grant: origin.grant.clone(),
        method: head.method.clone(),
        url: origin.url(&head.uri),
        proc: proc.map(str::to_owned),
        refused: Arc::clone(&refused),
    };
    if let Some(place) = &place {
        alarm.refuse_echo(place, head)?;
    }
    let filled = place.as_deref().filter(|_| is_proved);
    alarm.look_at_head(filled, head)?;
    let free = filled.map_or_else(Vec::new, Place::secrets);
    let watch = match secrets.watch(free) {
        None => None,
        Some(watch) => {
            let unpacked = match Unpacked::of(&head.headers, &watch, &secrets.unpacked) {
                Ok(unpacked) => unpacked,
                Err(TooMany) => {
                    alarm.ring_for("so many packed bodies are searched for placeholders already")?;
                    None
                }
            };
            Some(Box::new((watch, unpacked, alarm)))
        }
    };
    secrets.keep_legible(&mut head.headers);
    if let Some(place) = &place {
        place.make_searchable(&mut head.headers);
    }
    Ok(Treatment { place, is_proved, watch, refused })
}

fn name_of(host: &Host) -> Option<&str> {
    match host {
        Host::Name(name) => Some(name),
        Host::Address(_) => None,
    }
}

/// Records a placeholder where it may not stand.
pub(crate) struct Alarm {
    egress: Arc<Egress>,
    grant: Grant,
    method: Method,
    url: String,
    proc: Option<String>,
    refused: Refused,
}

impl Alarm {
    /// Records it, once; the error that the request ends with.
    pub(super) fn ring(&self, secret: usize, what: &str) -> Result<(), NetproxyError> {
        if self.refused.get().is_some() {
            return Ok(());
        }
        let secrets = &self.egress.secrets;
        self.refuse(secrets.reason(secret, what), &secrets.all[secret].rule)
    }

    /// Records a body that cannot be searched, once; the error that the request ends with.
    pub(super) fn ring_for(&self, reason: &str) -> Result<(), NetproxyError> {
        if self.refused.get().is_some() {
            return Ok(());
        }
        let secrets = &self.egress.secrets;
        let rule = secrets.all.first().map_or("", |secret| &secret.rule);
        self.refuse(reason.to_owned(), rule)
    }

    fn refuse(&self, reason: String, rule: &str) -> Result<(), NetproxyError> {
        let refusal = refusal(&self.grant, reason, rule);
        let line = RequestLine { method: self.method.as_str(), url: &self.url };
        self.egress.refuse_request(&refusal, line, self.proc.as_deref())?;
        let refusal = self.refused.get_or_init(|| refusal);
        match self.egress.enforce {
            true => Err(NetproxyError::Denied(Box::new(refusal.clone()))),
            false => Ok(()),
        }
    }

    /// A method that makes an origin say what it was sent.
    fn refuse_echo(&self, place: &Place, head: &request::Parts) -> Result<(), NetproxyError> {
        let others = disguise::methods(head).unwrap_or_else(|_| vec!["TRACE".to_owned()]);
        let mut methods = std::iter::once(head.method.as_str()).chain(others.iter().map(String::as_str));
        let echoes = |method: &&str| ECHOING.iter().any(|echo| echo.eq_ignore_ascii_case(method));
        let Some(method) = methods.find(echoes) else { return Ok(()) };
        let secret = place.secrets().first().copied().unwrap_or_default();
        let secret = &self.egress.secrets.all[secret];
        let reason = format!("{method} could send the value of the secret {} back", secret.name);
        let refusal = refusal(&self.grant, reason, &secret.rule);
        let line = RequestLine { method: self.method.as_str(), url: &self.url };
        self.egress.refuse_request(&refusal, line, self.proc.as_deref())?;
        // Also under --observe, which lets the command do what it does and shows it no secret.
        Err(NetproxyError::Denied(Box::new(refusal)))
    }

    fn look_at_head(&self, place: Option<&Place>, head: &request::Parts) -> Result<(), NetproxyError> {
        let secrets = &self.egress.secrets;
        if let Some(secret) = in_target(&secrets.marks, &head.uri) {
            self.ring(secret, "its URL")?;
        }
        for (name, value) in &head.headers {
            let may_stand = |secret| place.is_some_and(|place| place.takes(secret, name));
            if let Some(secret) = find(&secrets.marks, value.as_bytes(), |secret| !may_stand(secret)) {
                self.ring(secret, &format!("its field `{name}`"))?;
            }
        }
        let in_a_name = |name: &HeaderName| secrets.in_name(name.as_str());
        match head.headers.keys().find_map(in_a_name) {
            Some(secret) => self.ring(secret, "the name of a field"),
            None => Ok(()),
        }
    }
}

/// As it stands, or with what percent signs stand for.
fn in_target(marks: &super::watch::Marks, uri: &Uri) -> Option<usize> {
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    find(marks, target.as_bytes(), |_| true)
        .or_else(|| find(marks, disguise::decoded(target).as_bytes(), |_| true))
}

/// The refusal of what goes to a destination.
pub(crate) fn refusal(grant: &Grant, reason: String, rule: &str) -> Refusal {
    let name = grant.names.first().map(|(name, _)| name.clone());
    Refusal {
        target: target(name.as_deref(), grant.destination),
        name,
        address: Some(grant.destination.ip()),
        port: Some(grant.destination.port()),
        reason,
        rule: Some(rule.to_owned()),
        remedy: None,
    }
}
