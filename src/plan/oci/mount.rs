//! The view's mounts and masks as OCI mounts and masked paths.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, MountBuilder};

use super::super::PlanError;
use super::frame::read_path;
use crate::fsview::{MountKind, MountOp};
use crate::policy::lossless::{decode, encode};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

/// Options with a meaning of their own. With an `r` before it an option holds for everything
/// that is mounted below, too (config.md, "Linux mount options").
const ATTRIBUTES: [(u64, &str, &str); 4] = [
    (RDONLY, "ro", "rro"),
    (NOSUID, "nosuid", "rnosuid"),
    (NODEV, "nodev", "rnodev"),
    (NOEXEC, "noexec", "rnoexec"),
];
/// File systems that the launch makes.
const FILESYSTEMS: [&str; 3] = ["tmpfs", "proc", "devpts"];

/// Splits the masks at the end of `ops` off.
pub(super) fn split_masks(ops: &[MountOp]) -> Result<(&[MountOp], Vec<String>), PlanError> {
    let first_mask = ops.iter().position(|op| op.kind == MountKind::Mask).unwrap_or(ops.len());
    let (mounts, masks) = ops.split_at(first_mask);
    if let Some(later) = masks.iter().find(|op| op.kind != MountKind::Mask) {
        let mask = masks.first().map(|op| op.target.clone()).unwrap_or_default();
        return Err(PlanError::MaskOrder { mask, mount: later.target.clone() });
    }
    Ok((mounts, masks.iter().map(|op| encode(op.target.as_os_str()).into_owned()).collect()))
}

/// Reads masked paths back.
pub(super) fn read_masks(masks: &[String]) -> impl Iterator<Item = MountOp> {
    masks.iter().map(|path| MountOp {
        target: PathBuf::from(decode(path)),
        kind: MountKind::Mask,
        attributes: 0,
    })
}

/// Writes mounts.
pub(super) fn write(ops: &[MountOp]) -> Result<Vec<Mount>, PlanError> {
    ops.iter().map(write_one).collect()
}

fn write_one(op: &MountOp) -> Result<Mount, PlanError> {
    let attributes = |recursive: bool| {
        ATTRIBUTES
            .iter()
            .filter(|(bit, ..)| op.attributes & bit != 0)
            .map(move |(_, one, all)| if recursive { *all } else { *one }.to_owned())
    };
    let mut options: Vec<String> = Vec::new();
    let (kind, source) = match &op.kind {
        MountKind::Bind { source, recursive } => {
            options.push(if *recursive { "rbind" } else { "bind" }.to_owned());
            options.extend(attributes(*recursive));
            ("bind", encode(source.as_os_str()).into_owned())
        }
        MountKind::New { filesystem, options: own } => {
            options.extend(attributes(false));
            options.extend(own.iter().map(|(key, value)| match value.as_str() {
                "" => key.clone(),
                value => format!("{key}={value}"),
            }));
            (filesystem.as_str(), filesystem.clone())
        }
        // They are separate in the document: see [`split_masks`].
        MountKind::Mask => ("none", String::new()),
    };
    Ok(MountBuilder::default()
        .destination(encode(op.target.as_os_str()).into_owned())
        .typ(kind)
        .source(source)
        .options(options)
        .build()?)
}

/// Reads mounts back.
pub(super) fn read(mounts: &[Mount]) -> Result<Vec<MountOp>, PlanError> {
    mounts.iter().map(read_one).collect()
}

fn read_one(mount: &Mount) -> Result<MountOp, PlanError> {
    let target = read_path(mount.destination());
    let options = mount.options().as_deref().unwrap_or_default();
    let unknown = |option: &str| PlanError::MountOption { target: target.clone(), option: option.to_owned() };
    if mount.uid_mappings().is_some() || mount.gid_mappings().is_some() {
        return Err(unknown("idmap"));
    }
    let kind = mount.typ().as_deref().unwrap_or_default();
    if kind == "bind" {
        return read_bind(mount, target.clone(), options, &unknown);
    }
    if !FILESYSTEMS.contains(&kind) || mount.source().as_deref() != Some(Path::new(kind)) {
        return Err(PlanError::MountType { target });
    }
    let (mut attributes, mut own) = (0, Vec::new());
    for option in options {
        match ATTRIBUTES.iter().find(|(_, name, _)| name == option) {
            Some((bit, ..)) => attributes |= bit,
            // The kernel itself refuses what the file system does not know.
            None => {
                let (key, value) = option.split_once('=').unwrap_or((option, ""));
                own.push((key.to_owned(), value.to_owned()));
            }
        }
    }
    let kind = MountKind::New { filesystem: kind.to_owned(), options: own };
    Ok(MountOp { target, kind, attributes })
}

fn read_bind(
    mount: &Mount,
    target: PathBuf,
    options: &[String],
    unknown: &dyn Fn(&str) -> PlanError,
) -> Result<MountOp, PlanError> {
    let source = mount.source().as_deref().ok_or(PlanError::Missing { member: "mounts.source" })?;
    let recursive = options.iter().any(|option| option == "rbind");
    let mut attributes = 0;
    for option in options {
        let known = ATTRIBUTES.iter().find(|(_, one, all)| option == if recursive { all } else { one });
        match (known, option.as_str()) {
            (Some((bit, ..)), _) => attributes |= bit,
            (None, "bind" | "rbind") => {}
            (None, option) => return Err(unknown(option)),
        }
    }
    let kind = MountKind::Bind { source: read_path(source), recursive };
    Ok(MountOp { target, kind, attributes })
}
