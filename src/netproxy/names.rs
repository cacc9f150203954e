//! What a name resolves to for the confined program: the policy first, then the outside, then the
//! policy again for each address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::RData;
use serde_json::json;

use super::decide::Refusal;
use super::egress::Egress;
use super::error::NetproxyError;
use super::records::is_kept;
use super::resolve::{Family, Found};
use crate::trace::{Event, Kind};

/// The longest that a program may keep an answer, in seconds.
pub(crate) const MAX_TTL: u32 = 60;

/// The answer to one lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Addresses to give, and for how many seconds.
    Addresses {
        /// All of one family.
        addresses: Vec<IpAddr>,
        /// Seconds.
        ttl: u32,
    },
    /// The names of an address.
    Names(Vec<String>),
    /// Other records, and for how many seconds they hold.
    Records {
        /// All of the type that was asked for.
        records: Vec<RData>,
        /// Seconds.
        ttl: u32,
    },
    /// The name is known and has nothing of that type.
    Empty,
    /// There is no such name.
    NoName,
    /// The policy refuses the name, or every address of it.
    Refused {
        /// Why.
        refusal: Box<Refusal>,
    },
    /// The outside did not answer.
    Failed {
        /// In one line.
        reason: String,
    },
}

impl Egress {
    /// Looks up `name`, pins what is given, and records the lookup or its refusal. `port` is the
    /// one that a request names beside it.
    pub(crate) async fn resolve(
        &self,
        name: &str,
        family: Family,
        port: Option<u16>,
        proc: Option<&str>,
    ) -> Result<Answer, NetproxyError> {
        self.check_trace()?;
        if self.judge.is_local(name) {
            let answer = Answer::Addresses { addresses: vec![loopback(family)], ttl: MAX_TTL };
            self.record_lookup(name, family.record_type(), &answer, "the machine itself", proc)?;
            return Ok(answer);
        }
        let rule = match self.judge.name(name) {
            Ok(rule) => rule,
            Err(refusal) => {
                let refusal = refusal.on_port(port);
                self.refuse(&refusal, proc)?;
                if self.enforce {
                    return Ok(Answer::Refused { refusal: Box::new(refusal) });
                }
                "--observe".to_owned()
            }
        };
        if is_kept(name) {
            self.record_lookup(name, family.record_type(), &Answer::NoName, &rule, proc)?;
            return Ok(Answer::NoName);
        }
        let answer = match self.upstream.lookup(name, family).await {
            Ok(Found::Addresses { addresses, ttl }) => self.sift(name, addresses, ttl, port, proc)?,
            Ok(Found::NoData | Found::Records { .. }) => Answer::Empty,
            Ok(Found::NoName) => Answer::NoName,
            Err(reason) => Answer::Failed { reason },
        };
        if !matches!(answer, Answer::Refused { .. }) {
            self.record_lookup(name, family.record_type(), &answer, &rule, proc)?;
        }
        Ok(answer)
    }

    /// Records a lookup of a type for which nothing is given.
    pub(crate) fn record_lookup(
        &self,
        name: &str,
        record_type: &str,
        answer: &Answer,
        rule: &str,
        proc: Option<&str>,
    ) -> Result<(), NetproxyError> {
        let result = match answer {
            Answer::Addresses { addresses, .. } => {
                let answers: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
                json!({"code": "NOERROR", "answers": answers})
            }
            Answer::Names(names) => json!({"code": "NOERROR", "answers": names}),
            Answer::Records { records, .. } => {
                let answers: Vec<String> = records.iter().map(RData::to_string).collect();
                json!({"code": "NOERROR", "answers": answers})
            }
            Answer::Empty => json!({"code": "NOERROR", "answers": []}),
            Answer::NoName | Answer::Refused { .. } => json!({"code": "NXDOMAIN", "answers": []}),
            Answer::Failed { reason } => {
                json!({"code": "SERVFAIL", "answers": [], "error": reason})
            }
        };
        let mut event = Event::new(Kind::Effect, "dns.lookup")
            .arg("name", name)
            .arg("type", record_type)
            .result(result)
            .rule(rule);
        if let Some(proc) = proc {
            event = event.proc(proc);
        }
        self.record(event)
    }

    /// Keeps the addresses that the policy lets `name` have, and pins them.
    fn sift(
        &self,
        name: &str,
        addresses: Vec<IpAddr>,
        ttl: u32,
        port: Option<u16>,
        proc: Option<&str>,
    ) -> Result<Answer, NetproxyError> {
        let mut given = Vec::new();
        let mut refused: Option<Refusal> = None;
        for address in addresses {
            match self.judge.answerable(name, address) {
                Err(refusal) if self.enforce => {
                    // Each address that is withheld is told, also beside others that are given.
                    let refusal = refusal.on_port(port);
                    self.refuse(&refusal, proc)?;
                    refused = refused.or(Some(refusal));
                }
                _ if self.pins.pin(name, address) => given.push(address),
                _ => {
                    let reason = "this run's budget of addresses is used up".to_owned();
                    return Ok(Answer::Failed { reason });
                }
            }
        }
        match refused {
            Some(refusal) if given.is_empty() => Ok(Answer::Refused { refusal: Box::new(refusal) }),
            _ => Ok(Answer::Addresses { addresses: given, ttl: ttl.min(MAX_TTL) }),
        }
    }
}

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}
