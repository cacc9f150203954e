//! Checks the verifier.
