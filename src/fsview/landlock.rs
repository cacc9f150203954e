//! Landlock (landlock(7)) as the second layer under the view: what a mount failed to refuse,
//! this refuses.

use std::error::Error;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use nix::libc;
use nix::sys::stat::fstat;

use crate::policy::lossless;
use crate::sys::refused::Refused;

/// What may be done below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// List directories.
    List,
    /// Read files and list directories.
    Read,
    /// Read, and start programs.
    Execute,
    /// Everything but starting programs.
    Write,
    /// Everything.
    All,
}

/// One rule: a path of the view and what may be done below it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LandlockRule {
    /// Absolute path in the view.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// The right.
    pub right: Right,
}

/// Device ioctls stay unhandled: terminals need them (ABI 5 would refuse all of them).
const HANDLED: ABI = ABI::V4;

fn access(right: Right) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    match right {
        Right::List => BitFlags::from(AccessFs::ReadDir),
        Right::Read => read,
        Right::Execute => read | AccessFs::Execute,
        Right::Write => AccessFs::from_all(HANDLED) & !BitFlags::from(AccessFs::Execute),
        Right::All => AccessFs::from_all(HANDLED),
    }
}

/// What Landlock holds back; nothing where the kernel has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restricted {
    /// The rules are in force.
    pub files: bool,
    /// No signal leaves the run (Linux 6.12). Pid namespaces alone do not see to that: a signal to
    /// the own process group reaches the members that are outside.
    pub signals: bool,
}

/// Restricts the calling thread for good.
///
/// # Errors
/// When the kernel has Landlock and refuses the rules.
pub fn restrict(rules: &[LandlockRule]) -> Result<Restricted, Refused> {
    restrict_self(rules).map_err(refused)
}

fn restrict_self(rules: &[LandlockRule]) -> Result<Restricted, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(HANDLED))?
        .scope(Scope::Signal)?
        .create()?;
    for rule in rules {
        // A path that is not there has nothing below it to grant.
        let Ok(descriptor) = PathFd::new(&rule.path) else { continue };
        let mut allowed = access(rule.right);
        let status = fstat(descriptor.as_fd());
        if status.is_ok_and(|status| status.st_mode & libc::S_IFMT != libc::S_IFDIR) {
            allowed &= AccessFs::from_file(HANDLED);
        }
        ruleset = ruleset.add_rule(PathBeneath::new(descriptor, allowed))?;
    }
    let status = ruleset.restrict_self()?;
    let files = status.ruleset != RulesetStatus::NotEnforced;
    let scopes = matches!(
        status.landlock,
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= ABI::V6
    );
    Ok(Restricted { files, signals: files && scopes })
}

/// The call that refused, and its errno.
fn refused(error: RulesetError) -> Refused {
    let call = match error {
        RulesetError::AddRules(_) => "landlock_add_rule",
        RulesetError::RestrictSelf(_) => "landlock_restrict_self",
        _ => "landlock_create_ruleset",
    };
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(number) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Refused { call, source: io::Error::from_raw_os_error(number) };
        }
        cause = error.source();
    }
    Refused { call, source: io::Error::other(error) }
}
