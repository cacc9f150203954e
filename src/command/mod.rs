//! What really runs when a command line is given, found without executing anything.
//!
//! A word on a command line is seldom the file that the kernel will load. Between them stand, in
//! this order: the `PATH` search (`lookup`), version managers whose shims pick a program at run
//! time (`shim`), `#!` lines and `env` (`chain`, `shebang`), and symbolic links (`trail`).
//! [`resolve`] walks all of them and says which file is started, which interpreter runs it, which
//! script that interpreter was asked to run (`interpreter`), and which trees of system or
//! toolchain files the program cannot do without (`roots`, `prefix`, `libraries`).
//!
//! Nothing here decides what is allowed. The plan shows the roots read-only, and the guard treats
//! [`Command::images`] and [`Command::own_interpreter`] as the command itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

mod chain;
pub mod env_words;
mod error;
mod interpreter;
mod libraries;
mod lookup;
mod prefix;
pub mod profiles;
mod roots;
mod shebang;
mod shim;
mod surroundings;
#[cfg(test)]
mod tests;
mod trail;
mod trampoline;

pub use error::CommandError;
use surroundings::Surroundings;

/// A command as it will be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The argument vector that the program gets. `argv[0]` is kept as typed, except for the path
    /// of a shim, which is not there inside; a toolchain word (`cargo +nightly`) is taken out,
    /// because the real program does not know it.
    pub argv: Vec<OsString>,
    /// The absolute path to execute, as spelled: links are kept, for a virtualenv is found by the
    /// spelled path of its interpreter.
    pub program: PathBuf,
    /// `program` with every link followed.
    pub resolved: PathBuf,
    /// The script that is run: the program itself when it begins with `#!`, or the file named to
    /// a known interpreter. Absolute as spelled; it need not exist.
    pub script: Option<PathBuf>,
    /// The interpreter that runs the command, as spelled: the program itself (`python3 x.py`) or
    /// the end of the `#!` chain.
    pub interpreter: Option<PathBuf>,
    /// Every file that the kernel loads on the way from the program to its interpreter, in order
    /// of start: the program, then `env`, then the interpreter.
    pub images: Vec<Executable>,
    /// Spelled and resolved paths of the interpreter that the command may start again with any
    /// arguments (`sys.executable`, `process.execPath`). Empty for a plain program.
    pub own_interpreter: Vec<PathBuf>,
    /// Trees and files that must be readable for the command to start, each with its reason.
    /// Paths are resolved, and none lies in the system's own trees.
    pub runtime: Vec<RuntimeRoot>,
    /// Symbolic links outside of the roots that the spelled paths lead through. The view shows
    /// the links themselves, never what else lies beside their targets.
    pub links: Vec<Link>,
    /// Directories put before the launcher's `PATH`: real `bin` directories, so that a word finds
    /// inside what its shim would have found outside.
    pub path_prefix: Vec<PathBuf>,
    /// Variables to set: `PATH` (whole, prefix included) when there is a prefix, `RUSTUP_HOME`.
    pub env: Vec<(String, String)>,
    /// What a user should know: a tree that was not shown, a script that is a directory.
    pub notes: Vec<String>,
}

/// A program file under both of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Absolute path as it is executed.
    pub spelled: PathBuf,
    /// The same with every link followed.
    pub resolved: PathBuf,
}

/// A file or tree that a program needs, visible read-only without a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeRoot {
    /// Resolved absolute path of a directory or a file.
    pub path: PathBuf,
    /// Why it is there, for `policy show`.
    pub reason: String,
    /// The links and scripts that lead there: whoever can change one of them has chosen it.
    pub chosen_by: Vec<PathBuf>,
    /// What of it is a runtime and nothing else: visible whoever has chosen it. Resolved as well.
    pub runtime: Vec<PathBuf>,
}

/// A symbolic link that a spelled path leads through.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Where the link stands; no component before the last is a link.
    pub path: PathBuf,
    /// What it says.
    pub target: PathBuf,
}

/// Finds what `argv` starts in the launcher's environment, from the directory `cwd`.
///
/// # Errors
/// The errors of a shell (not found: 127, not executable: 126), and those of a shim or a `#!` line
/// that leads nowhere. [`CommandError::exit_code`] has the code.
pub fn resolve(argv: &[OsString], env: &[(OsString, OsString)], cwd: &Path) -> Result<Command, CommandError> {
    let around = Surroundings { env, cwd };
    let word = argv.first().ok_or(CommandError::NoCommand)?;
    let found = lookup::find(word, &around)?;
    let mut start = shim::see_through(found, argv.get(1), &around)?;
    let chain = chain::follow(&start.program, &around)?;
    start.path_prefix.extend(chain.path_prefix.iter().cloned());
    start.path_prefix.dedup();
    start.env.extend(chain.env.iter().cloned());
    start.env.dedup();

    let argv = effective(argv, &start, &chain);
    let mut notes = Vec::new();
    let named = match &chain.script {
        Some(_) => None,
        None => interpreter::named_script(&chain.last().spelled, &argv, &around, &mut notes),
    };
    let interpreted = chain.script.is_some() || interpreter::is_known(chain.last());
    let mut collected = roots::collect(&chain, &around);
    notes.append(&mut collected.notes);
    let program = &chain.images[0];
    Ok(Command {
        argv,
        program: program.spelled.clone(),
        resolved: program.resolved.clone(),
        interpreter: interpreted.then(|| chain.last().spelled.clone()),
        own_interpreter: if interpreted { interpreter::own(chain.last()) } else { Vec::new() },
        script: chain.script.clone().or(named),
        runtime: collected.roots,
        links: collected.links,
        env: variables(start.env, &start.path_prefix, &around),
        path_prefix: start.path_prefix,
        images: chain.images,
        notes,
    })
}

/// The roots that `program`, an absolute path named by an exec rule, needs to run: the same as for
/// the command itself, and the script when it is one. A program that cannot be started needs none.
#[must_use]
pub fn runtime_of(program: &Path, env: &[(OsString, OsString)], cwd: &Path) -> Vec<RuntimeRoot> {
    if roots::is_all_system(program, &Surroundings { env, cwd }) {
        return Vec::new();
    }
    let Ok(command) = resolve(&[program.as_os_str().to_owned()], env, cwd) else {
        return Vec::new();
    };
    let mut roots = command.runtime;
    let path = command.resolved;
    let is_visible =
        |path: &Path| surroundings::is_system(path) || roots.iter().any(|root| path.starts_with(&root.path));
    if !is_visible(&path) {
        let reason = format!("the program {}", program.display());
        roots.push(RuntimeRoot { path, reason, chosen_by: links_of(program), runtime: Vec::new() });
    }
    roots
}

/// The links on the way to `path`, an absolute one, in order.
#[must_use]
pub fn links_of(path: &Path) -> Vec<PathBuf> {
    let links = trail::follow(path).map(|trail| trail.links).unwrap_or_default();
    links.into_iter().map(|link| link.path).collect()
}

/// Every program that `word` names along the launcher's `PATH`, in order. What a shim would start
/// follows the shim, so that a rule for `python3` covers the interpreter behind it.
#[must_use]
pub fn programs(word: &std::ffi::OsStr, env: &[(OsString, OsString)], cwd: &Path) -> Vec<PathBuf> {
    let around = Surroundings { env, cwd };
    let mut found = Vec::new();
    for path in lookup::every(word, &around) {
        let behind = shim::see_through(path.clone(), None, &around).map(|start| start.program);
        found.push(path.clone());
        found.extend(behind.ok().filter(|program| *program != path));
    }
    found.dedup();
    found
}

fn effective(argv: &[OsString], start: &shim::Start, chain: &chain::Chain) -> Vec<OsString> {
    let mut argv = argv.to_vec();
    if start.took_argument {
        argv.remove(1);
    }
    if let Some(words) = &chain.instead {
        argv.splice(..1, words.iter().cloned());
    } else if start.is_behind_shim && argv[0].as_encoded_bytes().contains(&b'/') {
        argv[0] = start.program.clone().into_os_string();
    }
    argv
}

fn variables(
    mut env: Vec<(String, String)>,
    prefix: &[PathBuf],
    around: &Surroundings<'_>,
) -> Vec<(String, String)> {
    if !prefix.is_empty() {
        let dirs = prefix.iter().cloned().chain(around.path_dirs());
        let words: Vec<_> = dirs.filter_map(|dir| dir.to_str().map(str::to_owned)).collect();
        env.push(("PATH".to_owned(), words.join(":")));
    }
    env
}
