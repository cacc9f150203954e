//! The judgement of one request, whatever carries it: its form, its method and path, its rate.

use http::header::UPGRADE;
use http::uri::PathAndQuery;
use http::{HeaderName, Uri, request};

use super::authority::target;
use super::decide::{Grant, Judge, Refusal};
use super::disguise;
use super::egress::{Egress, RequestLine};
use super::error::NetproxyError;
use super::framing::origin_form;
use super::spare::Ruled;
use super::target::Origin;
use crate::policy::{Asked, Conditions, Denied, Verdict, normal_path};

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Judges a request that may go to one of `origins`: those to which it may. Its head is left in the form that was
/// judged. A refusal is recorded here.
pub(crate) fn admit(
    egress: &Egress,
    head: &mut request::Parts,
    origins: Vec<Origin>,
    proc: Option<&str>,
) -> Result<Vec<Origin>, NetproxyError> {
    let Some(first) = origins.first().filter(|origin| !origin.grant.observed) else {
        if egress.secrets.any() && begins_requests(head) {
            leave_out_upgrade(head);
        }
        // The refusal of its destination stands in the trace already.
        return Ok(origins);
    };
    if !egress.judge.looks_closer() {
        if begins_requests(head) {
            leave_out_upgrade(head);
        }
        return Ok(origins);
    }
    let conditions = conditions_of(egress, &origins);
    if conditions.methods || conditions.paths {
        head.extensions.insert(Ruled);
    }
    let mut admission = Admission { egress, conditions, url: first.url(&head.uri), proc };
    let grant = first.grant.clone();
    admission.bring_in_form(head, &grant)?;
    admission.url = first.url(&head.uri);
    let methods = admission.methods(head, &grant)?;
    let upgrade = admission.upgrade(head, &grant);
    admission.judge(head, origins, &methods, upgrade)
}

/// What the decision about a request depends on that may go to any of these.
pub(crate) fn conditions_of(egress: &Egress, origins: &[Origin]) -> Conditions {
    let conditions = origins.iter().map(|origin| egress.judge.conditions(&origin.grant));
    conditions.reduce(joined).unwrap_or_default()
}

fn joined(one: Conditions, two: Conditions) -> Conditions {
    Conditions {
        methods: one.methods || two.methods,
        paths: one.paths || two.paths,
        denies: one.denies || two.denies,
        secrets: one.secrets || two.secrets,
    }
}

struct Admission<'a> {
    egress: &'a Egress,
    conditions: Conditions,
    url: String,
    proc: Option<&'a str>,
}

impl Admission<'_> {
    /// The normal form of the path is judged, so it is the one that is sent.
    fn bring_in_form(&self, head: &mut request::Parts, grant: &Grant) -> Result<(), NetproxyError> {
        if !self.conditions.paths {
            return Ok(());
        }
        let sent = origin_form(&head.method, &head.uri);
        let path = match normal_path(sent.path()) {
            Ok(path) => path,
            Err(fault) => return self.unclear(head, grant, &fault.to_string()),
        };
        if let Some(field) = disguise::path_field(head) {
            return self.unclear(head, grant, &format!("its field `{field}` names another path"));
        }
        if path != sent.path() {
            let whole = match sent.query() {
                Some(query) => format!("{path}?{query}"),
                None => path,
            };
            let mut parts = std::mem::take(&mut head.uri).into_parts();
            parts.path_and_query = PathAndQuery::try_from(whole).ok();
            head.uri = Uri::from_parts(parts).unwrap_or_default();
        }
        Ok(())
    }

    /// All methods that the origin could take it for, its own first.
    fn methods(&self, head: &request::Parts, grant: &Grant) -> Result<Vec<String>, NetproxyError> {
        let mut methods = vec![head.method.as_str().to_owned()];
        if self.conditions.methods {
            match disguise::methods(head) {
                Ok(others) => methods.extend(others),
                Err(reason) => self.unclear(head, grant, &reason)?,
            }
        }
        Ok(methods)
    }

    /// Whether a change of protocol is asked for. A server may leave h2c and TLS alone (RFC 9110 section 7.8), so
    /// where it may not be it is left out, and the request goes on.
    fn upgrade(&self, head: &mut request::Parts, grant: &Grant) -> bool {
        if !begins_requests(head) {
            return head.headers.contains_key(UPGRADE);
        }
        let sent = origin_form(&head.method, &head.uri);
        let asked = Asked { method: head.method.as_str(), path: sent.path(), upgrade: true };
        // What comes then is packed (RFC 7541), so that no secret is found in it.
        let is_named = self.conditions.any() && !self.conditions.denies && !self.conditions.secrets;
        if is_named && self.egress.judge.request(grant, &asked).is_ok() {
            return true;
        }
        leave_out_upgrade(head);
        false
    }

    /// The origins that may have it, each with the rule that says so.
    fn judge(
        &self,
        head: &request::Parts,
        origins: Vec<Origin>,
        methods: &[String],
        upgrade: bool,
    ) -> Result<Vec<Origin>, NetproxyError> {
        let sent = origin_form(&head.method, &head.uri);
        let asked: Vec<Asked<'_>> =
            methods.iter().map(|method| Asked { method, path: sent.path(), upgrade }).collect();
        let (mut admitted, mut refusal) = (Vec::new(), None);
        for mut origin in origins {
            match self.egress.judge.requests(&origin.grant, &asked) {
                Ok(rule) => {
                    origin.grant.set_rule(&rule);
                    admitted.push(origin);
                }
                Err(_) if refusal.is_some() => {}
                Err(denied) => refusal = Some((denied, origin)),
            }
        }
        if let (true, Some((refusal, origin))) = (admitted.is_empty(), refusal) {
            self.refuse(head, &refusal)?;
            if self.egress.enforce {
                return Err(NetproxyError::Denied(Box::new(refusal)));
            }
            return Ok(vec![origin]);
        }
        if let Some(first) = admitted.first() {
            self.take(head, &first.grant, &asked[0])?;
        }
        Ok(admitted)
    }

    /// Takes a place under the rates of the rules that allow it.
    fn take(&self, head: &request::Parts, grant: &Grant, asked: &Asked<'_>) -> Result<(), NetproxyError> {
        let Err((refusal, seconds, is_first)) = self.egress.judge.take(grant, Some(asked)) else {
            return Ok(());
        };
        if is_first {
            self.egress.limit_hit(&refusal, self.proc)?;
        }
        self.refuse(head, &refusal)?;
        match self.egress.enforce {
            true => Err(NetproxyError::Exhausted { refusal: Box::new(refusal), seconds }),
            false => Ok(()),
        }
    }

    /// A request that servers could read in two ways.
    fn unclear(&self, head: &request::Parts, grant: &Grant, reason: &str) -> Result<(), NetproxyError> {
        let refusal = unclear(grant, reason);
        self.refuse(head, &refusal)?;
        match self.egress.enforce {
            true => Err(NetproxyError::Unclear(Box::new(refusal))),
            false => Ok(()),
        }
    }

    fn refuse(&self, head: &request::Parts, refusal: &Refusal) -> Result<(), NetproxyError> {
        let line = RequestLine { method: head.method.as_str(), url: &self.url };
        self.egress.refuse_request(refusal, line, self.proc)
    }
}

impl Judge {
    /// What the decision about a request to there depends on.
    pub(crate) fn conditions(&self, grant: &Grant) -> Conditions {
        let (address, port) = (grant.destination.ip(), grant.destination.port());
        let each = claims(grant).map(|names| self.policy().conditions(&names, address, port));
        each.reduce(joined).unwrap_or_default()
    }

    /// May this be asked? The rule, or the refusal. A request that names nobody must be allowed for everybody
    /// whom it could mean.
    pub(crate) fn request(&self, grant: &Grant, asked: &Asked<'_>) -> Result<String, Refusal> {
        let (address, port) = (grant.destination.ip(), grant.destination.port());
        let mut deciding = None;
        for names in claims(grant) {
            match self.policy().decide_request(&names, address, port, asked) {
                Verdict::Allow { rule } => deciding = deciding.or_else(|| Some(self.label(rule))),
                Verdict::Deny { rule, reason } => {
                    let remedy = rule.is_none().then(|| self.remedy_of(&names, grant, asked)).flatten();
                    return Err(Refusal {
                        target: target(names.first().map(String::as_str), grant.destination),
                        name: names.into_iter().next(),
                        address: Some(address),
                        port: Some(port),
                        reason,
                        rule: rule.map(|rule| self.label(rule)),
                        remedy,
                    });
                }
            }
        }
        Ok(deciding.unwrap_or_else(|| grant.rule().to_owned()))
    }

    /// The same for all that a request could be taken for; the rule for the first.
    fn requests(&self, grant: &Grant, asked: &[Asked<'_>]) -> Result<String, Refusal> {
        let mut rules = asked.iter().map(|asked| self.request(grant, asked));
        let first = rules.next().unwrap_or_else(|| Ok(grant.rule().to_owned()))?;
        rules.try_for_each(|rule| rule.map(|_| ()))?;
        Ok(first)
    }

    /// The rule line that would allow it, where one can.
    fn remedy_of(&self, names: &[String], grant: &Grant, asked: &Asked<'_>) -> Option<String> {
        let line = self.policy().suggestion(&Denied::Request {
            names: names.to_vec(),
            address: grant.destination.ip(),
            port: grant.destination.port(),
            method: if asked.upgrade { "UPGRADE".to_owned() } else { asked.method.to_owned() },
            path: normal_path(asked.path).unwrap_or_else(|_| asked.path.to_owned()),
        });
        (!line.starts_with('#')).then_some(line)
    }
}

/// The refusal of a request that servers could read in two ways.
pub(crate) fn unclear(grant: &Grant, reason: &str) -> Refusal {
    let name = grant.names.first().map(|(name, _)| name.clone());
    Refusal {
        target: target(name.as_deref(), grant.destination),
        name,
        address: Some(grant.destination.ip()),
        port: Some(grant.destination.port()),
        reason: format!("{reason}, and rules of its host name methods or paths"),
        rule: None,
        remedy: None,
    }
}

/// Whether further requests follow in what is asked to become of the connection: `h2c`, `TLS/1.0` (RFC 2817). They would
/// pass unread, those for other hosts at the same address included.
fn begins_requests(head: &request::Parts) -> bool {
    let fields = head.headers.get_all(UPGRADE).iter();
    fields.map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase()).any(|value| {
        let mut protocols = value.split(',').map(str::trim);
        protocols.any(|protocol| ["h2", "http", "tls"].iter().any(|name| protocol.starts_with(name)))
    })
}

fn leave_out_upgrade(head: &mut request::Parts) {
    head.headers.remove(UPGRADE);
    head.headers.remove(HTTP2_SETTINGS);
}

/// Whom a grant may stand for: each name by itself, and the address.
pub(crate) fn claims(grant: &Grant) -> impl Iterator<Item = Vec<String>> {
    let names = grant.names.iter().map(|(name, _)| vec![name.clone()]);
    names.chain(grant.literal.iter().map(|_| Vec::new()))
}
