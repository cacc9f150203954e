//! The points of a tape that a lane does not hold: those that come, and the last that have been.

use super::Replay;
use crate::supervisor::clock::points::Point;
use crate::supervisor::clock::space::Head;
use crate::sys::vdso::BY_CALLER;

/// How far a read of another clock is looked for.
pub(super) const NEAR: usize = 1 << 16;

/// Points that are kept for threads that went too far.
const BEHIND: usize = 1 << 14;
/// As in `image.c`.
pub(super) const OTHERS: usize = 8;

impl Replay {
    /// How many points behind the lane's come before the next of this kind; `None` where it is not near.
    pub(super) fn far_own(&mut self, head: Head, kind: u8) -> Option<usize> {
        let window = self.window.iter().enumerate().skip(head.next.of(kind).into());
        let mut others = window.filter(|entry| is_of_others(&head, kind, *entry)).count();
        let found = self.far(|point| {
            others += usize::from(is_of_others(&Head::default(), kind, (0, point)));
            point.kind == kind || others > OTHERS
        })?;
        self.ahead.get(found).is_some_and(|point| point.kind == kind).then_some(found)
    }

    /// How many points behind the lane's come before the first such one; `None` where it is not near.
    pub(super) fn far(&mut self, mut is_wanted: impl FnMut(&Point) -> bool) -> Option<usize> {
        if let Some(place) = self.ahead.iter().position(&mut is_wanted) {
            return Some(place);
        }
        while self.ahead.len() < NEAR {
            let point = self.points.next()?;
            self.ahead.push_back(point);
            if is_wanted(&point) {
                return Some(self.ahead.len() - 1);
            }
        }
        None
    }

    /// The next point that the lane does not hold.
    pub(super) fn pull(&mut self) -> Option<Point> {
        let point = self.ahead.pop_front().or_else(|| self.points.next())?;
        self.pass(point);
        Some(point)
    }

    pub(super) fn pass(&mut self, point: Point) {
        if self.behind.len() == BEHIND {
            self.behind.pop_front();
        }
        self.behind.push_back(point);
    }
}

/// Whether a point at a place of the lane is a time of day that another caller has yet to ask for than that of
/// `kind`.
pub(super) fn is_of_others(head: &Head, kind: u8, (at, point): (usize, &Point)) -> bool {
    let [first, _] = BY_CALLER;
    kind >= first && point.kind >= first && point.kind != kind && at >= usize::from(head.next.of(point.kind))
}
