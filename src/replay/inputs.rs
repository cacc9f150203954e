//! Inputs: what the recorded run read before it changed it, compared with what is there now.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::libc;
use serde_json::{Map, Value};

use super::Difference;
use super::initial::{entry_path, former, is_direct, path_of};
use crate::fsview::InitialState;
use crate::fsview::initial::{Content, Former};
use crate::supervisor::sha256_of;
use crate::sys::descriptor::own_path;
use crate::trace::display_bytes;

/// What a run read.
#[derive(Debug, Default)]
pub struct Inputs {
    read: BTreeMap<PathBuf, Input>,
    /// What it changed before it read it is no input.
    changed: HashSet<PathBuf>,
    moved: Vec<PathBuf>,
    /// FIFOs that it has not made, and whether it has read and written them.
    fifos: BTreeMap<PathBuf, [bool; 2]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Input {
    what: &'static str,
    /// The digest of its content; `None` where there was nothing.
    sha256: Option<String>,
    /// The file itself, where it was captured.
    captured: Option<Former>,
}

/// Files of the kernel are others in each run.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

impl Inputs {
    /// Takes an entry; they come in their order.
    pub fn add(&mut self, entry: &Map<String, Value>) {
        let op = entry.get("op").and_then(Value::as_str).unwrap_or_default();
        let Some(Value::Object(args)) = entry.get("args") else { return };
        if op == "run.start" {
            return self.script(args);
        }
        if args.get("own").is_some_and(|own| own == true) {
            return;
        }
        let Some(path) = entry_path(args) else { return };
        let is_known = self.changed.contains(&path)
            || self.moved.iter().any(|directory| path.starts_with(directory))
            || is_the_kernel_s(&path);
        let what = match op {
            "fs.open_read" | "fs.open_write" if args.get("type").is_some_and(|kind| kind == "fifo") => {
                if !is_known {
                    self.fifos.entry(path).or_default()[usize::from(op == "fs.open_write")] = true;
                }
                return;
            }
            "fs.open_read" => "input",
            "proc.image" => "executable",
            _ if op.starts_with("fs.") => return self.change(args, path),
            _ => return,
        };
        let text = |key: &str| args.get(key).and_then(Value::as_str);
        let sha256 = text("sha256").map(str::to_owned);
        let absent = args.get("exists").and_then(Value::as_bool) == Some(false);
        if (sha256.is_some() || absent) && !is_known {
            let captured =
                args.get("captured").filter(|_| is_direct(&path)).and_then(former).filter(is_whole);
            match self.read.entry(path) {
                // The script: the run has read it by then.
                Entry::Occupied(mut known)
                    if known.get().sha256 == sha256 && known.get().captured.is_none() =>
                {
                    known.get_mut().captured = captured;
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(place) => {
                    place.insert(Input { what, sha256, captured });
                }
            }
        }
    }

    /// The kernel opens it, and no entry says so.
    fn script(&mut self, args: &Map<String, Value>) {
        let sha256 = args.get("script_sha256").and_then(Value::as_str).map(str::to_owned);
        if let (Some(path), Some(_)) = (path_of(args, "script"), &sha256) {
            self.read.entry(path).or_insert(Input { what: "script", sha256, captured: None });
        }
    }

    fn change(&mut self, args: &Map<String, Value>, path: PathBuf) {
        let is_directory = args.get("type").and_then(Value::as_str) == Some("directory");
        for path in std::iter::once(path).chain(path_of(args, "to")) {
            if is_directory {
                self.moved.push(path);
            } else {
                self.changed.insert(path);
            }
        }
    }

    /// Takes out what was captured and is another now, or not here.
    pub fn take_served(&mut self, initial: &InitialState) -> BTreeMap<PathBuf, Former> {
        let mut served = BTreeMap::new();
        self.read.retain(|path, input| {
            let (Some(captured), Some(sha256)) = (&input.captured, &input.sha256) else { return true };
            if initial.states.contains_key(path) || state_of(&today(initial, path)) == *sha256 {
                return true;
            }
            served.insert(path.clone(), captured.clone());
            false
        });
        served
    }

    /// All of them that are others now; what the run changed later is put back to its `initial` state first.
    pub fn differences(&self, initial: &InitialState) -> Vec<Difference> {
        let read = self.read.iter().filter_map(|(path, input)| {
            // It was moved, or what was there is put back.
            let put_back = initial.states.get(path).is_some_and(is_whole) || is_below_nothing(initial, path);
            let recorded = input.sha256.as_deref().unwrap_or("absent");
            let now = if put_back { return None } else { state_of(&today(initial, path)) };
            (now != recorded).then(|| difference(input.what, path, recorded.to_owned(), now))
        });
        let lost = initial.states.iter().filter_map(|(path, former)| lost(initial, path, former));
        // Who had one end alone did not speak with itself.
        let fifos = self.fifos.iter().filter(|(_, ends)| **ends != [true; 2]);
        let fifos = fifos.map(|(path, [is_read, _])| {
            let recorded = if *is_read { "read" } else { "written" };
            difference("fifo", path, recorded.to_owned(), "nobody has the other end".to_owned())
        });
        read.chain(lost).chain(fifos).collect()
    }
}

fn difference(what: &'static str, path: &Path, recorded: String, now: String) -> Difference {
    let name = display_bytes(path.as_os_str().as_encoded_bytes());
    Difference::new(what, name, [recorded, now])
}

fn is_the_kernel_s(path: &Path) -> bool {
    KERNEL.iter().any(|kernel| path.starts_with(kernel))
}

/// Whether it is known what was there.
fn is_whole(former: &Former) -> bool {
    !matches!(former, Former::Other | Former::File { content: Content::Unchanged | Content::Unkept(_), .. })
}

/// Whether what lay above it was not there at first, as before a directory was renamed to it.
fn is_below_nothing(initial: &InitialState, path: &Path) -> bool {
    path.ancestors().skip(1).any(|above| matches!(initial.states.get(above), Some(Former::Absent)))
}

/// Where the run has left what was at `path`.
pub(super) fn today(initial: &InitialState, path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for step in &initial.moves {
        let (from, to) = (&step.from, &step.to);
        if let Ok(below) = path.strip_prefix(from) {
            path = to.join(below);
        } else if let Ok(below) = path.strip_prefix(to)
            && step.exchanged
        {
            path = from.join(below);
        }
    }
    path
}

/// A file whose content was not kept, and that is another now.
fn lost(initial: &InitialState, path: &Path, former: &Former) -> Option<Difference> {
    let Former::File { size, content: Content::Unkept(why), .. } = former else { return None };
    let now = today(initial, path).symlink_metadata();
    let now = now.map_or_else(|_| "absent".to_owned(), |now| format!("{} bytes", now.len()));
    Some(difference("input", path, format!("{size} bytes, not kept ({why})"), now))
}

/// The digest of what is there, or what else there is to say.
fn state_of(path: &Path) -> String {
    match digest_of(path) {
        Ok(state) => state,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            "absent".to_owned()
        }
        Err(error) => format!("unreadable: {error}"),
    }
}

/// Looks before it opens: an open(2) alone starts a device, or lets the other end of a FIFO go on. What a device or
/// the kernel gives may have no end.
fn digest_of(path: &Path) -> io::Result<String> {
    let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    let kind = found.metadata()?.file_type();
    if kind.is_dir() {
        return Ok("a directory".to_owned());
    }
    let own = own_path(found.as_fd());
    if !kind.is_file() || std::fs::read_link(&own).is_ok_and(|path| is_the_kernel_s(&path)) {
        return Ok("no regular file".to_owned());
    }
    // By the descriptor: the name may lead elsewhere by now.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    sha256_of(&mut OpenOptions::new().read(true).custom_flags(flags).open(own)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::replay::initial;

    /// SHA-256 of `abc`.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn found(entries: &[Value]) -> Vec<String> {
        let (mut inputs, mut state) = (Inputs::default(), InitialState::default());
        for entry in entries {
            let entry = entry.as_object().expect("an entry");
            inputs.add(entry);
            initial::add(&mut state, entry).expect("direct paths");
        }
        inputs.differences(&state).iter().map(|found| format!("{} {}", found.what, found.now)).collect()
    }

    #[test]
    fn what_was_read_first_must_be_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        for name in ["same", "other", "new", "tool"] {
            std::fs::write(path(name), if name == "same" { "abc" } else { "" }).expect("writes");
        }
        let read = |name: &str| json!({"op": "fs.open_read", "args": {"path": path(name), "sha256": ABC}});
        let empty = sha256_of(&mut io::empty()).expect("reads");
        let entries = [
            json!({"op": "run.start", "args": {"script": path("script"), "script_sha256": ABC}}),
            read("same"),
            read("other"),
            read("gone"),
            json!({"op": "fs.open_read", "args": {"path": path("new"), "exists": false}}),
            json!({"op": "fs.open_read", "args": {"path": path("still absent"), "exists": false}}),
            json!({"op": "proc.image", "args": {"path": path("tool"), "sha256": ABC}}),
            json!({"op": "fs.open_write", "args": {"path": path("made"), "before": "absent"}}),
            read("made"),
            json!({"op": "fs.open_read", "args": {"path": "/proc/meminfo", "sha256": ABC}}),
            json!({"op": "fs.open_read", "args": {"path": path("own"), "sha256": ABC, "own": true}}),
            json!({"op": "fs.mknod", "args": {"path": path("fifo"), "type": "fifo", "before": "absent"}}),
            json!({"op": "fs.open_read", "args": {"path": path("fifo"), "type": "fifo"}}),
            json!({"op": "fs.open_read", "args": {"path": path("both"), "type": "fifo"}}),
            json!({"op": "fs.open_write", "args": {"path": path("both"), "type": "fifo"}}),
            json!({"op": "fs.open_write", "args": {"path": path("one"), "type": "fifo"}}),
        ];
        let expected = [
            "input absent".to_owned(),
            format!("input {empty}"),
            format!("input {empty}"),
            "script absent".to_owned(),
            format!("executable {empty}"),
            "fifo nobody has the other end".to_owned(),
        ];
        assert_eq!(found(&entries), expected);
    }

    #[test]
    fn what_is_put_back_is_as_it_was_and_what_was_moved_lies_elsewhere() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::create_dir(path("b")).expect("makes");
        std::fs::write(path("b/f"), "abc").expect("writes");
        let entries = [
            json!({"op": "fs.open_read", "args": {"path": path("a/f"), "sha256": ABC}}),
            json!({"op": "fs.open_read", "args": {"path": path("g"), "sha256": ABC}}),
            json!({"op": "fs.rename", "args": {"path": path("a"), "to": path("b"), "type": "directory",
                "before": {"type": "dir", "mode": 448, "mtime_ns": 1}, "before_to": "absent"}}),
            json!({"op": "fs.delete", "args": {"path": path("g"), "before": {"type": "file", "mode": 420,
                "mtime_ns": 1, "size": 3, "content": {"blob": ABC, "size": 3, "private": true}}}}),
            json!({"op": "fs.delete", "args": {"path": path("h"), "before": {"type": "file", "mode": 420,
                "mtime_ns": 1, "size": 9, "unkept": "larger than 1 GiB"}}}),
            json!({"op": "fs.open_read", "args": {"path": path("i/f"), "exists": false}}),
            json!({"op": "fs.rename", "args": {"path": path("j"), "to": path("i"), "type": "directory",
                "before": "absent", "before_to": "absent"}}),
        ];
        std::fs::create_dir(path("i")).expect("makes");
        std::fs::write(path("i/f"), "abc").expect("writes");
        assert_eq!(found(&entries), ["input absent"]);
    }
}
