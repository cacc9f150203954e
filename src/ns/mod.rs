//! The namespaces of a run: identities, privileges, limits, pid 1.
//!
//! Order of use, all in the cloned child: [`unshare_others`], [`idmap::write`], the network, the view, then in the
//! command's own process [`privileges::drop_bounding`] and [`privileges::drop_all`]; [`init::run`] is what pid 1 does from then on.

mod apart;
pub mod channel;
pub mod dialler;
pub mod handoff;
pub mod heard;
pub mod idmap;
pub mod init;
pub mod net;
pub mod privileges;
mod role_socket;
pub mod time;

use nix::sched::CloneFlags;

/// The namespaces that the clone makes (namespaces(7)): in the first every right is had, in the
/// second the clone is pid 1.
#[must_use]
pub fn cloned() -> CloneFlags {
    CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID
}

/// What [`unshare_others`] asks for.
pub const UNSHARE_OTHERS: &str =
    "unshare(CLONE_NEWNS|CLONE_NEWNET|CLONE_NEWIPC|CLONE_NEWUTS|CLONE_NEWCGROUP)";

/// Moves the caller, which [`cloned`] made, into the others. A network namespace takes as long to
/// make as all the rest of them: here the launcher does not wait for it.
///
/// # Errors
/// The errno of unshare(2).
pub fn unshare_others() -> nix::Result<()> {
    nix::sched::unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )
}
