//! Tests of first changes.

use std::path::{Path, PathBuf};

use super::*;

fn renamed(pairs: &[(&str, &str, bool)]) -> FirstChanges {
    let moved = pairs.iter().map(|(from, to, exchanged)| Moved {
        from: PathBuf::from(from),
        to: PathBuf::from(to),
        exchanged: *exchanged,
    });
    FirstChanges { moved: moved.collect(), ..FirstChanges::default() }
}

fn original(first: &FirstChanges, path: &str) -> Option<String> {
    first.original(Path::new(path)).map(|path| path.display().to_string())
}

#[test]
fn what_is_below_a_renamed_directory_is_known_by_its_first_path() {
    let first = renamed(&[("/w/a", "/w/b", false), ("/w/b", "/w/c", false)]);
    assert_eq!(original(&first, "/w/c/x").as_deref(), Some("/w/a/x"));
    assert_eq!(original(&first, "/w/c").as_deref(), Some("/w/a"));
    assert_eq!(original(&first, "/w/cd").as_deref(), Some("/w/cd"));
    // The names that it left are new.
    assert_eq!(original(&first, "/w/a/x"), None);
    assert_eq!(original(&first, "/w/b/x"), None);
}

#[test]
fn exchanged_directories_are_known_by_each_others_path() {
    let first = renamed(&[("/w/a", "/w/b", true)]);
    assert_eq!(original(&first, "/w/a/x").as_deref(), Some("/w/b/x"));
    assert_eq!(original(&first, "/w/b/x").as_deref(), Some("/w/a/x"));
}

#[test]
fn the_content_is_wanted_after_the_status_alone_and_then_never() {
    let mut first = FirstChanges::default();
    let path = Path::new("/w/f");
    let (_, key) = first.wanted(path, Kept::Status).expect("is new");
    first.keep(&before(path, path, key, Kept::Status, Map::new()));
    assert!(first.wanted(path, Kept::Status).is_none());
    let (_, key) = first.wanted(path, Kept::Whole).expect("has a content");
    first.keep(&before(path, path, key, Kept::Whole, Map::new()));
    assert!(first.wanted(path, Kept::Whole).is_none() && first.wanted(path, Kept::Status).is_none());
}

#[test]
fn an_image_holds_the_content() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    std::fs::write(&path, "before").expect("writes");
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let file = nix::fcntl::open(&path, flags, Mode::empty()).expect("opens");
    let status = fstat(&file).expect("is there");
    let recorder = Recorder::null();
    let whole = image(&file, &status, Kept::Whole, &recorder).expect("is stored");
    assert_eq!(whole["type"], "file");
    assert_eq!(whole["size"], 6);
    let content = &whole["content"];
    assert_eq!(content["private"], true);
    let sha256 = content["blob"].as_str().expect("a reference");
    assert_eq!(recorder.blob_content(sha256).as_deref(), Some(&b"before"[..]));
    assert!(!image(&file, &status, Kept::Status, &recorder).expect("is looked at").contains_key("content"));
}
