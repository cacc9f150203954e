//! The nf_tables ruleset that hands every TCP connection and UDP datagram to one port, whatever its destination.
//!
//! As `nft list ruleset` prints it, with PORT the transparent port:
//!
//! ```text
//! table inet agentbox {
//!     chain prerouting {
//!         type filter hook prerouting priority mangle; policy accept;
//!         meta mark ANSWER return
//!         meta mark MARK meta l4proto tcp tproxy to :PORT accept
//!         ip daddr 127.0.0.0/8 meta l4proto tcp return
//!         ip6 daddr ::1 meta l4proto tcp return
//!         tcp sport PORT return
//!         tcp dport 53 return
//!         meta l4proto tcp tproxy to :PORT accept
//!         udp sport PORT return
//!         udp dport 53 return
//!         udp sport 53 return
//!         ip daddr 127.0.0.0/8 meta l4proto udp socket transparent 0 return
//!         ip daddr 127.0.0.0/8 meta l4proto udp tproxy to :PORT accept
//!         ip6 daddr ::1 meta l4proto udp socket transparent 0 return
//!         ip6 daddr ::1 meta l4proto udp tproxy to :PORT accept
//!         meta l4proto udp tproxy to :PORT accept
//!     }
//! }
//! ```
//!
//! Port 53 has plain listeners: a resolver expects the answer from the address that it asked, which a
//! transparent UDP socket cannot send without one more socket for each address. `udp sport 53` lets
//! those answers reach a client whose socket is not connected; else the transparent port would catch them.
//! No program inside can send from 53 or PORT: our sockets hold both.
//!
//! TCP comes first: each of its packets goes through the rules, and most traffic is of it.
//!
//! A datagram to loopback for which there is no socket is captured as well, so that its refusal is recorded; where the
//! kernel has no `socket` expression, all to loopback go on as if there were no rules.
//!
//! A connection to loopback stays inside, but for sockets that bear the mark: only who has CAP_NET_ADMIN
//! here can set one (socket(7), SO_MARK), and no program of the run has. ANSWER is on what our raw
//! sockets send, datagrams in the name of any address.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::SockProtocol;

use super::message::Encoder;
use super::{open, transact};

const TABLE: &str = "agentbox";
const CHAIN: &str = "prerouting";
const DNS: u16 = 53;
/// What a socket bears whose connection to loopback is captured too.
pub const LOOPBACK_MARK: u32 = 0x6167_6278;
/// The mark of packets that go to their receiver and not to the transparent port.
pub const ANSWER_MARK: u32 = 0x6162_6f78;
const TCP: u8 = 6;
const UDP: u8 = 17;

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NF_TABLES: u16 = 10;
const NEW_TABLE: u16 = NF_TABLES << 8;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;

const FAMILY_UNSPECIFIED: u8 = 0;
const FAMILY_INET: u8 = 1;
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
const HOOK_PREROUTING: u32 = 0;
const PRIORITY_MANGLE: i32 = -150;
const ACCEPT: i32 = 1;
const RETURN: i32 = -5;

const REGISTER_VERDICT: u32 = 0;
const REGISTER_1: u32 = 1;
const META_MARK: u32 = 3;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const COMPARE_EQUAL: u32 = 0;
const SOCKET_TRANSPARENT: u32 = 0;

/// Offsets in the packet headers.
const IPV4_DESTINATION: u32 = 16;
const IPV6_DESTINATION: u32 = 24;
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;

/// Attribute numbers of `linux/netfilter/nf_tables.h`, by what holds them.
mod attribute {
    pub(super) const TABLE_NAME: u16 = 1;
    pub(super) const CHAIN_TABLE: u16 = 1;
    pub(super) const CHAIN_NAME: u16 = 3;
    pub(super) const CHAIN_HOOK: u16 = 4;
    pub(super) const CHAIN_POLICY: u16 = 5;
    pub(super) const CHAIN_TYPE: u16 = 7;
    pub(super) const HOOK_NUMBER: u16 = 1;
    pub(super) const HOOK_PRIORITY: u16 = 2;
    pub(super) const RULE_TABLE: u16 = 1;
    pub(super) const RULE_CHAIN: u16 = 2;
    pub(super) const RULE_EXPRESSIONS: u16 = 4;
    pub(super) const LIST_ELEMENT: u16 = 1;
    pub(super) const EXPRESSION_NAME: u16 = 1;
    pub(super) const EXPRESSION_DATA: u16 = 2;
    pub(super) const META_DESTINATION: u16 = 1;
    pub(super) const META_KEY: u16 = 2;
    pub(super) const COMPARE_SOURCE: u16 = 1;
    pub(super) const COMPARE_OPERATION: u16 = 2;
    pub(super) const COMPARE_DATA: u16 = 3;
    pub(super) const PAYLOAD_DESTINATION: u16 = 1;
    pub(super) const PAYLOAD_BASE: u16 = 2;
    pub(super) const PAYLOAD_OFFSET: u16 = 3;
    pub(super) const PAYLOAD_LENGTH: u16 = 4;
    pub(super) const IMMEDIATE_DESTINATION: u16 = 1;
    pub(super) const IMMEDIATE_DATA: u16 = 2;
    pub(super) const TPROXY_FAMILY: u16 = 1;
    pub(super) const TPROXY_PORT: u16 = 3;
    pub(super) const SOCKET_KEY: u16 = 1;
    pub(super) const SOCKET_DESTINATION: u16 = 2;
    pub(super) const DATA_VALUE: u16 = 1;
    pub(super) const DATA_VERDICT: u16 = 2;
    pub(super) const VERDICT_CODE: u16 = 1;
}
use attribute as a;

/// Loads the ruleset into the caller's network namespace, for transparent sockets bound to `port`.
///
/// Needs CAP_NET_ADMIN and nf_tables with the tproxy expression; all or nothing is loaded. The error
/// carries the first errno of the kernel: EPERM and EOPNOTSUPP, ENOENT or EPROTONOSUPPORT mean that
/// nf_tables is refused or not there.
pub fn install_tproxy(port: u16) -> io::Result<()> {
    let socket = open(SockProtocol::NetlinkNetFilter)?;
    match transact(socket.as_fd(), &ruleset(port, true), 1) {
        Ok(()) => Ok(()),
        // Without the expression that looks for a socket, a program's own datagrams to loopback go as they do.
        Err(_) => transact(open(SockProtocol::NetlinkNetFilter)?.as_fd(), &ruleset(port, false), 1),
    }
}

/// `looks_for_sockets`: datagrams to loopback for which there is none are captured.
fn ruleset(port: u16, looks_for_sockets: bool) -> Vec<u8> {
    let mut batch = Batch::default();
    batch.edge(BATCH_BEGIN);
    batch.add(NEW_TABLE, CREATE, |m| m.text(a::TABLE_NAME, TABLE));
    batch.add(NEW_CHAIN, CREATE, chain);
    batch.rule(|rule| {
        rule.meta(META_MARK);
        rule.equals(&ANSWER_MARK.to_ne_bytes());
        rule.verdict(RETURN);
    });
    batch.rule(|rule| {
        rule.meta(META_MARK);
        rule.equals(&LOOPBACK_MARK.to_ne_bytes());
        rule.protocol(TCP);
        rule.tproxy(port);
        rule.verdict(ACCEPT);
    });
    let loopback = [FAMILY_IPV4, FAMILY_IPV6];
    for family in loopback {
        batch.rule(|rule| {
            rule.loopback(family);
            rule.protocol(TCP);
            rule.verdict(RETURN);
        });
    }
    batch.let_pass(TCP, SOURCE_PORT, port);
    batch.let_pass(TCP, DESTINATION_PORT, DNS);
    batch.capture(TCP, port);
    batch.let_pass(UDP, SOURCE_PORT, port);
    batch.let_pass(UDP, DESTINATION_PORT, DNS);
    batch.let_pass(UDP, SOURCE_PORT, DNS);
    for family in loopback {
        batch.rule(|rule| {
            rule.loopback(family);
            rule.protocol(UDP);
            if looks_for_sockets {
                rule.has_socket();
            }
            rule.verdict(RETURN);
        });
        if !looks_for_sockets {
            continue;
        }
        batch.rule(|rule| {
            rule.loopback(family);
            rule.protocol(UDP);
            rule.tproxy(port);
            rule.verdict(ACCEPT);
        });
    }
    // Errors are always told; one acknowledgement, of the last rule, tells that the batch was read to its end.
    batch.acknowledge = ACKNOWLEDGE;
    batch.capture(UDP, port);
    batch.edge(BATCH_END);
    batch.encoder.into_bytes()
}

fn chain(message: &mut Encoder) {
    message.text(a::CHAIN_TABLE, TABLE);
    message.text(a::CHAIN_NAME, CHAIN);
    message.text(a::CHAIN_TYPE, "filter");
    message.attribute(a::CHAIN_POLICY, &ACCEPT.to_be_bytes());
    message.nested(a::CHAIN_HOOK, |hook| {
        hook.number(a::HOOK_NUMBER, HOOK_PREROUTING);
        hook.attribute(a::HOOK_PRIORITY, &PRIORITY_MANGLE.to_be_bytes());
    });
}

/// A transaction of nf_tables.
#[derive(Default)]
struct Batch {
    encoder: Encoder,
    sequence: u32,
    acknowledge: u16,
}

impl Batch {
    fn edge(&mut self, kind: u16) {
        self.sequence += 1;
        self.encoder.message(kind, REQUEST, self.sequence, |m| {
            m.put(&[FAMILY_UNSPECIFIED, 0]);
            m.put(&NF_TABLES.to_be_bytes());
        });
    }

    fn add(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Encoder)) {
        self.sequence += 1;
        let flags = REQUEST | self.acknowledge | flags;
        self.encoder.message(kind, flags, self.sequence, |message| {
            // struct nfgenmsg: family, version, resource
            message.put(&[FAMILY_INET, 0, 0, 0]);
            body(message);
        });
    }

    fn rule(&mut self, body: impl FnOnce(&mut Rule<'_>)) {
        self.add(NEW_RULE, CREATE | APPEND, |message| {
            message.text(a::RULE_TABLE, TABLE);
            message.text(a::RULE_CHAIN, CHAIN);
            message.nested(a::RULE_EXPRESSIONS, |encoder| body(&mut Rule { encoder }));
        });
    }

    /// Packets of `protocol` whose port at `offset` is `port` go on as if there were no rules.
    fn let_pass(&mut self, protocol: u8, offset: u32, port: u16) {
        self.rule(|rule| {
            rule.protocol(protocol);
            rule.payload(TRANSPORT_HEADER, offset, &port.to_be_bytes());
            rule.verdict(RETURN);
        });
    }

    /// Packets of `protocol` are given to the transparent socket at `port`.
    fn capture(&mut self, protocol: u8, port: u16) {
        self.rule(|rule| {
            rule.protocol(protocol);
            rule.tproxy(port);
            rule.verdict(ACCEPT);
        });
    }
}

/// The list of expressions of one rule.
struct Rule<'a> {
    encoder: &'a mut Encoder,
}

impl Rule<'_> {
    fn family(&mut self, family: u8) {
        self.meta(META_NFPROTO);
        self.equals(&[family]);
    }

    fn protocol(&mut self, protocol: u8) {
        self.meta(META_L4PROTO);
        self.equals(&[protocol]);
    }

    fn payload(&mut self, header: u32, offset: u32, expected: &[u8]) {
        let length = u32::try_from(expected.len()).unwrap_or(u32::MAX);
        self.expression("payload", |data| {
            data.number(a::PAYLOAD_DESTINATION, REGISTER_1);
            data.number(a::PAYLOAD_BASE, header);
            data.number(a::PAYLOAD_OFFSET, offset);
            data.number(a::PAYLOAD_LENGTH, length);
        });
        self.equals(expected);
    }

    fn loopback(&mut self, family: u8) {
        self.family(family);
        match family {
            FAMILY_IPV4 => self.payload(NETWORK_HEADER, IPV4_DESTINATION, &[127]),
            _ => {
                self.payload(NETWORK_HEADER, IPV6_DESTINATION, &std::net::Ipv6Addr::LOCALHOST.octets());
            }
        }
    }

    /// There is a socket for the packet that is not ours: the expression ends the rule where there is none.
    fn has_socket(&mut self) {
        self.expression("socket", |data| {
            data.number(a::SOCKET_KEY, SOCKET_TRANSPARENT);
            data.number(a::SOCKET_DESTINATION, REGISTER_1);
        });
        self.equals(&[0]);
    }

    fn tproxy(&mut self, port: u16) {
        self.expression("immediate", |data| {
            data.number(a::IMMEDIATE_DESTINATION, REGISTER_1);
            data.nested(a::IMMEDIATE_DATA, |value| {
                value.attribute(a::DATA_VALUE, &port.to_be_bytes());
            });
        });
        self.expression("tproxy", |data| {
            data.number(a::TPROXY_FAMILY, u32::from(FAMILY_UNSPECIFIED));
            data.number(a::TPROXY_PORT, REGISTER_1);
        });
    }

    fn verdict(&mut self, code: i32) {
        self.expression("immediate", |data| {
            data.number(a::IMMEDIATE_DESTINATION, REGISTER_VERDICT);
            data.nested(a::IMMEDIATE_DATA, |value| {
                value.nested(a::DATA_VERDICT, |verdict| {
                    verdict.attribute(a::VERDICT_CODE, &code.to_be_bytes());
                });
            });
        });
    }

    fn meta(&mut self, key: u32) {
        self.expression("meta", |data| {
            data.number(a::META_DESTINATION, REGISTER_1);
            data.number(a::META_KEY, key);
        });
    }

    fn equals(&mut self, expected: &[u8]) {
        self.expression("cmp", |data| {
            data.number(a::COMPARE_SOURCE, REGISTER_1);
            data.number(a::COMPARE_OPERATION, COMPARE_EQUAL);
            data.nested(a::COMPARE_DATA, |value| {
                value.attribute(a::DATA_VALUE, expected);
            });
        });
    }

    fn expression(&mut self, name: &str, data: impl FnOnce(&mut Encoder)) {
        self.encoder.nested(a::LIST_ELEMENT, |element| {
            element.text(a::EXPRESSION_NAME, name);
            element.nested(a::EXPRESSION_DATA, data);
        });
    }
}
