//! The judgement of bytes that nobody reads: opaque streams, TLS that is relayed, what a change of protocol makes.

use super::authority::target;
use super::decide::{Claim, Grant, Judge, Refusal};
use super::egress::Egress;
use super::error::NetproxyError;
use super::requests::claims;
use crate::policy::{Asked, RuleId};

/// May a granted stream pass unread? Refused where methods or paths are to be held, and where a rate is used up.
/// The refusal is recorded here.
pub(crate) fn admit(egress: &Egress, grant: &Grant, proc: Option<&str>) -> Result<(), NetproxyError> {
    if grant.observed || !egress.judge.looks_closer() {
        return Ok(());
    }
    let refusal = match egress.judge.unread(grant) {
        Err(refusal) => Some(refusal),
        Ok(()) => match egress.judge.take(grant, None) {
            Ok(()) => None,
            Err((refusal, _, is_first)) => {
                if is_first {
                    egress.limit_hit(&refusal, proc)?;
                }
                Some(refusal)
            }
        },
    };
    let Some(refusal) = refusal else { return Ok(()) };
    egress.refuse(&refusal, proc)?;
    if egress.enforce { Err(NetproxyError::Denied(Box::new(refusal))) } else { Ok(()) }
}

/// The same of a further address of the host, where the bytes were admitted at the first.
pub(crate) fn may_pass(egress: &Egress, grant: &Grant) -> bool {
    grant.observed || !egress.judge.looks_closer() || egress.judge.unread(grant).is_ok()
}

impl Judge {
    /// Whether what is said to there could be refused for what it is, or for how often it is said.
    pub(crate) fn may_refuse(&self, grant: &Grant) -> bool {
        let (address, port) = (grant.destination.ip(), grant.destination.port());
        let is_rated = |names: &Vec<String>| !self.policy().rates(names, address, port, None).is_empty();
        self.looks_closer() && (self.conditions(grant).any() || claims(grant).any(|names| is_rated(&names)))
    }

    /// Whether whatever is asked there is refused now, for it has been asked too often.
    pub(crate) fn is_used_up(&self, grant: &Grant) -> bool {
        let (address, port) = (grant.destination.ip(), grant.destination.port());
        let used_up = |names: Vec<String>| {
            self.rates().are_used_up(self.policy(), &self.policy().all_rates(&names, address, port))
        };
        self.looks_closer() && claims(grant).all(used_up)
    }

    /// One of the names that stand for the address is enough.
    fn unread(&self, grant: &Grant) -> Result<(), Refusal> {
        let (address, port) = (grant.destination.ip(), grant.destination.port());
        let must_read = |names: &Vec<String>| self.policy().must_read(names, address, port);
        if !claims(grant).all(|names| must_read(&names)) {
            return Ok(());
        }
        let name = grant.names.first().map(|(name, _)| name.clone());
        let claim = name.as_deref().map_or(Claim::Literal, Claim::Name);
        // A grant of the whole host lifts what grants say of methods and paths, and nothing else.
        let conditions = self.conditions(grant);
        let is_lifted = !conditions.secrets && !conditions.denies;
        Err(Refusal {
            target: target(name.as_deref(), grant.destination),
            address: Some(address),
            port: Some(port),
            reason:
                "rules of this host name methods, paths or secrets, and these bytes are no HTTP that is read"
                    .into(),
            rule: Some(grant.rule().to_owned()),
            remedy: if is_lifted { self.whole_host(claim, grant.destination) } else { None },
            name,
        })
    }

    /// Takes a place for a request, or for a connection that is not read. If there is none: the refusal, the
    /// seconds until there is one, and whether it is the first refusal since something was let through.
    pub(crate) fn take(&self, grant: &Grant, asked: Option<&Asked<'_>>) -> Result<(), (Refusal, u64, bool)> {
        let (address, port) = (grant.destination.ip(), grant.destination.port());
        let mut rules: Vec<RuleId> = Vec::new();
        for names in claims(grant) {
            if asked.is_none() && self.policy().must_read(&names, address, port) {
                continue;
            }
            match self.policy().rates(&names, address, port, asked) {
                unlimited if unlimited.is_empty() => return Ok(()),
                rated => rules.extend(rated),
            }
        }
        let Err(exhausted) = self.rates().take(self.policy(), &rules) else { return Ok(()) };
        let seconds = exhausted.retry_after.as_millis().div_ceil(1000).max(1);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        let name = grant.names.first().map(|(name, _)| name.clone());
        let refusal = Refusal {
            target: target(name.as_deref(), grant.destination),
            name,
            address: Some(address),
            port: Some(port),
            reason: format!("the rate {} is used up", exhausted.rate),
            rule: Some(self.label(exhausted.rule)),
            remedy: None,
        };
        Err((refusal, seconds, exhausted.is_first))
    }
}
