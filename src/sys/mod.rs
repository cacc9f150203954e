//! Thin wrappers of kernel interfaces that the `nix` crate lacks: the one place where unsafe code may be.
#![allow(unsafe_code)]

pub mod netlink;
pub mod scm;
pub mod sockopt;
