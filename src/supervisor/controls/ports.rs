//! bind(2) to port 0: the port comes from the seed, so that servers have the same one in a replay.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;

use super::super::Supervisor;
use super::draw::{Draw, Purpose};
use crate::sys::address;

/// The first of those that the kernel picks from by itself (ip_local_port_range).
const FIRST: u32 = 32_768;
const COUNT: u32 = 28_232;
/// Ports that are picked in a run; further ones are the kernel's to pick.
const MOST: usize = 1024;
/// Ports in use that are passed over at one time.
const TRIES: usize = 64;

/// Ports that were picked: none is picked twice, so that which thread comes first matters to no other.
#[derive(Debug, Default)]
pub(super) struct Ports(HashSet<u16>);

impl Supervisor {
    /// Binds a socket to the internet address `at`, as `raw` spells it.
    pub(in crate::supervisor) fn bind_inet(
        &mut self,
        task: i32,
        socket: &OwnedFd,
        mut raw: Vec<u8>,
        at: SocketAddr,
    ) -> nix::Result<()> {
        for port in self.ports_for(task, at) {
            match bind(socket, spelled(&mut raw, port)) {
                Err(Errno::EADDRINUSE) => {}
                done => {
                    if done.is_ok()
                        && let Some(following) = &mut self.following
                    {
                        following.ports.0.insert(port);
                    }
                    return done;
                }
            }
        }
        bind(socket, spelled(&mut raw, at.port()))
    }

    /// The ports that are picked for a task, the first one first; none where nothing is controlled.
    fn ports_for(&mut self, task: i32, at: SocketAddr) -> Vec<u16> {
        let Some(following) = self.following.as_ref().filter(|_| at.port() == 0) else { return Vec::new() };
        let given = &following.ports.0;
        let strand = self.tasks.kin().and_then(|kin| kin.drawer(task));
        let Some(strand) = strand.filter(|_| given.len() < MOST) else { return Vec::new() };
        let draw = Draw::new(&following.seed, Purpose::Port, Some(&strand), 0);
        picked(draw).filter(|port| !given.contains(port)).take(TRIES).collect()
    }
}

fn picked(mut draw: Draw) -> impl Iterator<Item = u16> {
    std::iter::repeat_with(move || {
        let mut bytes = [0; 4];
        draw.fill(&mut bytes);
        u16::try_from(FIRST + u32::from_le_bytes(bytes) % COUNT).unwrap_or(u16::MAX)
    })
}

/// The address with another port, which stands at one place in those of both families.
fn spelled(raw: &mut [u8], port: u16) -> &[u8] {
    if let Some(place) = raw.get_mut(2..4) {
        place.copy_from_slice(&port.to_be_bytes());
    }
    raw
}

fn bind(socket: &OwnedFd, raw: &[u8]) -> nix::Result<()> {
    address::bind(socket.as_fd(), raw)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}
