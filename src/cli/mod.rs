//! The command line: one file a subcommand.

pub mod show;
pub mod verify;
