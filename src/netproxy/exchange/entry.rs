//! The entry of an exchange that has ended, made by the thread that stores its bodies.

use std::fmt::Write as _;
use std::sync::PoisonError;

use http::StatusCode;
use serde_json::{Value, json};

use super::super::scribe::{Desk, Entry, Parts};
use super::super::segments::Way;
use super::{Kept, Progress, Upgraded};
use crate::trace::redact::Redactor;
use crate::trace::{Members, TraceError, canonical};

impl Entry for Kept {
    fn make(&self, desk: &mut Desk) -> Result<(), TraceError> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let promise = std::mem::take(&mut progress.promise);
        let mut parts = desk.parts();
        progress.members(self, desk, &mut parts)?;
        desk.record("http.exchange", parts, (progress.proc.as_deref(), &progress.rule), promise)
    }
}

impl Progress {
    fn members(&mut self, kept: &Kept, desk: &mut Desk, parts: &mut Parts) -> Result<(), TraceError> {
        let redactor = &kept.redactor;
        let Parts { args, result } = parts;
        args.string("method", self.method.as_str());
        args.string("url", &redactor.url(&self.url));
        args.write("version", |out| _ = write!(out, "\"{:?}\"", self.version));
        args.write("headers", |out| self.fields.write(redactor, out));
        if let Some(trailers) = &self.request.trailers {
            args.write("trailers", |out| trailers.write(redactor, out));
        }
        self.request.describe(redactor, desk, args)?;
        self.come_of_it(redactor, result);
        if kept.replayable
            && let Some(wire) = self.wire(redactor)
        {
            let wire = desk.store(wire.to_string().as_bytes())?.private();
            result.value("wire", &wire.into());
        }
        self.response.describe(redactor, desk, result)?;
        if let Some(segments) = self.segments.describe(desk)? {
            result.value("segments", &segments);
        }
        if let Some(upgraded) = self.upgraded.take() {
            result.value("upgraded", &upgraded.describe(self.ends, desk)?);
        }
        for (key, value) in &self.beside {
            result.value(key.clone(), value);
        }
        Ok(())
    }

    /// The fields of the answer as they came, where the entry does not have them so.
    fn wire(&self, redactor: &Redactor) -> Option<Value> {
        let (_, fields) = self.answer.as_ref()?;
        let trailers = self.response.trailers.as_ref();
        let before = &self.informational;
        let is_hidden = fields.hides(redactor)
            || trailers.is_some_and(|trailers| trailers.hides(redactor))
            || before.iter().any(|(_, fields)| fields.hides(redactor));
        if !is_hidden {
            return None;
        }
        let mut wire = json!({"headers": fields.exact()});
        if let Some(trailers) = trailers {
            wire["trailers"] = trailers.exact();
        }
        if !before.is_empty() {
            wire["informational"] =
                before.iter().map(|(status, fields)| one(*status, fields.exact())).collect();
        }
        Some(wire)
    }

    /// What came of it, without what is stored beside the entry.
    fn come_of_it(&mut self, redactor: &Redactor, result: &mut Members) {
        if let Some((destination, names)) = &self.origin {
            result.write("address", |out| _ = write!(out, "\"{destination}\""));
            result.strings("names", names.iter().map(String::as_str));
        }
        if let Some(facts) = &self.tls {
            facts.describe(result);
        }
        if !self.secrets.is_empty() {
            result.strings("secrets", self.secrets.iter().map(String::as_str));
        }
        if let Some(field) = self.withheld {
            result.strings("withheld", [field]);
        }
        if !self.informational.is_empty() {
            let all = self.informational.iter().map(|(status, fields)| one(*status, fields.value(redactor)));
            result.value("informational", &all.collect());
        }
        if let Some((status, fields)) = &self.answer {
            result.write("status", |out| _ = write!(out, "{}", status.as_u16()));
            result.write("headers", |out| fields.write(redactor, out));
        }
        if let Some(trailers) = &self.response.trailers {
            result.write("trailers", |out| trailers.write(redactor, out));
        }
        if let Some((error, failure)) = self.error.take() {
            result.string("error", &error);
            if let Some(failure) = failure {
                result.value("failure", &failure.value(self.response.size));
            }
        }
        result.write("timing", |out| self.timing(out));
    }

    fn timing(&self, out: &mut String) {
        // In the order of their names.
        let times = [
            ("end", Some(self.end)),
            ("first_byte", self.first_byte),
            ("opened", self.opened),
            ("start", Some(self.start)),
        ];
        let mut before = '{';
        for (name, time) in times {
            if let Some(time) = time {
                let _ = write!(out, "{before}\"{name}\":");
                canonical::write_float(out, time);
                before = ',';
            }
        }
        out.push('}');
    }
}

/// An answer that precedes the response.
fn one(status: StatusCode, headers: Value) -> Value {
    json!({"status": status.as_u16(), "headers": headers})
}

impl Upgraded {
    fn describe(self, ends: bool, desk: &mut Desk) -> Result<Value, TraceError> {
        let (up, down) = (self.transcript.bytes(Way::Up), self.transcript.bytes(Way::Down));
        let unnamed = || (if ends { "the run ended" } else { "closed" }.to_owned(), None);
        let (end, failure) = self.end.unwrap_or_else(unnamed);
        let transcript = self.transcript.finish()(desk)?;
        let mut value = json!({"up": up, "down": down, "end": end, "transcript": transcript});
        if let Some(failure) = failure {
            value["failure"] = failure.value(down);
        }
        Ok(value)
    }
}
