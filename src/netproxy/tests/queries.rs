//! A client of the name server.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::world::PATIENCE;

/// Asks over UDP; the code of the reply and its addresses.
pub(super) fn names_query(server: SocketAddr, name: &str, kind: &str) -> (String, Vec<IpAddr>) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(server).unwrap();
    socket.send(&query_bytes(name, kind)).unwrap();
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).unwrap();
    reply_of(&buffer[..length])
}

pub(super) fn query_bytes(name: &str, kind: &str) -> Vec<u8> {
    use hickory_proto::op::{Message, MessageType, OpCode, Query};
    use hickory_proto::rr::Name;
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let name = Name::from_ascii(format!("{name}.")).unwrap();
    message.add_query(Query::query(name, kind.parse().unwrap()));
    message.to_vec().unwrap()
}

pub(super) fn reply_of(bytes: &[u8]) -> (String, Vec<IpAddr>) {
    let reply = hickory_proto::op::Message::from_vec(bytes).unwrap();
    assert_eq!(reply.metadata.id, 77);
    let addresses = reply.answers.iter().filter_map(|record| {
        assert!(record.ttl <= 60, "{record}");
        record.data.ip_addr()
    });
    (format!("{:?}", reply.metadata.response_code), addresses.collect())
}
