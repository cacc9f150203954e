//! The Landlock rules of a run: what the kernel may open for it by itself. Files that rules grant
//! are not among them, for their opens are recorded: the supervisor, which Landlock does not
//! bind, hands out the descriptors. So no race leads past the record (landlock(7) judges the
//! opener alone). The kernel reads programs by their path when it starts them: where a rule grants
//! such a root, and under `--observe`, no open is left to the kernel (`AccessTable::full_mediation`).

use std::collections::HashSet;
use std::path::Path;

use super::mounts::View;
use crate::fsview::{GeneratedFile, LandlockRule, MountKind, Right};
use crate::policy::is_within;

/// The rules for `view`, with the generated `files` in it.
pub(super) fn rules(view: &View, files: &[GeneratedFile], enforce: bool) -> Vec<LandlockRule> {
    let rule = |path: &Path, right| LandlockRule { path: path.to_owned(), right };
    let mut rules = vec![rule(Path::new("/"), Right::List)];
    rules.extend(files.iter().map(|file| rule(&file.path, Right::Read)));
    rules.extend(view.direct.iter().map(|path| rule(path, Right::Execute)));
    for op in &view.mounts {
        let right = match &op.kind {
            // Rights reach into what is mounted below, so private directories get none either.
            MountKind::New { filesystem, .. } if filesystem == "proc" => Right::Read,
            MountKind::New { filesystem, .. } if filesystem == "devpts" => Right::Write,
            // Devices: what a rule shows there is bound with all that is mounted in it.
            MountKind::Bind { recursive: false, .. } if op.target.starts_with("/dev") => Right::Write,
            // The host's own root.
            MountKind::Bind { .. } if !enforce && op.target == Path::new("/") => Right::All,
            _ => continue,
        };
        rules.push(rule(&op.target, right));
    }
    gather(rules, view)
}

/// One rule in place of many: a directory of the view's own that holds nothing but what may be opened
/// directly. Each rule costs a start some microseconds, and /etc holds dozens.
fn gather(mut rules: Vec<LandlockRule>, view: &View) -> Vec<LandlockRule> {
    let direct: HashSet<&Path> = view.direct.iter().map(AsRef::as_ref).collect();
    // An outer one comes before those in it.
    for directory in &view.skeleton {
        let below = |path: &Path| path != directory && is_within(path, directory);
        let others = view.mounts.iter().any(|op| {
            let hidden = matches!(op.kind, MountKind::Mask);
            below(&op.target) && !hidden && !direct.contains(op.target.as_path())
        });
        if others || view.pending.iter().any(|root| is_within(&root.path, directory)) {
            continue;
        }
        let inside = |rule: &LandlockRule| below(&rule.path);
        if rules.iter().filter(|rule| inside(rule)).count() > 1 {
            rules.retain(|rule| !inside(rule));
            rules.push(LandlockRule { path: directory.clone(), right: Right::Execute });
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::fsview::{Content, MountOp, PendingRoot};

    fn bind(path: &str) -> MountOp {
        let kind = MountKind::Bind { source: PathBuf::from(path), recursive: true };
        MountOp { target: PathBuf::from(path), kind, attributes: 0 }
    }

    fn view(direct: &[&str], others: &[&str], pending: &[&str]) -> View {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        View {
            private: Vec::new(),
            skeleton: paths(&["/etc", "/etc/ssh"]),
            mounts: direct.iter().chain(others).map(|path| bind(path)).collect(),
            pending: paths(pending)
                .into_iter()
                .map(|path| PendingRoot { base: PathBuf::from("/etc"), path, attributes: 0 })
                .collect(),
            direct: paths(direct),
            spelled: Vec::new(),
            full_mediation: false,
        }
    }

    fn granted(view: &View) -> Vec<(String, Right)> {
        let hosts = GeneratedFile { path: PathBuf::from("/etc/hosts"), content: Content::Bytes(Vec::new()) };
        let mut granted: Vec<_> = rules(view, &[hosts], true)
            .into_iter()
            .map(|rule| (rule.path.display().to_string(), rule.right))
            .collect();
        granted.sort_by(|a, b| a.0.cmp(&b.0));
        granted
    }

    fn named(rules: &[(&str, Right)]) -> Vec<(String, Right)> {
        rules.iter().map(|(path, right)| ((*path).to_owned(), *right)).collect()
    }

    const SYSTEM: [&str; 3] = ["/usr", "/etc/magic", "/etc/ssh/ssh_config"];

    #[test]
    fn a_directory_of_ours_with_system_files_alone_is_one_rule() {
        let expected = [("/", Right::List), ("/etc", Right::Execute), ("/usr", Right::Execute)];
        assert_eq!(granted(&view(&SYSTEM, &[], &[])), named(&expected));
    }

    #[test]
    fn what_a_rule_shows_in_dev_or_everywhere_is_not_the_kernels_to_open() {
        let mut view = view(&["/usr"], &["/", "/dev/shm/x"], &[]);
        let kind = MountKind::Bind { source: PathBuf::from("/dev/null"), recursive: false };
        view.mounts.push(MountOp { target: PathBuf::from("/dev/null"), kind, attributes: 0 });
        let expected = [
            ("/", Right::List),
            ("/dev/null", Right::Write),
            ("/etc/hosts", Right::Read),
            ("/usr", Right::Execute),
        ];
        assert_eq!(granted(&view), named(&expected));
    }

    #[test]
    fn what_a_rule_shows_there_keeps_its_record() {
        let expected = [
            ("/", Right::List),
            ("/etc/hosts", Right::Read),
            ("/etc/magic", Right::Execute),
            ("/etc/ssh/ssh_config", Right::Execute),
            ("/usr", Right::Execute),
        ];
        assert_eq!(granted(&view(&SYSTEM, &["/etc/ssh/known_hosts"], &[])), named(&expected));
        assert_eq!(granted(&view(&SYSTEM, &[], &["/etc/new.conf"])), named(&expected));
    }
}
