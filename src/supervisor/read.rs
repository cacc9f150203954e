//! Records what was opened for reading: with the digest of its content, or as a directory.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::sys::stat::{FileStat, SFlag};

use super::access::AccessTable;
use super::call::Call;
use super::view::{Found, Spelled};
use super::{Stop, Supervisor};
use crate::policy::{FileId, RuleId};
use crate::trace::{Observation, Text};

const OPERATION: &str = "fs.open_read";

/// What allows reads, as entries say it.
#[derive(Debug, Default)]
pub(super) struct Grants(HashMap<Option<RuleId>, Text>);

impl Grants {
    fn label(&mut self, access: &AccessTable, rule: Option<RuleId>) -> &Text {
        self.0.entry(rule).or_insert_with(|| access.grant_label(rule).as_str().into())
    }
}

/// A file that is open for reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opened<'a> {
    /// Its final path in the view.
    pub(super) path: &'a Path,
    /// Its status when it was found.
    pub(super) found: &'a FileStat,
    /// The open file.
    pub(super) file: &'a OwnedFd,
    /// Its status since then.
    pub(super) now: Option<FileStat>,
}

impl Supervisor {
    /// Records that what was found was opened for reading, granted by `rule`.
    pub(super) fn record_reading(
        &mut self,
        call: &Call,
        spelled: &Spelled,
        found: &Found,
        (file, now): (&OwnedFd, Option<FileStat>),
        rule: Option<RuleId>,
    ) -> Result<(), Stop> {
        if found.kind() == SFlag::S_IFDIR {
            return self.record_directory(call, spelled, found, rule);
        }
        let opened = Opened { path: &found.path, found: &found.status, file, now };
        self.record_read(call, spelled, opened, rule)
    }

    /// Records that a file was opened for reading, granted by `rule`.
    pub(super) fn record_read(
        &mut self,
        call: &Call,
        spelled: &Spelled,
        opened: Opened<'_>,
        rule: Option<RuleId>,
    ) -> Result<(), Stop> {
        let Opened { path, found, file, now } = opened;
        let id = FileId { dev: found.st_dev, ino: found.st_ino };
        let content = if self.written.changes_unseen(id) {
            self.digests.anew(file.as_fd())
        } else {
            self.digests.of_status(file.as_fd(), now)
        };
        let args = &mut self.observed;
        args.clear();
        spelled.write_to(args, "path", path);
        super::digest::write_to(args, &content);
        let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
        if self.access.is_made(path) {
            args.write("own", |out| out.push_str("true"));
        } else if let (Ok(content), Some(captures), SFlag::S_IFREG) = (&content, &mut self.captures, kind) {
            captures.write_to(args, file, content, &self.recorder)?;
        }
        self.observe_read(call, rule)
    }

    /// Records that a directory was opened, to be listed.
    pub(super) fn record_directory(
        &mut self,
        call: &Call,
        spelled: &Spelled,
        found: &Found,
        rule: Option<RuleId>,
    ) -> Result<(), Stop> {
        self.note_listed(found)?;
        let args = &mut self.observed;
        args.clear();
        spelled.write_to(args, "path", &found.path);
        args.string("type", "directory");
        self.observe_read(call, rule)
    }

    fn observe_read(&mut self, call: &Call, rule: Option<RuleId>) -> Result<(), Stop> {
        let (args, rule) = (&mut self.observed, self.grants.label(&self.access, rule));
        let seen = Observation { op: OPERATION, args, proc: call.task.said(), rule };
        Ok(self.recorder.observe(seen)?)
    }
}
