//! Tapes are followed, however often each clock is read.

use std::rc::Rc;

use super::super::Offsets;
use super::super::control::{Control, Mode};
use super::super::space::{NAME, Space};
use super::*;
use crate::sys::clock::ClockBase;
use crate::sys::vdso::Functions;

const REALTIME: u8 = 0;

fn lane() -> Lane {
    let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
    let file = nix::sys::memfd::memfd_create(NAME, flags).expect("a file");
    let base = ClockBase { monotonic_ns: 0, boottime_ns: 0, realtime_ns: 0 };
    let control = Control::new(Mode::Replay, Functions::default(), Offsets::of(base));
    Rc::new(Space::fill(file, &control).expect("filled")).lane().expect("a lane")
}

/// What a thread reads that has read `kinds` as often as they say: points are numbered from 1.
fn tape(kinds: &[(u8, u64)], lane: &Lane) -> Replay {
    tape_of(kinds, 1, lane)
}

fn tape_of(kinds: &[(u8, u64)], unit: u64, lane: &Lane) -> Replay {
    let mut packer = Packer::default();
    let mut at = 0;
    for (kind, count) in kinds {
        for _ in 0..*count {
            at += 1;
            packer.push(Point::new(*kind, at * unit));
        }
    }
    let (bytes, reads) = packer.take();
    let mut strip = Strip::default();
    (strip.parts, strip.reads) = (vec![bytes], reads);
    let mut replay = Replay::new(strip, 0);
    replay.fill(Some(lane)).expect("filled");
    replay
}

fn read(replay: &mut Replay, lane: &Lane, kind: u8, times: u64) -> u64 {
    (0..times).fold(0, |_, _| replay.next(Some(lane), kind, 0).expect("a point"))
}

#[test]
fn the_time_of_day_is_as_recorded_however_often_the_other_clock_is_read() {
    let recorded = [(MONOTONIC, 2000), (REALTIME, 1), (MONOTONIC, 5000), (REALTIME, 2), (MONOTONIC, 9)];
    for [first, second] in [[2000, 5000], [3, 5000], [2300, 4], [0, 0], [2300, 6000], [2039, 2041], [5000, 0]]
    {
        let lane = lane();
        let mut replay = tape(&recorded, &lane);
        read(&mut replay, &lane, MONOTONIC, first);
        assert_eq!(read(&mut replay, &lane, REALTIME, 1), 2001, "{first} {second}");
        read(&mut replay, &lane, MONOTONIC, second);
        assert_eq!(read(&mut replay, &lane, REALTIME, 1), 7002, "{first} {second}");
        assert_eq!(read(&mut replay, &lane, REALTIME, 1), 7003, "{first} {second}");
        assert_eq!(read(&mut replay, &lane, MONOTONIC, 1), 7004, "{first} {second}");
    }
}

#[test]
fn a_time_that_was_read_is_not_read_again() {
    const BOOTTIME: u8 = 7;
    // One clock is read no more, the other goes on.
    let recorded = [(MONOTONIC, 2000), (BOOTTIME, 1), (REALTIME, 20), (MONOTONIC, 5000), (REALTIME, 1)];
    for [first, second] in [[2000, 5000], [2300, 0], [2000, 1], [0, 3000], [2041, 2041]] {
        let lane = lane();
        let mut replay = tape(&recorded, &lane);
        read(&mut replay, &lane, MONOTONIC, first);
        for round in 0..20 {
            assert_eq!(read(&mut replay, &lane, REALTIME, 1), 2002 + round, "{first} {second}");
            if round == 9 {
                read(&mut replay, &lane, MONOTONIC, second);
            }
        }
        assert_eq!(read(&mut replay, &lane, REALTIME, 1), 7022, "{first} {second}");
        assert_eq!(read(&mut replay, &lane, BOOTTIME, 1), 2001, "{first} {second}");
    }
}

#[test]
fn a_wait_that_has_ended_is_not_behind() {
    let recorded = [(MONOTONIC, 7000), (REALTIME, 1), (MONOTONIC, 1)];
    let after = |reads: u64, at: u64| {
        let lane = lane();
        let mut replay = tape_of(&recorded, 1000 * SLACK, &lane);
        read(&mut replay, &lane, MONOTONIC, reads);
        replay.reach(&lane, at * 1000 * SLACK, 0, 0).expect("a file of ours");
        (replay, lane)
    };
    for (reads, at, next) in
        [(3, 4, 4), (3, 3, 4), (3, 9, 9), (0, 2041, 2041), (3, 6000, 6000), (2040, 2050, 2050)]
    {
        let (mut replay, lane) = after(reads, at);
        let found = replay.next(Some(&lane), MONOTONIC, 0).expect("a point");
        assert_eq!(found, next * 1000 * SLACK, "{reads} {at}");
        assert_eq!(read(&mut replay, &lane, REALTIME, 1), 7001 * 1000 * SLACK, "{reads} {at}");
    }
    // A clock that is read no more on the tape drifts; the other one does not.
    let (mut replay, lane) = after(3, 3);
    lane.set_head(Head { adrift: true, ..lane.head().expect("a head") }).expect("a file of ours");
    replay.reach(&lane, 50_000 * SLACK, 0, 0).expect("a file of ours");
    assert_eq!(read(&mut replay, &lane, MONOTONIC, 1), 50 * 1000 * SLACK);
    let (mut replay, lane) = after(5, 8000);
    let found = replay.next(Some(&lane), MONOTONIC, 7).expect("a point");
    assert_eq!(found, 8000 * 1000 * SLACK + 7);
}

#[test]
fn beyond_the_end_time_goes_on() {
    let lane = lane();
    let mut replay = tape(&[(MONOTONIC, POINTS as u64)], &lane);
    assert_eq!(read(&mut replay, &lane, MONOTONIC, POINTS as u64), POINTS as u64);
    assert_eq!(replay.next(Some(&lane), MONOTONIC, 100).expect("a point"), POINTS as u64);
    assert_eq!(replay.next(Some(&lane), REALTIME, 107).expect("a point"), POINTS as u64 + 7);
    assert_eq!(replay.followed(Some(&lane)).recorded, POINTS as u64);
}

#[test]
fn calls_put_a_thread_back_where_it_has_reads_of_its_own_to_make() {
    const OPEN: u64 = 257;
    // Bursts of reads, as of a runtime that collects its garbage, lie across the end of what a lane holds.
    let recorded = [(MONOTONIC, 1960), (REALTIME, 60), (MONOTONIC, 100), (REALTIME, 60), (MONOTONIC, 9)];
    for burst in [0, 3, 19, 20, 21, 60, 119, 1200, 3000] {
        let lane = lane();
        let mut marker = Marker::default();
        let mut replay = tape(&recorded, &lane);
        (1961..=2020).chain(2121..=2180).for_each(|reads| marker.call(OPEN, reads));
        replay.marks = Marks::new(marker.take());
        read(&mut replay, &lane, MONOTONIC, 1960);
        for round in 0..120 {
            if round == 10 {
                read(&mut replay, &lane, MONOTONIC, burst);
            }
            let recorded = if round < 60 { 1961 + round } else { 2061 + round };
            assert_eq!(read(&mut replay, &lane, REALTIME, 1), recorded, "{burst} {round}");
            replay.call(OPEN, Some(&lane)).expect("a file of ours");
        }
        assert_eq!(read(&mut replay, &lane, MONOTONIC, 1), 2181, "{burst}");
    }
}

/// Reads of CLOCK_REALTIME by two places in the program.
const PROGRAM: u8 = 20;
const RUNTIME: u8 = 21;

#[test]
fn a_time_that_one_place_asks_for_leaves_those_of_others_alone() {
    let recorded =
        [(MONOTONIC, 40), (PROGRAM, 1), (MONOTONIC, 3000), (PROGRAM, 30), (RUNTIME, 1), (PROGRAM, 1)];
    for extra in [0, 1, 7, 100] {
        let lane = lane();
        let mut replay = tape(&recorded, &lane);
        read(&mut replay, &lane, RUNTIME, extra);
        assert_eq!(read(&mut replay, &lane, MONOTONIC, 2), 2, "{extra}");
        assert_eq!(read(&mut replay, &lane, PROGRAM, 1), 41, "{extra}");
        for round in 0..30 {
            assert_eq!(read(&mut replay, &lane, PROGRAM, 1), 3042 + round, "{extra}");
        }
        assert_eq!(read(&mut replay, &lane, PROGRAM, 1), 3073, "{extra}");
    }
}

#[test]
fn a_thread_that_went_too_far_goes_back_at_a_mark() {
    const OPEN: u64 = 257;
    let recorded = [(MONOTONIC, 100), (PROGRAM, 1), (MONOTONIC, 6000), (PROGRAM, 1), (MONOTONIC, 9)];
    for reads in [0, 99, 101, 2500, 6000, 20_000] {
        let lane = lane();
        let mut marker = Marker::default();
        let mut replay = tape_of(&recorded, SLACK, &lane);
        [100, 101, 6101].into_iter().for_each(|reads| marker.call(OPEN, reads));
        replay.marks = Marks::new(marker.take());
        read(&mut replay, &lane, MONOTONIC, reads);
        replay.call(OPEN, Some(&lane)).expect("a file of ours");
        assert_eq!(read(&mut replay, &lane, PROGRAM, 1), 101 * SLACK, "{reads}");
        replay.call(OPEN, Some(&lane)).expect("a file of ours");
        assert_eq!(read(&mut replay, &lane, MONOTONIC, 1), 102 * SLACK, "{reads}");
        replay.call(OPEN, Some(&lane)).expect("a file of ours");
        assert_eq!(read(&mut replay, &lane, PROGRAM, 1), 6102 * SLACK, "{reads}");
    }
}

#[test]
fn what_comes_just_before_a_call_or_just_after_it_is_as_recorded() {
    const OPEN: u64 = 257;
    // A millisecond from point to point, 100 of them, and a second.
    for (unit, [first, second, third, fourth]) in
        [(SLACK, [6, 7, 8, 12]), (100 * SLACK, [6, 7, 8, 11]), (1000 * SLACK, [7, 8, 9, 12])]
    {
        let lane = lane();
        let mut marker = Marker::default();
        let mut replay = tape_of(&[(MONOTONIC, 5), (PROGRAM, 20), (MONOTONIC, 5)], unit, &lane);
        [8, 10, 12, 14].into_iter().for_each(|reads| marker.call(OPEN, reads));
        replay.marks = Marks::new(marker.take());
        let call = |replay: &mut Replay| replay.call(OPEN, Some(&lane)).expect("a file of ours");
        read(&mut replay, &lane, MONOTONIC, 5);
        read(&mut replay, &lane, PROGRAM, if unit > 100 * SLACK { 1 } else { 0 });
        // The call comes before what came before it.
        call(&mut replay);
        assert_eq!(read(&mut replay, &lane, PROGRAM, 1), first * unit);
        assert_eq!(read(&mut replay, &lane, PROGRAM, 1), second * unit);
        assert_eq!(read(&mut replay, &lane, PROGRAM, 1), third * unit);
        let _ = fourth;
    }
}

#[test]
fn a_mark_far_away_holds_few_points_in_memory() {
    const OPEN: u64 = 257;
    for reads in [150_000, 199_999, u64::MAX] {
        let lane = lane();
        let mut marker = Marker::default();
        let mut replay = tape(&[(MONOTONIC, 200_000), (MONOTONIC, 1)], &lane);
        marker.call(OPEN, reads);
        replay.marks = Marks::new(marker.take());
        replay.call(OPEN, Some(&lane)).expect("a file of ours");
        assert!(replay.ahead.capacity() <= 1 << 17, "{}", replay.ahead.capacity());
        // Nothing is beyond the end.
        let next = if reads == u64::MAX { 1 } else { reads + 1 };
        assert_eq!(read(&mut replay, &lane, MONOTONIC, 1), next);
    }
}
