//! A supervisor before the first call: it knows the view of the run, and nothing runs yet.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::beside::Directories;
use super::capture::Captures;
use super::denials::Denials;
use super::digest::Digests;
use super::diverted::DivertedRoots;
use super::first_change::FirstChanges;
use super::hand_over::HandOver;
use super::hasher::Hasher;
use super::image::Heads;
use super::listing::Listings;
use super::machine::Machine;
use super::read::Grants;
use super::setup::{Controlled, Setup};
use super::status::Statuses;
use super::stop::Stop;
use super::system_files::SystemFiles;
use super::task::Tasks;
use super::view::View;
use super::written::WrittenFiles;
use super::{Supervisor, pending, unix, waiting};
use crate::trace::Members;

/// All that is there before the run's filter is.
pub struct Prepared {
    setup: Setup,
    view: View,
    pending: Vec<pending::Place>,
    written: WrittenFiles,
    listings: Listings,
    statuses: Statuses,
    machine: Machine,
    sockets: unix::Sockets,
    controlled: Controlled,
}

impl Prepared {
    /// Prepares to serve the run with this root directory, as O_PATH: pid 1 cannot be looked into.
    ///
    /// # Errors
    /// When that root cannot be reached or inotify is refused.
    pub fn new(root: OwnedFd, mut setup: Setup) -> Result<Self, Stop> {
        let DivertedRoots { roots, holders, orders, statuses, machine, made, placeholders } =
            std::mem::take(&mut setup.diverted);
        let view =
            View::of(root, std::mem::take(&mut setup.inherited), roots, setup.input).map_err(Stop::View)?;
        let view = view.with(made, setup.shown_ids).with_placeholders(&placeholders);
        view.know_programs(&mut setup.command, &setup.access);
        let relayed = std::mem::take(&mut setup.relayed);
        let sockets = unix::Sockets::new(&view, &setup.access, relayed).map_err(Stop::View)?;
        let controlled = Controlled::by(&mut setup);
        let mut statuses = Statuses::new(setup.keeps_former, statuses);
        statuses.note_places(&view, &setup.access);
        Ok(Self {
            pending: pending::places(std::mem::take(&mut setup.pending), holders),
            written: WrittenFiles::new(setup.keeps_former).map_err(Stop::Watch)?,
            listings: Listings::new(setup.keeps_former, orders),
            statuses,
            machine: Machine::new(setup.keeps_former, machine),
            sockets,
            controlled,
            view,
            setup,
        })
    }

    /// The view has all its files now.
    pub fn note_made(&mut self) {
        self.statuses.note_made(&self.view, &self.setup.access);
    }

    /// Serves the calls that wait at `listener`, see [`Supervisor::run`].
    #[must_use]
    pub fn serve(self, listener: OwnedFd) -> Supervisor {
        let Self { setup, view, pending, written, listings, statuses, machine, sockets, controlled } = self;
        let Controlled { following, clock, skip, outputs, outside, births } = controlled;
        Supervisor {
            hand_over: HandOver::by(listener.as_fd()),
            listener: Arc::new(listener),
            init: setup.init,
            access: setup.access,
            command: setup.command,
            recorder: setup.recorder,
            observed: Members::new(),
            grants: Grants::default(),
            judge_connection: setup.judge_connection,
            lead_loopback: setup.lead_loopback,
            connections: setup.connections,
            signals: setup.signals,
            channel: setup.channel,
            words: setup.words,
            view,
            tasks: Tasks::new(following.is_some()),
            following,
            clock,
            skip,
            outputs,
            turn: setup.turn,
            more_stops: false,
            system_files: SystemFiles::default(),
            directories: Directories::default(),
            heads: Heads::default(),
            digests: Digests::default(),
            written,
            first: setup.keeps_former.then(FirstChanges::default),
            captures: setup.captures.then(Captures::default),
            listings,
            statuses,
            machine,
            hasher: Hasher::new(setup.state),
            denials: Denials::default(),
            pending,
            last_words: None,
            silent: false,
            ended: false,
            sockets,
            served: HashSet::new(),
            seized: HashSet::new(),
            expected: HashMap::new(),
            doomed: HashSet::new(),
            follow_ups: HashMap::new(),
            command_pid: None,
            early_signals: Vec::new(),
            waiting: waiting::Waiting::default(),
            looked: Instant::now(),
            interrupted: false,
            outside,
            births,
            first_refusal: None,
            started: false,
            meanwhile: setup.meanwhile,
        }
    }
}
