//! The one integration binary: each topic is a file of its own, listed here.
<<<<<<< HEAD

mod netns;
=======
mod trace;
>>>>>>> trace
