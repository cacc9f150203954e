//! The first state of the files that the recorded run changed, read from its entries.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::fsview::InitialState;
use crate::fsview::initial::{Content, Former, MoveBack, Status};
use crate::trace::unhex;

/// Takes what an entry says of the first state into `state`; entries come in their order.
///
/// # Errors
/// The path of an entry that no run records, as it could lead elsewhere.
pub fn add(state: &mut InitialState, entry: &Map<String, Value>) -> Result<(), PathBuf> {
    let Some(Value::Object(args)) = entry.get("args") else { return Ok(()) };
    let (path, to) = (entry_path(args), path_of(args, "to"));
    let is_rename = entry.get("op").and_then(Value::as_str) == Some("fs.rename");
    for (key, path) in [("before", &path), ("before_to", &to)] {
        if let (Some(before), Some(path)) = (args.get(key), path)
            && let Some(former) = former(before)
        {
            let path =
                before.as_object().and_then(|before| path_of(before, "at")).unwrap_or_else(|| path.clone());
            note(state, direct(path)?, former);
        }
    }
    let is_directory = args.get("type").and_then(Value::as_str) == Some("directory");
    if let (true, true, Some(from), Some(to)) = (is_rename, is_directory, path, to) {
        let exchanged = args.get("exchange").and_then(Value::as_bool).unwrap_or(false);
        state.moves.push(MoveBack { from: direct(from)?, to: direct(to)?, exchanged });
    }
    Ok(())
}

/// The path, if it can lead nowhere else.
fn direct(path: PathBuf) -> Result<PathBuf, PathBuf> {
    if is_direct(&path) { Ok(path) } else { Err(path) }
}

/// Whether a path goes from the root nowhere but down.
pub(super) fn is_direct(path: &Path) -> bool {
    let only_down = |part| matches!(part, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(only_down)
}

/// The path that an entry is about, links followed.
pub(super) fn entry_path(args: &Map<String, Value>) -> Option<PathBuf> {
    path_of(args, "resolved").or_else(|| path_of(args, "path")).filter(|path| path.is_absolute())
}

/// A path among `args`, its exact bytes where they are given.
pub(super) fn path_of(args: &Map<String, Value>, key: &str) -> Option<PathBuf> {
    let text = |key: &str| args.get(key).and_then(Value::as_str);
    let bytes = match text(&format!("{key}_hex")) {
        Some(hex) => unhex(hex)?,
        None => text(key)?.as_bytes().to_vec(),
    };
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// The first thing that is said of a path counts; the content may come later than the status.
fn note(state: &mut InitialState, path: PathBuf, former: Former) {
    match (state.states.get_mut(&path), former) {
        (None, former) => {
            state.states.insert(path, former);
        }
        (Some(Former::File { content: known @ Content::Unchanged, .. }), Former::File { content, .. }) => {
            *known = content;
        }
        _ => {}
    }
}

pub(super) fn former(before: &Value) -> Option<Former> {
    let image = match before {
        Value::String(text) if text == "absent" => return Some(Former::Absent),
        Value::Object(image) => image,
        _ => return None,
    };
    let status = Status {
        mode: image
            .get("mode")
            .and_then(Value::as_u64)
            .and_then(|mode| u32::try_from(mode).ok())
            .unwrap_or(0)
            & 0o1777,
        mtime_ns: image.get("mtime_ns").and_then(Value::as_i64).unwrap_or(0),
    };
    Some(match image.get("type").and_then(Value::as_str)? {
        "absent" => Former::Absent,
        "file" => {
            let size = image.get("size").and_then(Value::as_u64).unwrap_or(0);
            Former::File { status, size, content: content(image, size) }
        }
        "dir" => Former::Directory(status),
        "symlink" => Former::Link { target: path_of(image, "target")?.into_os_string(), status },
        "fifo" => Former::Special { socket: false, status },
        "socket" => Former::Special { socket: true, status },
        _ => Former::Other,
    })
}

fn content(image: &Map<String, Value>, size: u64) -> Content {
    let reference = image.get("content").and_then(|content| {
        let size = content.get("size").and_then(Value::as_u64).unwrap_or_default();
        Some((content.get("blob")?.as_str()?.to_owned(), size))
    });
    let unkept = image.get("unkept").and_then(Value::as_str);
    match (reference, unkept, image.get("kept").and_then(Value::as_str)) {
        (Some((sha256, size)), ..) => Content::Blob { sha256, size },
        (None, Some(why), _) => Content::Unkept(why.to_owned()),
        (None, None, Some("status")) => Content::Unchanged,
        (None, None, _) if size == 0 => Content::Empty,
        (None, None, _) => Content::Unkept("it is not in the trace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(entries: &[Value]) -> InitialState {
        let mut state = InitialState::default();
        for entry in entries {
            add(&mut state, entry.as_object().expect("an entry")).expect("direct paths");
        }
        state
    }

    #[test]
    fn the_first_word_on_a_path_counts() {
        let state = state(&[
            json!({"op": "fs.meta", "args": {"path": "f", "resolved": "/w/f",
                "before": {"type": "file", "mode": 0o644, "mtime_ns": 5, "size": 3, "kept": "status"}}}),
            json!({"op": "fs.open_write", "args": {"path": "/w/f",
                "before": {"type": "file", "mode": 0o600, "mtime_ns": 5, "size": 3,
                    "content": {"blob": "ab", "size": 3, "private": true}}}}),
            json!({"op": "fs.delete", "args": {"path": "/w/f", "before": "absent"}}),
            json!({"op": "fs.mkdir", "args": {"path": "relative", "before": "absent"}}),
        ]);
        let status = Status { mode: 0o644, mtime_ns: 5 };
        let file =
            Former::File { status, size: 3, content: Content::Blob { sha256: "ab".to_owned(), size: 3 } };
        assert_eq!(state.states.into_iter().collect::<Vec<_>>(), [(PathBuf::from("/w/f"), file)]);
    }

    #[test]
    fn no_path_leads_elsewhere() {
        let before = |path: &str| json!({"op": "fs.delete", "args": {"path": path, "before": "absent"}});
        let at =
            json!({"op": "fs.delete", "args": {"path": "/w/f", "before": {"type": "absent", "at": "f"}}});
        let moved = json!({"op": "fs.rename", "args": {"path": "/w/a", "to": "../b", "type": "directory"}});
        for entry in [before("/w/../f"), before("/w/.."), at, moved] {
            let added = add(&mut InitialState::default(), entry.as_object().expect("an entry"));
            assert!(added.is_err(), "{entry}");
        }
    }

    #[test]
    fn renames_of_directories_are_known() {
        let state = state(&[
            json!({"op": "fs.rename", "args": {"path": "/w/a", "to": "/w/b", "type": "directory",
                "before": {"type": "dir", "mode": 0o755, "mtime_ns": 1}, "before_to": "absent"}}),
            json!({"op": "fs.rename", "args": {"path": "/w/b", "to": "/w/c", "type": "directory"}}),
            json!({"op": "fs.rename", "args": {"path": "/w/x", "to": "/w/y", "before_to": "absent"}}),
            json!({"op": "fs.open_write", "args": {"path": "/w/c/n",
                "before": {"type": "absent", "at": "/w/a/n"}}}),
        ]);
        let names: Vec<_> = state.moves.iter().map(|step| (&*step.from, &*step.to)).collect();
        let path = Path::new;
        assert_eq!(names, [(path("/w/a"), path("/w/b")), (path("/w/b"), path("/w/c"))]);
        let absent: Vec<_> = state.absent().map(|path| path.display().to_string()).collect();
        assert_eq!(absent, ["/w/a/n", "/w/b", "/w/y"]);
    }

    #[test]
    fn paths_that_are_no_text_come_back() {
        let args = json!({"path": "/w/\\xff", "path_hex": "2f772fff"});
        let path = entry_path(args.as_object().expect("args")).expect("a path");
        assert_eq!(path.into_os_string().into_vec(), b"/w/\xff");
    }
}
