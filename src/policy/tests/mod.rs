//! Tests of the policy as a whole.
