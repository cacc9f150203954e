//! What was refused most often, and by which rule: the last words of a run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{Stop, Supervisor};
use crate::policy::{Denied, FileId, PathAccess, RuleId};
use crate::trace::Event;

/// Different refusals that are counted; later ones still stand in the trace.
const KINDS: usize = 10_000;
/// Longest name that is kept for that; one can have megabytes.
const LONGEST_NAME: usize = 1024;

/// Counts refusals.
#[derive(Debug, Default)]
pub struct Denials {
    counts: HashMap<String, Counted>,
    lookups: HashMap<i32, Lookup>,
    /// Ports that servers inside could not have, each with the rule that has it stand for the host's.
    pub held: BTreeMap<u16, String>,
    /// Directories that were listed and show only what rules name in them; some of them, if they are many.
    pub partial: BTreeSet<PathBuf>,
    /// Dot files that were looked for in private directories and are not there; the same.
    pub missed: BTreeSet<PathBuf>,
}

/// Refusals of one kind.
#[derive(Debug)]
pub struct Counted {
    /// How often.
    pub count: u64,
    /// What was refused.
    pub denied: Denied,
    /// The `deny:` rule, if one refused it.
    pub rule: Option<RuleId>,
    /// Why, where neither a `deny:` rule nor a missing one is the cause.
    pub reason: Option<String>,
    /// When it was first refused.
    pub first: Instant,
}

/// Places that are remembered to be named at the end.
const PLACES: usize = 64;

impl Denials {
    pub(super) fn listed_in_part(&mut self, directory: &Path) {
        if self.partial.len() < PLACES && !self.partial.contains(directory) {
            self.partial.insert(directory.to_owned());
        }
    }

    pub(super) fn missed_in_private(&mut self, path: &Path) {
        let is_dot_file = path.iter().any(|name| name.as_bytes().starts_with(b"."));
        if is_dot_file && self.missed.len() < PLACES && !self.missed.contains(path) {
            self.missed.insert(path.to_owned());
        }
    }

    /// `rule` is the `deny:` rule that refused it.
    pub(super) fn count(&mut self, denied: Denied, rule: Option<RuleId>, reason: Option<&str>) {
        let key = format!("{denied:?} {rule:?}");
        if self.counts.len() < KINDS || self.counts.contains_key(&key) {
            let new = || Counted {
                count: 0,
                denied,
                rule,
                reason: reason.map(str::to_owned),
                first: Instant::now(),
            };
            self.counts.entry(key).or_insert_with(new).count += 1;
        }
    }

    /// Whether task `tid` was refused this very start a moment ago under another path: it looks along PATH, and two
    /// directories there are one (`/bin` and `/usr/bin`), or hold the same file.
    pub(super) fn is_same_lookup(&mut self, tid: i32, id: FileId, argv: &[OsString], spelled: &[u8]) -> bool {
        if self.lookups.len() >= LOOKUPS {
            self.lookups.clear();
        }
        let lookup = self.lookups.entry(tid).or_default();
        let goes_on = lookup.id == Some(id)
            && lookup.argv == argv
            && lookup.name() == last_name(spelled)
            && !lookup.spelled.iter().any(|known| known == spelled);
        if !goes_on {
            *lookup = Lookup { id: Some(id), argv: argv.to_vec(), spelled: Vec::new() };
        }
        lookup.spelled.push(spelled.to_vec());
        goes_on
    }

    /// All refusals, the most frequent first. What programs only look at and do without comes last.
    #[must_use]
    pub fn most_frequent(&self) -> Vec<&Counted> {
        let mut all: Vec<_> = self.counts.iter().collect();
        all.sort_by(|(a, one), (b, other)| {
            let probes = is_probe(&one.denied).cmp(&is_probe(&other.denied));
            probes.then_with(|| other.count.cmp(&one.count)).then_with(|| a.cmp(b))
        });
        all.into_iter().map(|(_, counted)| counted).collect()
    }
}

/// Tasks whose last refused start is known.
const LOOKUPS: usize = 1024;

/// The last refused start of one task.
#[derive(Debug, Default)]
struct Lookup {
    id: Option<FileId>,
    argv: Vec<OsString>,
    /// The paths under which it was tried.
    spelled: Vec<Vec<u8>>,
}

impl Lookup {
    fn name(&self) -> &[u8] {
        self.spelled.first().map_or(b"", |spelled| last_name(spelled))
    }
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// C libraries and language runtimes size themselves by files of the kernel, and manage without.
#[must_use]
pub fn is_probe(denied: &Denied) -> bool {
    matches!(denied, Denied::Path { path, .. } if ["/sys", "/proc"].iter().any(|tree| path.starts_with(tree)))
}

pub(super) fn path(access: PathAccess, path: &Path) -> Denied {
    Denied::Path { access, path: path.to_owned() }
}

pub(super) fn exec(exe: &Path, argv: &[OsString]) -> Denied {
    // By the name alone: what it was asked to do differs each time.
    let name = argv.first().filter(|name| name.len() <= LONGEST_NAME && !is_of_another(name, exe));
    Denied::Exec { exe: exe.to_owned(), argv: name.cloned().into_iter().collect() }
}

/// Whether a program is called what it is not: a rule for that name would be one for another program, or for none.
fn is_of_another(name: &OsStr, exe: &Path) -> bool {
    let base = Path::new(name).file_name().unwrap_or(name);
    // A login shell's name has a dash before it.
    let base = base.as_bytes().strip_prefix(b"-").map_or(base, OsStr::from_bytes);
    if exe.file_name() == Some(base) {
        return false;
    }
    let Ok(identity) = exe.metadata().map(|file| (file.dev(), file.ino())) else { return false };
    let along = std::env::var_os("PATH").unwrap_or_default();
    let usual = exe.parent().into_iter().chain(["/usr/bin", "/bin"].map(Path::new)).map(Path::to_owned);
    let mut places =
        usual.chain(std::env::split_paths(&along)).flat_map(|place| [place.join(name), place.join(base)]);
    !places.any(|place| place.metadata().is_ok_and(|file| (file.dev(), file.ino()) == identity))
}

impl Supervisor {
    /// Says the rule that would allow it, where one is all that is missing.
    pub(super) fn with_remedy(&self, event: Event, denied: &Denied) -> Event {
        // `no rule: …` tells of another cause.
        if !event.rule.as_deref().is_some_and(|rule| rule.starts_with("no rule ")) {
            return event;
        }
        let policy = &self.access.policy;
        let remedy = policy.suggestion(denied);
        let (event, caution) = match remedy.strip_prefix("# ") {
            // Not how a rule is spelled keeps it from being one.
            Some(why) => (event, policy.place_of_secrets(denied).map(|_| why.to_owned())),
            None => (event.arg("remedy", &*remedy), policy.caution(denied).map(str::to_owned)),
        };
        match caution {
            Some(caution) => event.arg("caution", caution),
            None => event,
        }
    }

    /// Records a refusal and counts it for the last words; `rule` is the `deny:` rule behind it.
    pub(super) fn deny(&mut self, event: Event, denied: Denied, rule: Option<RuleId>) -> Result<(), Stop> {
        let event = self.with_remedy(event, &denied);
        // Where no rule is behind it and none that is missing, a rule for the path would change nothing.
        let beyond = event.rule.as_deref().and_then(|rule| rule.strip_prefix("no rule: "));
        if beyond.is_none() || !matches!(denied, Denied::Path { .. }) {
            self.denials.count(denied, rule, beyond);
        }
        Ok(self.recorder.deny(event)?)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Denials, path};
    use crate::policy::{FileId, PathAccess, RuleId};

    #[test]
    fn a_search_along_path_is_one_start() {
        let mut denials = Denials::default();
        let (id, other) = (FileId { dev: 1, ino: 2 }, FileId { dev: 1, ino: 3 });
        let (argv, args) = ([OsString::from("id")], [OsString::from("id"), "-u".into()]);
        let mut same = |tid, id, argv: &[OsString], spelled: &str| {
            denials.is_same_lookup(tid, id, argv, spelled.as_bytes())
        };
        assert!(!same(1, id, &argv, "/usr/bin/id"));
        assert!(same(1, id, &argv, "/bin/id"));
        assert!(!same(1, id, &argv, "/usr/bin/id"), "another try");
        assert!(!same(2, id, &argv, "/bin/id"), "another task");
        assert!(!same(1, id, &args, "/bin/id"), "other arguments");
        assert!(!same(1, other, &args, "/usr/local/bin/id"), "another file");
        assert!(!same(1, other, &args, "/usr/local/bin/ID"), "another name");
    }

    #[test]
    fn what_programs_do_without_comes_last() {
        let mut denials = Denials::default();
        for name in ["/sys/a", "/sys/a", "/srv/rare", "/srv/often", "/srv/often"] {
            denials.count(path(PathAccess::Read, name.as_ref()), None, None);
        }
        denials.count(path(PathAccess::Read, "/srv/rare".as_ref()), Some(RuleId(3)), None);
        let found: Vec<_> = denials.most_frequent();
        let found: Vec<_> = found.iter().map(|kind| (kind.count, &kind.denied, kind.rule)).collect();
        let said = |name: &str| path(PathAccess::Read, name.as_ref());
        assert_eq!(
            found,
            [
                (2, &said("/srv/often"), None),
                (1, &said("/srv/rare"), None),
                (1, &said("/srv/rare"), Some(RuleId(3))),
                (2, &said("/sys/a"), None),
            ]
        );
    }
}
