//! What a run that can be replayed begins with, and in a replay what is known of the recorded one.

use super::super::clock::Clock;
use super::super::outside::Signals;
use super::super::skip::{Skip, UnderWay};
use super::{Births, Controls, Following};
use crate::trace::Recorder;

/// The parts of the supervisor that make a run like the recorded one, or one that can be repeated.
pub(in crate::supervisor) struct Beginning {
    pub(in crate::supervisor) following: Option<Following>,
    pub(in crate::supervisor) clock: Option<Clock>,
    pub(in crate::supervisor) skip: Option<Skip>,
    pub(in crate::supervisor) outside: Signals,
    pub(in crate::supervisor) births: Births,
}

impl Beginning {
    /// In a replay, waits are left out where `under_way` tells of what they may wait for.
    pub(in crate::supervisor) fn of(
        controls: Option<Controls>,
        recorder: &Recorder,
        under_way: Option<UnderWay>,
    ) -> Self {
        let Some(Controls { seed, clock: mut timeline }) = controls else {
            let (outside, births) = (Signals::default(), Births::default());
            return Self { following: None, clock: None, skip: None, outside, births };
        };
        let recorded = timeline.tapes.as_mut();
        let recorded = recorded.map(|tapes| (std::mem::take(&mut tapes.signals), std::mem::take(&mut tapes.ids)));
        let (signals, ids) = recorded.unwrap_or_default();
        let is_replay = timeline.tapes.is_some();
        let mut clock = Clock::new(timeline, recorder.clone());
        let skip = is_replay.then(|| Skip::new(under_way, &mut clock));
        let (outside, births) = (Signals::new(signals), Births::new(ids));
        Self { following: Some(Following::new(seed)), clock: Some(clock), skip, outside, births }
    }
}
