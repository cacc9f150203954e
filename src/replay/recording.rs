//! A trace that can be run again: verified, its beginning read, its entries one after the other.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::ReplayError;
use crate::netproxy::recorded;
use crate::run::{Private, Processors, VERSION};
use crate::supervisor::{CLOCK_TAPE, Course, OUTPUT_ORDER, OUTSIDE_SIGNAL, OutsideSignal, TASK_IDS, Tapes};
use crate::sys::clock::ClockBase;
use crate::trace::redact::{ChosenName, ChosenNames};
use crate::trace::{Held, Line, Opened, Outcome, Reader, StoredBlobs, Verification};

/// The longest private blob that is read, in bytes.
const MOST_PRIVATE: u64 = 16 << 20;
/// The longest part of a tape that is read, in bytes.
const MOST_TAPE: u64 = 1 << 20;
/// The longest order of writes that is read, in bytes.
const MOST_ORDER: u64 = 32 << 20;

/// A trace that can be run again.
#[derive(Debug)]
pub struct Recording {
    held: Held,
    name: PathBuf,
    /// Hash of its last entry.
    pub head: String,
    /// Whether its end was recorded.
    pub sealed: bool,
    /// What `run.start` says.
    pub start: Map<String, Value>,
    /// What `run.replay` says.
    pub replay: Map<String, Value>,
    /// What only its user may know.
    pub private: Private,
    /// Its clocks when it began.
    pub clock: ClockBase,
}

/// What of a trace is not there.
fn incomplete(found: &Verification) -> Option<&'static str> {
    if found.lacking.is_some() {
        return Some("its bodies are not beside it: a trace is moved together with them");
    }
    (found.left_out > 0)
        .then_some("it was packed with --redacted, without its private parts: replay the whole trace")
}

impl Recording {
    /// Verifies a trace and reads how it began.
    ///
    /// # Errors
    /// Why it is not run again.
    pub fn read(opened: &Opened) -> Result<Self, ReplayError> {
        let name = opened.name();
        let (held, found) = opened.verify()?;
        if let Outcome::Tampered { entry, reason } = found.outcome {
            return Err(ReplayError::Tampered { path: name.to_owned(), entry, reason });
        }
        let refuse =
            |reason: &str| ReplayError::NotReplayable { path: name.to_owned(), reason: reason.to_owned() };
        if let Some(reason) = incomplete(&found) {
            return Err(refuse(reason));
        }
        let (mut start, mut replay) = (None, None);
        for entry in Entries::of(&held).map_err(unreadable(name))? {
            let mut entry = entry.map_err(unreadable(name))?;
            let said = |name: &str| entry.get(name).and_then(Value::as_str);
            if said("kind") != Some("meta") {
                break;
            }
            let place = match said("op") {
                Some("run.start") => &mut start,
                Some("run.replay") => &mut replay,
                _ => continue,
            };
            if let Some(Value::Object(args)) = entry.remove("args") {
                *place = Some(args);
            }
            if start.is_some() && replay.is_some() {
                break;
            }
        }
        let start: Map<String, Value> = start.ok_or_else(|| refuse("it does not say how it began"))?;
        if !start.contains_key("level") {
            return Err(refuse(
                "its effects were recorded inside the program, by the Python package agentbox-runtime: replay it with that",
            ));
        }
        if start.get("enforced") == Some(&Value::Bool(false)) {
            return Err(refuse(
                "it was recorded with --observe, which shows the whole host: record the run under a policy",
            ));
        }
        let replay = replay
            .ok_or_else(|| refuse("it was recorded with --no-replay: record the run again without it"))?;
        if let Some(step) = replay.get("until").and_then(|until| until.get("step")?.as_str()) {
            return Err(refuse(&format!(
                "it went on for real from step {step} of a replay, and what its clocks showed was not recorded: \
                 replay the trace that it began with, or record the run anew"
            )));
        }
        let clock = replay.get("clock").and_then(|clock| ClockBase::deserialize(clock).ok());
        let clock = clock.filter(ClockBase::is_of_a_machine);
        let clock = clock.ok_or_else(|| refuse("it does not say when it began"))?;
        let private = private(&replay, held.blobs()).map_err(|reason| refuse(&reason))?;
        let sealed = matches!(found.outcome, Outcome::Sealed);
        Ok(Self { held, name: name.to_owned(), head: found.head, sealed, start, replay, private, clock })
    }

    /// What it is called in what is said.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// What was verified of it.
    #[must_use]
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Its bodies.
    #[must_use]
    pub fn blobs(&self) -> &StoredBlobs {
        self.held.blobs()
    }

    /// Its entries, from the first on.
    ///
    /// # Errors
    /// When it cannot be read any more.
    pub fn entries(
        &self,
    ) -> Result<impl Iterator<Item = Result<Map<String, Value>, ReplayError>> + '_, ReplayError> {
        let entries = Entries::of(&self.held).map_err(unreadable(&self.name))?;
        Ok(entries.map(|entry| entry.map_err(unreadable(&self.name))))
    }

    /// What it saw of the clocks.
    ///
    /// # Errors
    /// When it cannot be read any more, or an entry is no tape.
    pub fn tapes(&self) -> Result<Tapes, ReplayError> {
        let mut tapes = Tapes::default();
        let bodies = self.bodies();
        for entry in self.entries()? {
            let entry = entry?;
            let at = entry.get("ts").and_then(Value::as_f64).unwrap_or_default();
            let at = Duration::try_from_secs_f64(at).unwrap_or_default();
            tapes.lasted(at.saturating_sub(Duration::from_nanos(self.clock.realtime_ns)));
            let said = |name: &str| entry.get(name).and_then(Value::as_str);
            if said("kind") != Some("meta") {
                let more = entry.get("count").and_then(Value::as_u64).unwrap_or(1);
                tapes.steps = tapes.steps.saturating_add(more);
            }
            if let (Some(OUTSIDE_SIGNAL), Some(Value::Object(args))) = (said("op"), entry.get("args")) {
                tapes.signals.extend(OutsideSignal::of(args));
            }
            if let (Some("proc.exit"), Some(proc), Some(signal @ 1..)) = (
                said("op"),
                said("proc"),
                entry.get("args").and_then(|args| i32::try_from(args.get("signal")?.as_i64()?).ok()),
            ) {
                tapes.ends.push_back((proc.to_owned(), signal));
            }
            if let (Some(TASK_IDS), Some(Value::Object(args))) = (said("op"), entry.get("args")) {
                tapes.ids.add(args);
            }
            if let (Some("proc.spawn"), Some(proc), Some(Value::Object(args))) =
                (said("op"), said("proc"), entry.get("args"))
            {
                tapes.ids.starts.add(proc, args);
            }
            if tapes.want_arrivals() {
                for wait in recorded::arrivals(&entry, &bodies) {
                    tapes.arrived(self.on_timeline(wait.start), self.on_timeline(wait.end));
                }
            }
            if let (Some(OUTPUT_ORDER), Some(Value::Object(args))) = (said("op"), entry.get("args")) {
                tapes.course = self.course(args)?;
            }
            let (Some(CLOCK_TAPE), Some(proc), Some(Value::Object(args))) =
                (said("op"), said("proc"), entry.get("args"))
            else {
                continue;
            };
            let content = |blob: &Value| {
                let name = blob.get("blob").and_then(Value::as_str).unwrap_or_default();
                self.blobs().read(name, MOST_TAPE)
            };
            tapes.add(proc, args, content).map_err(|error| ReplayError::NotReplayable {
                path: self.name.clone(),
                reason: error.to_string(),
            })?;
        }
        Ok(tapes)
    }

    /// Opens its bodies by their names.
    fn bodies(&self) -> recorded::Blobs {
        let blobs = self.blobs().clone();
        Arc::new(move |sha256: &str| blobs.open(sha256).map(|body| Box::new(body) as Box<dyn Read + Send>))
    }

    /// A time of day, on the timeline of its clocks.
    fn on_timeline(&self, time: Duration) -> u64 {
        let since = time.saturating_sub(Duration::from_nanos(self.clock.realtime_ns));
        self.clock.monotonic_ns.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// In which order its processes wrote, as an entry `stdio.order` says.
    fn course(&self, args: &Map<String, Value>) -> Result<Course, ReplayError> {
        let order = args.get("order");
        let member = |name: &str| order.and_then(|order| order.get(name)?.as_str());
        let text = match member("text") {
            Some(text) => Some(text.as_bytes().to_vec()),
            None => self.blobs().read(member("blob").unwrap_or_default(), MOST_ORDER).ok(),
        };
        text.and_then(|text| Course::of(&text)).ok_or_else(|| ReplayError::NotReplayable {
            path: self.name.clone(),
            reason: format!("its entry {OUTPUT_ORDER} has no usable `order`"),
        })
    }

    /// What the network answered.
    ///
    /// # Errors
    /// When the trace cannot be read any more, or holds what cannot be answered again.
    pub fn network(&self, is_paced: bool) -> Result<recorded::Recording, ReplayError> {
        let mut failure = None;
        let entries = self.entries()?.map_while(|entry| entry.map_err(|error| failure = Some(error)).ok());
        let network = recorded::Recording::of(entries.map(Value::Object), self.bodies(), is_paced);
        match (failure, network.refusal()) {
            (Some(error), _) => Err(error),
            (None, Some(reason)) => {
                let (path, reason) = (self.name.clone(), reason.to_owned());
                Err(ReplayError::NotReplayable { path, reason })
            }
            (None, None) => Ok(network),
        }
    }

    /// Whether the content of what it read was kept.
    #[must_use]
    pub fn is_captured(&self) -> bool {
        self.replay.get("captured").and_then(Value::as_bool).unwrap_or(false)
    }

    /// The processors that it ran on, where it says so.
    #[must_use]
    pub fn processors(&self) -> Option<Processors> {
        self.replay.get("processors").and_then(|processors| Processors::deserialize(processors).ok())
    }

    /// What was redacted besides well-known names.
    #[must_use]
    pub fn redacted(&self) -> ChosenNames {
        let names = self.start.get("redact").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(|name| name.as_str()?.parse::<ChosenName>().ok()).collect()
    }

    /// A text of `run.start`.
    #[must_use]
    pub fn said(&self, name: &str) -> Option<&str> {
        self.start.get(name).and_then(Value::as_str)
    }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> ReplayError + '_ {
    move |source| ReplayError::Read { path: path.to_owned(), source }
}

fn private(replay: &Map<String, Value>, blobs: &StoredBlobs) -> Result<Private, String> {
    if replay.get("version").and_then(Value::as_u64) != Some(u64::from(VERSION)) {
        return Err("it was recorded by another version of agentbox: replay it with that one".to_owned());
    }
    let reference = replay.get("private").and_then(|reference| reference.get("blob")).and_then(Value::as_str);
    let reference = reference.ok_or("its private part was taken out")?;
    let text = blobs.read(reference, MOST_PRIVATE).map_err(|error| format!("its private part: {error}"))?;
    let private: Private =
        serde_json::from_slice(&text).map_err(|error| format!("its private part: {error}"))?;
    match private {
        _ if private.version != VERSION => Err("its private part is of another version".to_owned()),
        _ if !private.is_usable() => Err("its private part is not as agentbox makes it: the seed, the directory or a placeholder of a secret".to_owned()),
        private => Ok(private),
    }
}

/// The entries of a trace, each as an object. The rest of a torn line is none.
pub struct Entries {
    reader: Reader<File>,
}

impl Entries {
    /// Those of the trace that is held.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn of(held: &Held) -> io::Result<Self> {
        Ok(Self { reader: Reader::new(held.read()?) })
    }
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Entries").finish_non_exhaustive()
    }
}

impl Iterator for Entries {
    type Item = io::Result<Map<String, Value>>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.next_line() {
            Err(error) => Some(Err(error)),
            Ok(Some(Line::Whole(line))) => Some(serde_json::from_slice(line).map_err(io::Error::from)),
            Ok(Some(Line::TooLong)) => Some(Err(io::ErrorKind::InvalidData.into())),
            Ok(Some(Line::Torn(_)) | None) => None,
        }
    }
}
