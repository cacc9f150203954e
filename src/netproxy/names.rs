//! What a name resolves to for the confined program: the policy first, then the outside, then the
//! policy again for each address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::time::Duration;

use hickory_proto::rr::RData;
use hickory_proto::serialize::binary::BinEncodable as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::decide::Refusal;
use super::egress::Egress;
use super::error::NetproxyError;
use super::failure::NOT_RECORDED;
use super::records::is_kept;
use super::resolve::{Family, Found, Question};
use crate::trace::{Event, Kind, hex};

/// The longest that a program may keep an answer, in seconds.
pub(crate) const MAX_TTL: u32 = 60;

/// How long the slower family's answer is waited for (RFC 8305 section 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

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
    /// In a replay: the recording does not know the name.
    NotRecorded,
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

impl Answer {
    /// Adds to its record what a replay needs to give it again: how long it holds, and records as they stand in
    /// messages (RFC 1035 section 3.2.1), in hex.
    fn store(&self, result: &mut Value) {
        match self {
            Self::Addresses { ttl, .. } => result["ttl"] = (*ttl).into(),
            Self::Records { records, ttl } => {
                result["ttl"] = (*ttl).into();
                let wire = records.iter().filter_map(|record| record.to_bytes().ok());
                result["wire"] = wire.map(|bytes| hex(&bytes)).collect::<Vec<_>>().into();
            }
            _ => {}
        }
    }

    /// The addresses to give, if there are any.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        match self {
            Self::Addresses { addresses, .. } => addresses,
            _ => &[],
        }
    }
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
        match self.admit(name, port, proc)? {
            Ok(rule) => self.look_up(name, family, port, &rule, proc).await,
            Err(refusal) => Ok(Answer::Refused { refusal }),
        }
    }

    /// The same for both families at once, IPv6 first. When one has addresses, the other is waited
    /// for a moment only: there are name servers that never answer for IPv6.
    pub(crate) async fn resolve_all(
        &self,
        name: &str,
        port: u16,
        proc: Option<&str>,
    ) -> Result<[Answer; 2], NetproxyError> {
        let port = Some(port);
        let rule = match self.admit(name, port, proc)? {
            Ok(rule) => rule,
            Err(refusal) => return Ok([Answer::Refused { refusal }, Answer::Empty]),
        };
        let v4 = self.look_up(name, Family::V4, port, &rule, proc);
        if self.judge.is_local(name) {
            // Whoever dials it tries the other address too.
            return Ok([Answer::Empty, v4.await?]);
        }
        let v6 = self.look_up(name, Family::V6, port, &rule, proc);
        let (mut v6, mut v4) = (pin!(v6), pin!(v4));
        let late = |family: Family| {
            let answer = Answer::Failed { reason: "no answer soon after the other family's".to_owned() };
            self.record_lookup(name, family.record_type(), &answer, &rule, proc).map(|()| answer)
        };
        tokio::select! {
            biased;
            found = &mut v6 => {
                let found = found?;
                let other = soon(&found, v4).await;
                Ok([found, other.unwrap_or_else(|| late(Family::V4))?])
            }
            found = &mut v4 => {
                let found = found?;
                let other = soon(&found, v6).await;
                Ok([other.unwrap_or_else(|| late(Family::V6))?, found])
            }
        }
    }

    /// Judges a name; the rule that lets it be looked up, or the refusal, which is recorded.
    fn admit(
        &self,
        name: &str,
        port: Option<u16>,
        proc: Option<&str>,
    ) -> Result<Result<String, Box<Refusal>>, NetproxyError> {
        self.check_trace()?;
        if self.judge.is_local(name) {
            return Ok(Ok("the machine itself".to_owned()));
        }
        if let Some(Answer::Refused { refusal }) = self.refused_for_secret(name, proc)? {
            return Ok(Err(refusal));
        }
        let refusal = match self.judge.name(name) {
            Ok(rule) => return Ok(Ok(rule)),
            Err(refusal) => refusal.on_port(port),
        };
        self.refuse(&refusal, proc)?;
        Ok(if self.enforce { Err(Box::new(refusal)) } else { Ok("--observe".to_owned()) })
    }

    /// Looks up a name that was admitted.
    async fn look_up(
        &self,
        name: &str,
        family: Family,
        port: Option<u16>,
        rule: &str,
        proc: Option<&str>,
    ) -> Result<Answer, NetproxyError> {
        if self.judge.is_local(name) {
            let answer = Answer::Addresses { addresses: vec![loopback(family)], ttl: MAX_TTL };
            self.record_lookup(name, family.record_type(), &answer, rule, proc)?;
            return Ok(answer);
        }
        if is_kept(name) {
            self.record_lookup(name, family.record_type(), &Answer::NoName, rule, proc)?;
            return Ok(Answer::NoName);
        }
        let answer = match self.outside().await.lookup(Question { name, proc }, family).await {
            Ok(Found::Addresses { addresses, ttl }) => self.sift(name, addresses, ttl, port, proc)?,
            Ok(Found::NoData | Found::Records { .. }) => Answer::Empty,
            Ok(Found::NoName) => Answer::NoName,
            Ok(Found::NotRecorded) => Answer::NotRecorded,
            Err(reason) => Answer::Failed { reason },
        };
        if !matches!(answer, Answer::Refused { .. }) {
            self.record_lookup(name, family.record_type(), &answer, rule, proc)?;
        }
        Ok(answer)
    }

    /// The answer to a name that holds the placeholder of a secret.
    pub(crate) fn refused_for_secret(
        &self,
        name: &str,
        proc: Option<&str>,
    ) -> Result<Option<Answer>, NetproxyError> {
        let Some(refusal) = self.secret_in_name(name) else { return Ok(None) };
        self.refuse(&refusal, proc)?;
        Ok(self.enforce.then(|| Answer::Refused { refusal: Box::new(refusal) }))
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
        let mut result = match answer {
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
            Answer::NotRecorded => {
                json!({"code": "NXDOMAIN", "answers": [], "failure": NOT_RECORDED})
            }
            Answer::Failed { reason } => {
                json!({"code": "SERVFAIL", "answers": [], "error": reason})
            }
        };
        if self.replayable {
            answer.store(&mut result);
        }
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

    /// Keeps an address for a replay, which is refused there as well.
    fn withhold(&self, name: &str, address: IpAddr, proc: Option<&str>) -> Result<(), NetproxyError> {
        if !self.replayable {
            return Ok(());
        }
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        let mut event = Event::new(Kind::Meta, "dns.withheld")
            .arg("name", name)
            .arg("type", family.record_type())
            .arg("addresses", vec![address.to_string()]);
        event.proc = proc.map(str::to_owned);
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
                    self.withhold(name, address, proc)?;
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

/// The answer for the other family; none when there are addresses and it takes too long.
async fn soon(
    found: &Answer,
    other: impl Future<Output = Result<Answer, NetproxyError>>,
) -> Option<Result<Answer, NetproxyError>> {
    if found.addresses().is_empty() {
        return Some(other.await);
    }
    timeout(RESOLUTION_DELAY, other).await.ok()
}

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}
