//! The text of the starter policy.

use std::fmt;
use std::path::Path;

use crate::cli::worktree::Worktree;
use crate::command::profiles;

/// What the starter policy speaks of.
#[derive(Debug)]
pub(super) struct Starter<'a> {
    /// A shipped profile to include.
    pub(super) profile: Option<&'a str>,
    /// Common programs that are on `PATH`.
    pub(super) programs: Vec<&'static str>,
    /// Names of variables that hold a key.
    pub(super) keys: Vec<String>,
    /// The repository, when `.git` here is a file.
    pub(super) worktree: Option<Worktree>,
}

const HEAD: &str = "\
# What a command may touch. Everything that no rule here allows is refused, and recorded.
#
#   agentbox run -- python3 agent.py     runs a command under this file
#   agentbox policy show                 prints each rule, and what is visible without one
#
# Paths start at the directory in which the command is started; `~` is your home. Grants add up,
# and a `deny:` takes away from all of them. The order of lines does not matter.
#
# The command can neither read nor change this file, and `git add -A` stops at what it cannot read: where
# git runs inside, name it in .git/info/exclude, or keep it elsewhere (`-p FILE`).

# Files. `write:` implies reading. The command may not start programs from a write directory.
read: .
write: ./out

# Secrets that `read: .` would show.
deny: read **/.env
";

const GIT_CONFIG: &str = "\
# It can hold a token. This stops git too: delete it when git is allowed.
deny: read **/.git/config
";

const GIT_READS_IT: &str = "\
# It can hold a token, but git, which the profile allows, does nothing without it.
# deny: read **/.git/config
";

const EXEC: &str = "
# Programs. The command itself needs no rule, and neither does its own interpreter; every other
# program that it starts does. `exec: git status` would allow that subcommand alone.
";

const NET: &str = "
# Network. Nothing outside is reachable without a rule; servers started inside are.
# net: api.example.org:443
# net: *.example.org
";

const ENV: &str = "
# Environment. PATH, LANG, LC_*, TERM and TZ are passed; anything else needs a rule.
# env: USER, EDITOR
";

/// Programs whose profile allows more than the program.
const WITH_PROFILE: [(&str, &str); 6] = [
    ("git", "git"),
    ("python3", "python"),
    ("node", "node"),
    ("cargo", "rust"),
    ("go", "go"),
    ("java", "java"),
];

/// Where a well-known key is used.
const HOSTS: [(&str, &str); 9] = [
    ("ANTHROPIC", "api.anthropic.com"),
    ("COHERE", "api.cohere.com"),
    ("DEEPSEEK", "api.deepseek.com"),
    ("GEMINI", "generativelanguage.googleapis.com"),
    ("GROQ", "api.groq.com"),
    ("MISTRAL", "api.mistral.ai"),
    ("OPENAI", "api.openai.com"),
    ("OPENROUTER", "openrouter.ai"),
    ("XAI", "api.x.ai"),
];

impl fmt::Display for Starter<'_> {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(HEAD)?;
        text.write_str(if self.profile.is_some_and(allows_git) { GIT_READS_IT } else { GIT_CONFIG })?;
        if let Some(worktree) = &self.worktree {
            worktree.fmt(text)?;
        }
        text.write_str(EXEC)?;
        for program in &self.programs {
            writeln!(text, "# exec: {program}")?;
        }
        self.profiles(text)?;
        text.write_str(NET)?;
        text.write_str(ENV)?;
        self.keys(text)
    }
}

/// Whether the shipped profile of this name has git started.
fn allows_git(profile: &str) -> bool {
    let rules = profiles::profile(profile).unwrap_or_default().lines();
    let mut programs = rules.filter_map(|line| line.strip_prefix("exec:")).flat_map(|line| line.split(','));
    programs.any(|program| program.split_whitespace().next() == Some("git"))
}

impl Starter<'_> {
    fn profiles(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = WITH_PROFILE.iter().filter(|(program, _)| self.programs.contains(program));
        let offered: Vec<_> =
            known.map(|(_, name)| *name).filter(|name| Some(*name) != self.profile).collect();
        if self.profile.is_none() && offered.is_empty() {
            return Ok(());
        }
        writeln!(text, "\n# Profiles hold what a tool needs: its helpers, caches and hosts.")?;
        if let Some(profile) = self.profile {
            writeln!(text, "include: profile/{profile}")?;
        }
        for name in offered {
            writeln!(text, "# include: profile/{name}")?;
        }
        Ok(())
    }

    fn keys(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.keys.is_empty() {
            return Ok(());
        }
        let why = "
# Keys that are set now. `secret:` shows the command a placeholder and puts the key into requests to
# one host alone, which a `net:` rule must allow. `env:` shows the key itself: write one of the two.
";
        text.write_str(why)?;
        for key in &self.keys {
            let owner = key.strip_suffix("_API_KEY").unwrap_or(key);
            let host = HOSTS.iter().find(|(name, _)| *name == owner);
            let host = host.map_or("HOST", |(_, host)| *host);
            writeln!(text, "# net: {host}:443\n# secret: {key} -> {host}\n# env: {key}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Worktree {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = [Some(&self.gitdir), self.common.as_ref()];
        let rules: Vec<_> = paths.into_iter().flatten().filter_map(|path| value(path)).collect();
        if rules.is_empty() {
            return Ok(());
        }
        let why = "
# This is a git worktree: its repository lies elsewhere. To look at it with git, write `read:`
# for the last of these lines; to commit, allow all of them as they are.
";
        text.write_str(why)?;
        for rule in rules {
            writeln!(text, "# write: {rule}")?;
        }
        Ok(())
    }
}

/// A path as a value of a rule, quoted where its characters would mean something; none where it
/// cannot be written on one line.
fn value(path: &Path) -> Option<String> {
    let path = path.to_str().filter(|path| !path.chars().any(char::is_control))?;
    let special = |character: char| ",#\"\\*?[ ".contains(character);
    if !path.contains(special) {
        return Some(path.to_owned());
    }
    Some(format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starter() -> Starter<'static> {
        Starter { profile: None, programs: vec![], keys: vec![], worktree: None }
    }

    /// The lines that are rules.
    fn rules(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    }

    #[test]
    fn only_the_safe_rules_are_live() {
        let live = ["read: .", "write: ./out", "deny: read **/.env", "deny: read **/.git/config"];
        assert_eq!(rules(&starter().to_string()), live);
        let full = Starter {
            programs: vec!["git", "make"],
            keys: vec!["OPENAI_API_KEY".to_owned(), "MY_API_KEY".to_owned()],
            worktree: Some(Worktree { gitdir: "/r/.git/worktrees/w".into(), common: None }),
            ..starter()
        };
        let text = full.to_string();
        assert_eq!(rules(&text), live);
        for line in [
            "# exec: git",
            "# exec: make",
            "# include: profile/git",
            "# env: OPENAI_API_KEY",
            "# secret: OPENAI_API_KEY -> api.openai.com",
            "# secret: MY_API_KEY -> HOST",
            "# write: /r/.git/worktrees/w",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_profile_is_included() {
        let text = Starter { profile: Some("git"), programs: vec!["git"], ..starter() }.to_string();
        assert!(rules(&text).contains(&"include: profile/git"));
        assert!(!text.contains("# include: profile/git"));
        // It would make every git command fail.
        assert!(!rules(&text).contains(&"deny: read **/.git/config"), "{text}");
        assert!(!allows_git("python") && allows_git("git-fetch"));
    }

    #[test]
    fn paths_are_quoted_where_needed() {
        assert_eq!(value(Path::new("/a/b")).as_deref(), Some("/a/b"));
        assert_eq!(value(Path::new("/a, b")).as_deref(), Some("\"/a, b\""));
        assert_eq!(value(Path::new("/a\nb")), None);
    }
}
