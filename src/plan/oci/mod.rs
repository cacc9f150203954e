//! The plan as a document: an OCI runtime specification (opencontainers/runtime-spec, config.md).
//!
//! What OCI has a field for stands there; everything else is JSON in an annotation `agentbox.NAME`.
//! Reading it back gives the same plan. What is changed in between counts, and a change that the
//! launch would not follow is refused rather than passed over.

mod device;
mod extension;
mod frame;
mod mount;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

use oci_spec::runtime::{Spec, SpecBuilder};

use super::{LaunchPlan, PlanError};
use crate::fsview::{FsSpec, MountKind};
use crate::policy::lossless;

impl LaunchPlan {
    /// Writes the plan as a runtime specification.
    ///
    /// # Errors
    /// When a mask comes before a mount, for which the document has no order.
    pub fn to_spec(&self) -> Result<Spec, PlanError> {
        let (mounts, masks) = mount::split_masks(&self.fs.mounts)?;
        let (mounts, devices) = device::split(mounts);
        let mut spec = SpecBuilder::default()
            .version(frame::VERSION)
            .root(frame::root(self.fs.is_whole())?)
            .mounts(mount::write(mounts)?)
            .process(frame::process(&self.process)?)
            .hostname(self.process.hostname.as_str())
            .linux(frame::linux(&self.process, masks)?)
            .annotations(extension::write(self, &devices)?)
            .build()?;
        spec.set_domainname(None);
        Ok(spec)
    }

    /// Whether the document says all of the plan: written and read back it is the same.
    ///
    /// # Errors
    /// What the document cannot say.
    pub fn check_document(&self) -> Result<(), PlanError> {
        if Self::from_spec(&self.to_spec()?)? == *self { Ok(()) } else { Err(PlanError::Incomplete) }
    }

    /// As [`LaunchPlan::to_spec`], for another runtime: it does not know how we write other bytes.
    ///
    /// # Errors
    /// The first word of the command, its environment or its mounts that is not UTF-8.
    pub fn to_portable_spec(&self) -> Result<Spec, PlanError> {
        let process = &self.process;
        let variables = process.env.iter().flat_map(|(name, value)| [name, value]);
        let places = self.fs.mounts.iter().flat_map(|op| match &op.kind {
            MountKind::Bind { source, .. } => [op.target.as_os_str(), source.as_os_str()],
            MountKind::New { .. } | MountKind::Mask => [op.target.as_os_str(); 2],
        });
        let mut words = [process.program.as_os_str(), process.cwd.as_os_str()]
            .into_iter()
            .chain(process.argv.iter().chain(variables).map(OsString::as_os_str))
            .chain(places);
        match words.find(|word| !lossless::is_plain(word)) {
            Some(word) => Err(PlanError::NotText { word: word.to_owned() }),
            None => self.to_spec(),
        }
    }

    /// Reads a plan from a runtime specification that [`LaunchPlan::to_spec`] wrote.
    ///
    /// # Errors
    /// What is missing, malformed, or asks for what the launch does not do.
    pub fn from_spec(spec: &Spec) -> Result<Self, PlanError> {
        let extensions = extension::read(spec)?;
        let process = frame::read_process(spec, extensions.argv0)?;
        let listed = spec.mounts().as_deref().ok_or(PlanError::Missing { member: "mounts" })?;
        let linux = spec.linux().as_ref().ok_or(PlanError::Missing { member: "linux" })?;
        let mut mounts = mount::read(listed)?;
        mounts.extend(device::read(&extensions.devices)?);
        mounts.extend(mount::read_masks(linux.masked_paths().as_deref().unwrap_or_default()));
        let plan = Self {
            fs: FsSpec {
                mounts,
                directories: extensions.directories,
                files: extensions.files,
                links: extensions.links,
                pending: extensions.pending,
                divert: extensions.divert,
            },
            landlock: extensions.landlock,
            net: extensions.network,
            access: extensions.guard,
            command: extensions.command,
            unix: extensions.unix,
            header: extensions.header,
            roots: extensions.roots,
            replay: extensions.replay,
            process,
        };
        frame::check(spec, &plan)?;
        Ok(plan)
    }
}
