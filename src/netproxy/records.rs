//! Records other than addresses: those that clients need to find a service are asked for outside, for
//! names that a rule matches. The names in them are no more usable than before: each needs its rule.

use hickory_proto::rr::RecordType;

use super::decide::Refusal;
use super::egress::Egress;
use super::error::NetproxyError;
use super::names::{Answer, MAX_TTL};
use super::resolve::{Found, Question};

/// What is asked for outside. HTTPS and SVCB are not: they lead clients to QUIC and to encrypted
/// names (RFC 9460, RFC 9849), which could not be judged.
const ASKED: [RecordType; 4] = [RecordType::SRV, RecordType::TXT, RecordType::MX, RecordType::CAA];

/// The longest service name with its underscore (RFC 6335 section 5.1).
const LONGEST_SERVICE: usize = 16;

impl Egress {
    /// Answers a query for another type than an address.
    pub(crate) async fn records(
        &self,
        name: &str,
        kind: RecordType,
        proc: Option<&str>,
    ) -> Result<Answer, NetproxyError> {
        self.check_trace()?;
        if let Some(refusal) = self.refused_for_secret(name, proc)? {
            return Ok(refusal);
        }
        let rule = match self.record_rule(name) {
            Ok(rule) => rule,
            Err(_) if self.judge.is_local(name) => "the machine itself".to_owned(),
            Err(refusal) => {
                self.refuse(&refusal, proc)?;
                if self.enforce {
                    return Ok(Answer::Refused { refusal: Box::new(refusal) });
                }
                "--observe".to_owned()
            }
        };
        let answer = if !ASKED.contains(&kind) || self.judge.is_local(name) || is_kept(name) {
            Answer::Empty
        } else {
            match self.outside().await.records(Question { name, proc }, kind).await {
                Ok(Found::Records { records, ttl }) => Answer::Records { records, ttl: ttl.min(MAX_TTL) },
                Ok(Found::NoName) => Answer::NoName,
                Ok(Found::NotRecorded) => Answer::NotRecorded,
                Ok(Found::NoData | Found::Addresses { .. }) => Answer::Empty,
                Err(reason) => Answer::Failed { reason },
            }
        };
        self.record_lookup(name, &kind.to_string(), &answer, &rule, proc)?;
        Ok(answer)
    }

    /// A rule for a host is one for its services too: `_postgresql._tcp.db.example.org` (RFC 2782).
    fn record_rule(&self, name: &str) -> Result<String, Refusal> {
        let refusal = match self.judge.name(name) {
            Ok(rule) => return Ok(rule),
            Err(refusal) => refusal,
        };
        match host_of(name) {
            // A rule that takes the whole name away has the last word.
            Some(host) if refusal.rule.is_none() => self.judge.name(host),
            _ => Err(refusal),
        }
    }
}

/// The host whose service a name is about.
fn host_of(name: &str) -> Option<&str> {
    let mut host = name;
    for _ in 0..2 {
        match host.split_once('.') {
            Some((label, rest)) if label.starts_with('_') && label.len() <= LONGEST_SERVICE => host = rest,
            _ => break,
        }
    }
    (host.len() < name.len()).then_some(host)
}

/// Whether a name is never asked for outside, whatever the rules: names of the link (RFC 6762
/// section 3) and of Tor (RFC 7686 section 2) mean nothing to name servers and tell them much.
pub(crate) fn is_kept(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    matches!(last, "local" | "onion")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_belong_to_their_host() {
        let cases = [
            ("_postgresql._tcp.db.example.org", Some("db.example.org")),
            ("_dmarc.example.org", Some("example.org")),
            ("_a._b._c.example.org", Some("_c.example.org")),
            ("x._tcp.example.org", None),
            ("db.example.org", None),
            ("_a-name-that-is-too-long.example.org", None),
        ];
        for (name, host) in cases {
            assert_eq!(host_of(name), host, "{name}");
        }
    }

    #[test]
    fn names_of_the_link_stay() {
        for (name, kept) in [("printer.local", true), ("x.onion", true), ("local.org", false), ("a", false)] {
            assert_eq!(is_kept(name), kept, "{name}");
        }
    }
}
