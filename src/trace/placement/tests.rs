//! Checks where traces are put.
