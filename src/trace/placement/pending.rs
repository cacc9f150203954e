//! Waiting traces: each in a directory of its own with a journal that says where it belongs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Map, Value};

use super::super::canonical;
use super::super::error::TraceError;
use super::super::event::{hex, path_value, unhex};
use super::super::layout::{DEFAULT_NAME, JOURNAL_NAME, PENDING_NAME, blobs_name};
use super::super::queue::now_micros;
use super::FileIdentity;
use super::directory::{Directory, lock};
use super::scratch::clean_up;
use super::state::StateDirectories;
use super::transfer::{remove_tree, transfer};
use super::views::{Reach, unseen};

/// A trace of a run that was killed, and what became of it.
#[derive(Debug)]
pub struct Recovered {
    /// Where it was waiting.
    pub from: PathBuf,
    /// Where it is now, or why it could not be put there.
    pub to: Result<PathBuf, TraceError>,
}

/// A place for one waiting trace.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) parent: Directory,
    pub(super) name: OsString,
    pub(super) directory: Directory,
    /// Other paths of where it belongs.
    pub(super) aliases: Vec<PathBuf>,
}

/// Where a trace is to be put.
pub(super) struct Places<'a> {
    pub(super) directory: &'a Directory,
    pub(super) name: &'a OsStr,
    pub(super) reach: &'a Reach,
}

/// Where a waiting trace belongs.
struct Journal {
    destination: PathBuf,
    directory: FileIdentity,
    aliases: Vec<PathBuf>,
}

/// Puts the traces of runs that have ended, or were killed, in place. Those of running ones are left alone, and those
/// that a running agent would see.
pub fn recover_pending() -> Vec<Recovered> {
    let state = StateDirectories::from_environment();
    clean_up(&state);
    recover(&state.existing())
}

/// Returns where the trace `path` is: there, or waiting in the private state directory; and then what keeps it there.
pub fn locate(path: &Path) -> (PathBuf, Option<Flock<File>>) {
    locate_to_stay(&StateDirectories::from_environment(), path)
}

/// The same in these state directories.
pub(super) fn recover(states: &[Directory]) -> Vec<Recovered> {
    let mut recovered = Vec::new();
    for parent in states.iter().filter_map(|state| state.open_private_in(OsStr::new(PENDING_NAME)).ok()) {
        let Ok(_guard) = hold(&parent) else { continue };
        for name in in_order(&parent) {
            recovered.extend(recover_one(states, &parent, &name));
        }
    }
    recovered
}

/// The same. Who puts traces in place leaves alone those that others have locked.
pub(super) fn locate_to_stay(state: &StateDirectories, path: &Path) -> (PathBuf, Option<Flock<File>>) {
    let found = locate_in(state, path);
    if found == path {
        return (found, None);
    }
    // A move that has begun ends first.
    let parent = found.ancestors().nth(2).and_then(|parent| Directory::open(parent).ok());
    let _guard = parent.and_then(|parent| hold(&parent).ok());
    let Ok(file) = File::open(&found) else { return (locate_in(state, path), None) };
    // That of a running one is locked already.
    (found, Flock::lock(file, FlockArg::LockSharedNonblock).ok())
}

pub(super) fn locate_in(state: &StateDirectories, path: &Path) -> PathBuf {
    // What stands there meanwhile came after it, be it an agent's.
    let Some(wanted) = absolute(path) else {
        return path.to_owned();
    };
    waiting(state)
        .into_iter()
        .rfind(|(_, journal)| journal.destination == wanted)
        .map_or_else(|| path.to_owned(), |(directory, _)| directory.join(OsStr::new(DEFAULT_NAME)))
}

/// Whether a run is under way whose trace belongs at `destination`.
pub(super) fn is_awaited(state: &StateDirectories, destination: &Path) -> bool {
    waiting(state).iter().any(|(directory, journal)| {
        journal.destination == destination
            && directory.open_file(OsStr::new(DEFAULT_NAME)).is_ok_and(|file| matches!(lock(file), Ok(None)))
    })
}

impl Pending {
    /// Makes a place for a trace that belongs at `places`, and lets `fill` make its files there before anybody looks.
    pub(super) fn create<T>(
        state: &StateDirectories,
        places: Places<'_>,
        fill: impl FnOnce(&Directory) -> Result<T, TraceError>,
    ) -> Result<(Self, T), TraceError> {
        let parent = state.create_pending()?;
        let create = |source| TraceError::Create { path: parent.path().to_owned(), source };
        let _guard = hold(&parent).map_err(create)?;
        let own_name = OsString::from(format!("{}-{}", now_micros(), std::process::id()));
        let directory = parent.create_directory(&own_name).map_err(create)?;
        let journal = Journal {
            destination: places.directory.join(places.name),
            directory: places.directory.identity().map_err(create)?,
            aliases: places.reach.aliases.clone(),
        };
        let filled = journal.write(&directory).map_err(create).and_then(|()| fill(&directory));
        match filled {
            Ok(filled) => {
                let aliases = journal.aliases;
                Ok((Self { parent, name: own_name, directory, aliases }, filled))
            }
            Err(error) => {
                let _ = remove_tree(&parent, &own_name);
                Err(error)
            }
        }
    }

    /// Removes the place, from which the trace is gone.
    pub(super) fn remove(&self) {
        let _ = self.directory.remove_file(OsStr::new(JOURNAL_NAME));
        let _ = self.parent.remove_directory(&self.name);
    }
}

impl Journal {
    fn write(&self, directory: &Directory) -> io::Result<()> {
        let mut fields: Map<String, Value> =
            path_value("destination", self.destination.as_os_str().as_bytes()).into_iter().collect();
        fields.insert("dev".to_owned(), self.directory.dev.into());
        fields.insert("ino".to_owned(), self.directory.ino.into());
        let aliases = self.aliases.iter().map(|path| hex(path.as_os_str().as_bytes()).into());
        fields.insert("aliases_hex".to_owned(), Value::Array(aliases.collect()));
        let mut text = String::new();
        canonical::write_object(&mut text, &fields);
        text.push('\n');
        directory.create_file(OsStr::new(JOURNAL_NAME))?.write_all(text.as_bytes())
    }

    fn read(directory: &Directory) -> Option<Self> {
        let mut text = String::new();
        let file = directory.open_file(OsStr::new(JOURNAL_NAME)).ok()?;
        file.take(1 << 20).read_to_string(&mut text).ok()?;
        let fields: Value = serde_json::from_str(&text).ok()?;
        let destination = match fields.get("destination_hex") {
            Some(hex) => OsString::from_vec(unhex(hex.as_str()?)?),
            None => OsString::from(fields.get("destination")?.as_str()?),
        };
        let directory = FileIdentity { dev: fields.get("dev")?.as_u64()?, ino: fields.get("ino")?.as_u64()? };
        let path = |hex: &Value| Some(PathBuf::from(OsString::from_vec(unhex(hex.as_str()?)?)));
        // Older ones have none.
        let aliases = fields.get("aliases_hex").and_then(Value::as_array).into_iter().flatten();
        let aliases = aliases.map(path).collect::<Option<Vec<_>>>()?;
        Some(Self { destination: PathBuf::from(destination), directory, aliases })
    }
}

/// Keeps other processes of ours from judging a place that is being made or emptied.
pub(super) fn hold(parent: &Directory) -> io::Result<Flock<File>> {
    Flock::lock(parent.open_self()?, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
}

fn waiting(state: &StateDirectories) -> Vec<(Directory, Journal)> {
    let mut found = Vec::new();
    for parent in state.existing_below(PENDING_NAME) {
        for name in in_order(&parent) {
            let Ok(directory) = parent.open_directory(&name) else {
                continue;
            };
            if let Some(journal) = Journal::read(&directory) {
                found.push((directory, journal));
            }
        }
    }
    found
}

/// The oldest first: their names begin with the time.
fn in_order(parent: &Directory) -> Vec<OsString> {
    let mut names = parent.names().unwrap_or_default();
    names.sort();
    names
}

fn recover_one(states: &[Directory], parent: &Directory, name: &OsStr) -> Option<Recovered> {
    let directory = parent.open_directory(name).ok()?;
    let trace_name = OsStr::new(DEFAULT_NAME);
    let from = directory.join(trace_name);
    let Ok(file) = directory.open_file(trace_name) else {
        // The trace is in place already, or was never made: only the place is left.
        let _ = remove_tree(parent, name);
        return None;
    };
    // `None`: its run is under way.
    let file = lock(file).ok()??;
    let size = file.metadata().ok()?.len();
    if size == 0 {
        let _ = directory.remove_directory(&blobs_name(trace_name));
        let _ = remove_tree(parent, name);
        return None;
    }
    let to = put_in_place(states, &directory).transpose()?;
    if to.is_ok() {
        let _ = remove_tree(parent, name);
    }
    Some(Recovered { from, to })
}

/// `None`: an agent that runs sees the place.
fn put_in_place(states: &[Directory], directory: &Directory) -> Result<Option<PathBuf>, TraceError> {
    let trace_name = OsStr::new(DEFAULT_NAME);
    let journal_path = || directory.join(OsStr::new(JOURNAL_NAME));
    let journal = Journal::read(directory).ok_or_else(|| TraceError::Journal { path: journal_path() })?;
    let (Some(around), Some(name)) = (journal.destination.parent(), journal.destination.file_name()) else {
        return Err(TraceError::Journal { path: journal_path() });
    };
    // The agent may have put another directory, or a link, where the right one was.
    let destination =
        Directory::open(around).ok().filter(|found| found.identity().ok() == Some(journal.directory));
    let Some(destination) = destination else {
        return Err(TraceError::DirectoryReplaced {
            path: around.to_owned(),
            trace: directory.join(trace_name),
        });
    };
    let now = destination.path_now().map(|directory| directory.join(name));
    let places = now.iter().chain(&journal.aliases).chain([&journal.destination]).map(PathBuf::as_path);
    let Some(_unseen) = unseen(states, places) else { return Ok(None) };
    let _ = directory.remove_directory(&blobs_name(trace_name));
    let done = transfer(directory, trace_name, &destination, name)?;
    let _ = super::ledger::remember(states, &done.path);
    Ok(Some(done.path))
}

/// Returns `path` with the links of its directory followed, its own name kept.
fn absolute(path: &Path) -> Option<PathBuf> {
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    Some(parent.canonicalize().ok()?.join(path.file_name()?))
}
