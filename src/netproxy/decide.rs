//! The one decision about a destination, taken for every way in alike: transparent streams,
//! absolute-form requests, CONNECT, and the host's loopback ports.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use super::authority::target;
pub(crate) use super::claim::Claim;
use super::judged::Judged;
use super::pins::Pins;
use super::rates::Rates;
use crate::policy::{
    Denied, Effect, NetTarget, Policy, RuleBody, RuleId, Transport, Verdict, canonical_address, is_loopback,
};

/// The name of the machine itself (RFC 6761 section 6.3): it needs no lookup to be known.
pub(crate) const LOCALHOST: &str = "localhost";

/// A port that stands for all that no rule names.
const UNNAMED_PORT: u16 = 1;

/// Names with the rule of each. Shared, for each request has its grant.
pub(crate) type Names = Arc<Vec<(String, String)>>;

/// A destination that may be dialled.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) destination: SocketAddr,
    /// The names under which it is allowed, and the rule of each; empty when only a rule for the
    /// address allows it.
    pub(crate) names: Names,
    /// The rule that allows the address itself.
    pub(crate) literal: Option<String>,
    /// Nothing allows it: it passes since the run only observes, and the refusal is recorded.
    pub(crate) observed: bool,
}

impl Grant {
    /// The rule that allows it, the name's before the address's.
    pub(crate) fn rule(&self) -> &str {
        let named = self.names.first().map(|(_, rule)| rule.as_str());
        named.or(self.literal.as_deref()).unwrap_or("--observe")
    }

    /// The rule that allows the request for which it stands from now on.
    pub(crate) fn set_rule(&mut self, rule: &str) {
        for (_, known) in Arc::make_mut(&mut self.names) {
            rule.clone_into(known);
        }
        if let Some(known) = &mut self.literal {
            rule.clone_into(known);
        }
    }

    /// The names alone.
    pub(crate) fn name_list(&self) -> Vec<String> {
        self.names.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// Why something may not be reached, with all that a denial entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `name`, `name:port` or `address:port`.
    pub target: String,
    /// The name that was asked for, if one is known.
    pub name: Option<String>,
    /// The address, if there is one.
    pub address: Option<IpAddr>,
    /// The port, if there is one.
    pub port: Option<u16>,
    /// One line without a full stop.
    pub reason: String,
    /// The rule that refuses; none when no rule allows.
    pub rule: Option<String>,
    /// The rule line that would allow it.
    pub remedy: Option<String>,
}

/// Ports of HTTP, plain and within TLS.
const USUAL: [u16; 2] = [80, 443];

impl Refusal {
    /// The same for a request that named a port beside the name.
    pub(crate) fn on_port(self, port: Option<u16>) -> Self {
        let Some(port) = port else { return self };
        let target = match &self.name {
            Some(name) => format!("{name}:{port}"),
            None => self.target,
        };
        // The rules of the name may name other ports.
        let of_name = self.name.as_ref().map(|name| format!("net: {name}:"));
        let pinned = |remedy: &str| of_name.as_ref().is_some_and(|start| remedy.starts_with(start.as_str()));
        let whole = self.name.as_ref().map(|name| format!("net: {name}"));
        let is_whole = |remedy: &str| whole.as_deref() == Some(remedy);
        let remedy = match self.remedy {
            Some(remedy) if pinned(&remedy) => Some(format!("net: {target} private")),
            // Of the usual two, the other is wanted next.
            Some(remedy) if is_whole(&remedy) && !USUAL.contains(&port) => Some(format!("{remedy}:{port}")),
            remedy => remedy,
        };
        Self { target, port: Some(port), remedy, ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is denied: {}", self.target, self.reason)?;
        match &self.remedy {
            Some(rule) => write!(f, "; the rule `{rule}` would allow it"),
            None => Ok(()),
        }
    }
}

/// A port that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Port {
    number: u16,
    /// Whether the rule names it.
    pinned: bool,
    transport: Transport,
}

/// What stands before a host to which datagrams go.
fn prefix(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "",
        Transport::Udp => "udp:",
    }
}

/// Takes the decisions of one run.
#[derive(Debug)]
pub(crate) struct Judge {
    policy: Arc<Policy>,
    pins: Arc<Pins>,
    /// What the confined program calls its own machine.
    own_name: Option<String>,
    rates: Rates,
    judged: Judged<Grant>,
    /// Some rule looks at more than destinations.
    looks_closer: bool,
}

impl Judge {
    pub(crate) fn new(policy: Arc<Policy>, pins: Arc<Pins>, own_name: Option<String>) -> Self {
        let looks_closer = policy.rules.iter().any(|rule| match &rule.body {
            RuleBody::Net(net) => net.is_conditional() || net.rate.is_some(),
            RuleBody::Secret(_) => true,
            _ => false,
        });
        Self { looks_closer, policy, pins, own_name, rates: Rates::default(), judged: Judged::default() }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether requests and opaque streams are to be judged beyond their destination.
    pub(crate) fn looks_closer(&self) -> bool {
        self.looks_closer
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Whether `name` is this machine's, and so is answered without a lookup.
    pub(crate) fn is_local(&self, name: &str) -> bool {
        let below = || name.strip_suffix(LOCALHOST).is_some_and(|above| above.ends_with('.'));
        name == LOCALHOST || below() || self.own_name.as_deref() == Some(name)
    }

    /// May this name be looked up? The rule, or the refusal.
    pub(crate) fn name(&self, name: &str) -> Result<String, Refusal> {
        match self.policy.decide_name(name) {
            Verdict::Allow { rule } => Ok(self.policy.rule_label(rule)),
            Verdict::Deny { rule, reason } => Err(Refusal {
                target: name.to_owned(),
                name: Some(name.to_owned()),
                address: None,
                port: None,
                reason,
                rule: rule.map(|rule| self.policy.rule_label(rule)),
                remedy: rule.is_none().then(|| self.policy.suggestion(&Denied::Name(name.to_owned()))),
            }),
        }
    }

    /// May `destination` be reached by a client that claims `claim`?
    ///
    /// A name counts only for an address that our resolver gave for it in this run: what a client
    /// says about a name proves nothing about the address that it dialled.
    pub(crate) fn destination(&self, destination: SocketAddr, claim: Claim<'_>) -> Result<Grant, Refusal> {
        self.judge(destination, claim, Transport::Tcp)
    }

    /// May datagrams be sent to `destination`?
    pub(crate) fn datagram(&self, destination: SocketAddr) -> Result<Grant, Refusal> {
        self.judge(destination, Claim::Silent, Transport::Udp)
    }

    fn judge(
        &self,
        destination: SocketAddr,
        claim: Claim<'_>,
        transport: Transport,
    ) -> Result<Grant, Refusal> {
        // What is judged is what is dialled, and not what stands around it.
        let address = canonical_address(destination.ip());
        let destination = SocketAddr::new(address, destination.port());
        if transport == Transport::Udp {
            return self.decide(destination, claim, transport);
        }
        // Besides the policy, which stays, it depends on the names that were resolved.
        let known = self.pins.count();
        if let Some(grant) = self.judged.find(destination, claim, known) {
            return Ok(grant);
        }
        let decided = self.decide(destination, claim, transport);
        if let Ok(grant) = &decided {
            self.judged.keep(destination, claim, known, grant);
        }
        decided
    }

    fn decide(
        &self,
        destination: SocketAddr,
        claim: Claim<'_>,
        transport: Transport,
    ) -> Result<Grant, Refusal> {
        let address = destination.ip();
        let (mut granted, mut literal, mut refusal) = (Vec::new(), None, None);
        let mut names = self.known_names(address);
        if let Claim::Name(claimed) = claim {
            names.retain(|name| name == claimed || (name == LOCALHOST && self.is_local(claimed)));
            if names.is_empty() {
                return Err(self.stranger(claimed, destination));
            }
        }
        if !matches!(claim, Claim::Literal) {
            for name in names {
                match self.connect(Some(&name), destination, transport) {
                    Ok(rule) => granted.push((name, rule)),
                    Err(denied) => refusal = refusal.or(Some(denied)),
                }
            }
        }
        if !matches!(claim, Claim::Name(_)) {
            match self.connect(None, destination, transport) {
                Ok(rule) => literal = Some(rule),
                Err(denied) => refusal = refusal.or(Some(denied)),
            }
        }
        match refusal {
            Some(refusal) if granted.is_empty() && literal.is_none() => Err(refusal),
            _ => Ok(Grant { destination, names: Arc::new(granted), literal, observed: false }),
        }
    }

    /// Whether any port at all of `address` may be reached under `name`: only then is it given.
    pub(crate) fn answerable(&self, name: &str, address: IpAddr) -> Result<(), Refusal> {
        let mut first = None;
        for Port { number: port, pinned, transport } in self.ports_worth_asking(name) {
            let Err(refusal) = self.connect(Some(name), SocketAddr::new(address, port), transport) else {
                return Ok(());
            };
            // A name that is allowed and may not lead there lacks one word.
            let wider = if pinned { format!(":{port}") } else { String::new() };
            let remedy =
                refusal.remedy.is_some().then(|| format!("net: {}{name}{wider} private", prefix(transport)));
            first.get_or_insert_with(|| Refusal { target: name.to_owned(), port: None, remedy, ..refusal });
        }
        first.map_or(Ok(()), Err)
    }

    /// Whether a rule that grants it says that its TLS is never read, and no other needs it read.
    pub(crate) fn tunnels(&self, grant: &Grant) -> bool {
        let (address, port) = (grant.destination.ip(), grant.destination.port());
        let names = grant.name_list();
        self.policy.tunnels(&names, address, port) && !self.policy.must_read(&names, address, port)
    }

    /// Whether what grants it is for that port alone.
    pub(crate) fn is_pinned(&self, grant: &Grant) -> bool {
        let elsewhere = SocketAddr::new(grant.destination.ip(), UNNAMED_PORT);
        let name = grant.names.first().map(|(name, _)| name.as_str());
        self.connect(name, elsewhere, Transport::Tcp).is_err()
    }

    /// May this Unix socket of the host be reached?
    pub(crate) fn unix(&self, path: &Path) -> Verdict {
        self.policy.decide_unix(path)
    }

    /// The place of a rule, as `file:line`.
    pub(crate) fn label(&self, rule: RuleId) -> String {
        self.policy.rule_label(rule)
    }

    fn known_names(&self, address: IpAddr) -> Vec<String> {
        let mut names = self.pins.names_for(address);
        if is_loopback(address) && !names.iter().any(|name| name == LOCALHOST) {
            names.push(LOCALHOST.to_owned());
        }
        names
    }

    /// The verdict of the policy for one name, or for the address itself.
    fn connect(
        &self,
        name: Option<&str>,
        destination: SocketAddr,
        transport: Transport,
    ) -> Result<String, Refusal> {
        let names: Vec<String> = name.map(str::to_owned).into_iter().collect();
        let (address, port) = (destination.ip(), destination.port());
        let verdict = self.policy.decide_connect(&names, address, port, transport);
        match verdict {
            Verdict::Allow { rule } => Ok(self.policy.rule_label(rule)),
            Verdict::Deny { rule, reason } => Err(Refusal {
                target: format!("{}{}", prefix(transport), target(name, destination)),
                name: name.map(str::to_owned),
                address: Some(address),
                port: Some(port),
                remedy: if rule.is_none() { self.remedy(name, destination, transport) } else { None },
                reason,
                rule: rule.map(|rule| self.policy.rule_label(rule)),
            }),
        }
    }

    /// A client claims a name that was not resolved to where it connected.
    fn stranger(&self, name: &str, destination: SocketAddr) -> Refusal {
        let refused = self.name(name).err();
        let reason = match &refused {
            Some(refusal) => refusal.reason.clone(),
            None => format!(
                "{name} did not resolve to {} in this run, so the name does not count there",
                destination.ip()
            ),
        };
        let unruled = refused.as_ref().is_some_and(|refusal| refusal.rule.is_none());
        Refusal {
            target: target(Some(name), destination),
            name: Some(name.to_owned()),
            address: Some(destination.ip()),
            port: Some(destination.port()),
            reason,
            rule: refused.and_then(|refusal| refusal.rule),
            remedy: unruled.then(|| format!("net: {name}:{}", destination.port())),
        }
    }

    /// The rule line that would allow everything there.
    pub(crate) fn whole_host(&self, claim: Claim<'_>, destination: SocketAddr) -> Option<String> {
        match claim {
            Claim::Name(name) => self.remedy(Some(name), destination, Transport::Tcp),
            _ => self.remedy(None, destination, Transport::Tcp),
        }
    }

    /// The rule line that would allow it, if there is one.
    fn remedy(&self, name: Option<&str>, destination: SocketAddr, transport: Transport) -> Option<String> {
        let line = self.policy.suggestion(&Denied::Connect {
            names: name.map(str::to_owned).into_iter().collect(),
            address: destination.ip(),
            port: destination.port(),
            transport,
        });
        // A comment says why there is none.
        Some(line).filter(|line| !line.starts_with('#'))
    }

    /// The ports that tell whether a name may be reached on any, and whether a rule pins them:
    /// those of the rules that match the name first. One port stands for all that none names.
    fn ports_worth_asking(&self, name: &str) -> Vec<Port> {
        let (mut matching, mut others) = (Vec::new(), Vec::new());
        for rule in &self.policy.rules {
            let RuleBody::Net(net) = &rule.body else { continue };
            let matches = rule.effect == Effect::Grant
                && matches!(&net.target, NetTarget::Name(pattern) if pattern.matches(name));
            let list = if matches { &mut matching } else { &mut others };
            let number = net.port.unwrap_or(UNNAMED_PORT);
            let port = Port { number, pinned: net.port.is_some(), transport: net.transport };
            if !list.contains(&port) {
                list.push(port);
            }
        }
        matching.append(&mut others);
        matching
    }
}
