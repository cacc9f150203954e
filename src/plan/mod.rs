//! The launch plan: everything that a run will be, computed before anything happens.
//!
//! [`LaunchPlan::new`] is pure but for looks at the host through [`Host`]; the launch carries the
//! plan out and takes nothing else.

mod divert;
mod environment;
mod error;
mod facts;
mod generated;
mod header;
mod kernel;
mod landlock;
mod links;
mod mounts;
mod oci;
mod roots;
mod trust;
mod unix;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

pub use divert::Made;
pub use error::PlanError;
pub use facts::HostFacts;
pub use generated::HOSTNAME;
pub use header::Enforcement;
pub use roots::{Root, Why};
pub use trust::{intercepts, names_bundle};

use crate::command::Command;
use crate::fsview::{FsSpec, LandlockRule, MountKind, MountOp};
use crate::ns::net::NetSpec;
use crate::policy::{FileId, Host, PathAccess, Policy};
use crate::supervisor::access::{AccessTable, Protected};
use crate::supervisor::{CommandTable, OwnProgram};
use crate::sys::mountinfo;

/// What is started, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessPlan {
    /// Absolute path that is executed.
    pub program: PathBuf,
    /// Its argument vector.
    pub argv: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// User id, inside and outside.
    pub uid: u32,
    /// Group id, inside and outside.
    pub gid: u32,
    /// Host name inside.
    pub hostname: String,
}

/// Everything that a run will be.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchPlan {
    /// The command.
    pub process: ProcessPlan,
    /// What it sees of the file system.
    pub fs: FsSpec,
    /// The second layer under that.
    pub landlock: Vec<LandlockRule>,
    /// Its network.
    pub net: NetSpec,
    /// Decides on files; carries the policy.
    pub access: AccessTable,
    /// Decides on the command's own programs.
    pub command: CommandTable,
    /// Sockets of the host that the run may reach, by their path on the host and in the view.
    pub unix: Vec<PathBuf>,
    /// What the trace begins with.
    pub header: Map<String, Value>,
    /// Every root, with the reason why it is visible.
    pub roots: Vec<Root>,
    /// Whether the run can be replayed: its randomness, addresses and clocks are under control.
    pub replay: bool,
}

/// What a plan is made from.
#[derive(Debug)]
pub struct Request<'a> {
    /// The checked policy.
    pub policy: Policy,
    /// The resolved command.
    pub command: Command,
    /// The words that the user typed.
    pub typed: Vec<OsString>,
    /// What is true of this host.
    pub facts: &'a HostFacts,
    /// Files of the launcher.
    pub protected: Vec<Protected>,
    /// False under `--observe`.
    pub enforce: bool,
    /// The common name of the authority whose leaves clients inside are shown, if the run reads TLS;
    /// empty where the plan is only shown and no authority is made.
    pub authority: Option<&'a str>,
    /// Variables of secrets, and what the command sees in place of their values.
    pub placeholders: Vec<(String, String)>,
    /// Whether the run is to be one that can be replayed.
    pub replay: bool,
}

/// The policy that a run takes when none is named.
pub const DEFAULT_POLICY: &str = "agentbox.policy";

/// Where a private home is, when the real one is not allowed.
pub const PRIVATE_HOME: &str = "/run/agentbox/home";

/// The variables of the launcher that the command gets under a policy, and those that are set for it.
#[must_use]
pub fn variables(
    policy: &Policy,
    command: &Command,
    facts: &HostFacts,
    placeholders: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    environment::build(policy, command, facts, true, placeholders)
}

impl LaunchPlan {
    /// Plans a run.
    #[must_use]
    pub fn new(request: Request<'_>, host: &dyn Host) -> Self {
        let Request { policy, command, typed, facts, mut protected, enforce, authority, .. } = request;
        let (placeholders, replay) = (request.placeholders, request.replay);
        protected.extend(policy_files(&policy, host));
        protected.extend(elsewhere(&protected, facts, host));
        let roots = roots::collect(&policy, &command, host);
        let unix = unix::sockets(&policy);
        let view = mounts::View::new(&policy, &roots, facts, &protected, &unix, enforce);
        let mut env = environment::build(&policy, &command, facts, enforce, &placeholders);
        let home = environment::value(&env, "HOME").unwrap_or_else(|| PRIVATE_HOME.into());
        let mut files = generated::files(facts, &home);
        if let Some(authority) = authority {
            let (policy, command, roots) = (&policy, &command, roots.as_slice());
            let around = trust::Around { policy, command, roots, facts, host, enforce };
            files.extend(trust::files(authority, &around, &mut env));
            env.sort();
        }
        let fs = view.spec(&command, files);
        let system = system(&policy, &command, host, mounts::View::system(&roots, &fs));
        let command_table = command_table(&command, host);
        let header = header::build(&policy, &command, &typed, facts, enforce, host);
        let process = ProcessPlan {
            program: command.program,
            argv: command.argv,
            env,
            cwd: facts.cwd.clone(),
            uid: facts.uid,
            gid: facts.gid,
            hostname: generated::HOSTNAME.to_owned(),
        };
        Self {
            process,
            landlock: landlock::rules(&view, &fs.files, enforce),
            net: net(&policy),
            access: AccessTable {
                system,
                made: fs.files.iter().map(|file| file.path.clone()).collect(),
                closed: view.closed(&roots),
                private: view.private.clone(),
                skeleton: view.skeleton.clone(),
                shown: view.shown(),
                devices: mounts::devices(facts, enforce),
                protected,
                enforce,
                full_mediation: view.full_mediation,
                policy: Arc::new(policy),
            },
            command: command_table,
            unix,
            header,
            roots,
            fs,
            replay,
        }
    }
}

impl LaunchPlan {
    /// Whether a directory of the view holds a name that is not listed.
    #[must_use]
    pub fn hides_names(&self) -> bool {
        let masks = self.fs.mounts.iter().filter(|mount| matches!(mount.kind, MountKind::Mask));
        let masked: HashSet<_> = masks.map(|mount| mount.target.as_path()).collect();
        self.access.protected.iter().any(|file| file.unlisted && masked.contains(file.path.as_path()))
    }
}

/// The policy and what it includes: the agent can read none of it, nor put another in its place,
/// be it by a link on the way to it or under the name that the next run looks for.
fn policy_files(policy: &Policy, host: &dyn Host) -> Vec<Protected> {
    let default = DEFAULT_POLICY.to_owned();
    let mut files = Vec::new();
    let named = std::iter::once(&policy.name).chain(&policy.included).chain([&default]);
    for name in named.filter(|name| !name.starts_with("profile/")) {
        let spelled = policy.cwd().join(name);
        files.extend(links_to(&spelled));
        let path = host.resolve(&spelled);
        files.push(Protected { id: host.identity(&path), path, unlisted: false });
    }
    files
}

/// The links on the way to a file of the launcher, as files of the launcher.
#[must_use]
pub fn links_to(spelled: &Path) -> Vec<Protected> {
    let links = links::leading_to(spelled).into_iter();
    links.map(|link| Protected { path: link.path, id: None, unlisted: false }).collect()
}

/// The same files where they are when links are followed, and where other mounts show them.
fn elsewhere(protected: &[Protected], facts: &HostFacts, host: &dyn Host) -> Vec<Protected> {
    let mut found = Vec::new();
    for file in protected {
        let (Some(parent), Some(name)) = (file.path.parent(), file.path.file_name()) else { continue };
        let real = host.resolve(parent).join(name);
        let mut paths = mountinfo::aliases(&facts.mounts, &real);
        paths.extend((real != file.path).then_some(real));
        found.extend(paths.into_iter().map(|path| Protected {
            // A link is none of the files that it leads to.
            id: file.id.and_then(|_| host.identity(&path)),
            path,
            unlisted: file.unlisted,
        }));
    }
    found
}

/// What may be read without a record. The script of the command is an input where a rule grants it.
fn system(policy: &Policy, command: &Command, host: &dyn Host, mut trees: Vec<PathBuf>) -> Vec<PathBuf> {
    let script = command.script.as_deref().map(|script| host.resolve(script));
    let script = script.filter(|script| policy.decide_path(PathAccess::Read, script).is_allow());
    trees.retain(|tree| Some(tree) != script.as_ref());
    trees
}

fn command_table(command: &Command, host: &dyn Host) -> CommandTable {
    let paths = command.images.iter().map(|image| &image.resolved).chain(&command.own_interpreter);
    let mut own: Vec<OwnProgram> = Vec::new();
    for path in paths {
        let path = host.resolve(path);
        if let Some(id) = host.identity(&path)
            && !own.iter().any(|program: &OwnProgram| program.id == id)
        {
            own.push(OwnProgram { path, id });
        }
    }
    CommandTable { own }
}

/// The HTTP proxy's port inside: the first that no rule names.
fn proxy_port(taken: &[u16]) -> u16 {
    (3128..u16::MAX).find(|port| !taken.contains(port)).unwrap_or(3128)
}

fn net(policy: &Policy) -> NetSpec {
    let ports: Vec<u16> = policy.named_ports().ports.into_iter().collect();
    let loopback: Vec<u16> = policy.loopback_ports().into_iter().flatten().collect();
    let published: Vec<u16> = policy.published_ports().into_iter().map(|(port, _)| port).collect();
    let taken: Vec<u16> = ports.iter().chain(&loopback).chain(&published).copied().collect();
    NetSpec {
        tproxy: true,
        ports,
        loopback,
        udp_ports: policy.datagram_ports().into_iter().collect(),
        udp_loopback: policy.loopback_datagram_ports(),
        published,
        proxy_port: proxy_port(&taken),
    }
}

/// What a view is likely to have as far as it is there, known without a plan: the child makes it meanwhile. For
/// `caller`, a user and a group.
#[must_use]
pub fn likely_mounts(caller: (u32, u32)) -> Vec<MountOp> {
    mounts::of_every_view(caller)
}

/// New file systems of a view whose places no rule names.
#[must_use]
pub fn possible_mounts() -> Vec<MountOp> {
    mounts::private_ones().collect()
}

/// Device and inode of `path`, for tables of files.
#[must_use]
pub fn identity(host: &dyn Host, path: &std::path::Path) -> Option<FileId> {
    host.identity(path)
}
