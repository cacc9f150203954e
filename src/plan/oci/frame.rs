//! The process, its root and its namespaces as OCI has them.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    Linux, LinuxBuilder, LinuxCapabilities, LinuxCapabilitiesBuilder, LinuxIdMapping, LinuxIdMappingBuilder,
    LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType, PosixRlimitBuilder, PosixRlimitType, Process,
    ProcessBuilder, Root, RootBuilder, Spec, UserBuilder,
};

use super::super::{LaunchPlan, PlanError, ProcessPlan};
use crate::policy::lossless::{decode, encode};

/// The first version that has recursive mount options.
pub(super) const VERSION: &str = "1.1.0";

/// All that a run has of its own, see namespaces(7).
const NAMESPACES: [LinuxNamespaceType; 7] = [
    LinuxNamespaceType::User,
    LinuxNamespaceType::Mount,
    LinuxNamespaceType::Pid,
    LinuxNamespaceType::Network,
    LinuxNamespaceType::Ipc,
    LinuxNamespaceType::Uts,
    LinuxNamespaceType::Cgroup,
];

/// An empty directory that holds the mounts; under `--observe` the host's root is mounted over it.
pub(super) fn root(whole: bool) -> Result<Root, PlanError> {
    Ok(RootBuilder::default().path("rootfs").readonly(!whole).build()?)
}

/// The command. Its program comes first, for a runtime searches it there; the word that the
/// command itself sees first is an annotation.
pub(super) fn process(plan: &ProcessPlan) -> Result<Process, PlanError> {
    let words = std::iter::once(plan.program.as_os_str())
        .chain(plan.argv.iter().skip(1).map(OsString::as_os_str))
        .map(|word| encode(word).into_owned());
    let variables = plan.env.iter().map(|(name, value)| {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        encode(&variable).into_owned()
    });
    let limit =
        PosixRlimitBuilder::default().typ(PosixRlimitType::RlimitCore).hard(0_u64).soft(0_u64).build()?;
    Ok(ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(plan.uid).gid(plan.gid).build()?)
        .args(words.collect::<Vec<_>>())
        .env(variables.collect::<Vec<_>>())
        .cwd(encode(plan.cwd.as_os_str()).into_owned())
        .capabilities(no_capabilities()?)
        .rlimits(vec![limit])
        .no_new_privileges(true)
        .build()?)
}

fn no_capabilities() -> Result<LinuxCapabilities, PlanError> {
    Ok(LinuxCapabilitiesBuilder::default()
        .bounding(HashSet::new())
        .effective(HashSet::new())
        .inheritable(HashSet::new())
        .permitted(HashSet::new())
        .ambient(HashSet::new())
        .build()?)
}

/// Reads the command back.
pub(super) fn read_process(spec: &Spec, argv0: Option<OsString>) -> Result<ProcessPlan, PlanError> {
    let missing = |member| PlanError::Missing { member };
    let process = spec.process().as_ref().ok_or_else(|| missing("process"))?;
    let mut words = process.args().iter().flatten().map(|word| decode(word));
    let program = PathBuf::from(words.next().ok_or_else(|| missing("process.args"))?);
    Ok(ProcessPlan {
        program,
        argv: argv0.into_iter().chain(words).collect(),
        env: process.env().iter().flatten().map(|variable| split(decode(variable))).collect(),
        cwd: read_path(process.cwd()),
        uid: process.user().uid(),
        gid: process.user().gid(),
        hostname: spec.hostname().clone().ok_or_else(|| missing("hostname"))?,
    })
}

/// Name and value; a name may begin with `=` but has none later.
fn split(variable: OsString) -> (OsString, OsString) {
    let bytes = variable.into_vec();
    let at = bytes.iter().skip(1).position(|byte| *byte == b'=').map_or(bytes.len(), |at| at + 1);
    let value = bytes.get(at + 1..).unwrap_or_default();
    (OsStr::from_bytes(&bytes[..at]).to_owned(), OsStr::from_bytes(value).to_owned())
}

/// A path that a field of type path has.
pub(super) fn read_path(text: &Path) -> PathBuf {
    // The document is text; a path in it is UTF-8 already.
    text.to_str().map_or_else(|| text.to_owned(), |text| decode(text).into())
}

/// Namespaces, ids and what is hidden.
pub(super) fn linux(process: &ProcessPlan, masks: Vec<String>) -> Result<Linux, PlanError> {
    let mut linux = LinuxBuilder::default()
        .uid_mappings(vec![itself(process.uid)?])
        .gid_mappings(vec![itself(process.gid)?])
        .namespaces(NAMESPACES.iter().map(|kind| namespace(*kind)).collect::<Result<Vec<_>, _>>()?)
        .rootfs_propagation("private")
        .masked_paths(masks)
        .build()?;
    // The crate's defaults, which the launch does not have.
    linux.set_resources(None).set_readonly_paths(None);
    Ok(linux)
}

fn namespace(kind: LinuxNamespaceType) -> Result<LinuxNamespace, PlanError> {
    Ok(LinuxNamespaceBuilder::default().typ(kind).build()?)
}

fn itself(id: u32) -> Result<LinuxIdMapping, PlanError> {
    Ok(LinuxIdMappingBuilder::default().host_id(id).container_id(id).size(1_u32).build()?)
}

/// Refuses what `plan`, read from `spec`, does not say again: the launch would not do it.
pub(super) fn check(spec: &Spec, plan: &LaunchPlan) -> Result<(), PlanError> {
    let written = spec.linux().as_ref();
    let masks = written.and_then(|linux| linux.masked_paths().clone()).unwrap_or_default();
    let members = [
        ("ociVersion", spec.version() == VERSION),
        ("root", spec.root().as_ref() == Some(&root(plan.fs.is_whole())?)),
        ("process", spec.process().as_ref() == Some(&process(&plan.process)?)),
        ("linux", written == Some(&linux(&plan.process, masks)?)),
        ("domainname", spec.domainname().is_none()),
        ("hooks", spec.hooks().is_none()),
        ("solaris", spec.solaris().is_none()),
        ("windows", spec.windows().is_none()),
        ("vm", spec.vm().is_none()),
        ("zos", spec.zos().is_none()),
    ];
    match members.into_iter().find(|(_, same)| !same) {
        Some((member, _)) => Err(PlanError::Unsupported { member }),
        None => Ok(()),
    }
}
