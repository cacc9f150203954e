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
    let mut collector = Collector { around, found: Collected::default() };
    let family =
        interpreter::family(&chain.last().spelled).or_else(|| interpreter::family(&chain.last().resolved));
    for image in &chain.images {
        collector.image(image, family, chain.script.as_deref() == Some(image.spelled.as_path()));
    }
    collector.finish()
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
    found: Collected,
}

impl Collector<'_> {
    fn image(&mut self, image: &Executable, family: Option<&str>, is_script: bool) {
        let links = trail::follow(&image.spelled).map(|trail| trail.links).unwrap_or_default();
        // A virtualenv is told by a link's own place, a toolchain by the real file's.
        let mut hops = vec![image.spelled.clone()];
        hops.extend(links.iter().map(|link| link.path.clone()).filter(|path| looks::is_file(path)));
        hops.push(image.resolved.clone());
        hops.dedup();
        self.found.links.extend(links);
        for hop in &hops {
            if let Some(prefix) = prefix::of(hop, family) {
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

    fn prefix(&mut self, prefix: &Prefix, image: &Executable) {
        let reason = format!("{} of {}", prefix.kind, image.spelled.display());
        if prefix.is_base || !self.spelled(&prefix.path, &reason) {
            // What a link in it leads to may be no part of it, and the choice of whoever can write there.
            let is_part = |part: &&PathBuf| prefix::lies_in(part, &prefix.path);
            for part in prefix.parts.iter().filter(is_part) {
                self.spelled(part, &reason);
            }
        }
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
        let Ok(trail) = trail::follow(path) else {
            return true;
        };
        self.found.links.extend(trail.links);
        self.root(&trail.real, reason.to_owned())
    }

    /// Adds a resolved path. False if it is too wide to be a root.
    fn root(&mut self, path: &Path, reason: String) -> bool {
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
        self.found.roots.push(RuntimeRoot { path: path.to_owned(), reason });
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
            if !roots.iter().any(|kept| root.path.starts_with(&kept.path)) {
                roots.push(root);
            }
        }
        self.found.links.sort();
        self.found.links.dedup();
        let inside = |path: &Path| roots.iter().any(|root| path.starts_with(&root.path));
        self.found.links.retain(|link| !is_system(&link.path) && !inside(&link.path));
        Collected { roots, links: self.found.links, notes: self.found.notes }
    }
}
