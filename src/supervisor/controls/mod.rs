//! What makes a run one that can be replayed: which processes there are is known exactly, and what they
//! would otherwise learn by chance comes from one seed.
//!
//! Every task is followed from its birth (`follow`), so that a process has the same name in each run
//! ([`super::task`]). By that name, and how often it has asked before, it draws its random bytes ([`draw`]):
//! those of getrandom(2) and AT_RANDOM (`answer`), of the random devices and ids (`device`), and the ports that it leaves to be picked (`ports`).

mod answer;
mod births;
mod device;
mod draw;
mod follow;
mod kin;
mod ports;
mod runtime;
mod seed;
mod starts;

pub(super) use self::births::Births;
pub use self::births::{Ids, OPERATION as TASK_IDS};
pub(super) use self::follow::Following;
pub(super) use self::kin::Kin;
pub(super) use self::runtime::Runtime;
pub use self::seed::Seed;
use super::clock::Timeline;

/// The controls of a run that can be replayed.
#[derive(Debug)]
pub struct Controls {
    /// All randomness of the run comes from it.
    pub seed: Seed,
    /// Where its clocks begin, and what they are replayed from.
    pub clock: Timeline,
}
