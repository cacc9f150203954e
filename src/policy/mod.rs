//! The policy file: what an agent may touch, and the pure functions that decide.
