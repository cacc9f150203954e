//! From a program file through its `#!` lines to the interpreter that runs it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::lookup::Refusal;
use super::shebang::Image;
use super::surroundings::Surroundings;
use super::{CommandError, Executable, env_words, lookup, shebang, shim, trail, trampoline};
use crate::sys::shebang::Shebang;

/// How many `#!` lines in a row one execve(2) follows.
const KERNEL_DEPTH: usize = 4;
/// How many files we follow when `env` starts the count anew.
const MOST_IMAGES: usize = 16;

/// The files that run one program.
pub(super) struct Chain {
    /// The program first, its last interpreter last; never empty.
    pub(super) images: Vec<Executable>,
    /// The program, when it is a script.
    pub(super) script: Option<PathBuf>,
    /// Words that replace `argv[0]`: a `#!` line that names a shim is not left to the shim.
    pub(super) instead: Option<Vec<OsString>>,
    pub(super) path_prefix: Vec<PathBuf>,
    pub(super) env: Vec<(String, String)>,
}

impl Chain {
    /// The image that is no script: the interpreter, or a plain program.
    pub(super) fn last(&self) -> &Executable {
        &self.images[self.images.len() - 1]
    }
}

/// Follows `program`, an absolute path that was found executable.
pub(super) fn follow(program: &Path, around: &Surroundings<'_>) -> Result<Chain, CommandError> {
    let mut chain = Chain {
        images: vec![executable(program)?],
        script: None,
        instead: None,
        path_prefix: Vec::new(),
        env: Vec::new(),
    };
    let mut depth = 0;
    loop {
        let at = chain.last().clone();
        let Some(line) = script_line(&at)? else {
            return Ok(chain);
        };
        if depth == KERNEL_DEPTH || chain.images.len() >= MOST_IMAGES {
            return Err(CommandError::TooManyInterpreters { script: program.to_owned() });
        }
        chain.script.get_or_insert_with(|| at.spelled.clone());
        let interpreter = interpreter(&at.spelled, &line, around)?;
        let first = chain.images.len() == 1;
        let real = shim::see_through(interpreter.clone(), None, around)?;
        if real.program != interpreter && first {
            let script = at.spelled.clone().into_os_string();
            let words = [Some(real.program.clone().into_os_string()), line.argument.clone(), Some(script)];
            chain.instead = Some(words.into_iter().flatten().collect());
            chain.images.clear();
        }
        chain.images.push(executable(&real.program)?);
        chain.path_prefix.extend(real.path_prefix);
        chain.env.extend(real.env);
        depth += 1;
        if let Some(python) = handed_on(&real.program, &at, around)? {
            chain.images.push(executable(&python)?);
            depth = 0;
        }
        if let Some(asked) = asked_of_env(&real.program, &line, &at.spelled, around)? {
            chain.images.push(executable(&asked.program)?);
            chain.path_prefix.extend(asked.path_prefix);
            chain.env.extend(asked.env);
            depth = 0;
        }
    }
}

fn script_line(image: &Executable) -> Result<Option<Shebang>, CommandError> {
    let looked = shebang::look_at(&image.resolved)
        .map_err(|source| CommandError::Examine { program: image.spelled.clone(), source })?;
    match looked {
        Image::Elf | Image::Unreadable => Ok(None),
        Image::Script(line) => Ok(Some(line)),
        Image::Unknown => Err(CommandError::NotExecutable {
            program: image.spelled.clone(),
            reason: "it is neither an ELF program nor a script with a `#!` line (give its \
                     interpreter, as in `sh FILE`)"
                .to_owned(),
        }),
    }
}

fn interpreter(script: &Path, line: &Shebang, around: &Surroundings<'_>) -> Result<PathBuf, CommandError> {
    let path = around.absolute(&line.interpreter);
    let reason = match lookup::check(&path) {
        Ok(()) => return Ok(path),
        Err(Refusal::Absent) => absent(line.interpreter.as_os_str()),
        Err(Refusal::Hidden) => lookup::HIDDEN.to_owned(),
        Err(Refusal::Unusable(reason)) => reason,
    };
    Err(CommandError::BadInterpreter {
        script: script.to_owned(),
        interpreter: line.interpreter.to_string_lossy().into_owned(),
        reason,
    })
}

fn absent(word: &OsStr) -> String {
    if word.as_bytes().ends_with(b"\r") {
        return "the line ends in a carriage return; save the script with Unix line ends".to_owned();
    }
    "there is no such file".to_owned()
}

/// The Python that a script of sh hands itself to.
fn handed_on(
    interpreter: &Path,
    script: &Executable,
    around: &Surroundings<'_>,
) -> Result<Option<PathBuf>, CommandError> {
    if interpreter.file_name() != Some(OsStr::new("sh")) {
        return Ok(None);
    }
    let Some(python) = trampoline::python(&script.resolved) else {
        return Ok(None);
    };
    let line = Shebang { interpreter: python, argument: None };
    self::interpreter(&script.spelled, &line, around).map(Some)
}

/// The program that `env` in a `#!` line will start, found along `PATH` as env does.
fn asked_of_env(
    interpreter: &Path,
    line: &Shebang,
    script: &Path,
    around: &Surroundings<'_>,
) -> Result<Option<shim::Start>, CommandError> {
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return Ok(None);
    }
    let Some(word) = line.argument.as_deref().and_then(env_words::program) else {
        return Ok(None);
    };
    let found = lookup::find(&word, around).map_err(|error| match error {
        CommandError::NotFound { .. } => missing(script, &word),
        other => other,
    })?;
    shim::see_through(found, None, around).map(Some)
}

fn missing(script: &Path, word: &OsStr) -> CommandError {
    if word.as_bytes().iter().any(|byte| b" \t\r".contains(byte)) {
        let reason = if word.as_bytes().ends_with(b"\r") {
            absent(word)
        } else {
            "env takes the whole line for one name; write `env -S`".to_owned()
        };
        return CommandError::BadInterpreter {
            script: script.to_owned(),
            interpreter: word.to_string_lossy().into_owned(),
            reason,
        };
    }
    CommandError::EnvProgramMissing { script: script.to_owned(), word: word.to_string_lossy().into_owned() }
}

fn executable(path: &Path) -> Result<Executable, CommandError> {
    let trail =
        trail::follow(path).map_err(|source| CommandError::Examine { program: path.to_owned(), source })?;
    Ok(Executable { spelled: path.to_owned(), resolved: trail.real })
}
