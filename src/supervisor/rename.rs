//! Renames: carried out by us like other changes of names, judged at both ends.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::RenameFlags;
use nix::sys::stat::SFlag;

use super::absent::Wish;
use super::access::{Area, DENIED_BELOW, Decision, HOLDS_OWN};
use super::call::{Call, Reply};
use super::mutate::{Target, status_of};
use super::view::{Place, View};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;
use crate::trace::{Event, Kind};

impl Supervisor {
    pub(super) fn rename(
        &mut self,
        call: &Call,
        from: (i32, u64),
        to: (i32, u64),
        flags: u64,
    ) -> Result<Reply, Stop> {
        let flags = RenameFlags::from_bits_retain(u32::try_from(flags & 0xffff_ffff).unwrap_or(0));
        if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            return Ok(Reply::Errno(Errno::EPERM));
        }
        let source = match self.name(call, Wish::Change, from.0, from.1)? {
            Ok(source) => source,
            Err(reply) => return Ok(reply),
        };
        let target = match self.name(call, Wish::Make, to.0, to.1)? {
            Ok(target) => target,
            Err(reply) => return Ok(reply),
        };
        for end in [&source, &target] {
            match View::is_mount_point(&end.place) {
                Ok(false) if !self.leads_to_pending(&end.place.path()) => {}
                Ok(_) => return self.refuse_mount(call, end),
                Err(errno) => return Ok(Reply::Errno(errno)),
            }
        }
        for (moved, other) in [(&source, &target), (&target, &source)] {
            if let Some(reply) = self.refuse_moved(call, moved, &other.place.path())? {
                return Ok(reply);
            }
        }
        self.settle()?;
        let before = [self.before_target(&source)?, self.before_target(&target)?];
        let (a, b) = (&source.place, &target.place);
        let exchanged = flags.contains(RenameFlags::RENAME_EXCHANGE);
        let directory = is_directory(a) || (exchanged && is_directory(b));
        let done = self.move_name(a, b, flags);
        let mut event = Event::new(Kind::Observe, "fs.rename").path("to", b.path());
        if exchanged {
            event = event.arg("exchange", true);
        }
        let [before, before_to] = before;
        if let (Area::Rule(_), Ok(())) = (source.area, done) {
            event = self.with_before(event, "before_to", before_to);
            if directory {
                event = event.arg("type", "directory");
                self.note_moved_directory(b.path());
                if exchanged {
                    self.note_moved_directory(a.path());
                }
                self.moved(a.path(), b.path(), exchanged);
            }
        }
        self.finish(call, &source, event, before, done)
    }

    /// What was written and is called so stays known.
    fn move_name(&mut self, from: &Place, to: &Place, flags: RenameFlags) -> nix::Result<()> {
        let exchanged = flags.contains(RenameFlags::RENAME_EXCHANGE);
        let lost = if exchanged { None } else { self.written.loses_name(to) };
        self.view.rename(from, to, flags)?;
        if let Some(id) = lost {
            self.written.lost_name(id, to);
        }
        self.written.renamed(&from.path(), &to.path(), exchanged);
        self.moved_file(from, Some(to));
        self.changed_at(to);
        Ok(())
    }

    /// Moving a directory moves what a rule protects below it, and what it holds to where a rule may protect the same;
    /// and where the launcher looks for its own, nothing takes its place: refused.
    fn refuse_moved(&mut self, call: &Call, moved: &Target, to: &Path) -> Result<Option<Reply>, Stop> {
        let path = moved.place.path();
        let deny = |reason: &str| Decision::Deny { rule: None, reason: reason.to_owned() };
        let decision = if self.access.holds_protected(&path) {
            Decision::Own { reason: HOLDS_OWN }
        } else if !self.access.policy.full_mediation() {
            return Ok(None);
        } else if is_directory(&moved.place) && self.subtree_changes_meaning(&moved.place, to) {
            deny("a rule decides differently about something below it at the new name")
        } else if is_kind(&moved.place, SFlag::S_IFLNK) && self.access.policy.denies_below(to) {
            deny(DENIED_BELOW)
        } else {
            return Ok(None);
        };
        let allowed = self.judge(call, PathAccess::Write, &moved.spelled, &path, &decision)?;
        Ok(allowed.is_none().then_some(Reply::Errno(Errno::EACCES)))
    }

    /// Whether a file below the directory would get rights by moving it, or come to where a rule denies it.
    fn subtree_changes_meaning(&self, place: &Place, to: &Path) -> bool {
        /// Entries that are looked at; a larger tree is not moved under `deny:` or globs.
        const ENTRIES: usize = 100_000;
        let own = Path::new(&place.directory.own_path()).join(&place.name);
        let mut left = ENTRIES;
        let mut queue = vec![(own, PathBuf::new())];
        while let Some((directory, below)) = queue.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else { return true };
            for entry in entries {
                let Ok(entry) = entry else { return true };
                if left == 0 {
                    return true;
                }
                left -= 1;
                let below = below.join(entry.file_name());
                for access in [PathAccess::Read, PathAccess::Write] {
                    let before = self.access.decide(access, &place.path().join(&below), None);
                    let after = self.access.decide(access, &to.join(&below), None);
                    if matches!(before, Decision::Deny { .. }) && matches!(after, Decision::Allow(_)) {
                        return true;
                    }
                    // What one rule denies at both names (`**/.env`) stays what it is.
                    if matches!(after, Decision::Deny { rule: Some(_), .. }) && before != after {
                        return true;
                    }
                }
                let Ok(kind) = entry.file_type() else { return true };
                if kind.is_symlink() && self.access.policy.denies_below(&to.join(&below)) {
                    return true;
                }
                if kind.is_dir() {
                    queue.push((entry.path(), below));
                }
            }
        }
        false
    }
}

fn is_directory(place: &Place) -> bool {
    is_kind(place, SFlag::S_IFDIR)
}

fn is_kind(place: &Place, kind: SFlag) -> bool {
    status_of(place).is_some_and(|status| SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == kind)
}
