//! The runtime roots of a command: what must be readable for it to start, and nothing wider.

use std::path::{Path, PathBuf};

use super::chain::Chain;
use super::prefix::{self, Prefix};
use super::shebang::{self, Image};
use super::surroundings::{Surroundings, is_system};
use super::{Executable, Link, RuntimeRoot, interpreter, libraries, shim, trail};
use crate::policy::looks;

/// Directories that hold many unrelated things: never a root, whatever stands in them.
const SHARED: [&str; 22] = [
    "/", "/bin", "/boot", "/data", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc",
    "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/tmp",
];

/// What [`collect`] finds.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) roots: Vec<RuntimeRoot>,
    pub(super) links: Vec<Link>,
    pub(super) notes: Vec<String>,
}

/// The roots and links of every image of `chain`.
pub(super) fn collect(chain: &Chain, around: &Surroundings<'_>) -> Collected {
    let dirs = around.path_dirs().into_iter().chain(chain.path_prefix.iter().cloned()).collect();
    let mut collector =
        Collector { around, dirs, chosen_by: Vec::new(), runtime: Vec::new(), found: Collected::default() };
    let family =
        interpreter::family(&chain.last().spelled).or_else(|| interpreter::family(&chain.last().resolved));
    // What a script names as its interpreter was chosen by who wrote the script.
    let mut chosen_by: Vec<PathBuf> =
        chain.script.iter().filter_map(|path| looks::canonical(path).ok()).collect();
    for image in &chain.images {
        let is_script = chain.script.as_deref() == Some(image.spelled.as_path());
        collector.image(image, family, is_script, if is_script { &[] } else { &chosen_by });
        chosen_by.extend(super::links_of(&image.spelled));
        chosen_by.push(image.resolved.clone());
    }
    collector.finish()
}

/// What of a prefix is a runtime and nothing else.
fn runtime_in(prefix: &Prefix) -> Vec<PathBuf> {
    let Some(base) = prefix::base(prefix.clone()) else { return Vec::new() };
    let parts = if base.is_base { base.parts } else { vec![base.path] };
    let parts = parts.iter().filter(|part| prefix::lies_in(part, &prefix.path));
    parts.filter_map(|part| looks::canonical(part).ok()).collect()
}

/// Whether `program` is one of the system's own and needs nothing that lies elsewhere: what [`collect`] finds
/// as well, after many more looks.
pub(super) fn is_all_system(program: &Path, around: &Surroundings<'_>) -> bool {
    if !is_system(program)
        || shim::see_through(program.to_owned(), None, around).is_ok_and(|s| s.is_behind_shim)
    {
        return false;
    }
    let Ok(trail) = trail::follow(program) else { return false };
    let hops = trail.links.iter().map(|link| link.path.as_path()).chain([program, &trail.real]);
    hops.clone().all(|hop| is_system(hop) && prefix::of(hop, None).is_none())
        && matches!(shebang::look_at(&trail.real), Ok(Image::Elf))
}

struct Collector<'a> {
    around: &'a Surroundings<'a>,
    /// The directories in which programs are looked for: what lies there is the user's choice.
    dirs: Vec<PathBuf>,
    /// What leads to the roots that are added now.
    chosen_by: Vec<PathBuf>,
    /// What of the tree that is added now is a runtime and nothing else.
    runtime: Vec<PathBuf>,
    found: Collected,
}

impl Collector<'_> {
    fn image(&mut self, image: &Executable, family: Option<&str>, is_script: bool, chosen_by: &[PathBuf]) {
        for (hop, chosen_by) in self.hops(image, chosen_by) {
            self.chosen_by = chosen_by;
            if let Some(prefix) = prefix::of(&hop, family) {
                self.runtime = if self.chosen_by.is_empty() { Vec::new() } else { runtime_in(&prefix) };
                self.prefix(&prefix, image);
            }
        }
        if let Some(modules) = interpreter::node_modules(&image.resolved) {
            self.root(&modules, format!("the packages of {}", image.spelled.display()));
        }
        // A script is a file of its own, named as the command's script and recorded.
        if is_script || is_system(&image.resolved) {
            return;
        }
        let name = image.spelled.display();
        self.root(&image.resolved, format!("the program {name}"));
        let needs = libraries::of(&image.resolved);
        for file in needs.files {
            self.spelled(&file, &format!("a library of {name}"));
        }
        for dir in needs.directories {
            self.spelled(&dir, &format!("the libraries of {name}"));
        }
    }

    /// The names by which an image is reached, and what leads to each. A virtualenv is told by a link's own place, a
    /// toolchain by the real file's.
    fn hops(&mut self, image: &Executable, chosen_by: &[PathBuf]) -> Vec<(PathBuf, Vec<PathBuf>)> {
        let links = trail::follow(&image.spelled).map(|trail| trail.links).unwrap_or_default();
        let mut before = chosen_by.to_vec();
        let mut hops: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
        let mut reach = |path: &Path, before: &mut Vec<PathBuf>| {
            if path.parent().is_some_and(|dir| self.dirs.iter().any(|known| known == dir)) {
                before.clear();
            }
            if hops.last().is_none_or(|(last, _)| last != path) {
                hops.push((path.to_owned(), before.clone()));
            }
        };
        reach(&image.spelled, &mut before);
        for link in &links {
            if looks::is_file(&link.path) {
                reach(&link.path, &mut before);
            }
            before.push(link.path.clone());
        }
        reach(&image.resolved, &mut before);
        self.found.links.extend(links);
        hops
    }

    fn prefix(&mut self, prefix: &Prefix, image: &Executable) {
        let reason = format!("{} of {}", prefix.kind, image.spelled.display());
        let chosen_by = self.chosen_by.clone();
        self.chosen_by.extend(super::links_of(&prefix.path));
        if prefix.is_base || !self.followed(&prefix.path, &reason) {
            if prefix.is_runtime() {
                self.chosen_by.clear();
            }
            // What a link in it leads to may be no part of it, and the choice of whoever can write there.
            let is_part = |part: &&PathBuf| prefix::lies_in(part, &prefix.path);
            for part in prefix.parts.iter().filter(is_part) {
                self.followed(part, &reason);
            }
        }
        self.chosen_by = chosen_by;
        if prefix.kind != prefix::VIRTUALENV {
            return;
        }
        // `home` is the directory of the base interpreter, most often BASE/bin.
        if let Some(home) = prefix::base_python(&prefix.path) {
            let python = home.join("python3");
            let base = prefix::of(&python, Some("python")).and_then(prefix::base);
            if let Some(base) = base {
                self.prefix(&base, &Executable { spelled: python.clone(), resolved: python });
            }
        }
    }

    /// Adds what a spelled path leads to, and the links on the way. False if it is too wide.
    fn spelled(&mut self, path: &Path, reason: &str) -> bool {
        let before = self.chosen_by.len();
        self.chosen_by.extend(super::links_of(path));
        let added = self.followed(path, reason);
        self.chosen_by.truncate(before);
        added
    }

    /// The same where the links make no difference to whose choice it is.
    fn followed(&mut self, path: &Path, reason: &str) -> bool {
        let Ok(trail) = trail::follow(path) else {
            return true;
        };
        self.found.links.extend(trail.links);
        self.root(&trail.real, reason.to_owned())
    }

    /// Adds a resolved path. False if it is too wide to be a root.
    fn root(&mut self, path: &Path, reason: String) -> bool {
        let runtime = std::mem::take(&mut self.runtime);
        if is_system(path) {
            return true;
        }
        if self.is_too_wide(path) {
            let note = format!(
                "{} ({reason}) is not visible as a whole, for it holds other things; \
                 a `read:` rule shows what is needed of it",
                path.display()
            );
            if !self.found.notes.contains(&note) {
                self.found.notes.push(note);
            }
            return false;
        }
        let chosen_by = self.chosen_by.clone();
        self.found.roots.push(RuntimeRoot { path: path.to_owned(), reason, chosen_by, runtime });
        true
    }

    /// Whether a root here would show what is no runtime: a shared directory, somebody's home, or
    /// the directory that the command works in.
    fn is_too_wide(&self, path: &Path) -> bool {
        if looks::is_file(path) {
            return false;
        }
        let real = |path: &Path| looks::canonical(path).unwrap_or_else(|_| path.to_owned());
        if SHARED.iter().any(|shared| path == Path::new(shared)) || path.parent() == Some(Path::new("/home"))
        {
            return true;
        }
        if let Some(home) = self.around.home().map(|home| real(&home))
            && (home.starts_with(path) || path == home.join(".local"))
        {
            return true;
        }
        real(self.around.cwd).starts_with(path)
    }

    /// Sorts, and drops what lies in another root or in the system's trees.
    fn finish(mut self) -> Collected {
        self.found.roots.sort();
        let mut roots: Vec<RuntimeRoot> = Vec::new();
        for root in self.found.roots {
            let covers = |outer: &RuntimeRoot, inner: &RuntimeRoot| {
                inner.path.starts_with(&outer.path)
                    && outer.chosen_by.iter().all(|place| inner.chosen_by.contains(place))
            };
            if roots.iter().any(|kept| covers(kept, &root)) {
                continue;
            }
            roots.retain(|kept| !covers(&root, kept));
            match roots.iter_mut().find(|kept| root.path.starts_with(&kept.path) && root.chosen_by.is_empty())
            {
                // A part that is shown, whoever has chosen the whole.
                Some(whole) => whole.runtime.push(root.path),
                None => roots.push(root),
            }
        }
        self.found.links.sort();
        self.found.links.dedup();
        let inside = |path: &Path| {
            let shown = |root: &RuntimeRoot| root.chosen_by.is_empty() && path.starts_with(&root.path);
            roots.iter().any(|root| shown(root) || root.runtime.iter().any(|part| path.starts_with(part)))
        };
        self.found.links.retain(|link| !is_system(&link.path) && !inside(&link.path));
        Collected { roots, links: self.found.links, notes: self.found.notes }
    }
}
