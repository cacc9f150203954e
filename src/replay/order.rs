//! The order of names in directories, put together from what the recorded run listed.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::initial::{entry_path, is_direct, path_of};
use crate::supervisor::{LISTED, Orders};
use crate::trace::StoredBlobs;

/// Most bytes of one list that are read.
const MOST: u64 = 16 << 20;

/// Takes what an entry says of a directory into `orders`; entries come in their order.
///
/// # Errors
/// When the body with the names cannot be read.
pub(super) fn add(
    orders: &mut Orders,
    entry: &Map<String, Value>,
    blobs: &StoredBlobs,
) -> std::io::Result<()> {
    let Some(Value::Object(args)) = entry.get("args") else { return Ok(()) };
    match entry.get("op").and_then(Value::as_str) {
        Some("fs.order") => {
            let inline = || path_of(args, "names").map(|names| names.into_os_string().into_vec());
            let names = body(args, "names", blobs)?.or_else(inline);
            if let Some((path, names)) = entry_path(args).filter(|path| is_direct(path)).zip(names) {
                merge(orders.entry(path).or_default(), split(&names));
            }
        }
        Some(LISTED) => {
            let lists = body(args, "lists", blobs)?.unwrap_or_default();
            let mut words = lists.split(|&byte| byte == 0);
            while let (Some(path), Some(names)) = (words.next(), words.next()) {
                let path = PathBuf::from(OsString::from_vec(path.to_vec()));
                if is_direct(&path) {
                    merge(orders.entry(path).or_default(), split(names));
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The directory of an entry that was made for the run's view.
pub(super) fn own_directory(entry: &Map<String, Value>) -> Option<PathBuf> {
    let args = entry.get("args")?.as_object()?;
    let is_own = entry.get("op")? == "fs.order" && args.get("own") == Some(&Value::Bool(true));
    entry_path(args).filter(|_| is_own)
}

fn body(args: &Map<String, Value>, name: &str, blobs: &StoredBlobs) -> std::io::Result<Option<Vec<u8>>> {
    let blob = args.get(name).and_then(|names| names.get("blob")).and_then(Value::as_str);
    let Some(sha256) = blob else { return Ok(None) };
    let mut content = Vec::new();
    blobs.open(sha256)?.take(MOST + 1).read_to_end(&mut content)?;
    // Of what is known in part nobody can tell what is new.
    Ok(Some(content).filter(|content| content.len() as u64 <= MOST))
}

fn split(names: &[u8]) -> Vec<OsString> {
    names.split(|&byte| byte == b'/').map(|name| OsString::from_vec(name.to_vec())).collect()
}

/// What the directories list now that were listed then, and had no such names.
pub(super) fn new_names(orders: &Orders) -> Vec<PathBuf> {
    let mut new = Vec::new();
    for (directory, names) in orders {
        // What is gone shows nothing new, and what a link leads to now is another directory.
        if !directory.canonicalize().is_ok_and(|real| real == *directory) {
            continue;
        }
        let Ok(entries) = directory.read_dir() else { continue };
        let known: HashSet<&OsString> = names.iter().collect();
        let found = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        new.extend(found.filter(|name| !known.contains(name)).map(|name| directory.join(name)));
    }
    new.sort();
    new
}

/// Puts the names that are new into `order`, each behind the one that it came after.
fn merge(order: &mut Vec<OsString>, names: Vec<OsString>) {
    if order.is_empty() {
        *order = names;
        return;
    }
    let known: HashMap<OsString, usize> =
        order.iter().enumerate().map(|(at, name)| (name.clone(), at)).collect();
    // By the place that they follow: 0 is the start.
    let mut new: HashMap<usize, Vec<OsString>> = HashMap::new();
    let mut place = 0;
    for name in names {
        match known.get(&name) {
            Some(at) => place = place.max(at + 1),
            None => new.entry(place).or_default().push(name),
        }
    }
    let mut merged = new.remove(&0).unwrap_or_default();
    for (at, name) in std::mem::take(order).into_iter().enumerate() {
        merged.push(name);
        merged.extend(new.remove(&(at + 1)).unwrap_or_default());
    }
    *order = merged;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn lists_of_one_directory_become_one() {
        let mut orders = Orders::new();
        let blobs = StoredBlobs::beside(Path::new("/none"));
        for names in ["b/d/a", "c/b/e/a/f", "c/g/f"] {
            let entry = json!({"op": "fs.order", "args": {"path": "/w", "names": names}});
            add(&mut orders, entry.as_object().expect("an entry"), &blobs).expect("reads");
        }
        let names: Vec<_> = orders[Path::new("/w")].iter().map(|name| name.to_string_lossy()).collect();
        assert_eq!(names.concat(), "cgbedaf");
    }

    #[test]
    fn names_are_new_in_a_directory_that_is_still_there() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path().canonicalize().expect("its path");
        for path in ["kept", "other"].map(|name| root.join(name)) {
            std::fs::create_dir(&path).expect("a directory");
            std::fs::write(path.join("old"), "")
                .and_then(|()| std::fs::write(path.join("new"), ""))
                .expect("files");
        }
        std::os::unix::fs::symlink("other", root.join("linked")).expect("a link");
        let listed = ["kept", "linked", "gone"].map(|name| (root.join(name), vec![OsString::from("old")]));
        assert_eq!(new_names(&listed.into()), [root.join("kept/new")]);
    }

    #[test]
    fn lists_that_are_crooked_or_too_long_say_nothing() {
        let mut orders = Orders::new();
        let directory = tempfile::tempdir().expect("a directory");
        let trace = directory.path().join("t");
        let blobs = StoredBlobs::beside(&trace);
        std::fs::create_dir(directory.path().join("t.blobs")).expect("a directory");
        let long = vec![b'a'; usize::try_from(MOST).expect("fits") + 1];
        let digest = crate::trace::hex(&Sha256::digest(&long));
        let packed = zstd::encode_all(&long[..], 1).expect("zstd");
        std::fs::write(directory.path().join(format!("t.blobs/{digest}.zst")), packed).expect("writes");
        for args in [
            json!({"path": "/w/../x", "names": "a"}),
            json!({"path": "/w"}),
            json!({"path": "/w", "names": {"blob": digest}}),
        ] {
            let entry = json!({"op": "fs.order", "args": args});
            add(&mut orders, entry.as_object().expect("an entry"), &blobs).expect("reads");
        }
        assert_eq!(orders, Orders::new());
    }
}
