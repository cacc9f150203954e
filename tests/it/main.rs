//! The one integration binary: each topic is a file of its own, listed here.

mod cli;
mod layers;
mod life;
mod netns;
mod readers;
mod sample;
mod support;
mod trace;
