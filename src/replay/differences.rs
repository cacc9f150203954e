//! Differences: what is not as it was when the run was recorded, found before anything runs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::input::{self, StandardInput};
use super::inputs::{Inputs, today};
use super::{Recording, ReplayError, initial, listed, machine, order, status};
use crate::fsview::InitialState;
use crate::fsview::initial::{Content, Former, Status};
use crate::plan::Made;
use crate::policy::Policy;
use crate::run::Outputs;
use crate::supervisor::{Orders, RecordedMachine, RecordedStatuses};
use crate::trace::{display_bytes, escape, is_sha256};

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// What it is: `policy`, `command`, `script`, `input`, `executable`, `variable`, `fifo`.
    pub what: &'static str,
    /// Which one.
    pub name: String,
    /// What it was.
    pub recorded: String,
    /// What it is.
    pub now: String,
    /// It is told, and no reason to run nothing.
    #[serde(skip)]
    pub is_note: bool,
    /// What of it, in a line each.
    #[serde(skip)]
    pub details: Vec<String>,
}

impl Difference {
    /// Another command.
    #[must_use]
    pub fn command(recorded: &[OsString], now: &[OsString]) -> Self {
        let text = |words: &[OsString]| {
            let words = words.iter().map(|word| display_bytes(word.as_encoded_bytes()));
            words.collect::<Vec<_>>().join(" ")
        };
        Self::new("command", String::new(), [text(recorded), text(now)])
    }

    /// Another policy, with what it was as far as that can be read.
    #[must_use]
    pub fn policy(file: &Path, recorded: &str, now: &Policy, then: Option<&Policy>) -> Self {
        let name = display_bytes(file.as_os_str().as_encoded_bytes());
        let difference = Self::new("policy", name, [recorded.to_owned(), now.digest()]);
        Self { details: then.map(|then| rules(then, now)).unwrap_or_default(), ..difference }
    }

    /// What is said of it.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let details = self.details.iter().map(|one| format!("    {}", escape::text(one)));
        [self.to_string()].into_iter().chain(details)
    }

    pub(super) fn new(what: &'static str, name: String, [recorded, now]: [String; 2]) -> Self {
        Self { what, name, recorded, now, is_note: false, details: Vec::new() }
    }
}

/// Rules that are told of another policy.
const MOST_RULES: usize = 3;

/// Those that came or went.
fn rules(then: &Policy, now: &Policy) -> Vec<String> {
    let texts = |policy: &Policy| policy.rules.iter().map(|rule| rule.text.clone()).collect::<BTreeSet<_>>();
    let (then, now) = (texts(then), texts(now));
    let gone = then.difference(&now).map(|rule| format!("gone: {rule}"));
    let mut all: Vec<_> = gone.chain(now.difference(&then).map(|rule| format!("new: {rule}"))).collect();
    if all.len() > MOST_RULES {
        let more = all.split_off(MOST_RULES - 1).len();
        all.push(format!("and {more} more rules"));
    }
    all
}

/// The beginning of a digest: enough to tell two from each other. What is no digest stays.
fn short(text: &str) -> String {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digest { format!("{}…", &text[..12]) } else { text.to_owned() }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, recorded, now, .. } = self;
        let space = if name.is_empty() { "" } else { " " };
        // A trace from elsewhere may name anything.
        let [name, recorded, now] = [name, recorded, now].map(|text| escape::text(text));
        if *what == "command" {
            return write!(formatter, "the command is another one: recorded {recorded}, now {now}");
        }
        if *what == "fifo" {
            return write!(
                formatter,
                "the FIFO {name} is the host's, and was {recorded} by the run alone: {now} in a replay, and what came through it is not recorded"
            );
        }
        let [recorded, now] = [recorded, now].map(|digest| short(&digest));
        if self.is_note {
            return write!(
                formatter,
                "the {what}{space}{name} is {now} here; the command gets what was recorded: {recorded}"
            );
        }
        write!(formatter, "the {what}{space}{name} has changed: recorded {recorded}, now {now}")
    }
}

/// What the whole of a trace says of a run's first state.
#[derive(Debug, Default)]
pub struct FirstState {
    /// What was at the paths that it changed.
    pub files: InitialState,
    /// What it was given as standard input.
    pub input: StandardInput,
    /// How it was given standard output and error.
    outputs: Outputs,
    /// The order in which directories listed their names.
    pub orders: Orders,
    /// Those of the view alone: the host's are others.
    own_directories: HashSet<PathBuf>,
    /// The statuses of files.
    pub statuses: RecordedStatuses,
    /// What it was told of the machine.
    pub machine: RecordedMachine,
    /// What it read and is not here as it was: it is taken from the trace.
    pub served: BTreeMap<PathBuf, Former>,
    /// What it listed alone and is not here.
    pub listed: BTreeMap<PathBuf, Former>,
    /// What links held.
    links: listed::Links,
    /// What else it read.
    inputs: Inputs,
}

/// The first of them, and how many more there are.
fn named<'a>(mut paths: impl Iterator<Item = &'a PathBuf>) -> Option<String> {
    let name = escape::text(&display_bytes(paths.next()?.as_os_str().as_encoded_bytes()));
    let others = paths.count();
    Some(if others > 0 { format!("{name} and {others} more") } else { name })
}

impl FirstState {
    /// Reads it.
    ///
    /// # Errors
    /// When the trace cannot be read any more.
    pub fn read(recording: &Recording) -> Result<Self, ReplayError> {
        let mut state = Self::default();
        for entry in recording.entries()? {
            let entry = entry?;
            initial::add(&mut state.files, &entry).map_err(|wrong| ReplayError::NotReplayable {
                path: recording.name().to_owned(),
                reason: format!("it changed `{}`, which is no direct path", wrong.display()),
            })?;
            state.inputs.add(&entry);
            let unreadable = |source| ReplayError::body(recording.name(), source);
            state.own_directories.extend(order::own_directory(&entry));
            order::add(&mut state.orders, &entry, recording.blobs()).map_err(unreadable)?;
            listed::add(&mut state.links, &entry, recording.blobs()).map_err(unreadable)?;
            machine::add(&mut state.machine, &entry, recording.blobs()).map_err(unreadable)?;
            status::add(&mut state.statuses, &entry, recording.blobs()).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::InvalidData => ReplayError::NotReplayable {
                        path: recording.name().to_owned(),
                        reason: error.to_string(),
                    },
                    _ => unreadable(error),
                }
            })?;
            if let Some(input) = StandardInput::of(&entry) {
                state.input = input;
            }
            input::add_output(&mut state.outputs, &entry);
        }
        state.served = state.inputs.take_served(&state.files);
        if !state.bodies().all(is_sha256) {
            let wrong = io::Error::new(io::ErrorKind::InvalidInput, "the name of a body is no SHA-256");
            return Err(ReplayError::body(recording.name(), wrong));
        }
        if recording.is_captured() {
            state.listed = state.find_listed();
        }
        state.add_missing(recording.clock.realtime_ns);
        Ok(state)
    }

    /// What it listed alone and is not here: what stands for it.
    fn find_listed(&self) -> BTreeMap<PathBuf, Former> {
        let (states, moves) = (&self.files.states, &self.files.moves);
        let is_known = |path: &Path| {
            self.served.contains_key(path)
                || path.ancestors().any(|above| states.get(above) == Some(&Former::Absent))
                || states.contains_key(path)
                || moves.iter().any(|back| path.starts_with(&back.from) || path.starts_with(&back.to))
        };
        let is_missing = |path: &Path| {
            let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
            path.symlink_metadata().is_err_and(|error| gone.contains(&error.kind()))
        };
        let listed = self.orders.iter().filter(|(directory, _)| !self.own_directories.contains(*directory));
        let names = listed.flat_map(|(directory, names)| {
            let names = names.iter().filter_map(|name| listed::below(directory, name));
            names.chain([directory.clone()])
        });
        let missing = names.filter(|path| !is_known(path) && is_missing(path));
        let found = missing.filter_map(|path| {
            let placeholder = listed::placeholder(&path, &self.statuses, &self.links)?;
            Some((path, placeholder))
        });
        found.collect()
    }

    /// Puts what stands for what was listed alone beside what is taken from the trace.
    pub fn place_listed(&mut self) {
        self.served.append(&mut self.listed);
    }

    /// The names of the bodies that it puts in place.
    fn bodies(&self) -> impl Iterator<Item = &str> {
        let kept = |former| match former {
            &Former::File { content: Content::Blob { ref sha256, .. }, .. } => Some(sha256.as_str()),
            _ => None,
        };
        let input = match &self.input {
            StandardInput::Kept { sha256, .. } => Some(sha256.as_str()),
            StandardInput::Empty | StandardInput::EmptyBothWays | StandardInput::Unusable => None,
        };
        self.files.states.values().chain(self.served.values()).filter_map(kept).chain(input)
    }

    /// How it is given standard output and error again: what `goes_on` from some step has a reader of its own.
    #[must_use]
    pub fn outputs(&self, goes_on: bool) -> Outputs {
        if goes_on { Outputs { ends: [None; 2], ..self.outputs } } else { self.outputs }
    }

    /// Directories around what the run changed that are not here any more: they were, for nothing says otherwise.
    fn add_missing(&mut self, since: u64) {
        let states = &self.files.states;
        let is_known = |path: &Path| path.ancestors().any(|above| states.get(above) == Some(&Former::Absent));
        let is_missing = |path: &&Path| {
            let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
            let now = || today(&self.files, path).symlink_metadata();
            !states.contains_key(*path) && !is_known(path) && now().is_err_and(is_gone)
        };
        let around = states.keys().filter_map(|path| path.parent()).collect::<BTreeSet<_>>();
        let missing = around.into_iter().flat_map(|path| path.ancestors().take_while(is_missing));
        let status = Status { mode: 0o755, mtime_ns: i64::try_from(since).unwrap_or(i64::MAX) };
        let missing: Vec<_> = missing.map(|path| (path.to_owned(), Former::Directory(status))).collect();
        self.files.states.extend(missing);
    }

    /// What came into being at `places` when the run had ended is not there at first; nor is what came to be in
    /// directories since the run listed them, which is given.
    pub fn hide(&mut self, places: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
        self.set_absent(places);
        let new = self.new_names();
        self.set_absent(new.iter().cloned());
        new
    }

    fn set_absent(&mut self, places: impl IntoIterator<Item = PathBuf>) {
        for place in places {
            self.files.states.entry(place).or_insert(Former::Absent);
        }
    }

    fn new_names(&self) -> Vec<PathBuf> {
        let mut new = order::new_names(&self.orders);
        // Of what the run made or moved nobody can tell what is new.
        let states = &self.files.states;
        let is_made = |path: &Path| path.ancestors().any(|above| states.get(above) == Some(&Former::Absent));
        let moves = &self.files.moves;
        let is_moved =
            |path: &Path| moves.iter().any(|back| path.starts_with(&back.from) || path.starts_with(&back.to));
        let is_own = |path: &Path| path.parent().is_some_and(|above| self.own_directories.contains(above));
        new.retain(|path| !states.contains_key(path) && !is_made(path) && !is_moved(path) && !is_own(path));
        new
    }

    /// Of what is taken from the trace, that which is in places that may be written is put back like what the run
    /// changed.
    pub fn place_served(&mut self, is_writable: impl Fn(&Path) -> bool) {
        let served = std::mem::take(&mut self.served);
        let (put_back, served) = served.into_iter().partition(|(path, _)| is_writable(path));
        self.served = served;
        self.files.states.extend::<BTreeMap<PathBuf, Former>>(put_back);
    }

    /// What the run made in places that it otherwise only reads is not there at first either: `is_writable` says which
    /// are put back.
    pub fn place_absent(&mut self, is_writable: impl Fn(&Path) -> bool) {
        let absent = self.files.absent().filter(|path| !is_writable(path));
        self.served.extend(absent.map(|path| (path.clone(), Former::Absent)));
    }

    /// What was there, as far as the trace tells: a run that was captured finds it again where it is missing, any other
    /// the directories around what it changed. `blanks` are an empty file and an empty directory.
    #[must_use]
    pub fn made(&self, recording: &Recording, blanks: (PathBuf, PathBuf)) -> Made {
        let mut made = Made { blanks, ..Made::default() };
        let is_captured = recording.is_captured();
        if is_captured {
            made.directories.insert(recording.private.cwd.clone());
            made.files.extend(self.served.keys().cloned());
            for (path, former) in &self.listed {
                match former {
                    Former::Directory(_) => drop(made.directories.insert(path.clone())),
                    Former::File { .. } => drop(made.files.insert(path.clone())),
                    _ => made.directories.extend(path.parent().map(Path::to_owned)),
                }
            }
        }
        for (path, former) in &self.files.states {
            match former {
                Former::Absent | Former::Other => {}
                Former::Directory(_) => drop(made.directories.insert(path.clone())),
                Former::File { .. } | Former::Link { .. } | Former::Special { .. } if !is_captured => {}
                Former::File { .. } | Former::Link { .. } | Former::Special { .. } => {
                    made.files.insert(path.clone());
                }
            }
            // What nothing says was absent was there.
            let above = path.parent().filter(|above| {
                !above.ancestors().any(|above| self.files.states.get(above) == Some(&Former::Absent))
            });
            made.directories.extend(above.map(Path::to_owned));
        }
        made
    }

    /// What is to be said before the start.
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        let served = named(self.served.keys())
            .map(|names| format!("agentbox: not here as it was, so taken from the trace: {names}"));
        let listed = named(self.listed.keys())
            .map(|names| format!("agentbox: not here and only listed, so shown without content: {names}"));
        served.into_iter().chain(listed).collect()
    }

    /// What is to be said of what is not shown.
    #[must_use]
    pub fn said_of_new<'a>(new: impl Iterator<Item = &'a PathBuf>) -> Option<String> {
        named(new).map(|names| format!("agentbox: new since it was recorded, so not shown: {names}"))
    }

    /// Which inputs are others now.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        self.inputs.differences(&self.files)
    }
}
