//! The supervisor's first look around, in the view, while the command's process gives up its rights.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use super::launch::{Begun, Entered};
use super::repeat::{Beginning, Repeat};
use super::signals::HeldSignals;
use super::{RunError, diverted, network, stdio};
use crate::netproxy::Proxy;
use crate::ns::init;
use crate::plan::LaunchPlan;
use crate::supervisor::connections::Connections;
use crate::supervisor::{InitWords, LeadLoopback, Prepared, Setup};
use crate::trace::{Event, Recorder, Turn};

/// What is there of the run beside its view.
pub(super) struct Around<'a> {
    pub(super) begun: &'a Begun,
    pub(super) proxy: &'a Proxy,
    /// Leads connections to loopback.
    pub(super) loopback: LeadLoopback,
    pub(super) connections: Arc<Connections>,
    /// Sockets of the host, each with the file of ours that is connected instead.
    pub(super) relayed: Vec<(PathBuf, OwnedFd)>,
    pub(super) signals: HeldSignals,
    /// The private state directory, if there is one.
    pub(super) state: Option<OwnedFd>,
}

/// The supervisor, which knows the view.
pub(super) struct Watched {
    pub(super) prepared: Prepared,
    /// What a replay needs to know.
    pub(super) replay: Option<Event>,
    /// What is copied out at the end.
    pub(super) kept: Option<diverted::Kept>,
    /// The run can be replayed.
    pub(super) keeps: bool,
}

/// Prepares the supervisor of the run that is in `entered`.
pub(super) fn watch(
    plan: LaunchPlan,
    entered: Entered,
    around: Around<'_>,
    (recorder, repeat, turn, beginning): (&Recorder, Repeat, Option<Arc<Turn>>, Beginning),
) -> Result<Watched, RunError> {
    let begun = around.begun;
    let Beginning { base, replay } = beginning;
    let (skips_waits, orders_outputs) = (repeat.skips_waits(), repeat.orders_outputs() || turn.is_some());
    let (keeps, captures) = (repeat.private().is_some(), repeat.captures());
    let (diverted, kept) = entered.layers.prepare(&plan.fs, &entered.root, repeat.files(), keeps)?;
    // Where no order is kept nobody asks for them.
    let outputs =
        if orders_outputs || begun.stdio().has_end() { begun.stdio().output_pipes() } else { Ok(Vec::new()) };
    let outputs = outputs.map_err(RunError::call("fstat"))?;
    let setup = Setup {
        init: begun.init(),
        inherited: begun.stdio().mounts(),
        outputs,
        input: begun.stdio().input_pipe(),
        shown_ids: (plan.process.uid, plan.process.gid),
        access: plan.access.clone(),
        command: plan.command.clone(),
        recorder: recorder.clone(),
        judge_connection: network::judge(around.proxy),
        lead_loopback: around.loopback,
        connections: around.connections,
        signals: around.signals.descriptor,
        channel: begun.channel().map_err(RunError::call("dup"))?,
        words: WORDS,
        pending: plan.fs.pending.iter().map(|root| root.path.clone()).collect(),
        relayed: around.relayed,
        state: around.state,
        keeps_former: keeps,
        captures,
        diverted,
        controls: repeat.controls(base, begun.ahead())?,
        under_way: skips_waits.then(network::under_way),
        is_unread: stdio::is_unread,
        turn,
        meanwhile: Some(Box::new(move || plan.check_document().map_err(Into::into))),
    };
    Ok(Watched { prepared: Prepared::new(entered.root, setup)?, replay, kept, keeps })
}

/// What pid 1 understands.
const WORDS: InitWords = InitWords {
    attach: init::attach_request,
    bind: init::bind_request,
    bind_apart: init::bind_apart_request,
    last_id: init::last_id_request,
    heard: init::heard_request,
    pair: init::pair_request,
    answer: init::answer_to,
    is_end: init::is_end,
};
