//! The one table that decides on files: policy rules, the system's own trees, private places.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::{FileId, PathAccess, Policy, RuleId, Verdict, lossless};

/// Which files are there depends on the network namespace of whoever looks.
pub(super) const NET_SETTINGS: &str = "/proc/sys/net";

/// Why what holds them is neither made, moved nor replaced.
pub(super) const HOLDS_OWN: &str = "it holds a file of the launcher";
/// Why no link comes to lie on the way to a denied place.
pub(super) const DENIED_BELOW: &str = "a rule denies something below it, which a link would show elsewhere";

/// A file of the launcher that no rule can open: the policy, the trace, former traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// Where it is on the host, which is where it would be in the view.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// Device and inode, while it exists.
    pub id: Option<FileId>,
    /// Directories do not list it: a trace or what belongs to one. The policy is listed.
    pub unlisted: bool,
}

impl Protected {
    /// Whether `path` is the file, below it, or one of the names with a number that former traces
    /// get: a run plants none of them.
    fn covers(&self, path: &Path) -> bool {
        let (path, own) = (path.as_os_str().as_bytes(), self.path.as_os_str().as_bytes());
        // Most end elsewhere: then nothing else is compared.
        if path.get(own.len()).is_some_and(|next| !b"/.".contains(next)) {
            return false;
        }
        let Some(rest) = path.strip_prefix(own) else { return false };
        let name = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
        let numbered = |rest: &[u8]| {
            let digits = rest.strip_suffix(b".blobs").unwrap_or(rest);
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        };
        name.is_empty() || name.strip_prefix(b".").is_some_and(numbered)
    }
}

/// What the view is made of, for decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccessTable {
    /// The rules.
    pub policy: Arc<Policy>,
    /// Trees and files that are readable without a rule and without a record.
    #[serde(with = "lossless::paths")]
    pub system: Vec<PathBuf>,
    /// Files of the launcher's making, others in each run: no input from the host.
    #[serde(default, with = "lossless::paths")]
    pub made: Vec<PathBuf>,
    /// What is masked in them.
    #[serde(with = "lossless::paths")]
    pub closed: Vec<PathBuf>,
    /// Directories that the run has for itself, gone when it ends.
    #[serde(with = "lossless::paths")]
    pub private: Vec<PathBuf>,
    /// Directories that exist in the view only to hold something that a rule shows.
    #[serde(with = "lossless::paths")]
    pub skeleton: Vec<PathBuf>,
    /// What the host shows of itself by a rule: not the run's own, even below a private directory.
    #[serde(with = "lossless::paths")]
    pub shown: Vec<PathBuf>,
    /// Devices that may be read and written.
    #[serde(with = "lossless::paths")]
    pub devices: Vec<PathBuf>,
    /// Files of the launcher.
    pub protected: Vec<Protected>,
    /// False under `--observe`: what would be refused is recorded and happens.
    pub enforce: bool,
    /// The kernel opens no content by itself, for a path that means a file of the system when it is judged could mean
    /// by then another one that Landlock has to let it open.
    pub full_mediation: bool,
}

/// Where a granted path lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// The system's own: not recorded.
    System,
    /// The run's own: not recorded.
    Private,
    /// A directory that shows only what rules name in it: its listing is recorded as partial.
    Partial,
    /// Granted by this rule, or by none under `--observe`, where the host's own stands for what would be the run's:
    /// recorded.
    Rule(Option<RuleId>),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may happen.
    Allow(Area),
    /// It is refused.
    Deny {
        /// The rule that refuses it.
        rule: Option<RuleId>,
        /// Why.
        reason: String,
    },
    /// It is the launcher's own: refused under `--observe` too.
    Own {
        /// Why.
        reason: &'static str,
    },
}

impl AccessTable {
    /// Decides on `resolved`, a final path of the view; `id` is the file there, if any.
    #[must_use]
    pub fn decide(&self, access: PathAccess, resolved: &Path, id: Option<FileId>) -> Decision {
        if let Some(protected) = self.protected_as(resolved, id) {
            // What git is told to leave alone, and what lies elsewhere (`-p`), it does not look at.
            let is_policy = protected.path.extension().is_some_and(|extension| extension == "policy");
            return Decision::Own {
                reason: match is_policy {
                    true => {
                        "the policy belongs to the launcher: keep it outside with -p, or name it in .git/info/exclude"
                    }
                    false => "it belongs to the launcher",
                },
            };
        }
        if is_below(resolved, Path::new("/proc/1")) {
            return Decision::Own { reason: "pid 1 is the launcher's" };
        }
        if is_of_opener(resolved) {
            return Decision::Own { reason: "the kernel shows there what belongs to whoever opens it" };
        }
        match self.policy.decide_path(access, resolved) {
            Verdict::Allow { rule } => Decision::Allow(Area::Rule(Some(rule))),
            Verdict::Deny { rule: Some(rule), reason } => Decision::Deny { rule: Some(rule), reason },
            Verdict::Deny { rule: None, reason } => match self.without_rule(access, resolved) {
                Some(area) => Decision::Allow(area),
                None => Decision::Deny { rule: None, reason },
            },
        }
    }

    /// The same for what is there. A directory in which a pattern may match is listed as one that is shown in part.
    pub(super) fn decide_object(
        &self,
        access: PathAccess,
        resolved: &Path,
        id: FileId,
        is_directory: bool,
    ) -> Decision {
        let decision = self.decide(access, resolved, Some(id));
        let is_listing = is_directory && access == PathAccess::Read;
        match decision {
            Decision::Deny { rule: None, .. } if is_listing && self.policy.covers_below(resolved) => {
                Decision::Allow(Area::Partial)
            }
            decision => decision,
        }
    }

    fn without_rule(&self, access: PathAccess, path: &Path) -> Option<Area> {
        if self.is_private(path) {
            return Some(if self.enforce { Area::Private } else { Area::Rule(None) });
        }
        if self.devices.iter().any(|device| is_below(path, device)) {
            return Some(Area::System);
        }
        if access != PathAccess::Read {
            return None;
        }
        if self.is_system(path) {
            return Some(Area::System);
        }
        self.shows_parts(path).then_some(Area::Partial)
    }

    /// Whether the directory is one of ours, made for what rules name in it: its other names are not there.
    pub(super) fn shows_parts(&self, path: &Path) -> bool {
        path == Path::new("/") || self.skeleton.iter().any(|directory| directory == path)
    }

    /// Whether `path` is in a tree of the system that is shown, and not masked there.
    #[must_use]
    pub fn is_system(&self, path: &Path) -> bool {
        self.system.iter().any(|tree| is_below(path, tree))
            && !self.closed.iter().any(|tree| is_below(path, tree))
    }

    /// Whether what is at `path` in the view is of the launcher's making.
    pub(super) fn is_made(&self, path: &Path) -> bool {
        // Most lengths differ: paths themselves are compared part by part.
        self.made.iter().any(|made| made.as_os_str() == path.as_os_str())
    }

    /// Whether `path` is the run's own: below a private directory, and not below something of
    /// the host there.
    #[must_use]
    pub fn is_private(&self, path: &Path) -> bool {
        let Some(private) =
            self.private.iter().filter(|private| is_below(path, private)).max_by_key(|p| p.as_os_str().len())
        else {
            return false;
        };
        !self.skeleton.iter().chain(&self.shown).any(|directory| {
            is_below(path, directory) && directory != private && is_below(directory, private)
        })
    }

    /// Whether `path` or the file there is one of the launcher's own.
    #[must_use]
    pub fn is_protected(&self, path: &Path, id: Option<FileId>) -> bool {
        self.protected_as(path, id).is_some()
    }

    fn protected_as(&self, path: &Path, id: Option<FileId>) -> Option<&Protected> {
        self.protected.iter().find(|protected| protected.covers(path) || (id.is_some() && protected.id == id))
    }

    /// Whether the file is one of the launcher's own, wherever it is.
    pub(super) fn is_own(&self, id: FileId) -> bool {
        self.protected.iter().any(|protected| protected.id == Some(id))
    }

    /// Whether names in `directory` are not listed.
    #[must_use]
    pub fn hides_in(&self, directory: &Path) -> bool {
        self.protected.iter().any(|one| one.unlisted && one.path.parent() == Some(directory))
    }

    /// Whether `path` is not listed.
    #[must_use]
    pub fn hides(&self, path: &Path) -> bool {
        self.protected.iter().any(|one| one.unlisted && one.covers(path))
    }

    /// Whether something below `directory` is the launcher's own: moving it would move that.
    #[must_use]
    pub fn holds_protected(&self, directory: &Path) -> bool {
        self.protected.iter().any(|protected| protected.path.starts_with(directory))
    }

    /// Decides on making at `path`, where nothing is, what is no empty directory. On the way to a place of the launcher
    /// none is made: what the launcher finds there later would be the agent's.
    pub(super) fn decide_new(&self, path: &Path) -> Decision {
        match self.decide(PathAccess::Write, path, None) {
            Decision::Allow(_) if self.holds_protected(path) => Decision::Own { reason: HOLDS_OWN },
            decision => decision,
        }
    }

    /// What allows it, as a record names it.
    #[must_use]
    pub fn grant_label(&self, rule: Option<RuleId>) -> String {
        rule.map_or_else(|| "--observe".to_owned(), |rule| self.policy.rule_label(rule))
    }

    /// The rule as a record names it.
    #[must_use]
    pub fn label(&self, rule: Option<RuleId>, reason: &str) -> String {
        match rule {
            Some(rule) => self.policy.rule_label(rule),
            None if reason.starts_with("no rule") => reason.to_owned(),
            None => format!("no rule: {reason}"),
        }
    }
}

/// Whether `path` is `tree` or below it, both final and absolute: asked for every open, where a walk
/// over components costs more than all else that we do.
pub(super) fn is_below(path: &Path, tree: &Path) -> bool {
    let (path, tree) = (path.as_os_str().as_encoded_bytes(), tree.as_os_str().as_encoded_bytes());
    let tree = tree.strip_suffix(b"/").unwrap_or(tree);
    // Most end elsewhere: then nothing else is compared.
    path.get(tree.len()).is_none_or(|&next| next == b'/') && path.starts_with(tree)
}

/// Whether the kernel shows at a final path what belongs to the namespaces of whoever looks (proc_sysvipc(5), `net` of
/// proc_sys(5)). We would see the host's.
pub(super) fn is_of_opener(path: &Path) -> bool {
    ["/proc/sysvipc", NET_SETTINGS].iter().any(|tree| is_below(path, Path::new(tree)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Protected;

    #[test]
    fn names_of_former_traces_are_covered() {
        let trace = Protected { path: "/w/trace.jsonl".into(), id: None, unlisted: true };
        for name in ["", ".1", ".12.blobs", ".3.blobs/x", "/x"] {
            assert!(trace.covers(Path::new(&format!("/w/trace.jsonl{name}"))), "{name}");
        }
        for name in ["/w/trace.jsonl.", "/w/trace.jsonl.x", "/w/trace.jsonl2", "/w/trace.json", "/w"] {
            assert!(!trace.covers(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn below_is_by_components() {
        let below = |path, tree| super::is_below(Path::new(path), Path::new(tree));
        assert!(below("/usr", "/usr") && below("/usr/bin/x", "/usr") && below("/usr/bin", "/usr/"));
        assert!(below("/x", "/") && below("/", "/"));
        assert!(!below("/usrx", "/usr") && !below("/usr", "/usr/bin") && !below("/x", "/usr"));
    }
}
