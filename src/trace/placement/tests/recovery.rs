//! Checks what becomes of the traces of runs that were killed.

use super::*;

/// Leaves what a killed run leaves: its files without the processes that held them.
fn killed(place: &Place) -> PathBuf {
    let (_, writer, at) = place.start(true);
    let copy = place.directory.path().join("copy");
    while fs::metadata(&at).expect("stat").len() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pending = at.parent().expect("a parent").to_owned();
    let status =
        std::process::Command::new("cp").arg("-a").args([&pending, &copy]).status().expect("cp runs");
    assert!(status.success());
    writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    fs::remove_file(place.trace()).expect("removed");
    fs::remove_dir_all(place.work("trace.jsonl.blobs")).expect("removed");
    fs::rename(&copy, &pending).expect("renamed");
    at
}

#[test]
fn the_trace_of_a_killed_run_is_found_and_put_in_place() {
    let place = Place::new();
    let at = killed(&place);
    assert_eq!(locate_in(&place.state, &place.trace()), at);
    let found = verify(&at, &Expectation::default()).expect("a trace");
    assert_eq!((found.entries, found.outcome), (1, Outcome::Unsealed));
    let recovered = recover(&place.state.existing());
    assert_eq!(recovered.len(), 1);
    assert_eq!(recovered[0].to.as_ref().expect("placed"), &place.trace());
    assert_eq!(verify(&place.trace(), &Expectation::default()).expect("a trace").entries, 1);
    assert_eq!(place.waiting(), 0);
    assert!(recover(&place.state.existing()).is_empty());
}

#[test]
fn a_trace_that_is_read_stays_where_it_waits() {
    let place = Place::new();
    let at = killed(&place);
    let (found, stays) = locate_to_stay(&place.state, &place.trace());
    assert_eq!(found, at);
    assert!(recover(&place.state.existing()).is_empty() && at.exists());
    // Others may read it as well.
    let others = locate_to_stay(&place.state, &place.trace()).1;
    assert!(others.is_some());
    drop((stays, others));
    assert_eq!(recover(&place.state.existing()).len(), 1);
    assert_eq!(locate_to_stay(&place.state, &place.trace()).0, place.trace());
}

#[test]
fn a_killed_runs_trace_does_not_follow_a_replaced_directory() {
    let place = Place::new();
    let at = killed(&place);
    let work = place.directory.path().join("work");
    fs::rename(&work, place.directory.path().join("moved")).expect("renamed");
    fs::create_dir(place.directory.path().join("bait")).expect("a directory");
    symlink(place.directory.path().join("bait"), &work).expect("linked");
    let recovered = recover(&place.state.existing());
    assert!(matches!(recovered[0].to, Err(TraceError::DirectoryReplaced { .. })));
    assert!(at.exists());
    assert_eq!(fs::read_dir(place.directory.path().join("bait")).expect("it lists").count(), 0);
}

#[test]
fn a_running_trace_is_not_recovered() {
    let place = Place::new();
    let (_, writer, at) = place.start(true);
    assert!(recover(&place.state.existing()).is_empty());
    assert!(at.exists());
    writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
}

/// It may be an agent's.
#[test]
fn a_state_directory_that_came_since_is_not_believed() {
    let place = Place::new();
    let at = killed(&place);
    let state = place.directory.path().join("state");
    fs::rename(&state, place.directory.path().join("planted")).expect("renamed");
    let (_, writer, _) = place.start(false);
    fs::rename(&state, place.directory.path().join("own")).expect("renamed");
    fs::rename(place.directory.path().join("planted"), &state).expect("renamed");
    let other = place.directory.path().join("elsewhere");
    fs::rename(place.trace(), &other).expect("renamed");
    fs::rename(place.work("trace.jsonl.blobs"), place.work("blobs")).expect("renamed");
    writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    assert!(at.exists() && !place.trace().exists());
}
