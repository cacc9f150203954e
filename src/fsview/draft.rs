//! The part of a view that nearly every run has, built while the launcher makes the plan.
//!
//! A draft is a guess. The plan alone says what is in the view: a draft with anything that the plan does not
//! have, or that the plan would mount over, is left behind with the old root, and the view is built without it.
//! What it has copied from the host is compared with what the launcher saw there, like every other copy.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use super::build::{self, Builder, Built, Contents};
use super::copies::{self, Copied, Copies, FileKey};
use super::cover::ASIDE;
use super::{FsSpec, FsviewError, MountKind, MountOp};
use crate::policy::is_within;

/// Where the new root is attached meanwhile: a directory of the old root that every host has, and that holds
/// nothing which views show.
const PLACE: &str = "/proc/fs";

const PLACES: [&str; 2] = [PLACE, ASIDE];

/// Some mounts of a view, in their places.
#[derive(Debug)]
pub struct Draft {
    builder: Builder,
    made: HashMap<PathBuf, Made>,
}

/// One of them.
#[derive(Debug)]
struct Made {
    op: MountOp,
    /// What was copied for it.
    key: Option<FileKey>,
}

impl Draft {
    /// Makes what there is of `likely`, outer before inner, and new file systems for what is `possible`. `None` where
    /// the kernel refuses: then it refuses the view, too, and whoever builds it says why.
    #[must_use]
    pub fn make(likely: Vec<MountOp>, possible: Vec<MountOp>) -> Option<Self> {
        let draft = Self::try_make(likely, possible);
        if draft.is_err() {
            leave();
        }
        draft.ok()
    }

    fn try_make(likely: Vec<MountOp>, possible: Vec<MountOp>) -> Result<Self, FsviewError> {
        // All copies come first: nothing hides anything else.
        let mut copies = Vec::with_capacity(likely.len());
        for op in likely {
            match copies::copy(&op, false) {
                Ok(Some(Copied::Link { .. })) if !op.leads_somewhere() => {}
                Err(error) if is_absent(&error) => {}
                copied => copies.push((op, copied?)),
            }
        }
        let mut builder = Builder::empty(PLACE)?;
        builder.cover_from(ASIDE)?;
        let mut made = HashMap::with_capacity(copies.len());
        for (op, copied) in copies {
            let key = copied.as_ref().and_then(Copied::key);
            builder.mount_one(&op, copied)?;
            made.insert(op.target.clone(), Made { op, key });
        }
        possible.into_iter().try_for_each(|op| builder.prepare(op))?;
        Ok(Self { builder, made })
    }

    /// The draft, if the view that `spec` says goes on from it.
    #[must_use]
    pub fn of(mut self, spec: &FsSpec) -> Option<Self> {
        let sees_place = spec.mounts.iter().any(shows_place)
            || spec.pending.iter().any(|root| PLACES.iter().any(|place| root.base.starts_with(place)));
        if sees_place {
            leave();
            return None;
        }
        if self.is_part_of(spec) {
            return Some(self);
        }
        self.builder.leave_spare(ASIDE);
        None
    }

    fn is_part_of(&self, spec: &FsSpec) -> bool {
        let planned = spec.mounts.iter().filter(|op| self.made(op).is_some()).count();
        let covers = |op: &MountOp| self.made.keys().any(|target| is_within(target, &op.target));
        spec.divert.is_none()
            && planned == self.made.len()
            && !spec.mounts.iter().any(|op| self.made(op).is_none() && covers(op))
    }

    /// Copies what `spec` has beside the draft.
    ///
    /// # Errors
    /// As [`build()`].
    pub fn copies(draft: Option<&Self>, spec: &FsSpec) -> Result<Copies, FsviewError> {
        let drafted = |op: &MountOp| Some(Copied::Drafted { key: draft?.made(op)?.key });
        Copies::make(spec, drafted)
    }

    /// What there is for `op`.
    fn made(&self, op: &MountOp) -> Option<&Made> {
        self.made.get(&op.target).filter(|made| made.op == *op)
    }
}

/// Builds the view that `spec` says, from `copies` and in the draft, if there is one.
///
/// # Errors
/// The first step that the kernel refused.
pub fn build(
    spec: &FsSpec,
    copies: Copies,
    draft: Option<Draft>,
    contents: &mut Contents<'_>,
    sockets: &[PathBuf],
) -> Result<Built, FsviewError> {
    build::build(spec, copies, draft.map(|draft| draft.builder), contents, sockets)
}

fn is_absent(error: &FsviewError) -> bool {
    matches!(error.source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Whether a copy for `op` would have the draft in it.
fn shows_place(op: &MountOp) -> bool {
    let MountKind::Bind { source, recursive } = &op.kind else { return false };
    PLACES.iter().any(|place| source.starts_with(place) || *recursive && Path::new(place).starts_with(source))
}

/// Takes the draft away from the old root.
fn leave() {
    for place in PLACES {
        // There may be none.
        let _ = umount2(place, MntFlags::MNT_DETACH);
    }
}
