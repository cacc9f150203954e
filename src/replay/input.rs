//! Standard input of a replay: what the recorded run was given, in a file of the same kind. Where its output
//! went through a pipe, so does that of the replay: the program sees the same, and the bytes can be compared.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::dup2_stdin;
use serde_json::{Map, Value};

use crate::run::{End, Input, NULL_DEVICE_BOTH_WAYS, Outputs};
use crate::trace::StoredBlobs;

/// What a run was given as standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StandardInput {
    /// Nothing, or nothing that was kept.
    #[default]
    Empty,
    /// The same, and it can be written to.
    EmptyBothWays,
    /// A descriptor that cannot be read.
    Unusable,
    /// A pipe or a file.
    Kept {
        /// A file from there on; `None` of a pipe.
        offset: Option<u64>,
        /// The blob with its content.
        sha256: String,
        /// How many bytes that has.
        size: u64,
    },
}

impl StandardInput {
    /// What an entry says of it; `None` where it says nothing.
    #[must_use]
    pub fn of(entry: &Map<String, Value>) -> Option<Self> {
        let args = entry.get("args")?.as_object()?;
        let text = |key: &str| args.get(key).and_then(Value::as_str);
        if entry.get("op").and_then(Value::as_str) != Some("stdio") || text("stream") != Some("stdin") {
            return None;
        }
        let content = args.get("content").and_then(|content| {
            let size = content.get("size").and_then(Value::as_u64).unwrap_or_default();
            Some((content.get("blob")?.as_str()?, size))
        });
        Some(match (text("kind"), content) {
            (Some(kind), Some((sha256, size))) => {
                let offset = args.get("offset").and_then(Value::as_u64).unwrap_or(0);
                let offset = (kind == "file").then_some(offset);
                Self::Kept { offset, sha256: sha256.to_owned(), size }
            }
            _ if text("why") == Some("not open in that direction") => Self::Unusable,
            _ if text("why") == Some(NULL_DEVICE_BOTH_WAYS) => Self::EmptyBothWays,
            _ => Self::Empty,
        })
    }

    /// Makes it the standard input of this process; a file lies in `directory`.
    ///
    /// # Errors
    /// When the content cannot be read or written.
    pub fn serve(&self, blobs: &StoredBlobs, directory: &Path) -> io::Result<Input> {
        let null = |how| nix::fcntl::open("/dev/null", how | OFlag::O_CLOEXEC, Mode::empty());
        let (file, input): (OwnedFd, _) = match self {
            Self::Empty => (null(OFlag::O_RDONLY)?, Input::Kept),
            Self::EmptyBothWays => (null(OFlag::O_RDWR)?, Input::Kept),
            Self::Unusable => (null(OFlag::O_WRONLY)?, Input::Kept),
            Self::Kept { offset, sha256, size } => {
                let path = directory.join("stdin");
                let start = offset.unwrap_or(0);
                let mut file = File::create_new(&path)?;
                // What stood before was not kept: zeros stand for it.
                file.seek(SeekFrom::Start(start))?;
                io::copy(&mut blobs.open_sized(sha256, *size)?, &mut file)?;
                let mut file = File::open(&path)?;
                file.seek(SeekFrom::Start(start))?;
                (file.into(), if offset.is_some() { Input::Kept } else { Input::Piped })
            }
        };
        dup2_stdin(file)?;
        Ok(input)
    }
}

/// Adds what an entry says of standard output or error.
pub(super) fn add_output(outputs: &mut Outputs, entry: &Map<String, Value>) {
    if entry.get("op").and_then(Value::as_str) != Some("stdio") {
        return;
    }
    let Some(Value::Object(args)) = entry.get("args") else { return };
    let is_relayed = args.contains_key("sha256");
    let number = |name: &str| args.get(name).and_then(Value::as_u64);
    let end = number("size").zip(number("closed_at")).map(|(size, written)| End { size, written });
    match args.get("stream").and_then(Value::as_str) {
        Some("stdout") => (outputs.output, outputs.ends[0]) = (is_relayed, end),
        Some("stderr") => {
            (outputs.error, outputs.ends[1]) = (is_relayed, end);
            outputs.together = args.contains_key("same_as");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(args: Value) -> Option<StandardInput> {
        StandardInput::of(json!({"op": "stdio", "args": args}).as_object().expect("an entry"))
    }

    #[test]
    fn what_was_kept_is_known() {
        let kept = |offset| Some(StandardInput::Kept { offset, sha256: "ab".to_owned(), size: 3 });
        let content = json!({"blob": "ab", "size": 3, "private": true});
        assert_eq!(of(json!({"stream": "stdin", "kind": "pipe", "content": content})), kept(None));
        let file = json!({"stream": "stdin", "kind": "file", "offset": 7, "content": content});
        assert_eq!(of(file), kept(Some(7)));
        let terminal = json!({"stream": "stdin", "covered": false, "why": "a terminal"});
        assert_eq!(of(terminal), Some(StandardInput::Empty));
        let null = json!({"stream": "stdin", "covered": false, "why": NULL_DEVICE_BOTH_WAYS});
        assert_eq!(of(null), Some(StandardInput::EmptyBothWays));
        let closed = json!({"stream": "stdin", "covered": false, "why": "not open in that direction"});
        assert_eq!(of(closed), Some(StandardInput::Unusable));
        assert_eq!(of(json!({"stream": "stdout", "sha256": "ab"})), None);
    }
}
