//! A replay that goes on for real: tapes end, and the timeline goes on with the machine's clock.

use super::control::Mode;
use super::reel::Reel;
use super::{Clock, Offsets, Tapes};
use crate::sys::clock;

impl Offsets {
    /// The same, where the time of day is so far ahead of the timeline.
    fn with_real(self, real: u64) -> Self {
        let Self([_, monotonic, _, third, raw, _, coarse, boot]) = self;
        Self([real, monotonic, real, third, raw, real, coarse, boot])
    }
}

impl Clock {
    /// No clock goes back: that of the time of day jumps to what it is, the others go on from where the furthest
    /// thread is. Gives what the timeline is ahead of the kernel's clock, and how far the time of day has jumped.
    pub(in crate::supervisor) fn go_live(&mut self) -> (u64, i64) {
        let kernel = self.kernel_now();
        let threads = self.threads.keys().map(|task| self.now_of(*task));
        let shifted = self.programs.values().filter(|program| program.control.mode == Mode::Shift);
        let shifted = shifted.map(|program| kernel.wrapping_add(program.control.shift));
        let so_far = kernel.wrapping_add(self.skipped);
        let now = threads.chain(shifted).fold(so_far, u64::max);
        let ahead = now.wrapping_sub(kernel);
        let before = now.wrapping_add(self.offsets.of_kind(0));
        // It cannot fail: the base was read from the same clock.
        let real = clock::read(libc::CLOCK_REALTIME).unwrap_or(before);
        self.offsets = self.offsets.with_real(real.wrapping_sub(now));
        (self.skipped, self.is_live) = (ahead, true);
        self.tapes = Some(Tapes::default());
        for (process, program) in &mut self.programs {
            program.control.offsets = self.offsets;
            if program.control.mode == Mode::Shift {
                program.control.shift = ahead;
            }
            // Killed meanwhile: nobody reads it.
            let _ = program.control.write(*process);
        }
        for thread in self.threads.values_mut().chain(self.readers.values_mut()) {
            if let Reel::Replay(replay) = &mut thread.reel {
                replay.let_go(thread.lane.as_ref(), now, ahead);
            }
        }
        (ahead, real.wrapping_sub(before).cast_signed())
    }
}
