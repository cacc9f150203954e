//! agentbox runs an untrusted agent under one policy file and records what it did.
#![deny(unsafe_code)]

pub mod cli;
pub mod netproxy;
pub mod policy;
pub mod trace;
