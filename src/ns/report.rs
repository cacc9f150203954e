//! What was set up and its sockets, passed from the sandbox to the supervisor.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;

use super::handoff;
use super::net::{Mechanism, NetError, NetSockets};
use crate::sys::netlink::Ipv6;

impl NetSockets {
    /// Sends all of it to the supervisor, which calls [`NetSockets::receive`]. The sockets stay open here.
    pub fn send(&self, channel: impl AsFd) -> Result<(), NetError> {
        handoff::send_exact(channel.as_fd(), &self.report(), &[])?;
        handoff::send_fds(channel, &self.fds)?;
        Ok(())
    }

    /// Receives what [`NetSockets::send`] sent.
    pub fn receive(channel: impl AsFd) -> Result<Self, NetError> {
        let mut report = [0; REPORT];
        handoff::receive_exact(channel.as_fd(), &mut report)?;
        let fds = handoff::recv_fds(channel)?;
        let number = |index: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|byte| report[4 * index + byte]);
            i32::from_ne_bytes([a, b, c, d])
        };
        let port = |index| u16::try_from(number(index)).map_err(|_| Errno::EBADMSG);
        let some = |errno: i32| (errno != 0).then_some(errno);
        Ok(Self {
            mechanism: match number(0) {
                -1 => Mechanism::Tproxy,
                errno => Mechanism::Ports { errno },
            },
            transparent_port: port(1).map_err(io::Error::from)?,
            proxy_port: port(2).map_err(io::Error::from)?,
            ipv6: some(number(3)).map_or(Ipv6::Present, |errno| Ipv6::Absent { errno }),
            low_ports: some(number(4)),
            diag: some(number(5)),
            fds,
        })
    }

    fn report(&self) -> [u8; REPORT] {
        let numbers = [
            match self.mechanism {
                Mechanism::Tproxy => -1,
                Mechanism::Ports { errno } => errno,
            },
            i32::from(self.transparent_port),
            i32::from(self.proxy_port),
            match self.ipv6 {
                Ipv6::Present => 0,
                Ipv6::Absent { errno } => errno,
            },
            self.low_ports.unwrap_or_default(),
            self.diag.unwrap_or_default(),
        ];
        let mut bytes = [0; REPORT];
        for (slot, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            slot.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }
}

/// Six numbers.
const REPORT: usize = 24;
