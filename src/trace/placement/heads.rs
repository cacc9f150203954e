//! Heads: which traces were made here, so that one that came from elsewhere is not run unasked.
//!
//! They stand in one list: a file for each would cost every run a new inode, and the disk a block.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::super::canonical;
use super::super::error::TraceError;
use super::super::event::path_value;
use super::super::layout::{HEADS_LIST, HEADS_NAME};
use super::directory::Directory;
use super::list;
use super::state::StateDirectories;

/// Bytes of the list at which the older half is forgotten: some hundred thousand runs.
const LARGE: u64 = 32 << 20;

/// Notes that the trace at `path` with this head was made by this user on this host.
///
/// # Errors
/// When the state directory cannot hold it.
pub fn remember_head(head: &str, path: &Path) -> Result<(), TraceError> {
    remember(&StateDirectories::from_environment(), head, path)
}

fn remember(state: &StateDirectories, head: &str, path: &Path) -> Result<(), TraceError> {
    let parent = state.create(HEADS_NAME)?;
    let note: Map<String, Value> =
        path_value("path", path.as_os_str().as_encoded_bytes()).into_iter().collect();
    // What a full disk has cut off before ends here.
    let mut line = format!("\n{head} ");
    canonical::write_object(&mut line, &note);
    line.push('\n');
    let list = parent.join(OsStr::new(HEADS_LIST));
    add(&parent, line.as_bytes()).map_err(|source| TraceError::Create { path: list, source })
}

fn add(parent: &Directory, line: &[u8]) -> io::Result<()> {
    let name = OsStr::new(HEADS_LIST);
    let mut file = list::locked(parent, name)?;
    if file.metadata()?.len() <= LARGE {
        return file.write_all(line);
    }
    let content = content(&mut file)?;
    // From the beginning of a line: within one there is a path, which may look like another.
    let newer = &content[content.len() / 2..];
    let cut = newer.iter().position(|&byte| byte == b'\n').unwrap_or(newer.len());
    list::replace(parent, name, &file, &[&newer[cut..], line].concat())
}

fn content(file: &mut File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Whether the trace with this head was made here.
#[must_use]
pub fn is_known_head(head: &str) -> bool {
    is_known(&StateDirectories::from_environment(), head)
}

fn is_known(state: &StateDirectories, head: &str) -> bool {
    let is_hash = head.len() == 64 && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash && state.existing_below(HEADS_NAME).iter().any(|place| is_listed(place, head))
}

/// Where traces that are made here are listed: with another HOME or XDG_STATE_HOME it is another list.
#[must_use]
pub fn list_of_heads() -> PathBuf {
    StateDirectories::from_environment().first().join(HEADS_NAME).join(HEADS_LIST)
}

fn is_listed(place: &Directory, head: &str) -> bool {
    let list = place.open_file(OsStr::new(HEADS_LIST));
    let content = list.and_then(|mut file| content(&mut file)).unwrap_or_default();
    let is_it =
        |line: &[u8]| line.strip_prefix(head.as_bytes()).is_some_and(|rest| rest.first() == Some(&b' '));
    content.split(|&byte| byte == b'\n').any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_here_is_known_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = StateDirectories::only(&directory.path().join("state"));
        let heads: Vec<String> = ["a", "b", "c"].iter().map(|digit| digit.repeat(64)).collect();
        assert!(!is_known(&state, &heads[0]));
        remember(&state, &heads[0], Path::new("/one trace.jsonl")).expect("a list");
        let place = &state.existing_below(HEADS_NAME)[0];
        // A full disk cuts lines off.
        place
            .open_list(OsStr::new(HEADS_LIST))
            .expect("a list")
            .write_all(&heads[2].as_bytes()[..20])
            .expect("a disk");
        remember(&state, &heads[1], Path::new("/\u{0}two\n")).expect("a list");
        let known: Vec<bool> = heads.iter().map(|head| is_known(&state, head)).collect();
        assert_eq!(known, [true, true, false]);
        for other in ["", "a", "list", "../heads"] {
            assert!(!is_known(&state, other), "{other}");
        }
    }

    #[test]
    fn the_older_half_of_a_long_list_is_forgotten() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = StateDirectories::only(&directory.path().join("state"));
        let (old, new) = ("a".repeat(64), "b".repeat(64));
        remember(&state, &old, Path::new("/old")).expect("a list");
        let place = &state.existing_below(HEADS_NAME)[0];
        place.open_list(OsStr::new(HEADS_LIST)).expect("a list").set_len(LARGE + 1).expect("a sparse file");
        remember(&state, &new, Path::new("/new")).expect("a list");
        assert!(is_known(&state, &new) && !is_known(&state, &old));
        let size =
            place.open_list(OsStr::new(HEADS_LIST)).and_then(|list| list.metadata()).expect("a list").len();
        assert!(size < LARGE, "{size}");
    }
    #[test]
    fn a_path_is_never_taken_for_a_head() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = StateDirectories::only(&directory.path().join("state"));
        let (old, new, forged) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
        remember(&state, &old, Path::new("/old")).expect("a list");
        let mut list = state.existing_below(HEADS_NAME)[0].open_list(OsStr::new(HEADS_LIST)).expect("a list");
        let line = format!("\n{old} {{\"path\":\"/{forged} x\"}}\n");
        let half = usize::try_from(LARGE / 2 + 1).expect("small");
        let mut content = vec![b'\n'; 2 * half];
        let start = half - line.find(&forged).expect("there");
        content[start..start + line.len()].copy_from_slice(line.as_bytes());
        list.set_len(0).expect("a disk");
        list.write_all(&content).expect("a disk");
        remember(&state, &new, Path::new("/new")).expect("a list");
        assert!(is_known(&state, &new) && !is_known(&state, &forged));
    }
}
