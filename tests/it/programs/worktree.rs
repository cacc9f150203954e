//! A git worktree: `.git` is a file, and the repository lies outside of what a first policy grants.

use std::fs;
use std::process::Command;

use crate::support::{Sandbox, everyone, has, skip};

/// A repository beside the working directory, which becomes a worktree of it.
fn worktree(sandbox: &Sandbox) {
    fs::remove_dir(sandbox.path("")).expect("an empty directory");
    let prepare = "git init -q main && cd main && git config user.name a && git config user.email a@b
        echo one >file && git add file && git commit -q -m first && git worktree add -q ../work 2>&1";
    let mut git = Command::new("sh");
    git.args(["-ec", prepare]).current_dir(sandbox.beside("")).env("GIT_CONFIG_GLOBAL", "/dev/null");
    assert!(git.status().expect("git").success());
    for tree in ["../main", ""] {
        sandbox.give(tree);
    }
}

/// Git makes its lock beside the file and renames it. Neither a refusal in between nor the end of a run leaves one of
/// ours behind, and one that was there stays, and is told by git itself.
#[test]
fn a_lock_of_gits_is_gits_own() {
    if !has("git") {
        return skip("git", "it is not installed");
    }
    everyone(|sandbox| {
        let prepare = "git init -q . && git -c safe.directory=* config user.name a";
        let mut git = Command::new("sh");
        git.args(["-ec", prepare]).current_dir(sandbox.path("")).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(git.status().expect("git").success());
        sandbox.give("");
        let before = fs::read_to_string(sandbox.path(".git/config")).expect("a file");
        let lock = sandbox.path(".git/config.lock");
        sandbox.policy("include: profile/git\nwrite: .\ndeny: write ./.git/config, ./.git/hooks/**");
        let ran = sandbox.run(&["git", "config", "core.hooksPath", "/tmp"]);
        assert_ne!(ran.code, 0, "{ran}");
        assert!(!lock.exists(), "{ran}");
        assert_eq!(fs::read_to_string(sandbox.path(".git/config")).expect("a file"), before);

        sandbox.policy("include: profile/git\nwrite: .");
        sandbox.run(&["git", "config", "user.email", "a@b"]).exits(0).denied_nothing();
        assert!(!lock.exists());
        sandbox.file(".git/config.lock", "");
        sandbox
            .run(&["git", "config", "user.email", "c@d"])
            .exits(255)
            .complains("could not lock config file");
        assert!(lock.exists());
        sandbox.run(&["git", "status", "--short"]).exits(0);
    });
}

#[test]
fn what_a_worktree_lacks_is_named_and_init_offers_it() {
    if !has("git") {
        return skip("git", "it is not installed");
    }
    everyone(|sandbox| {
        worktree(sandbox);
        let repository = sandbox.beside("main/.git");
        sandbox.policy("include: profile/git\nwrite: .\nwrite: ./out");
        let ran = sandbox.run(&["git", "status", "--short"]);
        assert_ne!(ran.code, 0, "{ran}");
        ran.complains("whose repository is not visible (to allow it: read: ").complains("main/.git");

        sandbox.agentbox(&["init", "--profile", "git"]).exits(0);
        let starter = fs::read_to_string(sandbox.path("agentbox.policy")).expect("a policy");
        let offered: Vec<_> = starter.lines().filter_map(|line| line.strip_prefix("# write: ")).collect();
        let canonical = repository.canonicalize().expect("the repository");
        assert!(offered.iter().any(|path| canonical.starts_with(path)), "{starter}");
        let rules: String = offered.iter().map(|path| format!("write: {path}\n")).collect();
        sandbox.policy(&format!("include: profile/git\nwrite: .\n{rules}"));
        let script =
            "echo two >>file; git commit -q -a -m second; git log --format=%s; git status --short -uno";
        sandbox.run(&["sh", "-ec", script]).exits(0).prints("second\nfirst\n");
        // The host's own git goes on.
        assert!(
            !repository.join("config.lock").exists()
                && !repository.join("worktrees/work/index.lock").exists()
        );
        let mut git = Command::new("git");
        git.args(["-c", "safe.directory=*", "log", "-1", "--format=%s"]).current_dir(sandbox.path(""));
        let said = git.env("GIT_CONFIG_GLOBAL", "/dev/null").output().expect("git");
        assert_eq!(String::from_utf8_lossy(&said.stdout), "second\n");
    });
}
