//! What both sides of an opaque stream said, in order: one blob, from which it can be played again.
//!
//! A record is a line of JSON: the direction, the number of bytes, and the microseconds since the
//! stream was opened. The bytes themselves and a newline follow:
//!
//! ```text
//! ["up",6,412]
//! PING\r\n
//! ["down",7,655]
//! +PONG\r\n
//! ["up","end",702]
//! ["down","end",811]
//! ```
//!
//! A direction that ended says `end`, one that broke off `reset`; where neither stands the other
//! side, or the run, ended first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use serde_json::{Value, json};

use super::error::NetproxyError;
use super::scribe::{Desk, Reel, Scribe};
use super::segments::Way;
use crate::trace::TraceError;

/// How a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// In order.
    End,
    /// Broken off.
    Reset,
}

/// The transcript of one stream while it lives.
pub(crate) struct Transcript {
    scribe: Arc<Scribe>,
    opened: Instant,
    reel: Mutex<Option<Reel>>,
    up: AtomicU64,
    down: AtomicU64,
}

impl Transcript {
    pub(crate) fn begin(scribe: &Arc<Scribe>, opened: Instant) -> Arc<Self> {
        Arc::new(Self {
            scribe: Arc::clone(scribe),
            opened,
            reel: Mutex::new(Some(scribe.reel())),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        })
    }

    /// Whether more may be read.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), NetproxyError>> {
        self.scribe.poll_ready(cx)
    }

    /// Adds what was read. An error means that there is no room for it: it must not pass.
    pub(crate) fn add(&self, way: Way, bytes: &[u8]) -> Result<(), NetproxyError> {
        let length = bytes.len();
        let head = format!("[\"{}\",{length},{}]\n", way.as_str(), self.micros());
        let mut record = Vec::with_capacity(head.len() + length + 1);
        record.extend_from_slice(head.as_bytes());
        record.extend_from_slice(bytes);
        record.push(b'\n');
        if let Some(reel) = &*self.lock() {
            reel.write(record.into())?;
        }
        self.counter(way).fetch_add(length as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Adds the end of a direction.
    pub(crate) fn stop(&self, way: Way, stop: Stop) {
        let stop = match stop {
            Stop::End => "end",
            Stop::Reset => "reset",
        };
        let record = format!("[\"{}\",\"{stop}\",{}]\n", way.as_str(), self.micros());
        if let Some(reel) = &*self.lock() {
            reel.note(record.into());
        }
    }

    /// The bytes of one direction so far.
    pub(crate) fn bytes(&self, way: Way) -> u64 {
        self.counter(way).load(Ordering::Relaxed)
    }

    /// Ends it; what the entry says of it is made later, by the thread that stores it.
    pub(crate) fn finish(&self) -> impl FnOnce(&mut Desk) -> Result<Value, TraceError> + Send + use<> {
        let reel = self.lock().take();
        move |desk| {
            // It may hold what nobody looked at: passwords, keys.
            let Some(reel) = reel else { return Ok(Value::Null) };
            let blob = desk.finish(reel)?;
            Ok(json!({"blob": blob.sha256, "size": blob.size, "private": true}))
        }
    }

    fn counter(&self, way: Way) -> &AtomicU64 {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    fn micros(&self) -> u128 {
        self.opened.elapsed().as_micros()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Reel>> {
        self.reel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
