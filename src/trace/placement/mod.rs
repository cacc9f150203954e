//! Placement: where a trace is while its run lasts, and how it comes to where the user wants it.
//!
//! The agent can neither read nor alter its own trace, nor one of a run beside it. A trace that would lie under a granted
//! root, be it another run's, is written in the private state directory and moved after the run. All names are reached through directories that are held open
//! since before the agent started; nothing is replaced, and no symbolic link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;

use super::blob::Place;
use super::error::TraceError;
use super::layout::{BLOBS_SUFFIX, DEFAULT_NAME, blobs_name, former_number};

mod directory;
mod heads;
mod ledger;
mod list;
mod pending;
mod room;
mod scratch;
mod state;
mod transfer;
mod views;

pub use heads::{is_known_head, list_of_heads, remember_head};
pub use pending::{Recovered, locate, recover_pending};
pub use scratch::Scratch;
pub use views::Reach;

use directory::{Directory, file_identity, lock};
use pending::{Pending, hold, is_awaited, recover};
use room::{Overwrite, make_room};
use state::StateDirectories;
use transfer::transfer;
use views::{Views, unseen};

/// What a file is, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    /// The device.
    pub dev: u64,
    /// The inode on it.
    pub ino: u64,
}

/// A name that the agent must neither read nor write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protected {
    /// The path, absolute.
    pub path: PathBuf,
    /// What stands there; `None` while nothing does.
    pub identity: Option<FileIdentity>,
}

/// A trace that is complete, and in place or waiting for that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Where it is.
    pub path: PathBuf,
    /// Where it belongs, if it waits until no other run sees that place.
    pub awaited_at: Option<PathBuf>,
    /// What had appeared there during the run, under its new name.
    pub moved_aside: Option<PathBuf>,
    /// Number of its entries.
    pub entries: u64,
    /// Hash of its last entry: what `verify --head` can pin.
    pub head: String,
}

/// A trace's files, made and locked, with no writer yet. Dropped before [`create`](super::create), it removes them.
#[derive(Debug)]
pub struct Placement {
    home: Home,
    name: OsString,
    destination: Directory,
    destination_name: OsString,
    file: Option<Flock<File>>,
    protected: Vec<Protected>,
    former: usize,
    state: Option<Directory>,
    views: Option<Views>,
}

#[derive(Debug)]
enum Home {
    Destination,
    Pending(Pending),
}

impl Placement {
    /// Makes the files for the trace `trace`.
    ///
    /// Where `reach` says that the agent could reach that path, or another one can, the trace is written elsewhere. A former
    /// trace at that path is renamed. `force` lets a file that is no trace be overwritten.
    pub fn plan(trace: &Path, reach: &Reach, force: bool) -> Result<Self, TraceError> {
        Self::plan_with(&StateDirectories::from_environment(), trace, reach, force)
    }

    fn plan_with(
        state: &StateDirectories,
        trace: &Path,
        reach: &Reach,
        force: bool,
    ) -> Result<Self, TraceError> {
        let (parent, destination_name) = split(trace)?;
        let destination = Directory::open(parent)
            .map_err(|source| TraceError::OpenDirectory { path: parent.to_owned(), source })?;
        // At the end it would be too late.
        destination
            .check_usable()
            .map_err(|source| TraceError::ClosedDirectory { path: destination.path().to_owned(), source })?;
        // From here on no trace comes to where the agent would see it: what is there by now is protected below.
        let views = Views::hold(state, &reach.trees)?;
        let path = destination.join(&destination_name);
        if is_awaited(state, &path) {
            return Err(TraceError::Busy { path });
        }
        make_room(
            &destination,
            &destination_name,
            if force { Overwrite::OtherFiles } else { Overwrite::Never },
        )?;
        let places = || reach.aliases.iter().chain([&path]).map(PathBuf::as_path);
        let is_open = !reach.own_trace && !reach.apart;
        // Until it is on the list, which keeps it closed, no agent begins to see it.
        let unseen = if is_open { unseen(views.states(), places()) } else { None };
        let (home, name, file) = if unseen.is_some() || reach.apart {
            let file = make_files(&destination, &destination_name)?;
            (Home::Destination, destination_name.clone(), file)
        } else {
            let name = OsString::from(DEFAULT_NAME);
            let places = pending::Places { directory: &destination, name: &destination_name, reach };
            let (pending, file) = Pending::create(state, places, |place| make_files(place, &name))?;
            (Home::Pending(pending), name, file)
        };
        let mut placement = Self {
            home,
            name,
            destination,
            destination_name,
            file: Some(file),
            protected: Vec::new(),
            former: 0,
            state: None,
            views: Some(views),
        };
        if let (Some(_unseen), Some(views)) = (unseen, &placement.views) {
            views
                .write_at(&path)
                .and_then(|home| ledger::remember_running(home, &path))
                .map_err(|source| TraceError::Create { path, source })?;
        }
        let names = placement.destination.names().unwrap_or_default();
        placement.former = placement.count_former(&names);
        placement.protected = placement.find_protected(state, &names);
        placement.state = state.existing().into_iter().next();
        Ok(placement)
    }

    /// Returns where the trace is written during the run.
    pub fn written_at(&self) -> PathBuf {
        self.home().join(&self.name)
    }

    /// Returns where the trace will be after the run.
    pub fn destination(&self) -> PathBuf {
        self.destination.join(&self.destination_name)
    }

    /// Returns how many former traces of that name are kept beside it.
    pub fn former(&self) -> usize {
        self.former
    }

    /// Returns what the agent must neither read nor write: the trace, its blobs, former traces, the state directory,
    /// and the names at which traces will appear.
    pub fn protected(&self) -> Vec<Protected> {
        self.protected.clone()
    }

    /// Gives the private state directory, which is among what is protected; `None` where there is none yet.
    pub fn state_directory(&self) -> Option<OwnedFd> {
        self.state.as_ref()?.duplicate().ok()
    }

    /// Gives the file and the directory of blobs to a writer.
    pub(super) fn into_parts(mut self) -> Result<(Self, Flock<File>, Place), TraceError> {
        let (home, blobs) = (self.home(), blobs_name(&self.name));
        let place = if home.takes_more() {
            let home = home.duplicate().map_err(|source| TraceError::StartWriter { source })?;
            Place::ahead(home, blobs)
        } else {
            let made = home.open_directory(&blobs);
            Place::made(
                made.map_err(|source| TraceError::Read { path: home.join(&blobs), source })?.into_fd(),
            )
        };
        let file = self.file.take().ok_or(TraceError::Sealed)?;
        Ok((self, file, place))
    }

    /// Whether the trace is written where it belongs.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self.home, Home::Destination)
    }

    /// Takes an empty directory of blobs away, for it says nothing. Nobody stores any more.
    pub(super) fn remove_empty_blobs(&self) {
        // One with blobs stays: it is not empty.
        let _ = self.home().remove_directory(&blobs_name(&self.name));
    }

    /// Puts the trace where it belongs, and others that waited for this run to end. Its writer has ended.
    pub(super) fn place(mut self) -> Result<Placed, TraceError> {
        let states = self.views.take().map(Views::end).unwrap_or_default();
        let placed = self.move_home(&states);
        recover(&states);
        placed
    }

    fn move_home(&self, states: &[Directory]) -> Result<Placed, TraceError> {
        let (mut path, mut moved_aside, mut awaited_at) = (self.destination(), None, None);
        if let Home::Pending(pending) = &self.home {
            let _guard = hold(&pending.parent);
            let now = self.destination.path_now().map(|directory| directory.join(&self.destination_name));
            let places = now.iter().chain(&pending.aliases).chain([&path]).map(PathBuf::as_path);
            if let Some(_unseen) = unseen(states, places) {
                let done =
                    transfer(&pending.directory, &self.name, &self.destination, &self.destination_name)?;
                pending.remove();
                // Without the list the trace is as good: the next run protects its name where it looks for it.
                let _ = ledger::remember(states, &done.path);
                (path, moved_aside) = (done.path, done.moved_aside);
            } else {
                awaited_at = Some(path);
                path = self.written_at();
            }
        }
        Ok(Placed { path, awaited_at, moved_aside, entries: 0, head: String::new() })
    }

    /// Removes what was made for a writer that did not start.
    pub(super) fn discard(self) {
        self.remove_files();
    }

    fn remove_files(&self) {
        // It was made for this trace, and nobody else writes there.
        let blobs = blobs_name(&self.name);
        if let Ok(directory) = self.home().open_directory(&blobs) {
            for name in directory.names().unwrap_or_default() {
                let _ = directory.remove_file(&name);
            }
        }
        let _ = self.home().remove_directory(&blobs);
        let _ = self.home().remove_file(&self.name);
        if let Home::Pending(pending) = &self.home {
            pending.remove();
        }
    }

    fn home(&self) -> &Directory {
        match &self.home {
            Home::Destination => &self.destination,
            Home::Pending(pending) => &pending.directory,
        }
    }

    fn count_former(&self, names: &[OsString]) -> usize {
        let is_trace = |name: &OsString| !name.as_encoded_bytes().ends_with(BLOBS_SUFFIX.as_bytes());
        let former = names.iter().filter(|name| former_number(&self.destination_name, name).is_some());
        former.filter(|name| is_trace(name)).count()
    }

    /// `names` are those in the destination.
    fn find_protected(&self, state: &StateDirectories, names: &[OsString]) -> Vec<Protected> {
        let mut found = state.protected();
        found.extend(traces_in(&self.destination, &self.destination_name, names));
        if let Home::Pending(pending) = &self.home {
            found.push(protected_at(&pending.directory, &self.name));
            found.push(protected_at(&pending.directory, &blobs_name(&self.name)));
        }
        found.extend(ledger::protected(state));
        // By their bytes: there may be hundreds of former traces.
        found.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        found.dedup();
        found
    }
}

/// The trace `trace`, what belongs to it, former ones of its name, and those of the usual name beside it, whether
/// they are there or not.
#[must_use]
pub fn traces_beside(trace: &Path) -> Vec<Protected> {
    let Ok((parent, name)) = split(trace) else { return Vec::new() };
    // One that cannot be looked into shows the agent no more.
    let Ok(directory) = Directory::open(parent) else { return Vec::new() };
    traces_in(&directory, &name, &directory.names().unwrap_or_default())
}

/// `names` are those in `directory`.
fn traces_in(directory: &Directory, name: &OsStr, names: &[OsString]) -> Vec<Protected> {
    let default = OsStr::new(DEFAULT_NAME);
    let own = [name, default].into_iter().flat_map(|name| [name.to_owned(), blobs_name(name)]);
    let is_former = |candidate: &&OsString| {
        former_number(name, candidate).or_else(|| former_number(default, candidate)).is_some()
    };
    let all = own.chain(names.iter().filter(is_former).cloned());
    all.map(|name| protected_at(directory, &name)).collect()
}

fn protected_at(directory: &Directory, name: &OsStr) -> Protected {
    let identity = directory.entry(name).ok().flatten().map(|entry| entry.identity);
    Protected { path: directory.join(name), identity }
}

impl Drop for Placement {
    fn drop(&mut self) {
        // Nothing was written: a run that never started leaves no empty trace.
        if self.file.take().is_some() {
            self.remove_files();
        }
    }
}

fn split(trace: &Path) -> Result<(&Path, OsString), TraceError> {
    let no_name = || TraceError::NoFileName { path: trace.to_owned() };
    let ends_in_slash = trace.as_os_str().as_encoded_bytes().ends_with(b"/");
    let name = trace.file_name().filter(|_| !ends_in_slash).ok_or_else(no_name)?;
    let parent =
        trace.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    Ok((parent, name.to_owned()))
}

fn make_files(directory: &Directory, name: &OsStr) -> Result<Flock<File>, TraceError> {
    let path = || directory.join(name);
    let file = directory.create_file(name).map_err(|source| TraceError::Create { path: path(), source })?;
    let own = file_identity(&file).map_err(|source| TraceError::Create { path: path(), source })?;
    let file = lock(file).map_err(|source| {
        let _ = directory.remove_file(name);
        TraceError::Lock { path: path(), source }
    })?;
    // Another run that came between making and locking has taken the name.
    let still_ours = directory.entry(name).ok().flatten().is_some_and(|entry| entry.identity == own);
    let Some(file) = file.filter(|_| still_ours) else {
        return Err(TraceError::Busy { path: path() });
    };
    let blobs = blobs_name(name);
    if !directory.takes_more()
        && let Err(source) = directory.create_directory(&blobs)
    {
        let _ = directory.remove_file(name);
        return Err(TraceError::Create { path: directory.join(&blobs), source });
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
