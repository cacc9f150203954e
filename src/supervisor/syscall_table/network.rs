//! Sockets: which kinds exist at all, and which calls the supervisor sees.

use libc::{EACCES, EAFNOSUPPORT, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, ESOCKTNOSUPPORT};

use super::arguments::{ArgumentRules, any_bit, clause, masked, one_of};
use super::{ALLOW, Action, Disposition, Group, NOTIFY};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: Disposition::Arguments(&SOCKET),
        reason: "a family that has no namespace, or no judge, must not exist: vsock, netlink \
                 beside routing, packet, raw, MPTCP",
        syscalls: calls![socket],
    },
    Group {
        disposition: Disposition::Arguments(&SOCKETPAIR),
        reason: "a pair stays within the run; a datagram end could send to any pathname, so the \
                 supervisor makes such pairs of packet sockets",
        syscalls: calls![socketpair],
    },
    Group {
        disposition: NOTIFY,
        reason: "reaches a peer: Unix sockets by path are connected by the supervisor, the rest \
                 is recorded",
        syscalls: calls![connect],
    },
    Group {
        disposition: NOTIFY,
        reason: "a pathname socket is a new file; a port is recorded with its process",
        syscalls: calls![bind listen],
    },
    Group {
        disposition: Disposition::Arguments(&SEND_FLAGS_FOURTH),
        reason: "addresses lead only into the run's own network namespace; no Fast Open",
        syscalls: calls![sendto sendmmsg],
    },
    Group {
        disposition: Disposition::Arguments(&SEND_FLAGS_THIRD),
        reason: "addresses lead only into the run's own network namespace; no Fast Open",
        syscalls: calls![sendmsg],
    },
    Group {
        disposition: Disposition::Arguments(&SETSOCKOPT),
        reason: "options stay within the run's network namespace; no Fast Open",
        syscalls: calls![setsockopt],
    },
    Group {
        disposition: ALLOW,
        reason: "receives on, accepts from or asks about a socket that exists; a notification on \
                 each receive would cost a download most of its speed",
        syscalls: calls![
            accept accept4 recvfrom recvmsg recvmmsg shutdown getsockname getpeername getsockopt
        ],
    },
];

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;

/// `SOCK_TYPE_MASK`: above it lie SOCK_NONBLOCK and SOCK_CLOEXEC.
const KIND: u32 = 0xf;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_RAW: u32 = 3;
const SOCK_SEQPACKET: u32 = 5;
/// On an AF_INET socket the kernel turns this type into AF_PACKET.
const SOCK_PACKET: u32 = 10;

const IPPROTO_ICMP: u32 = 1;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
const IPPROTO_ICMPV6: u32 = 58;
const NETLINK_ROUTE: u32 = 0;

/// `socket(family, type, protocol)`, each an `int`.
const SOCKET: ArgumentRules = ArgumentRules {
    clauses: &[
        clause(&[one_of(0, &[AF_UNIX]), masked(1, KIND, &[SOCK_STREAM, SOCK_SEQPACKET])], Action::Allow),
        // Each datagram names its receiver in memory, where it can change after it was judged: the
        // supervisor decides whether such a socket may exist. The kernel makes SOCK_RAW a datagram
        // socket.
        clause(&[one_of(0, &[AF_UNIX]), masked(1, KIND, &[SOCK_DGRAM, SOCK_RAW])], Action::Notify),
        clause(&[one_of(0, &[AF_UNIX])], Action::Errno(ESOCKTNOSUPPORT)),
        clause(
            &[one_of(0, &[AF_INET, AF_INET6]), masked(1, KIND, &[SOCK_STREAM]), one_of(2, &[0, IPPROTO_TCP])],
            Action::Allow,
        ),
        clause(
            &[one_of(0, &[AF_INET, AF_INET6]), masked(1, KIND, &[SOCK_DGRAM]), one_of(2, &[0, IPPROTO_UDP])],
            Action::Allow,
        ),
        // EACCES is what net.ipv4.ping_group_range answers by default.
        clause(
            &[
                one_of(0, &[AF_INET, AF_INET6]),
                masked(1, KIND, &[SOCK_DGRAM]),
                one_of(2, &[IPPROTO_ICMP, IPPROTO_ICMPV6]),
            ],
            Action::Errno(EACCES),
        ),
        // As without CAP_NET_RAW.
        clause(
            &[one_of(0, &[AF_INET, AF_INET6]), masked(1, KIND, &[SOCK_RAW, SOCK_PACKET])],
            Action::Errno(EPERM),
        ),
        // As a kernel without MPTCP, SCTP, UDP-Lite or SMC: Go's listeners fall back from MPTCP to
        // TCP.
        clause(
            &[one_of(0, &[AF_INET, AF_INET6]), masked(1, KIND, &[SOCK_STREAM, SOCK_DGRAM])],
            Action::Errno(EPROTONOSUPPORT),
        ),
        clause(&[one_of(0, &[AF_INET, AF_INET6])], Action::Errno(ESOCKTNOSUPPORT)),
        // getifaddrs and getaddrinfo ask it for the addresses of the run's own namespace.
        clause(&[one_of(0, &[AF_NETLINK]), one_of(2, &[NETLINK_ROUTE])], Action::Allow),
        // As a kernel without that protocol: libaudit takes it for one without auditing.
        clause(&[one_of(0, &[AF_NETLINK])], Action::Errno(EPROTONOSUPPORT)),
    ],
    otherwise: Action::Errno(EAFNOSUPPORT),
};

/// `socketpair(family, type, protocol, …)`.
const SOCKETPAIR: ArgumentRules = ArgumentRules {
    clauses: &[
        clause(&[one_of(0, &[AF_UNIX]), masked(1, KIND, &[SOCK_STREAM, SOCK_SEQPACKET])], Action::Allow),
        clause(&[one_of(0, &[AF_UNIX]), masked(1, KIND, &[SOCK_DGRAM, SOCK_RAW])], Action::Notify),
        clause(&[one_of(0, &[AF_UNIX])], Action::Errno(ESOCKTNOSUPPORT)),
        // The kernel's own answer: these families have no pairs.
        clause(&[one_of(0, &[AF_INET, AF_INET6, AF_NETLINK])], Action::Errno(EOPNOTSUPP)),
    ],
    otherwise: Action::Errno(EAFNOSUPPORT),
};

/// A send with it connects without connect(2), which passes Landlock's rule and our notification.
const MSG_FASTOPEN: u32 = 0x2000_0000;

/// EOPNOTSUPP is the kernel's own answer where net.ipv4.tcp_fastopen switches the client side off
/// (`tcp_sendmsg_fastopen`): clients then connect as usual.
const NO_FAST_OPEN: Action = Action::Errno(EOPNOTSUPP);

const SEND_FLAGS_THIRD: ArgumentRules =
    ArgumentRules { clauses: &[clause(&[any_bit(2, MSG_FASTOPEN)], NO_FAST_OPEN)], otherwise: Action::Allow };

const SEND_FLAGS_FOURTH: ArgumentRules =
    ArgumentRules { clauses: &[clause(&[any_bit(3, MSG_FASTOPEN)], NO_FAST_OPEN)], otherwise: Action::Allow };

/// TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_KEY, TCP_FASTOPEN_NO_COOKIE.
const FAST_OPEN_OPTIONS: [u32; 4] = [23, 30, 33, 34];

/// `setsockopt(fd, level, name, …)`.
const SETSOCKOPT: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(1, &[IPPROTO_TCP]), one_of(2, &FAST_OPEN_OPTIONS)], NO_FAST_OPEN)],
    otherwise: Action::Allow,
};
