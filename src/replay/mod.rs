//! Replay: a recorded run is run again, and whether it did the same.
//!
//! [`Recording`] is a trace that can be run again: what it began with, what it met, and where its bodies
//! lie. The run itself is one like any other (`run`), which records a trace of its own; the two are then
//! compared.

pub mod compare;
mod differences;
pub mod embedded_times;
mod error;
pub mod initial;
pub mod input;
pub mod inputs;
mod listed;
pub mod machine;
mod order;
pub mod outputs;
mod recording;
mod status;
pub mod variables;

pub use differences::{Difference, FirstState};
pub use error::ReplayError;
pub use recording::{Entries, Recording};
