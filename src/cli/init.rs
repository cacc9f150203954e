//! `agentbox init`: writes a starter policy, and never over anything.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::command::{self, profiles};
use crate::trace::escape;

mod starter;

use super::Failure;
use super::keys;
use super::output::written;
use super::voice::Voice;
use super::worktree;
use starter::Starter;

/// Writes a policy that works for most programs, with hints for the rest.
#[derive(Debug, clap::Args)]
pub struct InitCommand {
    /// Include a shipped profile: git, git-fetch, python, node, rust, go, java, claude-code, codex, aider
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The file to write; it must not exist
    #[arg(short, long, value_name = "FILE", default_value = "agentbox.policy")]
    policy: PathBuf,
    #[command(flatten)]
    voice: Voice,
}

impl InitCommand {
    /// Writes the file and says so on stdout. The exit code is 2 when the file exists or there is
    /// no such profile.
    ///
    /// # Errors
    /// The current directory cannot be told, or the file or stdout cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        if let Some(name) = self.profile.as_deref().filter(|name| profiles::profile(name).is_none()) {
            let names: Vec<_> = profiles::names().collect();
            let name = name.escape_default();
            return Err(Failure::usage(format!("no profile `{name}`; there are: {}", names.join(", "))));
        }
        let cwd = std::env::current_dir()
            .map_err(|error| Failure::usage(format!("cannot tell the current directory: {error}")))?;
        let env: Vec<_> = std::env::vars_os().collect();
        let text = survey(self.profile.as_deref(), &env, &cwd).to_string();
        match write_new(&self.policy, &text) {
            Ok(()) if self.voice.is_quiet() => Ok(0),
            Ok(()) => {
                let path = escape::text(&self.policy.to_string_lossy());
                written(0, writeln!(io::stdout(), "wrote {path}"))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let path = self.policy.display();
                Err(Failure::usage(format!(
                    "{path} exists already and is left as it is (-p FILE writes another)"
                )))
            }
            Err(error) => {
                let path = self.policy.display();
                Err(Failure::usage(format!("cannot write {path}: {error}: name another file with -p")))
            }
        }
    }
}

/// Creates the file. O_EXCL never follows a link at the end of a path (open(2)), a dangling one
/// included, so no file but a new one is ever written.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a policy would be read as a whole one.
        fs::remove_file(path)?;
    }
    written
}

/// Programs that agents often start, in the order in which they are listed.
const COMMON: [&str; 24] = [
    "git", "python3", "node", "npm", "cargo", "go", "java", "make", "cmake", "gcc", "bash", "sh", "ls",
    "cat", "find", "grep", "rg", "sed", "sort", "jq", "tar", "curl", "wget", "sqlite3",
];

/// Looks at what the policy should speak of; opens nothing but `.git` files.
fn survey<'a>(profile: Option<&'a str>, env: &[(OsString, OsString)], cwd: &Path) -> Starter<'a> {
    let on_path = |word: &&&str| !command::programs(OsStr::new(word), env, cwd).is_empty();
    Starter {
        profile,
        programs: COMMON.iter().filter(on_path).copied().collect(),
        keys: keys::set(env),
        worktree: worktree::around(cwd),
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::policy::{self, LaunchHost};

    #[test]
    fn nothing_is_ever_overwritten() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("agentbox.policy");
        write_new(&path, "a").expect("a new file");
        let again = write_new(&path, "b").expect_err("the file is there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("the file"), "a");

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("target"), &link).expect("a link");
        assert!(write_new(&link, "c").is_err());
        assert!(!dir.path().join("target").exists());
    }

    #[test]
    fn a_worktree_names_its_repository() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = fs::canonicalize(dir.path()).expect("the directory");
        let gitdir = root.join("main/.git/worktrees/w");
        fs::create_dir_all(&gitdir).expect("directories");
        fs::create_dir_all(root.join("w/sub")).expect("directories");
        fs::write(gitdir.join("commondir"), "../..\n").expect("a file");
        fs::write(root.join("w/.git"), format!("gitdir: {}\n", gitdir.display())).expect("a file");
        let starter = survey(None, &[], &root.join("w/sub"));
        let found = starter.worktree.expect("a worktree");
        assert_eq!(found.gitdir, gitdir);
        assert_eq!(found.common, Some(root.join("main/.git")));
        assert!(worktree::around(&root.join("main")).is_none());
    }

    #[test]
    fn only_set_keys_are_named() {
        let env = [("A_API_KEY", "x"), ("B_API_KEY", ""), ("C_TOKEN", "x"), ("D\n_API_KEY", "x")];
        let env = env.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        assert_eq!(survey(None, &env, Path::new("/")).keys, ["A_API_KEY"]);
    }

    #[test]
    fn the_help_names_every_profile() {
        let help = InitCommand::augment_args(clap::Command::new("init")).render_long_help().to_string();
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let names: Vec<_> = profiles::names().collect();
        assert!(words.contains(&names.join(", ")), "{help}");
    }

    fn host() -> LaunchHost {
        LaunchHost::new()
            .expect("a launch directory")
            .profiles(profiles::profile, || profiles::names().collect())
    }

    fn load(text: &str) -> policy::Policy {
        policy::parse(text, "agentbox.policy", &host())
            .unwrap_or_else(|report| panic!("{text}\n{}", report.render(false)))
    }

    #[test]
    fn what_is_shipped_can_be_loaded() {
        for name in profiles::names() {
            let loaded = load(&format!("include: profile/{name}\n"));
            assert!(!loaded.rules.is_empty(), "{name}");
            let warnings: Vec<_> = loaded.warnings.iter().map(|warning| &warning.message).collect();
            assert!(warnings.is_empty(), "{name}: {warnings:?}");
        }
        load(include_str!("../../examples/agentbox.policy"));
        let report = policy::parse("include: profile/pyton", "p", &host()).expect_err("no such profile");
        let said = report.render(false);
        assert!(said.contains("did you mean `python`?") && said.contains("the profiles are git, "), "{said}");
    }

    #[test]
    fn the_starter_can_be_loaded_with_every_hint_taken() {
        let env: Vec<_> = std::env::vars_os().chain([("OPENAI_API_KEY".into(), "x".into())]).collect();
        let cwd = std::env::current_dir().expect("a directory");
        for profile in [None, Some("git")] {
            let text = survey(profile, &env, &cwd).to_string();
            let taken: Vec<_> = text
                .lines()
                .filter(|line| !line.starts_with("# secret: ") || line.ends_with("api.openai.com"))
                .filter(|line| *line != "# env: OPENAI_API_KEY")
                .map(|line| match line.strip_prefix("# ") {
                    Some(rule) if KEYS.iter().any(|key| rule.starts_with(key)) => rule,
                    _ => line,
                })
                .collect();
            let plain = load(&text);
            assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);
            load(&taken.join("\n"));
        }
    }

    /// How a line begins that is a rule once its `# ` is taken away.
    const KEYS: [&str; 6] = ["exec: ", "env: ", "net: ", "secret: ", "include: ", "write: "];
}
