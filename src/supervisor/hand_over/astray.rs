//! Notices when the kernel takes the task to another CPU each time that it gets a descriptor.

/// Slow answers after which the task is drawn in.
pub(super) const SLOW_ANSWERS: u32 = 2;
/// Calls for which it is drawn in then; each time it goes astray again soon, twice as many. To see whether it still does
/// costs more than to draw it in for some calls in vain.
const DRAWN_IN: u32 = 4;
const MOST_DRAWN_IN: u32 = 256;

/// Whether the kernel takes the task to other CPUs when it gets a descriptor.
#[derive(Debug, Default)]
pub(super) struct Astray {
    /// Slow answers of late.
    slow: u32,
    /// Calls to come for which the task is drawn in.
    draw: u32,
    /// For how many it was the last time.
    drawn: u32,
    /// Answers since then that were quick.
    quick: u32,
}

impl Astray {
    /// Whether the task must be drawn in for this call.
    pub(super) fn draws(&mut self) -> bool {
        let draws = self.draw > 0;
        self.draw = self.draw.saturating_sub(1);
        draws
    }

    /// An answer in one step was slow, or not.
    pub(super) fn answered(&mut self, slow: bool) {
        if !slow {
            self.slow = 0;
            self.quick = self.quick.saturating_add(1);
            return;
        }
        self.slow += 1;
        if self.slow >= SLOW_ANSWERS {
            let soon = self.quick < self.drawn;
            self.drawn = if soon { (self.drawn * 2).min(MOST_DRAWN_IN) } else { DRAWN_IN };
            *self = Self { slow: 0, draw: self.drawn, drawn: self.drawn, quick: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_goes_astray_again_and_again_is_drawn_in_for_longer() {
        let mut astray = Astray::default();
        let drawn = |astray: &mut Astray, quick: u32| {
            (0..quick).for_each(|_| astray.answered(false));
            (0..SLOW_ANSWERS).for_each(|_| astray.answered(true));
            std::iter::from_fn(|| astray.draws().then_some(())).count()
        };
        let first = DRAWN_IN as usize;
        assert_eq!(drawn(&mut astray, 0), first);
        assert_eq!(drawn(&mut astray, DRAWN_IN - 1), 2 * first);
        assert_eq!(drawn(&mut astray, 0), 4 * first);
        assert_eq!(drawn(&mut astray, 4 * DRAWN_IN), first);
        (0..20).for_each(|_| _ = drawn(&mut astray, 0));
        assert_eq!(drawn(&mut astray, 0), MOST_DRAWN_IN as usize);
        // Something else took long once.
        astray.answered(true);
        astray.answered(false);
        astray.answered(true);
        assert!(!astray.draws());
    }
}
