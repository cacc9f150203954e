//! Where a replay stands, and as whom: all that the command inherits is as it was recorded, as far as it can be.

use std::io::ErrorKind;

use nix::sys::stat::{Mode, umask};
use nix::unistd::{getegid, geteuid};

use crate::cli::Failure;
use crate::cli::voice::Voice;
use crate::plan::HostFacts;
use crate::replay::Recording;
use crate::run::{Former, Inherited, Private, Processors, User};
use crate::sys::clock::ClockBase;
use crate::trace::escape;

/// Stands where the recorded run was begun; the command inherits all of that.
pub(super) fn take(recording: &Recording, voice: Voice) -> Result<(), Failure> {
    enter(recording)?;
    restore_mask(recording);
    if !recording.sealed {
        voice.tell([
            "agentbox: the recording ends early: its run was interrupted, and what it would have done \
               afterwards counts as a difference"
                .to_owned(),
        ]);
    }
    let processors = recording.processors().iter().flat_map(Processors::take).collect::<Vec<_>>();
    let said = processors.into_iter().chain(other_kernel(recording)?);
    voice.tell(said.map(|said| format!("agentbox: {said}")));
    Ok(())
}

/// Enters the directory in which it ran. Where there is none, the run gets one made.
fn enter(recording: &Recording) -> Result<(), Failure> {
    let place = &recording.private.cwd;
    let entered = match std::env::set_current_dir(place) {
        Err(error) if error.kind() == ErrorKind::NotFound && recording.is_captured() => {
            std::env::set_current_dir("/")
        }
        other => other,
    };
    entered.map_err(|error| {
        let place = place.display();
        let remedy = match error.kind() {
            ErrorKind::NotFound => {
                "; a replay needs its files at their places, or in the trace (run --capture)"
            }
            _ => "",
        };
        Failure::diverged(format!(
            "the directory in which it ran cannot be entered: {place}: {error}{remedy}"
        ))
    })
}

/// uname(2) is the kernel's to answer.
fn other_kernel(recording: &Recording) -> Result<Option<String>, Failure> {
    let here = nix::sys::utsname::uname().map_err(|errno| Failure::launcher(format!("uname: {errno}")))?;
    let here = here.release().to_string_lossy();
    let recorded = recording.said("kernel").filter(|kernel| *kernel != here);
    Ok(recorded.map(|kernel| format!("recorded on Linux {}, here it is {here}", escape::text(kernel))))
}

/// The command inherits it.
fn restore_mask(recording: &Recording) {
    let recorded = recording.replay.get("umask").and_then(serde_json::Value::as_u64);
    if let Some(bits) = recorded.and_then(|bits| u32::try_from(bits).ok()) {
        umask(Mode::from_bits_truncate(bits));
    }
}

/// What the run has of the recorded one from its first moment on; says what it cannot have.
pub(super) fn former(recording: &Recording, clock: ClockBase, voice: Voice) -> Result<Former, Failure> {
    let Private { user, inherited, .. } = &recording.private;
    let less = inherited.as_ref().map(Inherited::cannot_be_had).transpose()?.unwrap_or_default();
    voice.tell(less.into_iter().map(|said| format!("agentbox: {said}")));
    let ids = user.as_ref().filter(|user| user.is_usable()).map(|user| (user.uid, user.gid));
    let own = (geteuid().as_raw(), getegid().as_raw());
    if let Some((uid, gid)) = ids.filter(|ids| *ids != own) {
        voice.tell([format!(
            "agentbox: it sees itself as user {uid}, group {gid}, as recorded; what belongs to neither {} nor {} here \
             shows as nobody's",
            own.0, own.1
        )]);
    }
    Ok(Former { clock, ids, inherited: inherited.clone() })
}

/// The caller stands in for the recorded user.
pub(super) fn stand_in(facts: &mut HostFacts, private: &Private) {
    if let Some(User { uid, gid, name, group }) = private.user.as_ref().filter(|user| user.is_usable()) {
        (facts.uid, facts.gid) = (*uid, *gid);
        (facts.user, facts.group) = (name.clone(), group.clone());
    }
}
