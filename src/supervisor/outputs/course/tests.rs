//! Turns that come, that do not, and that were never recorded.

use super::*;

fn course() -> Course {
    Course::of(b"0 2\n0.0 1\n0.1 1\n0.0 1\n").expect("is one")
}

/// Whether it is kept.
fn call(course: &mut Course, process: &str, pid: i32) -> bool {
    let notification = Notification { id: 1, pid, number: 1, arguments: [1, 0, 1, 0, 0, 0] };
    let waits = course.waits(process);
    if waits {
        course.hold(Held { process: process.to_owned(), pipe: 0, notification });
    }
    waits
}

fn next(course: &mut Course) -> Option<i32> {
    course.take().map(|held| {
        course.wrote(&held.process);
        held.notification.pid
    })
}

#[test]
fn each_waits_for_its_turn() {
    let mut course = course();
    assert!(!call(&mut course, "0", 1) && call(&mut course, "0.1", 3));
    course.wrote("0");
    assert!(call(&mut course, "0.0", 2) && next(&mut course).is_none());
    course.wrote("0");
    assert_eq!((next(&mut course), next(&mut course), next(&mut course)), (Some(2), Some(3), None));
    assert!(!call(&mut course, "0.0", 2));
    course.wrote("0.0");
    // More than was recorded.
    assert!(!call(&mut course, "0.0", 2) && !call(&mut course, "0.7", 9));
}

#[test]
fn who_has_ended_is_not_waited_for() {
    let mut course = course();
    assert!(call(&mut course, "0.0", 2) && course.tasks().eq([2]));
    course.ended("0");
    assert_eq!(next(&mut course), Some(2));
    assert!(course.delay().is_none() && call(&mut course, "0.0", 2));
    course.ended("0.1");
    assert_eq!(next(&mut course), Some(2));
}

#[test]
fn where_nothing_goes_on_the_first_does() {
    let mut course = course();
    assert!(!course.go_on());
    assert!(call(&mut course, "0.1", 3) && call(&mut course, "0.0", 2));
    assert!(course.go_on());
    assert_eq!((next(&mut course), next(&mut course)), (Some(2), Some(3)));
    // It comes all the same.
    assert!(!call(&mut course, "0", 1));
}

fn end(course: &mut Course, process: &str, pid: i32) {
    let notification = Notification { id: 1, pid, number: 231, arguments: [0; 6] };
    let since = course.pace.now();
    course.hold_end(Ending { process: process.to_owned(), parent: 7, notification, since });
}

fn next_end(course: &mut Course, is_at_rest: bool) -> Option<i32> {
    let ending = course.take_end(|_| Activity { is_at_rest, ran: Duration::ZERO })?;
    course.ends(ending.parent);
    Some(ending.notification.pid)
}

#[test]
fn each_ends_after_those_before_and_when_its_parent_may_know() {
    let mut course = Course::of(b"0.1 end\n0.2.5 end\n0 1\n0.0 end\n").expect("is one");
    end(&mut course, "0.0", 2);
    assert!(next_end(&mut course, true).is_none() && course.delay().is_some());
    end(&mut course, "0.1", 3);
    assert_eq!(next_end(&mut course, false), Some(3));
    course.ended("0.1");
    course.is_told(7, Duration::ZERO);
    // Its parent has still to write; what others do is nothing to it.
    assert!(next_end(&mut course, true).is_none());
    course.wrote("0");
    assert!(next_end(&mut course, false).is_none() && course.tasks().eq([2]));
    assert_eq!((next_end(&mut course, true), course.delay()), (Some(2), None));
    // More than was recorded, but one after the other.
    end(&mut course, "0.9", 4);
    assert!(next_end(&mut course, true).is_none());
    course.is_told(7, Duration::ZERO);
    assert_eq!(next_end(&mut course, true), Some(4));
}

#[test]
fn where_nothing_goes_on_the_first_ends() {
    let mut course = Course::of(b"0.1 end\n0.2 end\n0.3 1\n").expect("is one");
    assert!(call(&mut course, "0.3", 3));
    end(&mut course, "0.2", 2);
    assert!(next_end(&mut course, true).is_none() && course.go_on());
    assert_eq!((next_end(&mut course, true), next(&mut course)), (Some(2), None));
    course.ended("0.2");
    assert_eq!(next(&mut course), Some(3));
}

fn tell(course: &mut Course, process: &str, (index, pid): (u64, i32)) {
    let notification = Notification { id: 1, pid, number: 1, arguments: [1, 0, 1, 0, 0, 0] };
    let (process, stream, since) = (process.to_owned(), "pipe:[1]".to_owned(), course.pace.now());
    let (ready, is_last) = (None, false);
    course.tellings.push(Telling {
        process,
        teller: pid,
        index,
        stream,
        notification,
        since,
        ready,
        is_last,
    });
}

fn next_told(course: &mut Course) -> Option<i32> {
    let next = course.tellings_in_order().into_iter().find(|at| course.may_tell(*at))?;
    let telling = course.tellings.remove(next);
    course.told(&telling.process, telling.index);
    Some(telling.notification.pid)
}

#[test]
fn a_reader_is_told_in_order_and_others_do_not_matter() {
    let mut course =
        Course::of(b"0 1\n0.2 2 1 0\n0.1 1 0 0\n0.9 1 0 0.7\n0.2 1 3 0\n0.1 end\n0.2 1\n").expect("is one");
    // What was not noted has no turn.
    assert_eq!(course.turn_to_tell("0.2", 0), None);
    tell(&mut course, "0.1", (0, 1));
    assert!(next_told(&mut course).is_none() && course.delay().is_some() && course.tasks().eq([1]));
    assert!(course.awaited().eq(["0", "0.2"]));
    tell(&mut course, "0.2", (1, 2));
    assert_eq!((next_told(&mut course), next_told(&mut course)), (Some(2), None));
    // One that is to end waits for what was told before.
    end(&mut course, "0.1", 5);
    assert!(next_end(&mut course, true).is_none());
    tell(&mut course, "0.2", (2, 2));
    assert_eq!((next_told(&mut course), next_told(&mut course)), (Some(2), Some(1)));
    tell(&mut course, "0.2", (3, 2));
    assert_eq!(next_told(&mut course), Some(2));
    course.wrote("0");
    // That another reader is told nothing yet is nothing to it; what is printed comes after it.
    assert_eq!((next_end(&mut course, true), call(&mut course, "0.2", 2)), (Some(5), true));
    course.ended("0.1");
    assert_eq!(next(&mut course), Some(2));
}

#[test]
fn where_nothing_goes_on_the_first_is_told() {
    let mut course = Course::of(b"0.1 1 0 0\n0.2 1 0 0\n0.3 1 0 0\n").expect("is one");
    tell(&mut course, "0.3", (0, 3));
    tell(&mut course, "0.2", (0, 2));
    assert!(next_told(&mut course).is_none() && course.go_on());
    assert_eq!((next_told(&mut course), next_told(&mut course)), (Some(2), Some(3)));
    tell(&mut course, "0.1", (0, 1));
    assert_eq!((next_told(&mut course), course.delay()), (Some(1), None));
}

#[test]
fn what_never_comes_is_waited_for_a_few_times() {
    let text: String = (0..20).map(|process| format!("{process} 1\n")).collect();
    let mut course = Course::of(text.as_bytes()).expect("is one");
    assert!((1..20).rev().all(|process| call(&mut course, &process.to_string(), process)));
    let begun = course.pace.now();
    let mut taken = 0;
    while course.pace.since(begun) < PATIENCE * 4 && taken < 19 {
        taken += i32::from(next(&mut course).is_some());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken, 19);
}

#[test]
fn what_is_no_order_is_none() {
    for text in [&b"0"[..], b"0 0", b"0 x", b"\xff 1"] {
        assert!(Course::of(text).is_none(), "{text:?}");
    }
    let longest = "0 1\n".repeat(MOST);
    assert!(Course::of(longest.as_bytes()).is_some());
    assert!(Course::of((longest + "0 1").as_bytes()).is_none());
}
