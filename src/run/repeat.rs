//! Repeat: what a run has that no other run of the same command would have, kept so that it can be run again.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use super::{Inherited, Processors, ReplayedFiles, RunError, Until};
use crate::netproxy::ca::StoredAuthority;
use crate::netproxy::secret;
use crate::netproxy::tls::Interception;
use crate::policy::lossless;
use crate::supervisor::{Controls, Seed, Tapes, Timeline};
use crate::sys::clock::ClockBase;
use crate::trace::redact::Redactor;
use crate::trace::{Event, Kind, Recorder, TraceError, Turn, hex, unhex};

/// Version of `run.replay` and of what the private blob holds.
pub const VERSION: u32 = 1;

/// What becomes of a run afterwards.
#[derive(Debug)]
pub enum Repeat {
    /// It can only be read (`--no-replay`).
    Never,
    /// It can be run again.
    Recorded {
        /// What only its user may know.
        private: Box<Private>,
        /// The content of what it reads is kept.
        captures: bool,
    },
    /// It is one that was recorded before.
    Replayed(Box<Replayed>),
}

/// A run that is run again.
#[derive(Debug)]
pub struct Replayed {
    /// What the recorded run had.
    pub private: Private,
    /// Its clocks when it began.
    pub clock: ClockBase,
    /// What it saw of them later.
    pub tapes: Tapes,
    /// Waits last as long as they did.
    pub paced: bool,
    /// Its files.
    pub files: ReplayedFiles,
    /// How far it is replayed, if not to its end.
    pub until: Option<Until>,
}

/// What nobody but the user may know of a run: lies in a private blob.
#[derive(Clone, Serialize, Deserialize)]
pub struct Private {
    /// Version of this format.
    pub version: u32,
    /// Behind all randomness of the run: 32 bytes in hex.
    seed: String,
    /// The key of the digests that stand for secrets, in hex.
    redactor: String,
    /// The words of the command.
    #[serde(with = "lossless::paths")]
    argv: Vec<PathBuf>,
    /// The launch directory.
    #[serde(with = "lossless::path")]
    pub cwd: PathBuf,
    /// Variables of the launcher that the run depends on, as `NAME=VALUE`.
    #[serde(with = "lossless::paths")]
    environment: Vec<PathBuf>,
    /// What stood for the values of secrets.
    pub placeholders: Vec<(String, String)>,
    /// Signs what clients are shown, where TLS is read.
    pub authority: Option<StoredAuthority>,
    /// Who the caller was.
    #[serde(default)]
    pub user: Option<User>,
    /// What the command had of what the launcher was started with.
    #[serde(default)]
    pub inherited: Option<Inherited>,
}

/// A user, and the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// The name of the user, or the number.
    pub name: String,
    /// The name of the group, or the number.
    pub group: String,
}

impl User {
    /// Whether the ids are some, and the names can stand in passwd(5) and group(5).
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let is_name = |name: &str| {
            let is_part = |byte: u8| byte.is_ascii_graphic() && !b":,".contains(&byte) || !byte.is_ascii();
            !name.is_empty() && name.len() <= 256 && name.bytes().all(is_part)
        };
        self.uid != u32::MAX && self.gid != u32::MAX && is_name(&self.name) && is_name(&self.group)
    }
}

/// Never its values.
impl std::fmt::Debug for Private {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Private").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What the caller started a run with.
#[derive(Debug)]
pub struct Start<'a> {
    /// The words of the command.
    pub argv: &'a [OsString],
    /// The launch directory.
    pub cwd: PathBuf,
    /// Variables of the launcher that the run depends on, values of secrets not among them.
    pub environment: Vec<(OsString, OsString)>,
    /// What stands for the values of secrets.
    pub placeholders: Vec<(String, String)>,
    /// Where all randomness comes from; fresh where none is given.
    pub seed: Option<Seed>,
    /// Who it is.
    pub user: User,
}

impl Private {
    /// Makes what is random about a run.
    ///
    /// # Errors
    /// When the kernel gives no randomness.
    pub fn new(start: Start<'_>) -> Result<Self, RunError> {
        let seed = match start.seed {
            Some(seed) => seed,
            None => Seed::fresh().map_err(RunError::call("getrandom"))?,
        };
        let variable = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            PathBuf::from(name)
        };
        Ok(Self {
            version: VERSION,
            seed: hex(seed.bytes()),
            redactor: hex(Redactor::new()?.key()),
            argv: start.argv.iter().map(PathBuf::from).collect(),
            cwd: start.cwd,
            environment: start.environment.into_iter().map(variable).collect(),
            placeholders: start.placeholders,
            authority: None,
            user: Some(start.user),
            inherited: None,
        })
    }

    /// The words of the command.
    pub fn argv(&self) -> impl Iterator<Item = OsString> + '_ {
        self.argv.iter().map(|word| word.clone().into_os_string())
    }

    /// Variables of the launcher that the run depended on.
    pub fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.environment.iter().filter_map(|variable| {
            let bytes = variable.as_os_str().as_bytes();
            let end = bytes.iter().position(|&byte| byte == b'=')?;
            let word = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
            Some((word(&bytes[..end]), word(&bytes[end + 1..])))
        })
    }

    /// Whether what is random about the run can be had from it.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let is_seeded = Seed::from_hex(&self.seed).is_some() && self.redactor().is_some();
        is_seeded && self.cwd.is_absolute() && self.placeholders.iter().all(secret::is_placeholder)
    }

    /// What stands for a value: the same for the same one, and nobody finds the value by trying.
    #[must_use]
    pub fn digest(&self, value: &[u8]) -> String {
        self.redactor().map(|redactor| redactor.redacted(value)).unwrap_or_default()
    }

    fn redactor(&self) -> Option<Redactor> {
        unhex(&self.redactor).map(|key| Redactor::with_key(&key))
    }
}

/// The first moment of a run.
pub(super) struct Beginning {
    /// Its clocks, or those of the recorded run.
    pub(super) base: ClockBase,
    /// To be recorded when the run is.
    pub(super) replay: Option<Event>,
}

impl Repeat {
    /// What reads the run's TLS is known by now.
    pub(super) fn keep_authority(&mut self, tls: Option<&Interception>) {
        if let Self::Recorded { private, .. } = self {
            private.authority = tls.map(|tls| tls.authority.store());
        }
    }

    /// As is what the launcher was started with.
    pub(super) fn keep_inherited(&mut self, inherited: &Inherited) {
        if let Self::Recorded { private, .. } = self {
            private.inherited = Some(inherited.clone());
        }
    }

    pub(super) fn private(&self) -> Option<&Private> {
        match self {
            Self::Never => None,
            Self::Recorded { private, .. } => Some(private),
            Self::Replayed(replayed) => Some(&replayed.private),
        }
    }

    /// Comes when the run goes on for real.
    pub(super) fn turn(&self) -> Option<Arc<Turn>> {
        match self {
            Self::Replayed(replayed) => replayed.until.as_ref()?.turn.clone(),
            Self::Never | Self::Recorded { .. } => None,
        }
    }

    /// The recorder of the run of which `run` is pid 1.
    pub(super) fn watch(&mut self, recorder: Recorder, run: OwnedFd) -> Recorder {
        let Self::Replayed(replayed) = self else { return recorder };
        match replayed.until.take() {
            Some(until) => until.watch(recorder, run),
            None => recorder,
        }
    }

    /// The files of a run that is run again.
    pub(super) fn files(&self) -> Option<&ReplayedFiles> {
        if let Self::Replayed(replayed) = self { Some(&replayed.files) } else { None }
    }

    /// The redactor of the run.
    pub(super) fn redactor(&self) -> Result<Redactor, TraceError> {
        self.private().and_then(Private::redactor).map_or_else(Redactor::new, Ok)
    }

    /// The clocks when the run began, or when the recorded one did.
    fn clock(&self) -> Result<ClockBase, RunError> {
        match self {
            Self::Replayed(replayed) => Ok(replayed.clock),
            Self::Never | Self::Recorded { .. } => ClockBase::now().map_err(RunError::call("clock_gettime")),
        }
    }

    /// What makes the run like the recorded one, or one that can be run again: its clocks begin with `base`,
    /// `ahead` of the machine's.
    pub(super) fn controls(self, base: ClockBase, ahead: i64) -> Result<Option<Controls>, RunError> {
        let Some(private) = self.private() else { return Ok(None) };
        let seed = Seed::from_hex(&private.seed);
        let seed = seed.ok_or_else(|| {
            RunError::call("the seed")(std::io::Error::from(std::io::ErrorKind::InvalidData))
        })?;
        let tapes = match self {
            Self::Replayed(replayed) => Some(replayed.tapes),
            Self::Never | Self::Recorded { .. } => None,
        };
        Ok(Some(Controls { seed, clock: Timeline { base, ahead, tapes } }))
    }

    /// Whether it matters who writes the outputs before whom: not where one process alone did.
    pub(super) fn orders_outputs(&self) -> bool {
        match self {
            Self::Never => false,
            Self::Recorded { .. } => true,
            Self::Replayed(replayed) => !replayed.tapes.course.is_empty() || self.turn().is_some(),
        }
    }

    /// Whether the content of what the run reads is kept.
    pub(super) fn captures(&self) -> bool {
        matches!(self, Self::Recorded { captures: true, .. })
    }

    /// Whether waits are left out.
    pub(super) fn skips_waits(&self) -> bool {
        matches!(self, Self::Replayed(replayed) if !replayed.paced)
    }

    /// When the run begins, and what a replay needs to know first; its blob is stored then.
    pub(super) fn begin(
        &self,
        umask: Mode,
        (recorder, turn): (&Recorder, Option<&Turn>),
    ) -> Result<Beginning, RunError> {
        let base = self.clock()?;
        Ok(Beginning { base, replay: self.event(umask, base, (recorder, turn))? })
    }

    fn event(
        &self,
        umask: Mode,
        base: ClockBase,
        (recorder, turn): (&Recorder, Option<&Turn>),
    ) -> Result<Option<Event>, RunError> {
        let Some(private) = self.private() else { return Ok(None) };
        let text = serde_json::to_vec(private)
            .map_err(|error| RunError::call("the private blob")(std::io::Error::from(error)))?;
        let blob = recorder.keep(&text)?;
        let mut event = Event::new(Kind::Meta, "run.replay");
        if self.captures() {
            event = event.arg("captured", true);
        }
        if let Some(turn) = turn {
            event = event.arg("until", turn.said.clone());
        }
        let event = event
            .arg("version", VERSION)
            .arg("umask", umask.bits())
            .arg("clock", serde_json::json!(base))
            .arg("processors", serde_json::json!(Processors::here()))
            .arg("private", blob.private());
        Ok(Some(event))
    }
}
