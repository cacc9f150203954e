//! Names of tasks, as they are made and end.

use super::Kin;

fn named(kin: &Kin, task: i32) -> String {
    kin.strand(task).map_or_else(|| "?".to_owned(), |strand| strand.to_string())
}

fn begun() -> Kin {
    let mut kin = Kin::default();
    assert!(kin.begin(10));
    kin.executed(10, 10);
    kin
}

#[test]
fn names_follow_the_order_in_which_tasks_are_made() {
    let mut kin = begun();
    kin.cloned(10, 11, true);
    kin.forked(11, 12, true);
    kin.forked(10, 13, true);
    kin.cloned(13, 14, true);
    kin.executed(13, 13);
    assert_eq!([10, 11, 12, 13].map(|task| named(&kin, task)), ["0", "0#1", "0.0", "0.1:1"]);
    kin.executed(13, 13);
    kin.cloned(13, 15, true);
    assert_eq!([13, 15].map(|task| named(&kin, task)), ["0.1:2", "0.1:2#1"]);
    assert_eq!(kin.strand(15).expect("it lives").label(), "0.1#1");
    assert!(!kin.begin(99));
    assert_eq!(kin.next_child(15, false).as_deref(), Some("0.1.0"));
    assert_eq!(kin.next_child(15, true).as_deref(), Some("0.1:2#1.1"));
    kin.cloned(15, 16, true);
    kin.cloned(13, 17, true);
    assert_eq!([16, 17].map(|task| named(&kin, task)), ["0.1:2#1.1", "0.1:2#2"]);
}

#[test]
fn a_thread_that_executes_takes_its_process_over() {
    let mut kin = begun();
    kin.cloned(10, 11, true);
    kin.executed(11, 10);
    assert_eq!([10, 11].map(|task| named(&kin, task)), ["0:1", "?"]);
}

#[test]
fn a_parent_of_several_has_them_at_once() {
    let mut kin = begun();
    kin.forked(10, 11, true);
    kin.ended(11);
    [(10, 12), (12, 13)].into_iter().for_each(|(parent, child)| kin.forked(parent, child, true));
    assert_eq!(kin.parent_of_several(12), None);
    kin.forked(10, 14, true);
    assert_eq!([12, 13, 14].map(|child| kin.parent_of_several(child)), [Some(10), None, Some(10)]);
}

#[test]
fn draws_are_counted_by_thread_or_by_process() {
    let mut kin = begun();
    kin.cloned(10, 11, true);
    let drawn = |kin: &mut Kin, task| kin.draw(task).map(|(strand, number)| format!("{strand} {number}"));
    let order = [10, 11, 10, 11];
    let each = order.map(|task| drawn(&mut kin, task).expect("it lives"));
    assert_eq!(each, ["0 0", "0#1 0", "0 1", "0#1 1"]);
    kin.executed(10, 10);
    kin.share_draws(10, true);
    kin.cloned(10, 11, true);
    let shared = order.map(|task| drawn(&mut kin, task).expect("it lives"));
    assert_eq!(shared, ["0:1 0", "0:1 1", "0:1 2", "0:1 3"]);
    assert_eq!(drawn(&mut kin, 99), None);
}

#[test]
fn who_is_gone_counts_and_leaves_nothing() {
    let mut kin = begun();
    kin.forked(10, 11, false);
    kin.forked(10, 12, true);
    assert_eq!([11, 12].map(|task| named(&kin, task)), ["?", "0.1"]);
    assert_eq!((kin.left_by(12), kin.left_by(10)), (vec![], vec!["0.1".to_owned()]));
    kin.ended(12);
    assert!(kin.left_by(10).is_empty());
    kin.forked(12, 13, true);
    assert_eq!([12, 13].map(|task| named(&kin, task)), ["?", "0.~0"]);
}

#[test]
fn the_longest_rows_of_ancestors_are_told_apart_in_every_run() {
    let (mut one, mut other) = (begun(), begun());
    for child in 11..400 {
        one.forked(child - 1, child, true);
        other.forked(child - 1, child, true);
    }
    assert!((11..400).all(|task| named(&one, task) == named(&other, task)));
    assert!((11..400).all(|task| named(&one, task).len() <= 256));
}

#[test]
fn a_child_can_have_another_number_than_the_next() {
    let mut kin = begun();
    assert!(kin.free_children(10).is_none());
    kin.cloned(10, 11, true);
    kin.choose(11, Some(2));
    assert_eq!(
        [10, 11].map(|task| kin.next_child(task, false)),
        ["0.0", "0.2"].map(|name| Some(name.to_owned()))
    );
    kin.forked(11, 12, true);
    assert!(!kin.is_alone());
    let free = |kin: &Kin| [0, 1, 2, 3].map(kin.free_children(10).expect("it has a thread"));
    assert_eq!(free(&kin), [true, true, false, true]);
    kin.choose(10, Some(1));
    kin.choose(10, None);
    for (maker, child) in [(10, 13), (11, 14), (10, 15)] {
        kin.forked(maker, child, true);
    }
    assert_eq!([12, 13, 14, 15].map(|task| named(&kin, task)), ["0.2", "0.0", "0.1", "0.3"]);
    assert_eq!(free(&kin), [false; 4]);
}
