//! One run: the plan is carried out, supervised and recorded.

mod child;
mod diverted;
mod failure;
mod foreground;
mod inherited;
mod launch;
mod loopback;
mod message;
mod network;
mod order;
mod processors;
mod publish;
mod repeat;
mod signals;
mod stdio;
mod until;
mod watch;

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};
use serde_json::{Map, Value};

pub use crate::supervisor::Ended as EndedBy;
pub use diverted::ReplayedFiles;
pub use failure::RunError;
pub use inherited::Inherited;
pub use launch::{Begun, Former, begin};
pub use processors::Processors;
pub use repeat::{Private, Repeat, Replayed, Start, User, VERSION};
pub use signals::{HeldSignals, hold_signals};
pub use stdio::{End, Input, NULL_DEVICE_BOTH_WAYS, Outputs, StdioError, Stream};
pub use until::{Ahead, Next, Until};

use crate::fsview::Door;
use crate::netproxy::{Listeners, Proxy, StreamOptions};
use crate::ns::init::CommandEnd;
use crate::plan::{Enforcement, LaunchPlan};
use crate::policy::Policy;
use crate::supervisor::connections::Connections;
use crate::supervisor::{Denials, Finished, LeftOut, Supervisor};
use crate::trace::{
    self, Closing, Denial, Event, Kind, Placed, Placement, Recorder, Totals, Turn, WriterHandle,
};
use foreground::Foreground;
use watch::Watched;

/// Whether the supervisor has not counted it among its own.
fn is_counted_here_alone(denial: &Denial) -> bool {
    match denial.op {
        // Ports that are held inside are told apart.
        "net" => !denial.target.starts_with("listen:"),
        "read" | "write" => denial.rule.as_deref().is_some_and(|rule| rule.starts_with("no rule: ")),
        _ => false,
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code for the shell: the command's own, or 128 plus the signal.
    pub code: u8,
    /// What was recorded.
    pub totals: Totals,
    /// What the supervisor refused.
    pub denials: Denials,
    /// What the proxy refused (names, connections under a name), and what no rule for a file would allow.
    pub other_denials: Vec<Denial>,
    /// What was said of origins whose certificates could not be verified.
    pub unverified: Vec<String>,
    /// The policy, for suggestions.
    pub policy: Arc<Policy>,
    /// Where the trace is.
    pub trace: Closing,
    /// Time that a replay has left out.
    pub left_out: LeftOut,
    /// Why a replay was ended, if it did not end by itself.
    pub ended_by: Option<EndedBy>,
    /// Pid 1, which ends by itself meanwhile: when this is dropped it has.
    _ending: Option<launch::KillOnDrop>,
}

/// Carries `plan` out, in what [`begin`] began; `streams` are treated as the user wants. It can be repeated as
/// `repeat` says, and `plan` with it.
///
/// # Errors
/// Why nothing was run, or why the run was stopped: never anything in between.
pub fn run(
    begun: Begun,
    plan: LaunchPlan,
    placement: Placement,
    signals: HeldSignals,
    mut streams: StreamOptions,
    mut repeat: Repeat,
) -> Result<Outcome, RunError> {
    let _foreground = Foreground::now();
    let launching = launch::launch(begun, &plan, streams.tls.take(), repeat.orders_outputs())?;
    repeat.keep_authority(launching.tls.as_ref());
    repeat.keep_inherited(&launching.begun.inherited);
    let state = placement.state_directory();
    let run = launching.begun.handle().map_err(RunError::call("dup"))?;
    let (recorder, writer) = trace::create(placement)?;
    let turn = repeat.turn();
    let is_recorded = matches!(repeat, Repeat::Recorded { .. });
    let recorder = repeat.watch(recorder, run);
    let armed = match arm(plan, launching, &recorder, streams, (repeat, turn), (signals, state)) {
        Ok(armed) => armed,
        Err(error) => {
            writer.discard();
            return Err(error);
        }
    };
    match prepare(armed, &recorder).and_then(carry_out) {
        Ok(ended) => conclude(ended, recorder, writer, is_recorded),
        Err(error) => {
            // Nothing of the run is left. Where the trace itself has failed, there is no seal.
            if let Ok(placed) = writer.seal(not_started(&error)) {
                remember(&placed, is_recorded);
            }
            Err(error)
        }
    }
}

/// A command that is ready, with a proxy and a supervisor beside it.
struct Armed {
    launched: launch::Launched,
    proxy: Proxy,
    /// What the trace begins with.
    header: Map<String, Value>,
    environment: Event,
    policy: Arc<Policy>,
    /// Signals that were blocked before.
    former: SigSet,
    /// What went wrong here is told by the trace.
    watched: Result<Watched, RunError>,
}

/// Notes what a replay needs while the child makes its network, starts the proxy while that builds the view, and looks
/// around in it while the command's process gives up its rights; what fails here leaves no trace.
fn arm(
    plan: LaunchPlan,
    launching: launch::Launching,
    recorder: &Recorder,
    streams: StreamOptions,
    (repeat, turn): (Repeat, Option<Arc<Turn>>),
    (signals, state): (HeldSignals, Option<OwnedFd>),
) -> Result<Armed, RunError> {
    let published = publish::bind(&plan.access.policy)?;
    crate::ns::privileges::act_without().map_err(failure::privileges_kept)?;
    crate::sys::process::own_umask().map_err(RunError::call("unshare(CLONE_FS)"))?;
    // What the supervisor makes for a task has the task's own mask already; the command has the launcher's.
    let umask = umask(Mode::empty());
    let redacted = streams.redacted.given().into_iter().map(str::to_owned).collect();
    let redactor = repeat.redactor()?.with_names(streams.redacted.clone());
    let connections = Arc::new(Connections::default());
    let launch::Launching { mut begun, tls } = launching;
    let noted = repeat.begin(umask, (recorder, turn.as_deref()));
    let sockets = begun.network()?;
    let (capture, reads_tls, idle_timeout) = (launch::capture(&sockets), tls.is_some(), streams.idle_timeout);
    let start = |sockets, listeners| {
        let (policy, enforce) = (&plan.access.policy, plan.access.enforce);
        let streams = (tls, streams);
        network::start(policy, sockets, listeners, (recorder, redactor), &connections, enforce, streams)
    };
    let (entered, network, relayed) = if plan.unix.is_empty() && plan.net.published.is_empty() {
        let network = start(sockets, Listeners::default())?;
        (begun.view()?, network, Vec::new())
    } else {
        // It listens at the doors too, which are made with the view, or asks pid 1 for sockets.
        let mut entered = begun.view()?;
        let (unix, relayed) = doors(plan.unix.clone(), std::mem::take(&mut entered.doors));
        let dialler = begun.dialler().map_err(RunError::call("dup"))?;
        let listeners = publish::listeners(published, unix, dialler);
        (entered, start(sockets, listeners)?, relayed)
    };
    let (policy, seeded) = (Arc::clone(&plan.access.policy), plan.replay);
    let (full_mediation, enforce) = (plan.access.full_mediation, plan.access.enforce);
    let (mut header, environment) = (plan.header.clone(), environment(&plan));
    let former = signals.former;
    let network::Network { proxy, loopback } = network;
    let around =
        watch::Around { begun: &begun, proxy: &proxy, loopback, connections, relayed, signals, state };
    let watched =
        noted.and_then(|noted| watch::watch(plan, entered, around, (recorder, repeat, turn, noted)));
    launch::look_for_room()?;
    let launched = begun.finish()?;
    let (landlock, stdio) = (launched.landlock, launched.stdio.manifest());
    let enforcement = Enforcement { landlock, capture, reads_tls, idle_timeout, redacted, seeded, stdio };
    enforcement.add_to(&mut header, full_mediation, enforce);
    Ok(Armed { launched, proxy, header, environment, policy, former, watched })
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
    /// What is copied out at the end.
    kept: Option<diverted::Kept>,
    /// Signals that were blocked before.
    former: SigSet,
}

/// Everything up to the word: what fails here has run nothing.
fn prepare(armed: Armed, recorder: &Recorder) -> Result<Ready, RunError> {
    let Armed { launched, proxy, header, environment, policy, former, watched } = armed;
    let guard = launched.guard;
    recorder.record(Event { args: header, ..Event::new(Kind::Meta, "run.start") })?;
    recorder.record(environment)?;
    let Watched { mut prepared, replay, kept, keeps } = watched?;
    prepared.note_made();
    replay.map_or(Ok(()), |event| recorder.record(event))?;
    let supervisor = prepared.serve(launched.listener);
    if let Some(signal) = signals::ending(former) {
        return Err(RunError::Interrupted(signal));
    }
    let streams = launched.stdio.start(guard.as_fd(), keeps.then_some(recorder))?;
    Ok(Ready { guard, go: launched.go, supervisor, proxy, streams, policy, kept, former })
}

/// A run that has ended.
struct Ended {
    finished: Finished,
    streams: stdio::Report,
    policy: Arc<Policy>,
    /// Pid 1 needs as long to end as the trace does.
    guard: Option<launch::KillOnDrop>,
}

/// Serves the run to its end.
fn carry_out(ready: Ready) -> Result<Ended, RunError> {
    let Ready { guard, go, mut supervisor, mut proxy, streams, policy, kept, former } = ready;
    launch::go(&go)?;
    let finished = supervisor.run();
    // A run that was stopped does nothing more; of one that has ended only pid 1 is left, which ends now.
    let guard = finished.is_ok().then_some(guard);
    proxy.begin_to_stop();
    drop(supervisor);
    let stopped = proxy.stop();
    let streams = streams.finish(finished.as_ref().map_or(true, |finished| finished.interrupted));
    let finished = finished?;
    stopped.map_err(RunError::Proxy)?;
    let is_interrupted = matches!(finished.ended_by, Some(EndedBy::Signal(_)));
    kept.filter(|_| !is_interrupted).map_or(Ok(()), |kept| kept.copy_out(former))?;
    Ok(Ended { finished, streams, policy, guard })
}

/// A run that was stopped, too, is run again as far as it went.
fn remember(placed: &Placed, is_recorded: bool) {
    if is_recorded {
        // The run's own failure is what is told. `replay` says that the trace is not listed.
        let _ = trace::remember_head(&placed.head, &placed.path);
    }
}

/// Records how the run ended, and closes the trace.
fn conclude(
    ended: Ended,
    recorder: Recorder,
    writer: WriterHandle,
    is_recorded: bool,
) -> Result<Outcome, RunError> {
    let Ended { finished, streams, policy, guard } = ended;
    let end = finished.last_words.as_deref().and_then(message::end_of);
    let end = match end {
        Some(message::LastWords::End(end)) => end,
        Some(message::LastWords::Failed(failure)) => {
            let error = failure::explain(&failure, finished.first_refusal);
            remember(&writer.seal(not_started(&error))?, is_recorded);
            return Err(error);
        }
        None => CommandEnd { code: 137, signal: 9, cpu_micros: 0, peak_kib: 0 },
    };
    for event in std::iter::once(process_end(end)).chain(streams.events()) {
        recorder.record(event)?;
    }
    let totals = recorder.totals();
    let told = recorder.denials();
    let other_denials = told.named.into_iter().filter(is_counted_here_alone).collect();
    // The last who could record anything.
    drop(recorder);
    let trace = writer.close(run_end(end))?;
    if let Some(lost) = streams.failure() {
        remember(trace.placed(), is_recorded);
        return Err(lost.into());
    }
    let code = u8::try_from(end.code).unwrap_or(255);
    Ok(Outcome {
        code,
        totals,
        denials: finished.denials,
        other_denials,
        unverified: told.unverified,
        policy,
        trace,
        left_out: finished.left_out,
        ended_by: finished.ended_by,
        _ending: guard,
    })
}

/// Sockets of the host, each with something of ours that stands for it.
type Sockets = Vec<(PathBuf, OwnedFd)>;

/// What the proxy listens on, and what the supervisor connects to.
fn doors(paths: Vec<PathBuf>, doors: Vec<Door>) -> (Sockets, Sockets) {
    let both = paths.into_iter().zip(doors);
    both.map(|(path, door)| ((path.clone(), door.listener), (path, door.file))).unzip()
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
