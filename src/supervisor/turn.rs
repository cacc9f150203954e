//! The turn of a replay: from here on it goes on for real.
//!
//! Its clocks are the machine's, its waits last as long as they do, and what is random is new. What it has written
//! stays where it is, and what it writes goes there too.

use super::controls::Seed;
use super::machine::Machine;
use super::{Stop, Supervisor};
use crate::trace::{Event, Kind};

impl Supervisor {
    /// Goes on for real, where the turn has come.
    pub(super) fn take_turn(&mut self) -> Result<(), Stop> {
        let Some(turn) = self.turn.take_if(|turn| turn.has_come()) else { return Ok(()) };
        turn.heard();
        self.outputs.course.end();
        let mut event = Event { args: turn.said.clone(), ..Event::new(Kind::Meta, "run.live") };
        if let Some(following) = &mut self.following {
            let seed = Seed::fresh().map_err(|source| Stop::Receive { call: "getrandom", source })?;
            following.begin_anew(seed);
        }
        if let Some(clock) = &mut self.clock {
            self.machine = Machine::Unseen;
            let (ahead, jumped) = clock.go_live();
            if let Some(skip) = &mut self.skip {
                skip.go_live(ahead);
            }
            event = event.arg("realtime_jump_ns", jumped);
        }
        Ok(self.recorder.record(event)?)
    }
}
