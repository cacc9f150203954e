//! Ports of the host's loopback for servers inside, and the sockets on which they are reached.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::errno::Errno;

use super::RunError;
use crate::netproxy::{Inside, Listeners, Published};
use crate::ns::dialler;
use crate::policy::Policy;

/// Takes the ports that the policy offers, with the caller's own rights: root has the low ones too.
pub(super) fn bind(policy: &Policy) -> Result<Vec<Published>, RunError> {
    let publish = |(port, rule)| {
        let rule = policy.rule_label(rule);
        Ok(Published { port, listeners: bind_port(port, &rule)?, rule })
    };
    policy.published_ports().into_iter().map(publish).collect()
}

/// The ports, beside the doors of Unix sockets. `dialler` is where pid 1 makes sockets.
pub(super) fn listeners(
    published: Vec<Published>,
    unix: Vec<(PathBuf, OwnedFd)>,
    dialler: OwnedFd,
) -> Listeners {
    let inside = Inside { channel: dialler, request: dialler::request, made: dialler::made };
    Listeners { unix, published, inside: Some(inside), ..Listeners::default() }
}

fn bind_port(port: u16, rule: &str) -> Result<Vec<OwnedFd>, RunError> {
    let mut listeners = Vec::new();
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let at = SocketAddr::new(address, port);
        match TcpListener::bind(at) {
            Ok(listener) => listeners.push(listener.into()),
            Err(error) if at.is_ipv6() && is_absent(&error) => {}
            Err(source) => return Err(RunError::Publish { rule: rule.to_owned(), at, source }),
        }
    }
    Ok(listeners)
}

/// The host has no IPv6, or not on its loopback.
fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
    matches!(errno, Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL)
}
