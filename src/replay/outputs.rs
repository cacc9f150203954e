//! Where two runs printed something else: the first line that differs, of what the traces keep.

use std::io::Read as _;

use serde_json::{Map, Value};

use super::compare::{Cause, Comparison, Field};
use crate::trace::{StoredBlobs, display_bytes};

/// Bytes that are told of a line, and how many of them before the difference.
const EXCERPT: usize = 160;
const BEFORE: usize = 40;
/// More of an output is not kept.
const MOST: u64 = 1 << 20;

/// Adds to each standard stream that differs where it does, if both traces keep it.
pub fn explain(comparison: &mut Comparison, recorded: &StoredBlobs, live: &StoredBlobs) {
    for divergence in &mut comparison.divergences {
        if divergence.op != "stdio" || divergence.cause != Cause::OutputChanged {
            continue;
        }
        let ours = divergence.recorded.as_ref().and_then(|entry| Kept::of(entry, recorded));
        let theirs = divergence.live.as_ref().and_then(|entry| Kept::of(entry, live));
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            divergence.fields.splice(0..0, difference(&ours, &theirs));
        }
    }
}

/// The beginning of an output.
struct Kept {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Kept {
    fn of(entry: &Map<String, Value>, blobs: &StoredBlobs) -> Option<Self> {
        let args = entry.get("args")?;
        let size = args.get("size")?.as_u64()?;
        let mut bytes = Vec::new();
        if size > 0 {
            let name = args.get("content")?.get("blob")?.as_str()?;
            // Whoever has changed it since is found out by `verify`.
            blobs.open(name).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
        }
        let is_whole = bytes.len() as u64 == size;
        Some(Self { bytes, is_whole })
    }

    /// The line in which the byte at `at` lies, from somewhat before it on; none behind the end.
    fn line(&self, at: usize) -> Option<Value> {
        let start = self.bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if at >= self.bytes.len() && start == at {
            return (!self.is_whole).then(|| Value::from("…"));
        }
        let end = self.bytes[at..].iter().position(|byte| *byte == b'\n');
        // An end of the line that only one of them has is seen.
        let end = end.map_or(self.bytes.len(), |end| at + end.max(1));
        let (from, to) = (start.max(at.saturating_sub(BEFORE)), end.min(at + EXCERPT - BEFORE));
        let [before, after] =
            [(start, from), (to, end)].map(|(one, other)| if one < other { "…" } else { "" });
        Some(format!("{before}{}{after}", display_bytes(&self.bytes[from..to])).into())
    }
}

/// The first line that differs, with its number and the offset of the byte.
fn difference(ours: &Kept, theirs: &Kept) -> Option<Field> {
    let same = ours.bytes.iter().zip(&theirs.bytes).take_while(|(one, other)| one == other).count();
    let shorter = ours.bytes.len().min(theirs.bytes.len());
    if same == shorter && ours.bytes.len() == theirs.bytes.len() && !(ours.is_whole && theirs.is_whole) {
        let name = format!("from byte {same} on, of which nothing is kept");
        return Some(Field { name, recorded: Some("one".into()), live: Some("another".into()) });
    }
    let line = ours.bytes[..same].iter().filter(|byte| **byte == b'\n').count() + 1;
    let name = format!("line {line} (byte {same})");
    Some(Field { name, recorded: ours.line(same), live: theirs.line(same) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> Kept {
        Kept { bytes: text.as_bytes().to_vec(), is_whole: true }
    }

    fn of(ours: &str, theirs: &str) -> (String, Option<Value>, Option<Value>) {
        let Field { name, recorded, live } = difference(&kept(ours), &kept(theirs)).expect("one");
        (name, recorded, live)
    }

    #[test]
    fn the_first_line_that_differs_is_told() {
        let told = |name: &str, ours: Option<&str>, theirs: Option<&str>| {
            (name.to_owned(), ours.map(Value::from), theirs.map(Value::from))
        };
        assert_eq!(of("a\nbc\nd", "a\nbd\nd"), told("line 2 (byte 3)", Some("bc"), Some("bd")));
        assert_eq!(of("a\n", "a\nb\n"), told("line 2 (byte 2)", None, Some("b")));
        assert_eq!(of("a", "a\nb"), told("line 1 (byte 1)", Some("a"), Some("a\n")));
        assert_eq!(of("", "x"), told("line 1 (byte 0)", None, Some("x")));
        let (long, other) = ("x".repeat(500), format!("{}y{}", "x".repeat(250), "x".repeat(250)));
        let (name, recorded, live) = of(&long, &other);
        assert_eq!(name, "line 1 (byte 250)");
        assert_eq!(recorded, Some(format!("…{}…", "x".repeat(160)).into()));
        assert_eq!(live, Some(format!("…{}y{}…", "x".repeat(40), "x".repeat(119)).into()));
    }

    #[test]
    fn what_is_not_kept_is_not_made_up() {
        let cut = |text: &str| Kept { is_whole: false, ..kept(text) };
        let field = difference(&cut("same"), &cut("same")).expect("one");
        assert_eq!(field.name, "from byte 4 on, of which nothing is kept");
        let field = difference(&cut("same"), &kept("same, and more")).expect("one");
        assert_eq!((field.recorded, field.live), (Some("same".into()), Some("same, and more".into())));
    }
}
