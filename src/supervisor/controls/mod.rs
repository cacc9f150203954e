//! What makes a run one that can be replayed: which processes there are is known exactly, and what they
//! would otherwise learn by chance comes from one seed.
//!
//! Every task is followed from its birth (`follow`), so that a process has the same name in each run
//! ([`super::task`]).

mod follow;
mod kin;
mod seed;

pub(super) use self::follow::Following;
pub(super) use self::kin::Kin;
pub use self::seed::Seed;

/// The controls of a run that can be replayed.
#[derive(Debug)]
pub struct Controls {
    /// All randomness of the run comes from it.
    pub seed: Seed,
}
