//! `agentbox replay`: a recorded run once more, and the verdict.

mod foreign;
mod place;
mod verdict;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;

use super::Failure;
use super::places::{absolute_path, empty_directory};
use super::run::{Prepared, protected, reach, unlisted};
use super::until::{Bound, UntilArguments};
use super::voice::{Voice, tell};
use crate::command;
use crate::netproxy::secret::Secrets;
use crate::netproxy::tls::Intention;
use crate::netproxy::{StreamOptions, Upstream};
use crate::plan::{self, HostFacts, LaunchPlan, Made, Request};
use crate::policy::{self, LaunchHost, Policy, looks};
use crate::replay::compare::Cause;
use crate::replay::{Difference, FirstState, Recording, ReplayError, variables};
use crate::run::{self, Repeat, Replayed, ReplayedFiles};
use crate::trace::{self, Placement, Reach, Scratch, TraceError, escape};

/// What `replay --help` says after the options.
const AFTER_HELP: &str = "\
The recorded command is executed again under the recorded policy: with the recorded environment, clock and \
randomness, the recorded answers in place of the network, and its writes diverted. Its output is its own.

Exit codes: 0 it did the same; 1 it did not, or the trace was altered; 2 usage, or the trace cannot be \
replayed; 125 agentbox could not do what it promises.";

/// Run a recorded run again, offline, and say whether it did the same
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ReplayCommand {
    /// The trace
    #[arg(short, long, value_name = "FILE", default_value = trace::layout::DEFAULT_NAME)]
    trace: PathBuf,
    /// The policy to run it under: needed where the trace was not made here
    #[arg(short, long, value_name = "FILE", value_parser = absolute_path)]
    policy: Option<PathBuf>,
    /// Run it although the policy, the command or an input is another one, to see where it parts
    #[arg(long)]
    force: bool,
    /// Copy what it would have written into this directory, which must be empty or absent
    #[arg(long, value_name = "DIR", value_parser = empty_directory)]
    keep: Option<PathBuf>,
    /// Let answers come and waits last as they did
    #[arg(long)]
    paced: bool,
    /// Print the verdict as JSON, on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    voice: Voice,
    /// Accept differences of this class, as time-only; they are counted
    #[arg(long, value_name = "CLASS", value_enum)]
    lenient: Vec<Cause>,
    #[command(flatten)]
    until: UntilArguments,
    /// The command, if it is to be checked that it is the recorded one
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    words: Vec<OsString>,
}

impl ReplayCommand {
    /// Replays; the code is the verdict's.
    pub(super) fn run(mut self) -> Result<u8, Failure> {
        self.check_words()?;
        let opened = trace::open(&self.trace).map_err(|error| Failure::usage(error.to_string()))?;
        let path = opened.path().to_owned();
        let recording = Recording::read(&opened).map_err(refused)?;
        self.trust(&recording)?;
        let bound = self.until.bound(&recording)?;
        place::take(&recording, self.voice)?;
        let mut first = FirstState::read(&recording).map_err(refused)?;
        let (new, scratch) = (first.hide(opened.places()), Scratch::new()?);
        let input = first.input.serve(recording.blobs(), scratch.path()).map_err(|error| {
            Failure::launcher(format!("the recorded standard input cannot be given: {error}"))
        })?;
        // It is for us to say when waits until a time end: a replay can be slower than the recorded run.
        let clock = recording.clock.behind();
        let outputs = first.outputs(bound.is_some());
        let begun = run::begin(Some(place::former(&recording, clock, self.voice)?), input, outputs);
        let made = first.made(&recording, blanks(&scratch)?);
        let (prepared, mut found) = self.prepare(&recording, &made)?;
        found.extend(first.differences());
        self.judge(&found)?;
        let signals = run::hold_signals()?;
        let turn = bound.as_ref().and_then(Bound::turn);
        let tls = interception(&recording, self.until.roots()?)?;
        let secrets = secrets(&recording, &prepared.policy, turn.is_some())?;
        let placement = match turn.and(bound.as_ref()) {
            Some(bound) => bound.placement(&prepared, is_enforced(&recording))?,
            None => apart(&scratch, &prepared, is_enforced(&recording))?,
        };
        let mut plan = plan(&recording, &path, turn.and(bound.as_ref()), prepared, &placement, tls.as_ref());
        first.served.retain(|path, _| plan.is_granted(path));
        first.listed.retain(|path, _| plan.is_granted(path) && !plan.access.is_system(path));
        self.voice.tell(first.said().into_iter().chain(said_of_new(&new, &plan)));
        first.place_listed();
        plan.divert(&first.files.absent().cloned().collect::<Vec<_>>(), &first.served, &made);
        let is_writable = |path: &Path| plan.fs.divert.as_ref().is_some_and(|divert| divert.covers(path));
        first.place_served(is_writable);
        first.place_absent(is_writable);
        let files = files(first, &recording, self.keep.clone());
        let tapes = recording.tapes().map_err(refused)?;
        let (private, clock) = (recording.private.clone(), recording.clock);
        let until =
            bound.as_ref().map(|bound| bound.until(recording.held(), &placement.written_at(), &self.lenient));
        let replayed = Replayed { private, clock, tapes, files, paced: self.paced, until };
        let network = Arc::new(recording.network(self.paced).map_err(refused)?);
        let upstream = match turn.map(Arc::clone) {
            Some(turn) => Upstream::Turning(network, turn),
            None => Upstream::Recorded(network),
        };
        let redacted = recording.redacted();
        let streams =
            StreamOptions { tls, secrets, upstream, redacted, replayable: true, ..StreamOptions::default() };
        let repeat = Repeat::Replayed(Box::new(replayed));
        let outcome = run::run(begun?, plan, placement, signals, streams, repeat)?;
        self.verdict(recording.held(), &outcome, &found, bound.as_ref())
    }

    /// A trace is named by -t: what stands alone is a command.
    fn check_words(&self) -> Result<(), Failure> {
        let [word] = &self.words[..] else { return Ok(()) };
        let mut start = [0; 64];
        let read = File::open(word).and_then(|mut file| file.read(&mut start)).unwrap_or_default();
        if trace::looks_like_a_trace(&start[..read]) {
            let name = escape::text(&word.to_string_lossy());
            return Err(Failure::usage(format!(
                "{name} is a trace, where a command is expected: write -t {name}"
            )));
        }
        Ok(())
    }

    /// The policy of a trace from elsewhere is not trusted: nothing of such a trace is made use of without the user's.
    fn trust(&mut self, recording: &Recording) -> Result<(), Failure> {
        if trace::is_known_head(&recording.head) {
            return Ok(());
        }
        if self.policy.is_none() {
            let (why, more) = if recording.sealed {
                let list = trace::list_of_heads();
                (
                    format!("was not made here, for {} does not list it", list.display()),
                    "; if it was, set HOME and XDG_STATE_HOME as they were then",
                )
            } else {
                ("has no end that proves where it is from".to_owned(), "")
            };
            return Err(Failure::usage(format!(
                "{}: this trace {why}, so its own policy is not trusted: name yours with -p{more}",
                recording.name().display()
            )));
        }
        // That it is another one is told before the start.
        self.lenient.push(Cause::PolicyChanged);
        Ok(())
    }

    /// What the plan is made from, and what is not as it was.
    fn prepare(&self, recording: &Recording, made: &Made) -> Result<(Prepared, Vec<Difference>), Failure> {
        let looks = looks::remember();
        let mut found = Vec::new();
        let words: Vec<OsString> = recording.private.argv().collect();
        if !self.words.is_empty() && self.words != words {
            found.push(Difference::command(&words, &self.words));
        }
        let mut facts = HostFacts::gather().map_err(|error| Failure::launcher(error.to_string()))?;
        let own = facts.environment.clone();
        if !recording.private.cwd.exists() {
            facts.cwd.clone_from(&recording.private.cwd);
        }
        place::stand_in(&mut facts, &recording.private);
        facts.environment = recording.private.environment().collect();
        facts.home = facts.variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let mut environment = facts.environment.clone();
        if !trace::is_known_head(&recording.head) {
            // `~` and `exec: python3` in the user's policy are the user's, whatever a trace from elsewhere calls so.
            environment.clone_from(&own);
            if self.policy.is_some() {
                let place = escape::text(&facts.cwd.to_string_lossy());
                self.voice.tell([format!(
                    "agentbox: relative paths of the policy are read in {place}, as the trace says"
                )]);
            }
        }
        let host = |environment| {
            LaunchHost::with(facts.cwd.clone(), environment)
                .profiles(command::profiles::profile, || command::profiles::names().collect())
                .finder(command::programs)
                .made(made.places())
        };
        let (host, its_host) = (host(environment), host(facts.environment.clone()));
        let command = command::resolve(&words, &facts.environment, &facts.cwd);
        let mut policy = self.policy(recording, [&host, &its_host], command.as_ref().ok(), &mut found)?;
        policy.set_local_addresses(&facts.addresses);
        let mut command = command
            .map_err(|error| Failure::diverged(format!("the recorded command is not there: {error}")))?;
        if trace::is_known_head(&recording.head) {
            let passed = |facts: &HostFacts| {
                plan::variables(&policy, &command, facts, &recording.private.placeholders)
            };
            let recorded = passed(&facts);
            let today = HostFacts { environment: own, ..facts.clone() };
            found.extend(variables::differences(recorded, passed(&today), &recording.private));
        } else {
            foreign::confine(&mut command, &policy, &host)?;
        }
        Ok((Prepared { policy, command, facts, host, looks }, found))
    }

    /// The user's own policy where one is named; else the recorded one, if the trace was made here.
    fn policy(
        &self,
        recording: &Recording,
        [host, its_host]: [&LaunchHost; 2],
        command: Option<&command::Command>,
        found: &mut Vec<Difference>,
    ) -> Result<Policy, Failure> {
        let known = trace::is_known_head(&recording.head);
        let name = recording.said("policy_name").unwrap_or(crate::plan::DEFAULT_POLICY);
        let file = self.policy.clone().unwrap_or_else(|| PathBuf::from(name));
        let policy = if self.policy.is_none() && !host_has(&file) {
            policy::parse(recording.said("policy").unwrap_or_default(), name, host)?
        } else {
            policy::load(&file, host)?
        };
        if recording.said("policy_sha256") != Some(policy.digest().as_str()) {
            let recorded = recording.said("policy_sha256").unwrap_or("not recorded");
            let then = policy::parse(recording.said("policy").unwrap_or_default(), name, its_host).ok();
            let difference = Difference::policy(&file, recorded, &policy, then.as_ref());
            if known {
                found.push(difference);
            } else {
                self.voice.tell([format!("agentbox: {difference}; what either of the two denies is denied")]);
                self.voice.tell(difference.lines().skip(1).map(|line| format!("agentbox: {line}")));
                return Ok(policy.intersect(foreign::its_policy(recording, name, its_host, command)?));
            }
        }
        Ok(policy)
    }

    /// Stops where something is not as it was.
    fn judge(&self, found: &[Difference]) -> Result<(), Failure> {
        if found.is_empty() {
            return Ok(());
        }
        let is_lenient = self.lenient.contains(&Cause::EnvironmentChanged);
        let is_accepted =
            self.force || found.iter().all(|one| one.is_note || (is_lenient && one.what == "variable"));
        if !self.json {
            // What is accepted is told all the same, where it is not to be quiet.
            let told = found.iter().filter(|_| !is_accepted || !self.voice.is_quiet());
            tell(told.flat_map(Difference::lines).map(|line| format!("agentbox: {line}")));
        } else if !is_accepted {
            tell([escape::json(&serde_json::json!({"same": false, "before": found}).to_string())]);
        }
        if is_accepted {
            return Ok(());
        }
        let accepts = if found.iter().any(|one| one.what == "variable" && !one.is_note) {
            "--lenient environment-changed accepts changed variables, "
        } else {
            ""
        };
        Err(Failure::diverged(format!(
            "nothing was run; {accepts}--force runs it anyway, to see where it parts"
        )))
    }
}

/// The files of a replay: what there was first, and where what it writes is copied to.
fn files(first: FirstState, recording: &Recording, keep: Option<PathBuf>) -> ReplayedFiles {
    let FirstState { files: initial, served, orders, statuses, machine, .. } = first;
    let blobs = recording.blobs().clone();
    ReplayedFiles { initial, served, orders, statuses: Arc::new(statuses), machine, blobs, keep }
}

/// What reads the TLS of clients: the authority of the recorded run.
fn interception(
    recording: &Recording,
    upstream_roots: Vec<CertificateDer<'static>>,
) -> Result<Option<Intention>, Failure> {
    let Some(stored) = recording.private.authority.clone() else { return Ok(None) };
    let name = stored.name().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Some(Intention { name, upstream_roots, stored: Some(stored) }))
}

/// What stands for secrets, and what for where something goes out for real: the values of today.
fn secrets(recording: &Recording, policy: &Policy, is_live: bool) -> Result<Secrets, Failure> {
    let placeholders = &recording.private.placeholders;
    if is_live {
        let renewed = Secrets::renew(policy, placeholders, |name| std::env::var_os(name));
        return renewed.map_err(|error| Failure::usage(error.to_string()));
    }
    Secrets::restore(policy, placeholders).map_err(|error| Failure::launcher(error.to_string()))
}

/// An empty file and an empty directory, which stand for those that are not here.
fn blanks(scratch: &Scratch) -> Result<(PathBuf, PathBuf), Failure> {
    let (file, directory) = (scratch.path().join("file"), scratch.path().join("directory"));
    let made = File::create_new(&file)
        .and_then(|made| made.set_permissions(Permissions::from_mode(0o644)))
        .and_then(|()| fs::create_dir(&directory))
        .and_then(|()| fs::set_permissions(&directory, Permissions::from_mode(0o755)));
    made.map_err(|error| Failure::launcher(format!("{}: {error}", scratch.path().display())))?;
    Ok((file, directory))
}

/// Where the trace of a replay is written.
fn apart(scratch: &Scratch, prepared: &Prepared, enforced: bool) -> Result<Placement, TraceError> {
    let trace = scratch.path().join(trace::layout::DEFAULT_NAME);
    let reach = reach(&prepared.policy, &prepared.facts, &trace, enforced);
    Placement::plan(&trace, &Reach { own_trace: false, apart: true, ..reach }, false)
}

fn is_enforced(recording: &Recording) -> bool {
    recording.start.get("enforced").and_then(serde_json::Value::as_bool).unwrap_or(true)
}

fn host_has(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
}

fn plan(
    recording: &Recording,
    path: &Path,
    live: Option<&Bound>,
    prepared: Prepared,
    placement: &Placement,
    tls: Option<&Intention>,
) -> LaunchPlan {
    let Prepared { policy, command, facts, host, looks } = prepared;
    looks.look_again();
    let mut protected = protected(placement);
    // What came to lie there since it was recorded, the trace itself among it.
    for trace in [path, &facts.cwd.join(trace::layout::DEFAULT_NAME)] {
        protected.extend(trace::traces_beside(trace).into_iter().map(unlisted));
        protected.extend(plan::links_to(&facts.cwd.join(trace)));
    }
    protected.extend(live.into_iter().flat_map(|live| plan::links_to(live.out())));
    let request = Request {
        policy,
        command,
        typed: recording.private.argv().collect(),
        facts: &facts,
        protected,
        enforce: is_enforced(recording),
        authority: tls.map(|tls| tls.name.common_name()),
        placeholders: recording.private.placeholders.clone(),
        replay: true,
    };
    LaunchPlan::new(request, &host)
}

/// What is said of names that are new and would be seen.
fn said_of_new(new: &[PathBuf], plan: &LaunchPlan) -> Option<String> {
    let is_seen = |path: &&PathBuf| plan.is_granted(path) && !plan.access.hides(path);
    FirstState::said_of_new(new.iter().filter(is_seen))
}

fn refused(error: ReplayError) -> Failure {
    match error {
        ReplayError::Tampered { .. } => Failure::diverged(error.to_string()),
        ReplayError::NotReplayable { .. } | ReplayError::Trace(_) => Failure::usage(error.to_string()),
        ReplayError::Read { .. } => Failure::launcher(error.to_string()),
    }
}
