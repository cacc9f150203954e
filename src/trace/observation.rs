//! An observation whose entry is written as text from the start: what comes at each open takes no tree of values.

use std::sync::Arc;

use super::canonical;
use super::effect::Members;
use super::event::{Event, Kind};

/// Something that the run did, before it is numbered, chained and stored.
#[derive(Debug)]
pub struct Observation<'a> {
    /// The operation, as `fs.open_read`.
    pub op: &'static str,
    /// What the operation was applied to.
    pub args: &'a mut Members,
    /// The lineage of the process.
    pub proc: &'a Text,
    /// Which rule allowed it.
    pub rule: &'a Text,
}

/// A text as it stands in an entry: shared by all that say it.
#[derive(Debug, Clone)]
pub struct Text(pub(super) Arc<str>);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut out = String::with_capacity(text.len() + 2);
        canonical::write_string(&mut out, text);
        Self(out.into())
    }
}

impl Text {
    fn plain(&self) -> String {
        // What was written here is JSON.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl From<Observation<'_>> for Event {
    fn from(seen: Observation<'_>) -> Self {
        let mut event = Self::new(Kind::Observe, seen.op);
        event.args = seen.args.values();
        event.proc(seen.proc.plain()).rule(seen.rule.plain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stand_as_in_an_event() {
        for name in [&b"/w/a\xff\"b"[..], "/w/\u{e9}\n".as_bytes()] {
            let mut args = Members::new();
            args.bytes("path", name);
            args.write("size", |out| out.push('7'));
            let (proc, rule) = (&Text::from("0.1"), &Text::from("a \"b\".policy:1"));
            let seen = Observation { op: "fs.open_read", args: &mut args, proc, rule };
            let path = std::os::unix::ffi::OsStrExt::from_bytes(name);
            let event = Event::new(Kind::Observe, "fs.open_read")
                .path("path", std::ffi::OsStr::new::<std::ffi::OsStr>(path))
                .arg("size", 7);
            assert_eq!(Event::from(seen), event.proc("0.1").rule("a \"b\".policy:1"));
        }
    }
}
