//! Hostile programs against a real run: every one of them must lose, as root and as nobody.

mod cell;
mod evidence;
mod exec;
mod floods;
mod life;
mod reach;
mod reads;
mod signals;
mod surface;

pub(crate) use cell::compiled;
