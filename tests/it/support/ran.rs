//! What a run gave: its exit code, what it printed, and the entries of its trace.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use agentbox::trace::{Expectation, Outcome, verify};
use serde_json::Value;

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code; 128+n where a signal ended the program itself.
    pub(crate) code: i32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) entries: Vec<Value>,
    shown: String,
}

impl Ran {
    pub(super) fn new(status: ExitStatus, stdout: Vec<u8>, stderr: Vec<u8>, shown: String) -> Self {
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, bytes) = (text(&stdout), stdout);
        Self { code, bytes, stdout, stderr: text(&stderr), entries: Vec::new(), shown }
    }

    /// Reads the trace, if there is one: it must be intact and sealed.
    pub(crate) fn read_trace(&mut self, path: &Path) {
        let Ok(text) = std::fs::read_to_string(path) else { return };
        let found = verify(path, &Expectation::default()).expect("a trace");
        assert!(matches!(found.outcome, Outcome::Sealed), "{found:?}\n{self}");
        self.entries = text.lines().map(|line| serde_json::from_str(line).expect("an entry")).collect();
    }

    /// Demands an exit code.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "exit code\n{self}");
        self
    }

    /// Demands the whole of stdout.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) -> &Self {
        assert_eq!(self.stdout, text, "stdout\n{self}");
        self
    }

    /// Demands a part of stderr.
    #[track_caller]
    pub(crate) fn complains(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "stderr lacks {part:?}\n{self}");
        self
    }

    /// The entries of one operation.
    pub(crate) fn of(&self, op: &str) -> Vec<&Value> {
        self.entries.iter().filter(|entry| entry["op"] == op).collect()
    }

    /// The denials of one kind of access.
    pub(crate) fn denials(&self, access: &str) -> Vec<&Value> {
        self.of(access).into_iter().filter(|entry| entry["kind"] == "deny").collect()
    }

    /// Demands a denial whose target, as spelled or resolved, ends so.
    #[track_caller]
    pub(crate) fn denied(&self, access: &str, target: &str) -> &Self {
        let ends = |value: &Value| value.as_str().is_some_and(|text| text.ends_with(target));
        let is_it =
            |entry: &&Value| ["target", "resolved", "exe"].iter().any(|key| ends(&entry["args"][key]));
        assert!(self.denials(access).iter().any(is_it), "no denial: {access} {target}\n{self}");
        self
    }

    /// Demands that nothing was denied.
    #[track_caller]
    pub(crate) fn denied_nothing(&self) -> &Self {
        assert!(self.entries.iter().all(|entry| entry["kind"] != "deny"), "something was denied\n{self}");
        self
    }

    /// Demands an entry of this operation with a text argument that ends so.
    #[track_caller]
    pub(crate) fn recorded(&self, op: &str, key: &str, end: &str) -> &Value {
        let is_it = |entry: &&Value| entry["args"][key].as_str().is_some_and(|text| text.ends_with(end));
        let found = self.of(op).into_iter().find(is_it);
        found.unwrap_or_else(|| panic!("no entry {op} with {key} …{end}\n{self}"))
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { code, stdout, stderr, shown, .. } = self;
        writeln!(formatter, "{shown}\ncode {code}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n--- trace")?;
        // The end of a long trace says enough.
        for entry in self.entries.iter().skip(self.entries.len().saturating_sub(60)) {
            if entry["op"] == "run.start" || entry["op"] == "run.seal" {
                continue;
            }
            let mut line = String::new();
            write!(line, "{} {} {}", entry["kind"], entry["op"], entry["args"])?;
            if let Some(rule) = entry.get("rule") {
                write!(line, " [{rule}]")?;
            }
            writeln!(formatter, "{line}")?;
        }
        Ok(())
    }
}
