//! What OCI has no field for: annotations.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;

use oci_spec::runtime::Spec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::header::policy_in_words;
use super::super::{LaunchPlan, PlanError, Root};
use crate::fsview::{Divert, GeneratedFile, LandlockRule, Link, PendingRoot};
use crate::ns::net::NetSpec;
use crate::policy::{Policy, lossless};
use crate::supervisor::CommandTable;
use crate::supervisor::access::AccessTable;

/// Beginning of our names.
const PREFIX: &str = "agentbox.";

/// The annotations, read.
pub(super) struct Extensions {
    /// The first word of the argument vector.
    pub(super) argv0: Option<OsString>,
    /// Device nodes that are shown.
    pub(super) devices: Vec<PathBuf>,
    pub(super) directories: Vec<PathBuf>,
    pub(super) files: Vec<GeneratedFile>,
    pub(super) links: Vec<Link>,
    pub(super) pending: Vec<PendingRoot>,
    pub(super) divert: Option<Divert>,
    pub(super) landlock: Vec<LandlockRule>,
    pub(super) network: NetSpec,
    pub(super) guard: AccessTable,
    pub(super) command: CommandTable,
    pub(super) unix: Vec<PathBuf>,
    pub(super) header: Map<String, Value>,
    pub(super) roots: Vec<Root>,
    pub(super) replay: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Word(#[serde(with = "lossless::optional_path")] Option<OsString>);

#[derive(Serialize)]
#[serde(transparent)]
struct BorrowedPaths<'a>(#[serde(serialize_with = "lossless::paths::serialize")] &'a [PathBuf]);

#[derive(Deserialize)]
#[serde(transparent)]
struct Paths(#[serde(deserialize_with = "lossless::paths::deserialize")] Vec<PathBuf>);

/// Writes them.
pub(super) fn write(plan: &LaunchPlan, devices: &[PathBuf]) -> Result<HashMap<String, String>, PlanError> {
    let mut writer = Writer(HashMap::new());
    writer.put("argv0", &Word(plan.process.argv.first().cloned()))?;
    writer.put("devices", &BorrowedPaths(devices))?;
    writer.put("directories", &BorrowedPaths(&plan.fs.directories))?;
    writer.put("files", &plan.fs.files)?;
    writer.put("links", &plan.fs.links)?;
    writer.put("pending", &plan.fs.pending)?;
    writer.put("divert", &plan.fs.divert)?;
    writer.put("landlock", &plan.landlock)?;
    writer.put("network", &plan.net)?;
    writer.put("guard", &plan.access)?;
    writer.put("command", &plan.command)?;
    writer.put("unix", &BorrowedPaths(&plan.unix))?;
    let others = plan.header.iter().filter(|(name, _)| !OF_POLICY.contains(&name.as_str()));
    writer.put("header", &others.collect::<BTreeMap<_, _>>())?;
    writer.put("roots", &plan.roots)?;
    writer.put("replay", &plan.replay)?;
    Ok(writer.0)
}

/// Reads them; others than ours say nothing to us.
pub(super) fn read(spec: &Spec) -> Result<Extensions, PlanError> {
    let written = spec.annotations().as_ref().ok_or(PlanError::Missing { member: "annotations" })?;
    let mut reader = Reader { written, known: Vec::new() };
    let guard: AccessTable = reader.take("guard")?;
    let mut header: Map<String, Value> = reader.take("header")?;
    header.extend(of_policy(&guard.policy));
    let extensions = Extensions {
        argv0: reader.take::<Word>("argv0")?.0,
        devices: reader.take::<Paths>("devices")?.0,
        directories: reader.take::<Paths>("directories")?.0,
        files: reader.take("files")?,
        links: reader.take("links")?,
        pending: reader.take("pending")?,
        divert: reader.take("divert")?,
        landlock: reader.take("landlock")?,
        network: reader.take("network")?,
        guard,
        command: reader.take("command")?,
        unix: reader.take::<Paths>("unix")?.0,
        header,
        roots: reader.take("roots")?,
        replay: reader.take("replay")?,
    };
    reader.finish()?;
    Ok(extensions)
}

/// What the trace says of the policy in words of its own.
const OF_POLICY: [&str; 2] = ["policy", "policy_rules"];

/// It stands in the guard's table already.
fn of_policy(policy: &Policy) -> [(String, Value); 2] {
    let (text, rules) = policy_in_words(policy);
    let [name_of_text, name_of_rules] = OF_POLICY.map(str::to_owned);
    [(name_of_text, text), (name_of_rules, rules)]
}

struct Writer(HashMap<String, String>);

impl Writer {
    fn put(&mut self, name: &str, value: &impl Serialize) -> Result<(), PlanError> {
        let name = format!("{PREFIX}{name}");
        match serde_json::to_string(value) {
            Ok(text) => self.0.insert(name, text),
            Err(source) => return Err(PlanError::Annotation { name, source }),
        };
        Ok(())
    }
}

struct Reader<'a> {
    written: &'a HashMap<String, String>,
    known: Vec<String>,
}

impl Reader<'_> {
    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, PlanError> {
        let name = format!("{PREFIX}{name}");
        let text = self.written.get(&name).map_or("", String::as_str);
        match serde_json::from_str(text) {
            Ok(value) => {
                self.known.push(name);
                Ok(value)
            }
            Err(source) => Err(PlanError::Annotation { name, source }),
        }
    }

    fn finish(self) -> Result<(), PlanError> {
        let ours = self.written.keys().filter(|name| name.starts_with(PREFIX));
        match ours.into_iter().find(|name| !self.known.contains(name)) {
            Some(name) => Err(PlanError::UnknownAnnotation { name: name.clone() }),
            None => Ok(()),
        }
    }
}
