//! Decisions about names, addresses and sockets.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::address;
use super::host_rule::{NetRule, NetTarget};
use super::name;
use super::parse::Effect;
use super::path_rule::{PathPattern, normalized};
use super::url_path::UrlPattern;
use super::verdict::{RuleId, Transport, Verdict};
use super::{Policy, RuleBody};

/// The TCP ports that `net:` rules grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Some rule for other hosts names no port.
    pub any: bool,
    /// The ports that rules name.
    pub ports: BTreeSet<u16>,
}

impl Policy {
    /// Whether a name may be resolved at all.
    pub fn decide_name(&self, name: &str) -> Verdict {
        let Some(canonical) = name::canonical(name) else {
            return Verdict::no_rule(format!("`{}` is no name of a host", name.escape_debug()));
        };
        let matching = self.net_rules().filter_map(|(id, effect, rule)| {
            // A `deny:` with a port, a method or a path takes that away and not the name.
            let counts = effect == Effect::Grant || (rule.port.is_none() && !rule.is_conditional());
            (counts && rule.matches_name(&canonical)).then(|| (id, effect, rule.specificity()))
        });
        let verdict = self.settle(matching, || format!("no rule allows the host `{canonical}`"));
        self.limited(verdict, |limit| limit.decide_name(name))
    }

    /// Decides on a connection. `names` are the allowed names whose resolution gave `address` in this run; none
    /// when the client used a literal address. One name that allows the port is enough.
    pub fn decide_connect(
        &self,
        names: &[String],
        address: IpAddr,
        port: u16,
        transport: Transport,
    ) -> Verdict {
        let target = Target { transport, ..Target::new(self, names, address, port) };
        if let Some(refusal) = self.own_port(&target) {
            return refusal;
        }
        // What names methods or paths is about requests: one of them may be allowed, not all are denied.
        let (matching, would_need_private) =
            self.matching(&target, &|effect, rule| effect == Effect::Grant || !rule.is_conditional());
        let verdict = self.settle(matching.into_iter(), || target.refusal(would_need_private));
        self.limited(verdict, |limit| limit.decide_connect(names, address, port, transport))
    }

    /// The host's side of a port that `listen:` offers is ours, and leads back into the run.
    fn own_port(&self, target: &Target) -> Option<Verdict> {
        if target.transport != Transport::Tcp || !address::is_loopback(target.address) {
            return None;
        }
        let (port, rule) = self.published_ports().into_iter().find(|(port, _)| *port == target.port)?;
        let reason =
            format!("`listen: {port}` makes it the run's own port, and nothing listens there inside");
        Some(Verdict::Deny { rule: Some(rule), reason })
    }

    /// The rules about a connection that `counts` takes, and whether one of them lacks `private` alone.
    pub(super) fn matching(
        &self,
        target: &Target,
        counts: &dyn Fn(Effect, &NetRule) -> bool,
    ) -> (Vec<(RuleId, Effect, Specificity)>, bool) {
        let mut would_need_private = false;
        let mut matching = Vec::new();
        for (id, effect, rule) in self.net_rules() {
            if rule.port.is_some_and(|pinned| pinned != target.port) || !counts(effect, rule) {
                continue;
            }
            if !rule.is_about(target.transport, effect) {
                continue;
            }
            let is_named = target.names.iter().any(|name| rule.matches_name(name));
            let is_meant = if effect == Effect::Deny {
                is_named || rule.contains(target.address)
            } else {
                would_need_private |= is_named && target.is_special && !rule.private;
                (is_named && (rule.private || !target.is_special)) || rule.opens(target)
            };
            if is_meant {
                matching.push((id, effect, rule.specificity()));
            }
        }
        (matching, would_need_private)
    }

    /// Whether a rule that grants this connection says `tunnel`: then its TLS is relayed and never read.
    pub fn tunnels(&self, names: &[String], address: IpAddr, port: u16) -> bool {
        let target = Target::new(self, names, address, port);
        let (matching, _) = self.matching(&target, &|effect, rule| effect == Effect::Grant && rule.tunnel);
        !matching.is_empty() && self.limits.iter().all(|limit| limit.tunnels(names, address, port))
    }

    /// Decides on a connection to a Unix socket of the host (absolute, links followed).
    pub fn decide_unix(&self, path: &Path) -> Verdict {
        if !path.is_absolute() {
            return Verdict::no_rule("the path of the socket is not absolute");
        }
        let asked = path;
        let path = normalized(path);
        let matching = self.rules.iter().enumerate().filter_map(|(at, rule)| {
            let RuleBody::UnixSocket(pattern) = &rule.body else {
                return None;
            };
            // A grant is for the socket itself, a `deny:` for everything below as well.
            let counts = if rule.effect == Effect::Grant && !pattern.is_glob() {
                pattern.names(&path)
            } else {
                pattern.covers(&path)
            };
            counts.then(|| (RuleId(at), rule.effect, pattern.specificity()))
        });
        let verdict = self.settle(matching, || "no rule allows this socket".to_owned());
        self.limited(verdict, |limit| limit.decide_unix(asked))
    }

    /// The Unix sockets that rules name literally: where they are spelled, and where they are with links followed.
    pub fn unix_sockets(&self) -> impl Iterator<Item = (RuleId, &Path, &Path)> {
        self.rules.iter().enumerate().filter_map(|(at, rule)| match &rule.body {
            RuleBody::UnixSocket(PathPattern::Literal { spelled, resolved })
                if rule.effect == Effect::Grant =>
            {
                Some((RuleId(at), spelled.as_path(), resolved.as_path()))
            }
            _ => None,
        })
    }

    /// The ports of the host's loopback that rules grant; `None` is a rule without a port. A name that
    /// may resolve into private ranges may stand for loopback too.
    pub fn loopback_ports(&self) -> Vec<Option<u16>> {
        self.loopback_ports_of(Transport::Tcp)
    }

    /// The same for datagrams, whose rules always name one.
    pub fn loopback_datagram_ports(&self) -> Vec<u16> {
        self.loopback_ports_of(Transport::Udp).into_iter().flatten().collect()
    }

    /// The ports of other hosts to which rules let datagrams out.
    pub fn datagram_ports(&self) -> BTreeSet<u16> {
        let rules = self.net_rules().filter(|(_, effect, rule)| {
            *effect == Effect::Grant && rule.transport == Transport::Udp && rule.target != NetTarget::Loopback
        });
        rules.filter_map(|(_, _, rule)| rule.port).collect()
    }

    fn loopback_ports_of(&self, transport: Transport) -> Vec<Option<u16>> {
        let ports = self.net_rules().filter(|(_, effect, rule)| {
            *effect == Effect::Grant
                && rule.transport == transport
                && (rule.target == NetTarget::Loopback || (rule.private && rule.port.is_some()))
        });
        let ports: BTreeSet<Option<u16>> = ports.map(|(_, _, rule)| rule.port).collect();
        ports.into_iter().collect()
    }

    /// The ports of other hosts that rules grant.
    pub fn named_ports(&self) -> Ports {
        let mut named = Ports::default();
        for (_, effect, rule) in self.net_rules() {
            match rule.port {
                _ if effect == Effect::Deny || rule.target == NetTarget::Loopback => {}
                _ if rule.transport == Transport::Udp => {}
                Some(port) => {
                    named.ports.insert(port);
                }
                None => named.any = true,
            }
        }
        named
    }

    /// Whether a (canonical) address leads to this machine.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        let leads_there = |own: &IpNet| own.contains(&address) || address::canonical(own.addr()) == address;
        self.local_addresses.iter().any(leads_there)
    }

    fn net_rules(&self) -> impl Iterator<Item = (RuleId, Effect, &NetRule)> {
        self.rules.iter().enumerate().filter_map(|(at, rule)| match &rule.body {
            RuleBody::Net(net) => Some((RuleId(at), rule.effect, net)),
            _ => None,
        })
    }
}

/// Orders rules about the same connection: what kind of host, exact or not, how long, with a port; then how much of
/// a path, and methods or not.
pub(super) type Specificity = ((u8, bool, usize, bool), (usize, usize), bool);

/// A connection that is asked for, in canonical form.
pub(super) struct Target {
    names: Vec<String>,
    address: IpAddr,
    port: u16,
    transport: Transport,
    is_special: bool,
}

impl Target {
    /// A connection by a stream.
    pub(super) fn new(policy: &Policy, names: &[String], address: IpAddr, port: u16) -> Self {
        let address = address::canonical(address);
        let is_own = policy.is_own(address);
        Self {
            names: names.iter().filter_map(|name| name::canonical(name)).collect(),
            address,
            port,
            transport: Transport::Tcp,
            is_special: is_own || address::is_special(address),
        }
    }

    /// Whom it is to, for messages.
    pub(super) fn label(&self) -> String {
        match self.names.first() {
            Some(name) => format!("{name}:{}", self.port),
            None => std::net::SocketAddr::new(self.address, self.port).to_string(),
        }
    }

    /// Whether it is to that name and port, or may be.
    pub(super) fn is_named(&self, name: &str, port: u16) -> bool {
        self.transport == Transport::Tcp && self.port == port && self.names.iter().any(|one| one == name)
    }

    fn refusal(&self, would_need_private: bool) -> String {
        let Self { names, address, port, .. } = self;
        let what = match self.transport {
            Transport::Tcp => "",
            Transport::Udp => "datagrams to ",
        };
        match names.first() {
            Some(name) if would_need_private => {
                format!(
                    "`{name}` leads to {address}, which is not on the open internet, and its rule does not say `private`"
                )
            }
            Some(name) => format!("no rule allows {what}`{name}` at port {port}"),
            None => format!("no rule allows {what}the address {address} at port {port}"),
        }
    }
}

impl NetRule {
    /// A grant is for its own transport; what `deny:` takes away without `udp:` is gone for both.
    fn is_about(&self, transport: Transport, effect: Effect) -> bool {
        self.transport == transport || (effect == Effect::Deny && self.transport == Transport::Tcp)
    }

    fn matches_name(&self, name: &str) -> bool {
        match &self.target {
            NetTarget::Name(pattern) => pattern.matches(name),
            NetTarget::Loopback => name == "localhost",
            NetTarget::Address(_) | NetTarget::Range(_) => false,
        }
    }

    /// Whether the rule names the address or a range around it.
    fn contains(&self, address: IpAddr) -> bool {
        match &self.target {
            NetTarget::Name(_) => false,
            NetTarget::Address(named) => *named == address,
            NetTarget::Range(range) => range.contains(&address),
            NetTarget::Loopback => address::is_loopback(address),
        }
    }

    /// Whether it grants the address: a range opens special addresses only from inside their own range, since
    /// `cidr/0.0.0.0/0` means the internet and not the metadata service.
    fn opens(&self, target: &Target) -> bool {
        let opens = match &self.target {
            NetTarget::Range(range) => !target.is_special || address::is_inside_special(range),
            _ => true,
        };
        opens && self.contains(target.address)
    }

    fn specificity(&self) -> Specificity {
        let (kind, is_exact, length) = match &self.target {
            NetTarget::Loopback | NetTarget::Address(_) => (1, true, 0),
            NetTarget::Name(pattern) => {
                let (is_exact, labels) = pattern.specificity();
                (1, is_exact, labels)
            }
            NetTarget::Range(range) => (0, false, usize::from(range.prefix_len())),
        };
        let path = self.path.as_ref().map_or((0, 0), UrlPattern::specificity);
        ((kind, is_exact, length, self.port.is_some()), path, !self.methods.is_empty())
    }
}
