//! The members of an entry, as far as they are there.

use serde_json::Value;

/// One entry of a trace.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    /// Its number.
    pub(super) number: u64,
    pub(super) op: &'a str,
    pub(super) proc: Option<&'a str>,
    pub(super) args: &'a Value,
    pub(super) result: &'a Value,
    /// When it was written, in seconds since the epoch.
    pub(super) time: f64,
}

/// What stands for a member that is not there.
static NOTHING: Value = Value::Null;

impl<'a> Entry<'a> {
    /// None when it is no entry.
    pub(super) fn of(line: &'a Value) -> Option<Self> {
        Some(Self {
            number: line.get("i")?.as_u64()?,
            op: line.get("op")?.as_str()?,
            proc: line.get("proc").and_then(Value::as_str),
            args: line.get("args")?,
            result: line.get("result").unwrap_or(&NOTHING),
            time: line.get("ts").and_then(Value::as_f64).unwrap_or_default(),
        })
    }

    /// A text among its arguments.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.args.get(key)?.as_str()
    }

    /// The name of a blob that a member refers to.
    pub(super) fn blob(&self, reference: Option<&Value>) -> Option<String> {
        reference?.get("blob")?.as_str().map(str::to_owned)
    }
}
