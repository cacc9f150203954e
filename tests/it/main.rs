//! The one integration binary: each topic is a file of its own, listed here.

mod cli;
mod escape;
mod exec_rules;
mod fs;
mod hosts;
mod layers;
mod life;
mod listen;
mod locks;
mod loopback;
mod many;
mod mutation;
mod netns;
mod oci;
mod policy_run;
mod policy_show;
mod programs;
mod readers;
mod sample;
mod socks;
mod stdio;
mod support;
mod trace;
mod udp;
mod unix;
mod view;
