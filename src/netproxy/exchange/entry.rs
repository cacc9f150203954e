//! The entry of an exchange that has ended, made by the thread that stores its bodies.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::scribe::Desk;
use super::super::segments::Way;
use super::{Progress, Upgraded};
use crate::trace::redact::Redactor;
use crate::trace::{Event, Kind, TraceError};

impl Progress {
    /// The entry, made by the thread that stores the bodies.
    pub(super) fn event(
        mut self,
        (ends, keeps): (bool, bool),
        redactor: &Redactor,
        desk: &mut Desk,
    ) -> Result<Event, TraceError> {
        let mut event = Event::new(Kind::Effect, "http.exchange")
            .arg("method", self.method.as_str())
            .arg("url", redactor.url(&self.url))
            .arg("version", format!("{:?}", self.version))
            .arg("headers", self.fields.value(redactor));
        if let Some(trailers) = self.request.trailers.take() {
            event = event.arg("trailers", trailers.value(redactor));
        }
        if let Some(body) = self.request.describe(redactor, desk)? {
            event = event.arg("body", body);
        }
        let mut result = self.result(redactor);
        if keeps && let Some(wire) = self.wire(redactor) {
            let wire = desk.store(wire.to_string().as_bytes())?.private();
            result.insert("wire".to_owned(), wire.into());
        }
        if let Some(body) = self.response.describe(redactor, desk)? {
            result.insert("body".to_owned(), body);
        }
        if let Some(segments) = self.segments.describe(desk)? {
            result.insert("segments".to_owned(), segments);
        }
        if let Some(upgraded) = self.upgraded {
            result.insert("upgraded".to_owned(), upgraded.describe(ends, desk)?);
        }
        result.extend(self.beside);
        event.proc = self.proc;
        Ok(event.rule(self.rule).result(Value::Object(result)))
    }

    /// The fields of the answer as they came, where the entry does not have them so.
    fn wire(&self, redactor: &Redactor) -> Option<Value> {
        let (_, fields) = self.answer.as_ref()?;
        let trailers = self.response.trailers.as_ref();
        let before = &self.informational;
        let is_hidden = fields.hides(redactor)
            || trailers.is_some_and(|trailers| trailers.hides(redactor))
            || before.iter().any(|(_, fields)| fields.hides(redactor));
        let mut wire = json!({"headers": fields.exact()});
        if let Some(trailers) = trailers {
            wire["trailers"] = trailers.exact();
        }
        if !before.is_empty() {
            wire["informational"] =
                before.iter().map(|(status, fields)| one(*status, fields.exact())).collect();
        }
        is_hidden.then_some(wire)
    }

    /// What came of it, without what is stored beside the entry.
    fn result(&mut self, redactor: &Redactor) -> Map<String, Value> {
        let mut result = Map::new();
        let mut insert = |key: &str, value: Value| _ = result.insert(key.to_owned(), value);
        if let Some((destination, names)) = self.origin.take() {
            insert("address", destination.to_string().into());
            insert("names", names.into());
        }
        if let Some(facts) = &self.tls {
            insert("tls", facts.record.clone());
        }
        if !self.secrets.is_empty() {
            insert("secrets", std::mem::take(&mut self.secrets).into());
        }
        if let Some(field) = self.withheld {
            insert("withheld", vec![field].into());
        }
        if !self.informational.is_empty() {
            let all = self.informational.iter().map(|(status, fields)| one(*status, fields.value(redactor)));
            insert("informational", all.collect());
        }
        if let Some((status, fields)) = &self.answer {
            insert("status", status.as_u16().into());
            insert("headers", fields.value(redactor));
        }
        if let Some(trailers) = &self.response.trailers {
            insert("trailers", trailers.value(redactor));
        }
        if let Some((error, failure)) = self.error.take() {
            insert("error", error.into());
            if let Some(failure) = failure {
                insert("failure", failure.value(self.response.size));
            }
        }
        let mut timing = json!({"start": self.start, "end": self.end});
        if let Some(opened) = self.opened {
            timing["opened"] = opened.into();
        }
        if let Some(first_byte) = self.first_byte {
            timing["first_byte"] = first_byte.into();
        }
        insert("timing", timing);
        result
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
