//! The copy of one body of an exchange.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::super::error::NetproxyError;
use super::super::fields::Fields;
use super::super::scribe::{Desk, Reel, Scribe};
use super::super::sighted::Sighted;
use crate::trace::redact::Redactor;
use crate::trace::{Members, TraceError};

/// The most bytes of a body that wait for its end here: they are handed over with the entry, at once.
const SMALL: usize = 4 << 10;

/// What has passed of a body, and what is known of it.
#[derive(Default)]
pub(super) struct Copy {
    stored: Stored,
    pub(super) size: u64,
    pub(super) trailers: Option<Fields>,
    pub(super) whole: bool,
    /// What may hold tokens.
    sighted: Option<Box<Sighted>>,
}

#[derive(Default)]
enum Stored {
    /// There is no body.
    #[default]
    None,
    /// It is small so far; what is held for it.
    Here { bytes: Vec<u8>, held: u64 },
    /// Until it is finished.
    Reel(Option<Reel>),
}

impl Copy {
    /// What passes may hold tokens.
    pub(super) fn watch(&mut self, sighted: Option<Sighted>) {
        self.sighted = sighted.map(Box::new);
    }

    /// Keeps what is about to pass; it must not after an error.
    pub(super) fn add(&mut self, scribe: &Arc<Scribe>, data: &Bytes) -> Result<(), NetproxyError> {
        let begins = matches!(self.stored, Stored::None);
        if begins {
            self.stored = Stored::Here { bytes: Vec::new(), held: 0 };
        }
        if let Stored::Here { bytes, held } = &mut self.stored {
            if bytes.len() + data.len() <= SMALL {
                *held += scribe.hold(data.len(), begins)?;
                bytes.extend_from_slice(data);
            } else {
                let reel = scribe.reel();
                if !bytes.is_empty() {
                    reel.begin(std::mem::take(bytes).into(), *held);
                }
                self.stored = Stored::Reel(Some(reel));
            }
        }
        if let Stored::Reel(Some(reel)) = &self.stored {
            reel.write(data.clone())?;
        }
        self.size += data.len() as u64;
        if let Some(sighted) = &mut self.sighted {
            sighted.see(data);
        }
        Ok(())
    }

    /// All that has passed, where it is here.
    pub(super) fn passed(&self) -> Option<Bytes> {
        match &self.stored {
            _ if self.trailers.is_some() => None,
            Stored::None => Some(Bytes::new()),
            Stored::Here { bytes, .. } => Some(Bytes::copy_from_slice(bytes)),
            Stored::Reel(_) => None,
        }
    }

    /// Bytes that wait here.
    pub(super) fn waiting(&self) -> usize {
        match &self.stored {
            Stored::Here { bytes, .. } => bytes.len(),
            Stored::None | Stored::Reel(_) => 0,
        }
    }

    /// Adds to `members` what the entry says of the body, unless nothing of one has passed; whether it does.
    pub(super) fn describe(
        &mut self,
        redactor: &Redactor,
        desk: &mut Desk,
        members: &mut Members,
    ) -> Result<bool, TraceError> {
        let mut marks = Value::Object(Map::new());
        if let Some(sighted) = &self.sighted {
            sighted.describe(redactor, &mut marks);
        }
        let is_private = marks.get("private").is_some();
        let names_credentials = Cell::new(false);
        let may_stand = |text: &str| {
            names_credentials.set(redactor.names_credentials(text));
            !is_private && !names_credentials.get()
        };
        let mut body = match &mut self.stored {
            Stored::None => return Ok(false),
            Stored::Here { bytes, held } => {
                let body = desk.small_body(bytes, std::mem::take(held), may_stand)?;
                let is_marked = !self.whole || marks.as_object().is_some_and(|marks| !marks.is_empty());
                if !is_marked && members.write_if("body", |out| body.write_text(out)) {
                    return Ok(true);
                }
                body.into()
            }
            Stored::Reel(reel) => match reel.take() {
                Some(reel) => desk.finish_body(reel, may_stand)?,
                None => return Ok(false),
            },
        };
        if let (Value::Object(body), Value::Object(marks)) = (&mut body, marks) {
            body.extend(marks);
        }
        if names_credentials.get() {
            body["private"] = true.into();
        }
        if !self.whole {
            body["whole"] = false.into();
        }
        members.value("body", &body);
        Ok(true)
    }
}
