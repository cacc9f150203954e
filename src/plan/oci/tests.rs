//! A plan that is written and read is the same plan, and a changed document is a changed plan.
