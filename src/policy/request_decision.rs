//! Decisions about single requests, and about what has to be read to take them.

use std::net::IpAddr;

use super::host_rule::NetRule;
use super::net_decision::Target;
use super::parse::Effect;
use super::request_rule::UPGRADE;
use super::secret_rule::SecretRule;
use super::url_path::normal_path;
use super::verdict::{RuleId, Verdict};
use super::{Policy, RuleBody};

/// A request as its head says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// As on the wire: methods are case-sensitive.
    pub method: &'a str,
    /// The path alone, without a query.
    pub path: &'a str,
    /// It wants to change the protocol of its connection.
    pub upgrade: bool,
}

/// What the decision about a request depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Some rule names methods.
    pub methods: bool,
    /// Some rule names paths.
    pub paths: bool,
    /// Some `deny:` names methods or paths: a change of protocol would get past it.
    pub denies: bool,
    /// Some `secret:` rule is for it: what is not read could carry the value back.
    pub secrets: bool,
}

impl Conditions {
    /// Whether nothing can be decided before a request has been read.
    pub fn any(self) -> bool {
        self.methods || self.paths || self.secrets
    }
}

impl Policy {
    /// Decides on a request; the rest is as for [`Policy::decide_connect`]. Where rules name paths, a path that
    /// servers could read in two ways is denied.
    pub fn decide_request(&self, names: &[String], address: IpAddr, port: u16, asked: &Asked<'_>) -> Verdict {
        let verdict = self.decide_own_request(names, address, port, asked);
        self.limited(verdict, |limit| limit.decide_request(names, address, port, asked))
    }

    fn decide_own_request(&self, names: &[String], address: IpAddr, port: u16, asked: &Asked<'_>) -> Verdict {
        let target = Target::new(self, names, address, port);
        let conditions = self.conditions_of(&target);
        let normal = normal_path(asked.path);
        let path = match &normal {
            Ok(path) => path,
            Err(fault) if conditions.paths => {
                return Verdict::no_rule(format!("{fault}, and rules of its host name paths"));
            }
            Err(_) => asked.path,
        };
        let asked = Asked { path, ..*asked };
        let verdict = |counts: &dyn Fn(Effect, &NetRule) -> bool| {
            let (mut matching, _) = self.matching(&target, counts);
            if conditions.secrets && asked.upgrade {
                matching.retain(|(id, effect, _)| {
                    *effect == Effect::Deny || self.net(*id).is_some_and(NetRule::names_upgrade)
                });
            }
            self.settle(matching.into_iter(), || asked.refusal(&target))
        };
        let whole = verdict(&|effect, rule| rule.counts_for(effect, &asked));
        // A change of protocol may begin with any method, and the server may take it for that method alone.
        if asked.upgrade && asked.method != "GET" && whole.is_allow() {
            let plain = Asked { upgrade: false, ..asked };
            let plain = verdict(&|effect, rule| rule.counts_for(effect, &plain));
            return if plain.is_allow() { whole } else { plain };
        }
        whole
    }

    /// Whether a connection must be HTTP that we read, or nothing: opaque bytes, TLS that is relayed unread and a
    /// change of protocol would get past the methods and paths that rules name.
    pub fn must_read(&self, names: &[String], address: IpAddr, port: u16) -> bool {
        self.conditions(names, address, port).any()
    }

    /// What the decision about a request to there depends on. Where some rule grants everything, grants with methods
    /// or paths add nothing to it, and only such `deny:` rules count.
    pub fn conditions(&self, names: &[String], address: IpAddr, port: u16) -> Conditions {
        let own = self.conditions_of(&Target::new(self, names, address, port));
        self.limits.iter().fold(own, |all, limit| {
            let one = limit.conditions(names, address, port);
            Conditions {
                methods: all.methods || one.methods,
                paths: all.paths || one.paths,
                denies: all.denies || one.denies,
                secrets: all.secrets || one.secrets,
            }
        })
    }

    fn conditions_of(&self, target: &Target) -> Conditions {
        let (matching, _) = self.matching(target, &|_, _| true);
        let rules = || matching.iter().filter_map(|(id, effect, _)| Some((*effect, self.net(*id)?)));
        let is_open = rules().any(|(effect, rule)| effect == Effect::Grant && !rule.is_conditional());
        let counts = rules().filter(|(effect, _)| !is_open || *effect == Effect::Deny);
        let holds = |secret: &SecretRule| target.is_named(&secret.host, secret.port);
        let secrets = self.secrets().any(|(_, secret)| holds(secret));
        counts.fold(Conditions { secrets, ..Conditions::default() }, |all, (effect, rule)| Conditions {
            methods: all.methods || !rule.methods.is_empty(),
            paths: all.paths || rule.path.is_some(),
            denies: all.denies || (effect == Effect::Deny && rule.is_conditional()),
            secrets: all.secrets,
        })
    }

    /// The rules whose rates limit a request (or a connection that is not read), the most specific first. None, if
    /// some rule without a rate allows it: rates apply only if every rule that allows carries one.
    pub fn rates(
        &self,
        names: &[String],
        address: IpAddr,
        port: u16,
        asked: Option<&Asked<'_>>,
    ) -> Vec<RuleId> {
        if !self.limits.is_empty() {
            // Those of each: what one allows without a rate, the other may limit.
            let of = |limit: &Self| {
                limit
                    .rates(names, address, port, asked)
                    .into_iter()
                    .filter_map(|id| {
                        let rule = limit.rules.get(id.0)?;
                        self.rules.iter().position(|own| own == rule).map(RuleId)
                    })
                    .collect::<Vec<_>>()
            };
            return self.limits.iter().flat_map(of).collect();
        }
        let target = Target::new(self, names, address, port);
        let (mut matching, _) = self.matching(&target, &|effect, rule| match asked {
            _ if effect == Effect::Deny => false,
            Some(asked) => rule.counts_for(effect, asked),
            None => !rule.is_conditional(),
        });
        matching.sort_by_key(|(.., specificity)| std::cmp::Reverse(*specificity));
        self.if_all_are_rated(matching.iter().map(|(id, ..)| *id).collect())
    }

    /// The rules whose rates limit whatever is asked there. None, if some rule that grants anything has no rate.
    pub fn all_rates(&self, names: &[String], address: IpAddr, port: u16) -> Vec<RuleId> {
        let target = Target::new(self, names, address, port);
        let (matching, _) = self.matching(&target, &|effect, _| effect == Effect::Grant);
        self.if_all_are_rated(matching.iter().map(|(id, ..)| *id).collect())
    }

    fn if_all_are_rated(&self, rules: Vec<RuleId>) -> Vec<RuleId> {
        if rules.iter().all(|id| self.rate_of(*id).is_some()) { rules } else { Vec::new() }
    }

    fn net(&self, id: RuleId) -> Option<&NetRule> {
        match &self.rules.get(id.0)?.body {
            RuleBody::Net(net) => Some(net),
            _ => None,
        }
    }
}

impl Asked<'_> {
    fn refusal(&self, target: &Target) -> String {
        let verb = if self.upgrade { "a change of protocol by " } else { "" };
        format!("no rule allows {verb}{} of {} at {}", self.method, self.path, target.label())
    }
}

impl NetRule {
    /// Whether the rule is about the request. A `deny:` counts wherever a lenient server could take it for the one
    /// that is meant.
    fn counts_for(&self, effect: Effect, asked: &Asked<'_>) -> bool {
        match effect {
            Effect::Grant => self.grants_method(asked) && self.grants_path(asked.path),
            Effect::Deny => {
                self.denies_method(asked) && self.path.as_ref().is_none_or(|path| path.may_match(asked.path))
            }
        }
    }

    fn grants_method(&self, asked: &Asked<'_>) -> bool {
        let names = |wanted: &str| self.methods.iter().any(|method| method == wanted);
        // A tunnel has no path, and what it carries is not read.
        if self.is_conditional() && asked.method.eq_ignore_ascii_case("CONNECT") {
            return false;
        }
        match asked.upgrade {
            // The opening request of a WebSocket is a GET (RFC 6455, 4.1).
            true => !self.is_conditional() || names(UPGRADE),
            // What looks like a method of this name is none.
            false => self.methods.is_empty() || (asked.method != UPGRADE && names(asked.method)),
        }
    }

    /// Whether it allows a change of protocol by its name.
    pub(super) fn names_upgrade(&self) -> bool {
        self.methods.iter().any(|method| method == UPGRADE)
    }

    fn grants_path(&self, path: &str) -> bool {
        self.path.as_ref().is_none_or(|pattern| pattern.matches(path))
    }

    fn denies_method(&self, asked: &Asked<'_>) -> bool {
        self.methods.is_empty()
            || self.methods.iter().any(|method| {
                method.eq_ignore_ascii_case(asked.method) || (asked.upgrade && method == UPGRADE)
            })
    }
}
