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
        args.write("headers", |out| _ = self.fields.write(redactor, out));
        if let Some(trailers) = &self.request.trailers {
            args.write("trailers", |out| _ = trailers.write(redactor, out));
        }
        if !self.request.describe(redactor, desk, args)? && !self.request.whole {
            // It had one, of which nothing was taken.
            args.value("body", &json!({"size": 0, "whole": false}));
        }
        let is_hidden = self.come_of_it(redactor, result);
        if kept.replayable
            && is_hidden
            && let Some(wire) = self.wire()
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
        if !self.spelled.is_empty() {
            result.strings("spelled", self.spelled.iter().map(String::as_str));
        }
        if let Some(reason) = &self.reason {
            result.string("reason", reason);
        }
        for (key, value) in &self.beside {
            result.value(key.clone(), value);
        }
        Ok(())
    }

    /// The fields of the answer as they came.
    fn wire(&self) -> Option<Value> {
        let (_, fields) = self.answer.as_ref()?;
        let mut wire = json!({"headers": fields.exact()});
        if let Some(trailers) = &self.response.trailers {
            wire["trailers"] = trailers.exact();
        }
        if !self.informational.is_empty() {
            wire["informational"] =
                self.informational.iter().map(|(status, fields)| one(*status, fields.exact())).collect();
        }
        Some(wire)
    }

    /// What came of it, without what is stored beside the entry. Whether a field of the answer stands there otherwise
    /// than it came.
    fn come_of_it(&mut self, redactor: &Redactor, result: &mut Members) -> bool {
        let mut is_hidden = self.informational.iter().any(|(_, fields)| fields.hides(redactor));
        if let Some((destination, names)) = &self.origin {
            result.write("address", |out| _ = write!(out, "\"{destination}\""));
            result.strings("names", names.iter().map(|(name, _)| name.as_str()));
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
            result.write("headers", |out| is_hidden |= fields.write(redactor, out));
        }
        if let Some(trailers) = &self.response.trailers {
            result.write("trailers", |out| is_hidden |= trailers.write(redactor, out));
        }
        if let Some((error, failure)) = self.error.take() {
            result.string("error", &error);
            if let Some(failure) = failure {
                result.value("failure", &failure.value(self.response.size));
            }
        }
        result.write("timing", |out| self.timing(out));
        is_hidden
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
