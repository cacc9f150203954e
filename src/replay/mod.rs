//! Replay: what two runs of one command have in common.

pub mod compare;
