//! Checks that looks say what the kernel says.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_walk_ends_where_the_kernel_does() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path().canonicalize().expect("its path");
    fs::create_dir_all(root.join("real/deep")).expect("a directory");
    fs::write(root.join("real/file"), "text").expect("a file");
    for (target, name) in [
        ("real", "link"),
        ("link/deep", "twice"),
        ("../absent", "real/dangling"),
        ("circle", "circle"),
        ("real/file", "file"),
        ("/proc/self/cwd", "magic"),
    ] {
        symlink(target, root.join(name)).expect("a link");
    }
    symlink(root.join("link/file"), root.join("absolute")).expect("a link");
    let paths = [
        "real",
        "link",
        "twice",
        "twice/..",
        "link/../x",
        "real/dangling",
        "circle",
        "circle/x",
        "file",
        "file/",
        "file/x",
        "file/..",
        "absolute",
        "absent/x",
        "absent/..",
        "magic",
        "./real//deep/.",
    ];
    let _remembering = remember();
    for path in paths.into_iter().chain(paths).map(|path| root.join(path)) {
        let plain = |found: io::Result<PathBuf>| found.map_err(|error| error.raw_os_error());
        assert_eq!(plain(canonical(&path)), plain(path.canonicalize()), "{path:?}");
        let (ours, theirs) = (status(&path), stat(&path));
        assert_eq!(ours.ok().map(|status| status.id.ino), theirs.ok().map(|found| found.st_ino), "{path:?}");
    }
}

#[test]
fn what_is_remembered_is_looked_at_once() {
    let root = tempfile::tempdir().expect("a directory");
    let (old, new) = (root.path().join("old"), root.path().join("new"));
    fs::write(&old, "").expect("a file");
    let remembering = remember();
    assert!(is_file(&old) && !exists(&new));
    fs::rename(&old, &new).expect("a rename");
    assert!(is_file(&old) && !exists(&new));
    remembering.look_again();
    assert!(is_file(&old) && is_file(&new));
    drop(remembering);
    assert!(!exists(&old) && is_file(&new));
}
