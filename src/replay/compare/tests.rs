//! Each class of difference, over traces made by hand.
