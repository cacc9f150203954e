//! The one integration binary: each topic is a file of its own, listed here.

mod escape;
mod netns;
mod policy_show;
mod oci;
mod readers;
mod sample;
mod stdio;
mod trace;
mod unix;
