//! agentbox runs an untrusted agent under one policy file and records what it did.
#![deny(unsafe_code)]

pub mod cli;
pub mod command;
pub mod fsview;
pub mod netproxy;
pub mod ns;
pub mod plan;
pub mod policy;
pub mod replay;
pub mod run;
pub mod supervisor;
#[allow(unsafe_code)]
pub mod sys;
pub mod trace;
