//! One run: the plan is carried out, supervised and recorded.

mod child;
mod failure;
mod launch;
mod loopback;
mod message;
mod network;
mod publish;
mod signals;
mod stdio;

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use serde_json::{Map, Value};

pub use failure::RunError;
pub use signals::{HeldSignals, hold_signals};
pub use stdio::{StdioError, Stream};

use crate::fsview::Door;
use crate::netproxy::Proxy;
use crate::netproxy::tls::Interception;
use crate::ns::init::{self, CommandEnd};
use crate::plan::{Enforcement, LaunchPlan};
use crate::policy::Policy;
use crate::supervisor::connections::Connections;
use crate::supervisor::{Denials, Finished, InitWords, Setup, Supervisor};
use crate::trace::{self, Denial, Event, Kind, Placed, Placement, Recorder, Totals, WriterHandle};

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code for the shell: the command's own, or 128 plus the signal.
    pub code: u8,
    /// What was recorded.
    pub totals: Totals,
    /// What the supervisor refused.
    pub denials: Denials,
    /// What the proxy refused: names, and connections under a name.
    pub refused_hosts: Vec<Denial>,
    /// The policy, for suggestions.
    pub policy: Arc<Policy>,
    /// Where the trace is.
    pub placed: Placed,
}

/// Carries `plan` out; `tls` reads the TLS of what it may reach. The process must have one thread, for it is
/// cloned.
///
/// # Errors
/// Why nothing was run, or why the run was stopped: never anything in between.
pub fn run(
    plan: LaunchPlan,
    placement: Placement,
    signals: HeldSignals,
    tls: Option<Interception>,
) -> Result<Outcome, RunError> {
    let descriptors = hold_many_descriptors().map_err(RunError::call("setrlimit(RLIMIT_NOFILE)"))?;
    let launched = launch::launch(&plan, signals.former, descriptors)?;
    let (recorder, writer) = trace::create(placement)?;
    match prepare(plan, launched, signals, &recorder, tls).and_then(carry_out) {
        Ok((finished, streams, policy)) => conclude(finished, &streams, &recorder, writer, policy),
        Err(error) => {
            // Nothing of the run is left. Where the trace itself has failed, there is no seal.
            let _ = writer.seal(not_started(&error));
            Err(error)
        }
    }
}

/// The launch needs a descriptor for each mount, the supervisor many for tasks and files; gives the
/// former limit, which is the command's.
fn hold_many_descriptors() -> nix::Result<(u64, u64)> {
    let former = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, former.1, former.1)?;
    Ok(former)
}

/// A run that waits for nothing but the word.
struct Ready {
    /// Kills the run on every way out.
    guard: launch::KillOnDrop,
    go: OwnedFd,
    supervisor: Supervisor,
    proxy: Proxy,
    streams: stdio::Running,
    policy: Arc<Policy>,
}

/// Everything up to the word: what fails here has run nothing.
fn prepare(
    plan: LaunchPlan,
    launched: launch::Launched,
    signals: HeldSignals,
    recorder: &Recorder,
    tls: Option<Interception>,
) -> Result<Ready, RunError> {
    let guard = launched.guard;
    let policy = Arc::clone(&plan.access.policy);
    let enforcement = Enforcement {
        landlock: launched.landlock,
        capture: launch::capture(&launched.sockets),
        stdio: launched.stdio.manifest(),
    };
    let header = header(&plan, enforcement);
    recorder.record(Event { args: header, ..Event::new(Kind::Meta, "run.start") })?;
    recorder.record(environment(&plan))?;
    crate::ns::privileges::act_without()?;
    crate::sys::process::own_umask().map_err(RunError::call("unshare(CLONE_FS)"))?;
    // What the supervisor makes for a task has the task's own mask already.
    umask(Mode::empty());
    let connections = Arc::new(Connections::default());
    let (unix, relayed) = doors(plan.unix, launched.doors);
    let listeners = publish::listeners(&policy, unix, launched.dialler)?;
    let network = network::start(
        &policy,
        launched.sockets,
        listeners,
        recorder,
        &connections,
        plan.access.enforce,
        tls,
    )?;
    let interrupted = signals.ending();
    let setup = Setup {
        listener: launched.listener,
        init: launched.init,
        root: launched.root,
        inherited: launched.stdio.mounts(),
        access: plan.access,
        command: plan.command,
        recorder: recorder.clone(),
        judge_connection: network::judge(&network.proxy),
        lead_loopback: network.loopback,
        connections: Arc::clone(&connections),
        signals: signals.descriptor,
        channel: launched.channel.try_clone().map_err(RunError::call("dup"))?,
        words: InitWords { attach: init::attach_request, bind: init::bind_request, answer: init::answer_to },
        pending: plan.fs.pending.into_iter().map(|root| root.path).collect(),
        relayed,
    };
    let supervisor = Supervisor::new(setup)?;
    if let Some(signal) = interrupted {
        return Err(RunError::Interrupted(signal));
    }
    let streams = launched.stdio.start(guard.as_fd())?;
    Ok(Ready { guard, go: launched.go, supervisor, proxy: network.proxy, streams, policy })
}

/// Serves the run to its end.
fn carry_out(ready: Ready) -> Result<(Finished, stdio::Report, Arc<Policy>), RunError> {
    let Ready { guard, go, mut supervisor, proxy, streams, policy } = ready;
    launch::go(&go)?;
    let finished = supervisor.run();
    // A run that was stopped does nothing more.
    drop(guard);
    drop(supervisor);
    let stopped = proxy.stop();
    let streams = streams.finish(finished.as_ref().map_or(true, |finished| finished.interrupted));
    let finished = finished?;
    stopped.map_err(RunError::Proxy)?;
    Ok((finished, streams, policy))
}

/// Records how the run ended, and closes the trace.
fn conclude(
    finished: Finished,
    streams: &stdio::Report,
    recorder: &Recorder,
    writer: WriterHandle,
    policy: Arc<Policy>,
) -> Result<Outcome, RunError> {
    let end = finished.last_words.as_deref().and_then(message::end_of);
    let end = match end {
        Some(message::LastWords::End(end)) => end,
        Some(message::LastWords::Failed(failure)) => {
            let error = failure::explain(&failure, finished.first_refusal);
            writer.seal(not_started(&error))?;
            return Err(error);
        }
        None => CommandEnd { code: 137, signal: 9, cpu_micros: 0, peak_kib: 0 },
    };
    for event in std::iter::once(process_end(end)).chain(streams.events()) {
        recorder.record(event)?;
    }
    let totals = recorder.totals();
    // The proxy alone writes the remedy into its events.
    let refused_hosts =
        recorder.denials().named.into_iter().filter(|denial| denial.remedy.is_some()).collect();
    let placed = writer.seal(run_end(end))?;
    if let Some(lost) = streams.failure() {
        return Err(lost.into());
    }
    let code = u8::try_from(end.code).unwrap_or(255);
    Ok(Outcome { code, totals, denials: finished.denials, refused_hosts, policy, placed })
}

/// Sockets of the host, each with something of ours that stands for it.
type Sockets = Vec<(PathBuf, OwnedFd)>;

/// What the proxy listens on, and what the supervisor connects to.
fn doors(paths: Vec<PathBuf>, doors: Vec<Door>) -> (Sockets, Sockets) {
    let both = paths.into_iter().zip(doors);
    both.map(|(path, door)| ((path.clone(), door.listener), (path, door.file))).unzip()
}

fn header(plan: &LaunchPlan, enforcement: Enforcement) -> Map<String, Value> {
    let mut header = plan.header.clone();
    enforcement.add_to(&mut header, plan.access.policy.full_mediation(), plan.access.enforce);
    header
}

/// The names that the command gets: never the values.
fn environment(plan: &LaunchPlan) -> Event {
    let names = plan.process.env.iter().map(|(name, _)| name.clone());
    Event::new(Kind::Meta, "env.pass").words("names", names)
}

fn process_end(end: CommandEnd) -> Event {
    Event::new(Kind::Observe, "proc.exit")
        .arg("code", end.code)
        .arg("signal", end.signal)
        .arg("cpu_us", end.cpu_micros)
        .arg("peak_kib", end.peak_kib)
        .proc("0")
}

fn run_end(end: CommandEnd) -> Event {
    let code = if end.signal == 0 { end.code } else { -end.signal };
    Event::new(Kind::Meta, "run.end").arg("returncode", code)
}

/// The end of a run that was stopped, or whose command was never started.
fn not_started(error: &RunError) -> Event {
    Event::new(Kind::Meta, "run.end").arg("returncode", error.exit_code()).arg("error", error.to_string())
}
