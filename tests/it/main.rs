//! The one integration binary: each topic is a file of its own, listed here.

mod escape;
mod netns;
mod oci;
mod programs;
mod readers;
mod sample;
mod stdio;
mod support;
mod trace;
