//! Two ordered rows of steps side by side: what is in both, and what is left over where.

use std::collections::HashMap;

/// How many steps of one side are looked at to find where the rows meet again.
const WINDOW: usize = 64;
/// How many steps of the other side may stand before that place.
const FARTHEST: usize = 4096;

/// A step that has no counterpart, and in which gap between those that have one it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loose {
    /// Its place in the row.
    pub(super) at: usize,
    pub(super) gap: u32,
}

/// Goes along both rows of digests, and gives the steps of each that have no counterpart. Where the rows part,
/// the nearest place at which they meet again is taken.
pub(super) fn align(recorded: &[u128], live: &[u128]) -> (Vec<Loose>, Vec<Loose>) {
    let (ours, theirs) = (places(recorded), places(live));
    let (mut from, mut other) = (0, 0);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut gap = 0;
    let mut matched = true;
    while from < recorded.len() || other < live.len() {
        if from < recorded.len() && other < live.len() && recorded[from] == live[other] {
            (from, other, matched) = (from + 1, other + 1, true);
            continue;
        }
        gap += u32::from(matched);
        matched = false;
        let skipped = match (recorded.len() - from, live.len() - other) {
            (rest, 0) => (rest, 0),
            (0, rest) => (0, rest),
            _ => {
                let here = meeting(&recorded[from..], &theirs, other);
                let there = meeting(&live[other..], &ours, from).map(|(own, far)| (far, own));
                let nearest = here.into_iter().chain(there).min_by_key(|(own, far)| own + far);
                nearest.unwrap_or((1, 1))
            }
        };
        left.extend((from..from + skipped.0).map(|at| Loose { at, gap }));
        right.extend((other..other + skipped.1).map(|at| Loose { at, gap }));
        (from, other) = (from + skipped.0, other + skipped.1);
    }
    (left, right)
}

/// Where each digest stands in a row.
fn places(row: &[u128]) -> HashMap<u128, Vec<usize>> {
    let mut places: HashMap<u128, Vec<usize>> = HashMap::new();
    for (at, digest) in row.iter().enumerate() {
        places.entry(*digest).or_default().push(at);
    }
    places
}

/// The nearest meeting: how many of `row` and how many of the other from `start` on come before it.
fn meeting(row: &[u128], other: &HashMap<u128, Vec<usize>>, start: usize) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    for (own, digest) in row.iter().take(WINDOW).enumerate() {
        if best.is_some_and(|(own_best, far)| own >= own_best + far) {
            break;
        }
        let Some(places) = other.get(digest) else { continue };
        let next = places.partition_point(|place| *place < start);
        let Some(far) = places.get(next).map(|place| place - start).filter(|far| *far <= FARTHEST) else {
            continue;
        };
        if best.is_none_or(|(own_best, far_best)| own + far < own_best + far_best) {
            best = Some((own, far));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_over(recorded: &[u128], live: &[u128]) -> (Vec<u128>, Vec<u128>) {
        let (left, right) = align(recorded, live);
        (
            left.iter().map(|loose| recorded[loose.at]).collect(),
            right.iter().map(|loose| live[loose.at]).collect(),
        )
    }

    #[test]
    fn one_step_more_is_one_step_left_over() {
        assert_eq!(left_over(&[1, 2, 3, 4], &[1, 2, 9, 3, 4]), (vec![], vec![9]));
        assert_eq!(left_over(&[1, 2, 3, 4], &[1, 3, 4]), (vec![2], vec![]));
        assert_eq!(left_over(&[1, 2, 3], &[1, 9, 3]), (vec![2], vec![9]));
        assert_eq!(left_over(&[1, 2], &[1, 2, 3]), (vec![], vec![3]));
        assert_eq!(left_over(&[], &[7]), (vec![], vec![7]));
        assert_eq!(left_over(&[1, 2, 3], &[2, 1, 3]), (vec![2], vec![2]));
    }

    #[test]
    fn a_gap_is_told_apart_from_the_next() {
        let (left, right) = align(&[1, 2, 3, 4, 5], &[1, 8, 3, 9, 5]);
        assert_eq!(left.iter().map(|loose| loose.gap).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(right.iter().map(|loose| loose.gap).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn rows_without_anything_in_common_take_no_time() {
        let one: Vec<u128> = (0..20_000).collect();
        let other: Vec<u128> = (20_000..40_000).collect();
        let (left, right) = align(&one, &other);
        assert_eq!((left.len(), right.len()), (20_000, 20_000));
    }

    proptest::proptest! {
        #[test]
        fn what_is_left_over_is_all_that_differs(
            one in proptest::collection::vec(0_u128..6, 0..40),
            other in proptest::collection::vec(0_u128..6, 0..40),
        ) {
            let (left, right) = align(&one, &other);
            let kept = |row: &[u128], loose: &[Loose]| -> Vec<u128> {
                row.iter().enumerate().filter(|(at, _)| loose.iter().all(|one| one.at != *at)).map(|(_, d)| *d).collect()
            };
            proptest::prop_assert_eq!(kept(&one, &left), kept(&other, &right));
        }
    }
}
