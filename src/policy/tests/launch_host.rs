//! The real machine, in a directory of the test's own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::super::{Host, LaunchHost, PathAccess, load};

fn host(directory: &Path) -> LaunchHost {
    let path = format!("{0}/bin::{0}/more", directory.display());
    let home = directory.join("home").into_os_string();
    LaunchHost::with(directory.to_owned(), vec![("PATH".into(), path.into()), ("HOME".into(), home)])
}

fn program(path: &Path, mode: u32) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, "#!/bin/sh\n").expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

#[test]
fn links_are_followed_as_far_as_they_go() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path().canonicalize().expect("its path");
    fs::create_dir_all(root.join("real/deep")).expect("a directory");
    symlink("real/deep", root.join("link")).expect("a link");
    symlink("absent/x", root.join("dangling")).expect("a link");
    symlink("circle", root.join("circle")).expect("a link");
    symlink(root.join("link"), root.join("chain")).expect("a link");
    let host = host(&root);
    for (path, resolved) in [
        ("link/a/b", "real/deep/a/b"),
        ("link/../x", "real/x"),
        ("chain/y", "real/deep/y"),
        ("dangling/z", "absent/x/z"),
        ("absent/../link", "real/deep"),
        ("./real//deep/.", "real/deep"),
    ] {
        assert_eq!(host.resolve(&root.join(path)), root.join(resolved), "{path}");
        assert_eq!(host.resolve(path.as_ref()), root.join(resolved), "{path}");
    }
    assert!(host.resolve(&root.join("circle/x")).starts_with(&root));
}

#[test]
fn programs_are_found_along_the_path() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    program(&root.join("bin/tool"), 0o755);
    program(&root.join("more/tool"), 0o755);
    program(&root.join("more/data"), 0o644);
    program(&root.join("here"), 0o700);
    let host = host(root);
    assert_eq!(host.find_program("tool"), [root.join("bin/tool"), root.join("more/tool")]);
    assert!(host.find_program("data").is_empty() && host.find_program("bin").is_empty());
    assert_eq!(host.find_program("here"), [root.join("here")]);
    assert!(host.identity(&root.join("bin/tool")).is_some() && host.identity(&root.join("absent")).is_none());
}

#[test]
fn homes_come_from_the_environment_or_the_user_table() {
    let host = LaunchHost::with("/".into(), vec![("HOME".into(), "relative".into())]);
    assert!(host.home().is_some_and(Path::is_absolute));
    assert_eq!(host.user_home("root").as_deref(), Some(Path::new("/root")));
    assert_eq!(host.user_home("no-such-user"), None);
}

#[test]
fn a_file_is_loaded_with_what_it_includes() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path().canonicalize().expect("its path");
    fs::create_dir_all(root.join("sub")).expect("a directory");
    fs::write(root.join("agent.policy"), "include: sub/more.policy\nexec: tool\n").expect("a file");
    fs::write(root.join("sub/more.policy"), "read: ./data\nread: ~/x\n").expect("a file");
    let policy = load("agent.policy".as_ref(), &host(&root)).unwrap_or_else(|report| panic!("{report}"));
    for path in ["sub/data/y", "home/x"] {
        assert!(policy.decide_path(PathAccess::Read, &root.join(path)).is_allow(), "{path}");
    }
}

#[test]
fn what_is_no_text_is_refused() {
    let root = tempfile::tempdir().expect("a directory");
    fs::write(root.path().join("agent.policy"), b"# head\nread: ./a\xff\n").expect("a file");
    let report = load("agent.policy".as_ref(), &host(root.path())).expect_err("no text");
    assert_eq!(
        report.diagnostics[0].to_string(),
        "agent.policy:2:10: this is no UTF-8 (save the file as UTF-8)"
    );
    let report = load("/dev/zero".as_ref(), &host(root.path())).expect_err("no end");
    assert!(report.to_string().contains("larger than 16 MiB"), "{report}");
    assert!(load(root.path(), &host(root.path())).is_err());
}
