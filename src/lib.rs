//! agentbox runs an untrusted agent under one policy file, records what it did, and runs it again.
//!
//! # One run
//! ```text
//! policy file ─ parse, check ─▶ Policy ─┐
//! command, environment ─────────────────┼─▶ LaunchPlan (pure, printable as an OCI runtime spec)
//! HostFacts (probed, not guessed) ──────┘        │
//!                                                ▼
//!  launcher ── clone ──▶ namespaces ─▶ view ─▶ Landlock ─▶ seccomp ─▶ exec of the command
//!     │  ▲                      (pid 1 is ours: it reaps, and ends when the launcher does)
//!     ▼  │ calls that wait, exec events, accepted sockets
//!  supervisor: files, programs, connects ┐
//!  proxy: names, HTTP, TLS, streams ─────┴─ decide ─▶ Recorder ─▶ chain, blobs, seal
//! ```
//! A replay is the same run with the recorded answers in place of the network, the recorded clock and seed, and its
//! writes in overlays. It records a trace of its own, and the two are compared.
//!
//! # Layers
//! A folder imports from those below alone (`tests/it/layers.rs` holds it to that):
//!
//! - [`cli`]: one file a subcommand; all that is printed, all exit codes;
//! - [`replay`]: a trace as something that can be run again; what two traces have in common;
//! - [`run`]: the plan carried out: both sides of the clone, standard streams, signals, the end;
//! - [`plan`]: everything that a run will be, computed before anything happens;
//! - the mechanisms, each with a plain specification of its own: [`ns`] (namespaces, ids, pid 1), [`fsview`] (mounts,
//!   overlays, Landlock), [`supervisor`] (calls that are judged, processes, clock and randomness), [`netproxy`] (the way
//!   out), [`command`] (what a command really runs and needs);
//! - the leaves: [`policy`] (who may do what, pure), [`trace`] (the record), [`sys`] (system calls, and all unsafe code).
//!
//! # Where to look
//! Who decides: `policy`. In which order a command is confined: `run/child.rs`. Which calls are judged:
//! `supervisor/syscall_table`. What a request meets: the picture in `netproxy/mod.rs`. What is on disk:
//! `trace/layout.rs` and `docs/trace.md`. What counts when two runs are compared: `replay/compare/table.rs`.
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
