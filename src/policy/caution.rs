//! What is said beside a suggestion, or in place of one: that it opens more than it seems.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::verdict::{Denied, PathAccess};
use super::{Policy, credentials};

/// Where the system looks for what it starts and how (hier(7)).
const OF_SYSTEM: [&str; 8] = ["/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/var/spool/cron"];
/// The same below the home of the user: shells, sessions and editors.
const OF_USER: [&str; 22] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".inputrc",
    ".xprofile",
    ".xsession",
    ".xinitrc",
    ".gitconfig",
    ".vimrc",
    ".config/autostart",
    ".config/fish",
    ".config/git",
    ".config/systemd",
    ".local/bin",
    "bin",
];

/// Said of places whose content is started later.
const RUN_LATER: &str = "what is written there is run later, outside";

impl Policy {
    /// What to know before the suggested rule is added.
    pub fn caution(&self, denied: &Denied) -> Option<&'static str> {
        let place = changed(denied)?;
        let is_of_git = || place.iter().any(|name| name == ".git");
        let is_near = |start: &Path| place.starts_with(start) || start.starts_with(place);
        let is_of_user = |home: &Path| OF_USER.iter().any(|name| is_near(&home.join(name)));
        let is_of_system = || OF_SYSTEM.iter().any(|tree| place.starts_with(tree));
        let is_risky = is_of_git() || is_of_system() || self.home.as_deref().is_some_and(is_of_user);
        is_risky.then_some(RUN_LATER)
    }

    /// The place of secrets that it concerns, as a policy says it.
    pub fn place_of_secrets(&self, denied: &Denied) -> Option<String> {
        let (Denied::Path { path, .. } | Denied::Entry { path, .. }) = denied else { return None };
        credentials::place_of(path, self.home.as_deref())
    }

    /// Whether no rule for `directory` is proposed: it holds the user's home, or all there is.
    pub fn is_too_wide(&self, directory: &Path) -> bool {
        let holds = |place: &Path| place.starts_with(directory);
        let is_above = self.cwd != directory && holds(&self.cwd);
        is_above || directory.parent().is_none() || self.home.as_deref().is_some_and(holds)
    }
}

/// Where a rule would let things be changed.
fn changed(denied: &Denied) -> Option<&Path> {
    match denied {
        Denied::Path { access: PathAccess::Write, path } => Some(path),
        Denied::Entry { directory, .. } => Some(directory),
        _ => None,
    }
}

/// Whether it is compiled code of Python's that was to be kept: the next start on the host would run what stands
/// there, and programs do without.
pub fn is_bytecode(denied: &Denied) -> bool {
    let (Denied::Path { access: PathAccess::Write, path } | Denied::Entry { path, .. }) = denied else {
        return false;
    };
    path.iter().any(|name| name.as_bytes() == b"__pycache__")
}
