//! `replay --until`: a replay that ends at a step, or goes on for real from there.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Map;

use rustls::pki_types::CertificateDer;

use super::Failure;
use super::places::absolute_path;
use super::run::{Prepared, reach};
use super::tls::{check_host, roots};
use crate::policy::Host as _;
use crate::replay::compare::{self, Cause, Comparison, Goal, Named};
use crate::replay::{Recording, embedded_times};
use crate::run::{Next, Outcome, Until};
use crate::trace::{Event, Held, Placement, Recorder, StoredBlobs, Turn, escape};

/// Where the trace of what went on for real goes.
const DEFAULT_OUT: &str = "trace.live.jsonl";

/// Requests are recorded a moment after they have ended: what is missing may be there soon.
const TRIES: usize = 5;
const MOMENT: Duration = Duration::from_millis(100);

/// How far is replayed.
#[derive(Debug, clap::Args)]
pub(super) struct UntilArguments {
    /// End at this step, as reports name it (0.2@7), or at the entry of this number
    #[arg(long, value_name = "STEP", value_parser = parse_step)]
    until: Option<Named>,
    /// Go on for real from that step: network, clocks, waits; what it writes stays inside (see
    /// --keep). Its trace can be read and verified, not replayed
    #[arg(long, value_name = "live", requires = "until", value_parser = ["live"])]
    then: Option<String>,
    /// Where the trace of a run that goes on for real is written: never over another file [default:
    /// trace.live.jsonl]
    #[arg(short, long, value_name = "FILE", requires = "then")]
    out: Option<PathBuf>,
    /// As `run --upstream-ca`, for what goes on for real
    #[arg(long, value_name = "FILE", requires = "then", value_parser = absolute_path)]
    upstream_ca: Vec<PathBuf>,
}

fn parse_step(text: &str) -> Result<Named, String> {
    Named::parse(text)
        .ok_or_else(|| "write a step as reports name it, as 0.2@7, or the number of its entry".to_owned())
}

/// What a replay does that does not go to its end.
pub(super) struct Bound {
    goal: Arc<Goal>,
    /// Comes when it goes on for real.
    turn: Option<Arc<Turn>>,
    out: PathBuf,
    reached: Reached,
}

/// The comparison at the step, once it was reached, or the run had parted before.
type Reached = Arc<Mutex<Option<io::Result<Comparison>>>>;

impl UntilArguments {
    /// Roots that servers are verified with besides the host's own.
    pub(super) fn roots(&self) -> Result<Vec<CertificateDer<'static>>, Failure> {
        if self.then.is_some() {
            check_host()?;
        }
        roots(&self.upstream_ca)
    }

    /// Finds the step; must be asked where the user is.
    pub(super) fn bound(&self, recording: &Recording) -> Result<Option<Bound>, Failure> {
        let Some(named) = &self.until else { return Ok(None) };
        let name = escape::text(&recording.name().to_string_lossy());
        let unreadable = |error: io::Error| Failure::launcher(format!("{name}: {error}"));
        let found =
            recording.held().read().and_then(|mut file| Goal::find(&mut file, named)).map_err(unreadable)?;
        let goal = found.map_err(|nearest| {
            let nearest =
                nearest.map_or_else(|| "it has none".to_owned(), |step| format!("the nearest is {step}"));
            Failure::usage(format!("{named} is no step of {name}: {nearest}"))
        })?;
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_OUT));
        let out = std::path::absolute(&out)
            .map_err(|error| Failure::usage(format!("{}: {error}", out.display())))?;
        let turn = match &self.then {
            None => None,
            Some(_) => {
                free(&out)?;
                let mut said = Map::new();
                said.insert("origin".to_owned(), recording.head.clone().into());
                said.insert("step".to_owned(), goal.step.clone().into());
                said.insert("entry".to_owned(), goal.entry.into());
                Some(Arc::new(
                    Turn::new(said).map_err(|error| Failure::launcher(format!("eventfd: {error}")))?,
                ))
            }
        };
        Ok(Some(Bound { goal: Arc::new(goal), turn, out, reached: Reached::default() }))
    }
}

/// A trace is never written over another file.
fn free(out: &Path) -> Result<(), Failure> {
    if out.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Failure::usage(format!("{} is there already: name another file with -o", out.display())))
}

impl Bound {
    /// When it goes on for real, if it does.
    pub(super) fn turn(&self) -> Option<&Arc<Turn>> {
        self.turn.as_ref()
    }

    /// The trace of a run that goes on for real, as it was named.
    pub(super) fn out(&self) -> &Path {
        &self.out
    }

    /// Where that trace goes.
    pub(super) fn placement(&self, prepared: &Prepared, enforced: bool) -> Result<Placement, Failure> {
        let out = prepared.host.resolve(&self.out);
        let reach = reach(&prepared.policy, &prepared.facts, &out, enforced);
        Ok(Placement::plan(&self.out, &reach, false)?)
    }

    /// What is asked while the run goes on: whether the step has come, of the trace `live`.
    pub(super) fn until(&self, recorded: &Held, live: &Path, lenient: &[Cause]) -> Until {
        let (recorded, live, lenient) = (recorded.clone(), live.to_owned(), lenient.to_owned());
        let (goal, reached) = (Arc::clone(&self.goal), Arc::clone(&self.reached));
        let seen = AtomicUsize::new(0);
        let next = if self.turn.is_some() { Next::Live } else { Next::End };
        let ahead = move |event: &Event, recorder: &Recorder| {
            if !goal.is_like(event) || seen.fetch_add(1, Ordering::Relaxed) + 1 < goal.times() {
                return Next::Same;
            }
            let mut reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
            if reached.is_some() {
                return Next::Same;
            }
            let looked = look(&goal, recorder, (&recorded, &live), &lenient).transpose();
            let next = match &looked {
                None => Next::Same,
                Some(Ok(comparison)) if comparison.is_same() => next,
                Some(_) => Next::End,
            };
            *reached = looked;
            next
        };
        Until { ahead: Box::new(ahead), turn: self.turn.clone() }
    }

    /// As reports name it.
    pub(super) fn step(&self) -> &str {
        &self.goal.step
    }

    /// The comparison up to the step; none where the run has not come so far.
    pub(super) fn reached(&self) -> Result<Option<Comparison>, Failure> {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner).take();
        reached.transpose().map_err(|error| Failure::launcher(format!("the traces: {error}")))
    }

    /// What is said of a run that went on for real.
    pub(super) fn went_on(&self, outcome: &Outcome) -> Option<String> {
        self.turn.as_ref()?;
        let (code, trace) = (outcome.code, escape::text(&outcome.trace.placed().path.to_string_lossy()));
        Some(format!("agentbox: then for real: exit status {code}, its trace is {trace}"))
    }
}

/// Compares what there is by now, and again where something is missing.
fn look(
    goal: &Goal,
    recorder: &Recorder,
    (recorded, live): (&Held, &Path),
    lenient: &[Cause],
) -> io::Result<Option<Comparison>> {
    let timed = embedded_times::between(recorded.blobs(), &StoredBlobs::beside(live));
    for attempt in 1.. {
        recorder.settle().map_err(io::Error::other)?;
        let (mut ours, mut theirs) = (recorded.read()?, File::open(live)?);
        let found = compare::reached(&mut ours, &mut theirs, goal, lenient, &timed)?;
        if attempt == TRIES || found.as_ref().is_none_or(Comparison::is_same) {
            return Ok(found);
        }
        std::thread::sleep(MOMENT);
    }
    Ok(None)
}
