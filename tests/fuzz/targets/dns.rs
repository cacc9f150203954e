//! DNS messages of the confined program: what is read of them, and the replies.
#![no_main]

use std::net::IpAddr;

use agentbox::netproxy::Answer;
use agentbox::netproxy::dns::{Carrier, read};
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::RData;
use hickory_proto::rr::rdata::TXT;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    let question = match read(packet) {
        Ok(question) => question,
        Err(malformed) => {
            if let Some(reply) = malformed.reply() {
                let reply = Message::from_vec(&reply).expect("our own message");
                assert_eq!(reply.metadata.message_type, MessageType::Response);
                assert_eq!(reply.metadata.id.to_be_bytes(), packet[..2]);
                assert_eq!(packet[2] & 0x80, 0, "a response is never answered");
            }
            return;
        }
    };
    if let Some(name) = question.name() {
        // The policy must judge the very labels that are asked for.
        let labels: Vec<Vec<u8>> = question.query().name().iter().map(<[u8]>::to_ascii_lowercase).collect();
        assert_eq!(labels.join(&b'.'), name.as_bytes());
        assert_eq!(labels.len(), name.split('.').count());
        assert_eq!(agentbox::policy::canonical_name(name).as_deref(), Some(name));
    }
    let count = packet.last().copied().unwrap_or_default();
    let addresses = (0..count).map(|last| IpAddr::from([203, 0, 113, last])).collect();
    let texts = vec!["x".repeat(usize::from(count)), "y".to_owned()];
    let text = Answer::Records { records: vec![RData::TXT(TXT::new(texts))], ttl: 60 };
    let failed = Answer::Failed { reason: "it does not answer".to_owned() };
    for answer in [Answer::Addresses { addresses, ttl: 60 }, Answer::Names(vec!["a.test".to_owned()]), text, Answer::Empty, Answer::NoName, failed] {
        let asked = Message::from_vec(packet).expect("it was read before");
        let room = asked.edns.as_ref().map_or(512, |edns| edns.max_payload().clamp(512, 1232));
        for carrier in [Carrier::Udp, Carrier::Tcp] {
            let bytes = question.reply(&answer, carrier).expect("a question that was read can be answered");
            assert!(carrier == Carrier::Tcp || bytes.len() <= usize::from(room));
            let reply = Message::from_vec(&bytes).expect("our own message");
            assert_eq!(reply.metadata.message_type, MessageType::Response);
            assert_eq!(reply.metadata.id, asked.metadata.id);
            assert_eq!(reply.queries, asked.queries);
            if let (Answer::Addresses { addresses, .. }, false) = (&answer, reply.metadata.truncation) {
                assert_eq!(reply.answers.len(), addresses.len());
            }
        }
    }
});
