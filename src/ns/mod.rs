//! What the cloned child makes of its fresh namespaces before it runs the command.

pub mod handoff;
pub mod net;
