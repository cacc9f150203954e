//! The namespaces of a run: identities, privileges, limits, pid 1.
//!
//! Order of use, all in the cloned child: [`idmap::write`], the network, the view, then in the
//! command's own process [`privileges::drop_all`]; [`init::run`] is what pid 1 does from then on.

pub mod channel;
pub mod dialler;
pub mod handoff;
pub mod idmap;
pub mod init;
pub mod net;
pub mod privileges;

use nix::sched::CloneFlags;

/// The namespaces that every run has (namespaces(7)).
#[must_use]
pub fn all() -> CloneFlags {
    CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP
}
