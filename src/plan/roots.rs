//! Which trees of the host are visible, and why each of them is.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::command::{self, Command, RuntimeRoot};
use crate::policy::{
    Effect, ExecProgram, Host, PathAccess, PathPattern, Policy, RuleBody, Verdict, lossless,
};

/// Why a tree is visible.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Why {
    /// Every program needs it.
    System,
    /// The command, or a program that an exec rule names, needs it.
    Runtime(String),
    /// This rule shows it.
    Rule(String),
}

/// A tree or file of the host that is visible.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Root {
    /// Where it is, on the host and in the view.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// Why.
    pub why: Why,
    /// Whether the agent may change it.
    pub writable: bool,
    /// Whether programs in it may start, as far as the mount is concerned.
    pub executable: bool,
}

impl Root {
    /// Readable without a record.
    #[must_use]
    pub fn is_system(&self) -> bool {
        !matches!(self.why, Why::Rule(_))
    }
}

/// Files and trees of the system that every program may read.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/gai.conf",
    "/etc/gitconfig",
    "/etc/host.conf",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/os-release",
    // Not the whole of it: keys of the host's own services lie beside the certificates.
    "/etc/pki/ca-trust",
    "/etc/pki/java",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/tls/openssl.d",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/protocols",
    "/etc/services",
    "/etc/shells",
    "/etc/ssh/ssh_config",
    "/etc/ssh/ssh_config.d",
    // As in /etc/pki.
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/etc/xattr.conf",
    // Where openSUSE has what /etc/ssl links to.
    "/var/lib/ca-certificates",
    // How many processors there are: the C library and every runtime ask.
    "/sys/devices/system/cpu",
];
/// Directories that a run has for itself.
pub(super) const PRIVATE: &[&str] = &["/tmp", "/run", "/dev/shm", "/var/tmp"];
/// Beginnings of names in /etc: versions of interpreters keep their settings there.
const SYSTEM_PREFIXES: &[&str] = &["python3", "java-", "perl"];

/// The roots that every run has, whatever the policy, those that are not there among them.
pub(super) fn of_every_run() -> Vec<Root> {
    system_paths().map(|path| Root { path, why: Why::System, writable: false, executable: true }).collect()
}

fn system_paths() -> impl Iterator<Item = PathBuf> {
    SYSTEM.iter().map(PathBuf::from).chain(etc_names().into_iter().map(|name| Path::new("/etc").join(name)))
}

/// Collects every root: the system's, the command's, those of rules.
pub(super) fn collect(policy: &Policy, command: &Command, host: &dyn Host) -> Vec<Root> {
    let mut roots: Vec<Root> = Vec::new();
    let mut known: HashSet<(PathBuf, Why)> = HashSet::new();
    let mut add = |path: PathBuf, why: Why| {
        if host.exists(&path) && known.insert((path.clone(), why.clone())) {
            roots.push(Root { writable: false, executable: true, path, why });
        }
    };
    for path in system_paths() {
        add(path, Why::System);
    }
    let image = command.images.last().map_or(&command.resolved, |image| &image.resolved);
    for (path, reason) in needed(policy, host, &host.resolve(image), &command.runtime) {
        add(path.to_owned(), Why::Runtime(reason.to_owned()));
    }
    if let Some(script) = &command.script
        && !is_agents(policy, &command::links_of(script))
    {
        add(host.resolve(script), Why::Runtime("the script of the command".to_owned()));
    }
    add_rules(policy, host, &mut add);
    if let Some(why) = hidden_cwd(policy, host) {
        add(host.cwd().to_owned(), why);
    }
    for root in &mut roots {
        root.writable = policy.decide_path(PathAccess::Write, &root.path).is_allow()
            || write_glob_reaches(policy, &root.path);
        root.executable = !root.writable || root.is_system() || exec_reaches(policy, &root.path);
    }
    roots
}

/// The rule that shows the working directory, when that lies in a directory that the run has for itself: a rule about
/// something around such a directory (`read: /`) does not reach into it.
fn hidden_cwd(policy: &Policy, host: &dyn Host) -> Option<Why> {
    if !PRIVATE.iter().any(|own| host.cwd().starts_with(own)) {
        return None;
    }
    match policy.decide_path(PathAccess::Read, host.cwd()) {
        Verdict::Allow { rule } => policy.rules.get(rule.0).map(|rule| Why::Rule(rule.text.clone())),
        Verdict::Deny { .. } => None,
    }
}

fn add_rules(policy: &Policy, host: &dyn Host, add: &mut dyn FnMut(PathBuf, Why)) {
    let environment = host.environment();
    let granted = policy.rules.iter().filter(|rule| rule.effect == Effect::Grant);
    for rule in granted {
        let why = || Why::Rule(rule.text.clone());
        match &rule.body {
            RuleBody::Path { pattern: PathPattern::Literal { resolved, .. }, .. } => {
                add(resolved.clone(), why())
            }
            RuleBody::Path { pattern: PathPattern::Glob { base, .. }, .. } => add(base.clone(), why()),
            RuleBody::Runtime { path: PathPattern::Literal { resolved, .. } } => {
                add(resolved.clone(), Why::Runtime(rule.text.clone()));
            }
            RuleBody::Exec(exec) => {
                for spelled in programs(&exec.program) {
                    let program = host.resolve(&spelled);
                    let reason = || Why::Runtime(format!("`{}` needs it", rule.text));
                    if !program.starts_with("/usr") {
                        add(program.clone(), reason());
                    }
                    // A virtualenv is told by the link to its interpreter.
                    let runtime = command::runtime_of(&spelled, &environment, host.cwd());
                    for (path, _) in needed(policy, host, &program, &runtime) {
                        add(path.to_owned(), reason());
                    }
                }
            }
            RuleBody::Runtime { .. }
            | RuleBody::Net(_)
            | RuleBody::UnixSocket(_)
            | RuleBody::Env(_)
            | RuleBody::Secret(_)
            | RuleBody::Listen(_) => {}
        }
    }
}

/// Whether one of these places is the agent's to change: an earlier run may have done so.
fn is_agents(policy: &Policy, places: &[PathBuf]) -> bool {
    places.iter().any(|place| policy.decide_path(PathAccess::Write, place).is_allow())
}

/// What is shown of all that a program needs. Which libraries a file asks for is the choice of who wrote it, and where
/// a link or a script leads too: where that can have been the agent, they are shown where a rule grants them, and
/// nowhere else.
fn needed<'a>(
    policy: &Policy,
    host: &dyn Host,
    program: &Path,
    roots: &'a [RuntimeRoot],
) -> Vec<(&'a Path, &'a str)> {
    let may = |access, path: &Path| policy.decide_path(access, path).is_allow();
    let is_library = |root: &RuntimeRoot| !host.is_dir(&root.path);
    let writes = may(PathAccess::Write, program)
        || roots.iter().any(|root| is_library(root) && may(PathAccess::Write, &root.path));
    let is_shown = |root: &RuntimeRoot| {
        let is_granted = may(PathAccess::Read, &root.path);
        is_granted || !(writes && is_library(root) || is_agents(policy, &root.chosen_by))
    };
    let shown = |root: &'a RuntimeRoot| {
        let paths = if is_shown(root) { std::slice::from_ref(&root.path) } else { root.runtime.as_slice() };
        paths.iter().map(|path| (path.as_path(), root.reason.as_str()))
    };
    roots.iter().flat_map(shown).collect()
}

/// Files and directories that an exec rule names on this host.
pub(super) fn programs(program: &ExecProgram) -> Vec<PathBuf> {
    match program {
        ExecProgram::Word { files, .. } => files.iter().map(|file| file.path.clone()).collect(),
        ExecProgram::Path { pattern: PathPattern::Literal { spelled, .. }, .. } => vec![spelled.clone()],
        ExecProgram::Path { .. } | ExecProgram::Glob(_) => Vec::new(),
    }
}

/// Whether a pattern grants writing to something below `root`; the guard tells what.
fn write_glob_reaches(policy: &Policy, root: &Path) -> bool {
    policy.rules.iter().any(|rule| match &rule.body {
        RuleBody::Path { access: PathAccess::Write, pattern } => {
            rule.effect == Effect::Grant && pattern.is_glob() && pattern.may_cover_below(root)
        }
        _ => false,
    })
}

/// Whether an exec rule names a program in `root` by its path: such a root is not noexec.
pub(super) fn exec_reaches(policy: &Policy, root: &Path) -> bool {
    policy.granted_programs().any(|(_, exec)| match &exec.program {
        ExecProgram::Word { .. } => false,
        ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => match pattern {
            PathPattern::Literal { resolved, .. } => root.starts_with(resolved) || resolved.starts_with(root),
            PathPattern::Glob { base, .. } => root.starts_with(base) || base.starts_with(root),
        },
    })
}

fn etc_names() -> Vec<std::ffi::OsString> {
    let Ok(entries) = std::fs::read_dir("/etc") else { return Vec::new() };
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| {
            SYSTEM_PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
        })
        .collect();
    names.sort();
    names
}
