//! The whole proxy against real clients, with a fake outside: only loopback is contacted.

mod dialling;
mod differential;
mod doubt;
mod early;
mod framing;
mod hidden;
mod http;
mod informational;
mod kept;
mod many;
mod names;
mod origin;
mod queries;
mod recorded;
mod replayed;
mod replayed_tls;
mod replays;
mod rules;
mod rules_in_tls;
mod secrets;
mod secure;
mod smuggling;
mod socks;
mod streams;
mod within;
mod world;
