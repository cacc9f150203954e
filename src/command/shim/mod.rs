//! Version managers: small programs on `PATH` that pick the real one when they are started.
//!
//! Started inside, a shim would need its manager's own scripts and a shell. So the choice is made
//! here, by the manager's documented rules, and the real program is started with its directory
//! first on `PATH`. One file a manager family: [`versions`] (pyenv, rbenv, nodenv, goenv, jenv,
//! plenv), [`rustup`], [`tools`] (asdf, mise). Managers that only set `PATH` (nvm, conda) need
//! nothing; those whose choice cannot be told from files (snap, volta) are refused by name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::CommandError;
use super::surroundings::Surroundings;
use crate::policy::looks;

mod rustup;
mod tools;
mod versions;

/// The program to start in place of what was found.
#[derive(Debug)]
pub(super) struct Start {
    /// Absolute, as spelled.
    pub(super) program: PathBuf,
    /// Whether the first argument was meant for the shim (`cargo +nightly`).
    pub(super) took_argument: bool,
    /// Whether this is not the program that was found.
    pub(super) is_behind_shim: bool,
    pub(super) path_prefix: Vec<PathBuf>,
    pub(super) env: Vec<(String, String)>,
}

impl Start {
    fn plain(program: PathBuf) -> Self {
        Self {
            program,
            took_argument: false,
            is_behind_shim: false,
            path_prefix: Vec::new(),
            env: Vec::new(),
        }
    }

    /// A program found behind a shim: its directory goes first on `PATH`.
    fn behind(program: PathBuf) -> Self {
        let path_prefix = program.parent().map(Path::to_owned).into_iter().collect();
        Self { path_prefix, ..Self::plain(program) }
    }
}

/// Looks through shims until a program stands that is none. `argument` is the first word after
/// the program, for shims that read it.
pub(super) fn see_through(
    found: PathBuf,
    argument: Option<&OsString>,
    around: &Surroundings<'_>,
) -> Result<Start, CommandError> {
    // A manager may hand on to another (pyenv's `system` to a mise shim), but not for ever.
    const MOST: usize = 4;
    let mut start = Start::plain(found);
    for _ in 0..MOST {
        // Followed once for all who ask: policies name many programs.
        let real = looks::canonical(&start.program).ok();
        let next = match versions::behind(&start.program, around)? {
            Some(next) => Some(next),
            None => match rustup::behind(&start.program, real.as_deref(), argument, around)? {
                Some(next) => Some(next),
                None => tools::behind(&start.program, real.as_deref(), around)?,
            },
        };
        let Some(next) = next else {
            refuse_opaque(&start.program, real.as_deref())?;
            return Ok(start);
        };
        start.program = next.program;
        start.took_argument |= next.took_argument;
        start.is_behind_shim = true;
        start.path_prefix = next.path_prefix;
        start.env.extend(next.env);
    }
    let real = looks::canonical(&start.program).ok();
    refuse_opaque(&start.program, real.as_deref())?;
    Ok(start)
}

fn refuse_opaque(program: &Path, real: Option<&Path>) -> Result<(), CommandError> {
    let Some(real) = real else { return Ok(()) };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let opaque = |manager, hint| Err(CommandError::OpaqueShim { shim: program.to_owned(), manager, hint });
    if program.starts_with("/snap/bin") || real == Path::new("/usr/bin/snap") {
        let hint = "a snap runs in a sandbox of its own and cannot be confined in another; \
                    install the program by other means";
        return opaque("snap", hint.to_owned());
    }
    match real.file_name().and_then(|file| file.to_str()) {
        Some("volta-shim") => opaque("volta", format!("give the path that `volta which {name}` prints")),
        Some("proto-shim") => opaque("proto", format!("give the path that `proto bin {name}` prints")),
        _ => Ok(()),
    }
}
