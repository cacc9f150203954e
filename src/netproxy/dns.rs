//! The name server of the confined program: messages in, messages out.
//!
//! It answers A and AAAA for names that a rule matches, says NXDOMAIN at once for all others
//! (musl waits for its timeout on REFUSED), tells by what names this run knows an address, and for
//! other types gives what `records` lets through.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::PTR;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::authority::normalize;
use super::decide::{LOCALHOST, Refusal};
use super::egress::Egress;
use super::error::NetproxyError;
use super::names::{Answer, MAX_TTL};
use super::resolve::Family;

/// Ours is the name server at this port of every address.
pub(crate) const PORT: u16 = 53;

/// Lookups that may wait for the outside at once, over all carriers.
pub(crate) const MAX_LOOKUPS: usize = 256;

/// What a client without EDNS takes over UDP (RFC 1035 section 4.2.1).
const PLAIN_UDP: u16 = 512;

/// The largest answer over UDP: it must not need fragments (RFC 9715).
const MAX_UDP: u16 = 1232;

/// How a query came, which bounds the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// One datagram.
    Udp,
    /// A stream.
    Tcp,
}

/// Answers one message. None when there is nothing to say: the bytes are no query at all.
pub(crate) async fn answer(
    egress: &Egress,
    packet: &[u8],
    carrier: Carrier,
    proc: Option<&str>,
) -> Result<Option<Vec<u8>>, NetproxyError> {
    egress.check_trace()?;
    let question = match read(packet) {
        Ok(question) => question,
        Err(malformed) => {
            egress.refuse_always(&malformed.refusal(), proc)?;
            return Ok(malformed.reply());
        }
    };
    let answer = question.resolve(egress, proc).await?;
    Ok(question.reply(&answer, carrier))
}

/// A query that can be answered.
#[derive(Debug)]
pub struct Question {
    message: Message,
    query: Query,
    /// The name as the policy compares it; none for names that no host has.
    name: Option<String>,
}

/// A message that cannot.
#[derive(Debug)]
pub struct Malformed {
    reason: &'static str,
    /// The identifier and the code of the reply, where one is due.
    reply: Option<(u16, ResponseCode)>,
}

/// Reads one message.
///
/// # Errors
/// It is no query, or none that can be answered.
pub fn read(packet: &[u8]) -> Result<Question, Malformed> {
    let id = packet.first_chunk().map(|id| u16::from_be_bytes(*id));
    let is_response = packet.get(2).is_some_and(|flags| flags & 0x80 != 0);
    let due = |code| id.filter(|_| packet.len() >= 12 && !is_response).map(|id| (id, code));
    let malformed = |reason, code| Malformed { reason, reply: due(code) };
    let Ok(message) = Message::from_vec(packet) else {
        return Err(malformed("a DNS message that cannot be read", ResponseCode::FormErr));
    };
    if message.metadata.message_type != MessageType::Query {
        return Err(Malformed { reason: "a DNS response instead of a query", reply: None });
    }
    if message.metadata.op_code != OpCode::Query {
        return Err(malformed("a DNS message that is no query", ResponseCode::NotImp));
    }
    let [query] = &*message.queries else {
        return Err(malformed("a DNS message without exactly one question", ResponseCode::FormErr));
    };
    if query.query_class() != DNSClass::IN {
        return Err(malformed("a DNS query of a class other than IN", ResponseCode::NotImp));
    }
    // RFC 6891 section 6.1.3.
    if message.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        return Err(malformed("a DNS query of an EDNS version other than 0", ResponseCode::BADVERS));
    }
    let query = query.clone();
    let name = normalize(&query.name().to_ascii());
    Ok(Question { message, query, name })
}

impl Question {
    /// The name as the policy compares it; none for names that no host has.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What was asked, as it was spelled.
    #[must_use]
    pub fn query(&self) -> &Query {
        &self.query
    }

    async fn resolve(&self, egress: &Egress, proc: Option<&str>) -> Result<Answer, NetproxyError> {
        let Some(name) = self.name() else {
            let spelled = self.query.name().to_ascii();
            let refusal = no_host_name(&spelled);
            egress.refuse_always(&refusal, proc)?;
            return Ok(Answer::Refused { refusal: Box::new(refusal) });
        };
        match self.query.query_type() {
            RecordType::A => egress.resolve(name, Family::V4, None, proc).await,
            RecordType::AAAA => egress.resolve(name, Family::V6, None, proc).await,
            RecordType::PTR if let Some(address) = self.reversed() => egress.names_of(name, address, proc),
            other => egress.records(name, other, proc).await,
        }
    }

    /// The address whose names are asked for (RFC 1035 section 3.5, RFC 3596 section 2.5).
    fn reversed(&self) -> Option<IpAddr> {
        let range = self.query.name().parse_arpa_name().ok()?;
        (range.prefix_len() == range.max_prefix_len()).then(|| range.addr())
    }

    /// The message that says `answer`. Over UDP it fits what the client takes, and says so where it is cut short.
    #[must_use]
    pub fn reply(&self, answer: &Answer, carrier: Carrier) -> Option<Vec<u8>> {
        let asked = &self.message.metadata;
        let mut reply = Message::response(asked.id, OpCode::Query);
        reply.metadata.recursion_desired = asked.recursion_desired;
        reply.metadata.recursion_available = true;
        reply.metadata.response_code = match answer {
            Answer::Addresses { .. } | Answer::Names(_) | Answer::Records { .. } | Answer::Empty => {
                ResponseCode::NoError
            }
            Answer::NoName | Answer::NotRecorded | Answer::Refused { .. } => ResponseCode::NXDomain,
            Answer::Failed { .. } => ResponseCode::ServFail,
        };
        reply.add_query(self.query.clone());
        if let Answer::Addresses { addresses, ttl } = answer {
            for address in addresses {
                let data = RData::from(*address);
                reply.add_answer(Record::from_rdata(self.query.name().clone(), *ttl, data));
            }
        }
        if let Answer::Names(names) = answer {
            for name in names.iter().filter_map(|name| Name::from_ascii(format!("{name}.")).ok()) {
                reply.add_answer(Record::from_rdata(
                    self.query.name().clone(),
                    MAX_TTL,
                    RData::PTR(PTR(name)),
                ));
            }
        }
        if let Answer::Records { records, ttl } = answer {
            for data in records {
                reply.add_answer(Record::from_rdata(self.query.name().clone(), *ttl, data.clone()));
            }
        }
        let mut room = PLAIN_UDP;
        if let Some(asked) = &self.message.edns {
            reply.set_edns(our_edns());
            room = asked.max_payload().clamp(PLAIN_UDP, MAX_UDP);
        }
        let bytes = reply.to_vec().ok()?;
        let room = if carrier == Carrier::Udp { room } else { u16::MAX };
        if bytes.len() > usize::from(room) {
            return reply.truncate().to_vec().ok();
        }
        Some(bytes)
    }
}

impl Malformed {
    /// The message that says so; none for what must never be answered.
    #[must_use]
    pub fn reply(&self) -> Option<Vec<u8>> {
        let (id, code) = self.reply?;
        let mut reply = Message::error_msg(id, OpCode::Query, code);
        if code.high() != 0 {
            // The code does not fit into the header alone.
            reply.set_edns(our_edns());
        }
        reply.to_vec().ok()
    }

    fn refusal(&self) -> Refusal {
        Refusal {
            target: "<none>".to_owned(),
            name: None,
            address: None,
            port: None,
            reason: self.reason.to_owned(),
            rule: None,
            remedy: None,
        }
    }
}

impl Egress {
    /// Answers with the names that this run knows an address by; nothing is asked outside.
    fn names_of(&self, name: &str, address: IpAddr, proc: Option<&str>) -> Result<Answer, NetproxyError> {
        let names =
            if address.is_loopback() { vec![LOCALHOST.to_owned()] } else { self.pins.names_for(address) };
        if !names.is_empty() {
            let answer = Answer::Names(names);
            self.record_lookup(name, "PTR", &answer, "the machine itself", proc)?;
            return Ok(answer);
        }
        // No rule makes such a name known.
        let reason = "this run has resolved no name to that address".to_owned();
        let refusal = Refusal { reason, ..no_host_name(name) };
        self.refuse_always(&refusal, proc)?;
        Ok(Answer::Refused { refusal: Box::new(refusal) })
    }
}

fn our_edns() -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_UDP);
    edns
}

fn no_host_name(spelled: &str) -> Refusal {
    Refusal {
        target: spelled.to_owned(),
        name: Some(spelled.to_owned()),
        address: None,
        port: None,
        reason: "no host has such a name".to_owned(),
        rule: None,
        remedy: None,
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use proptest::prelude::*;

    use super::*;

    fn query(name: &str, record_type: RecordType) -> Message {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(Name::from_str(name).unwrap(), record_type));
        message
    }

    fn addresses(count: u8) -> Answer {
        let addresses = (0..count).map(|n| IpAddr::from([203, 0, 113, n])).collect();
        Answer::Addresses { addresses, ttl: 60 }
    }

    #[test]
    fn names_are_compared_in_lower_case_without_the_root() {
        let question = read(&query("API.Example.ORG.", RecordType::A).to_vec().unwrap()).unwrap();
        assert_eq!(question.name.as_deref(), Some("api.example.org"));
    }

    #[test]
    fn a_large_answer_is_truncated_over_udp_alone() {
        let question = read(&query("a.test.", RecordType::A).to_vec().unwrap()).unwrap();
        let small = question.reply(&addresses(100), Carrier::Udp).unwrap();
        assert!(small.len() <= 512);
        assert!(Message::from_vec(&small).unwrap().metadata.truncation);
        let whole = question.reply(&addresses(100), Carrier::Tcp).unwrap();
        assert_eq!(Message::from_vec(&whole).unwrap().answers.len(), 100);
    }

    #[test]
    fn edns_makes_room_and_is_answered() {
        let mut message = query("a.test.", RecordType::A);
        let mut edns = Edns::new();
        edns.set_max_payload(4096);
        message.set_edns(edns);
        let question = read(&message.to_vec().unwrap()).unwrap();
        let reply = Message::from_vec(&question.reply(&addresses(60), Carrier::Udp).unwrap());
        let reply = reply.unwrap();
        assert_eq!(reply.answers.len(), 60);
        assert!(reply.edns.is_some());
    }

    #[test]
    fn what_is_no_query_is_answered_by_its_kind() {
        let mut response = query("a.test.", RecordType::A);
        response.metadata.message_type = MessageType::Response;
        assert!(read(&response.to_vec().unwrap()).unwrap_err().reply().is_none());
        assert!(read(b"\x00").unwrap_err().reply().is_none());
        let garbled = b"\x01\x02\x01\x00\xff\xff\x00\x00\x00\x00\x00\x00";
        let reply = read(garbled).unwrap_err().reply().unwrap();
        assert_eq!(Message::from_vec(&reply).unwrap().metadata.id, 0x0102);
        let two = {
            let mut message = query("a.test.", RecordType::A);
            message.add_query(Query::query(Name::from_str("b.test.").unwrap(), RecordType::A));
            message
        };
        let reply = read(&two.to_vec().unwrap()).unwrap_err().reply().unwrap();
        let code = Message::from_vec(&reply).unwrap().metadata.response_code;
        assert_eq!(code, ResponseCode::FormErr);
    }

    #[test]
    fn another_version_of_edns_is_told_so() {
        let mut message = query("a.test.", RecordType::A);
        let mut edns = Edns::new();
        edns.set_version(1);
        message.set_edns(edns);
        let reply = read(&message.to_vec().unwrap()).unwrap_err().reply().unwrap();
        let reply = Message::from_vec(&reply).unwrap();
        assert_eq!(u16::from(reply.metadata.response_code), u16::from(ResponseCode::BADVERS));
        assert_eq!((reply.metadata.id, reply.edns.map(|edns| edns.version())), (7, Some(0)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            match read(&bytes) {
                Ok(question) => {
                    let _ = question.reply(&addresses(3), Carrier::Udp);
                }
                Err(malformed) => {
                    let _ = malformed.reply();
                }
            }
        }
    }
}
