//! Checks how a trace that was written elsewhere comes to its place.

use super::*;

#[test]
fn a_granted_trace_is_written_elsewhere_and_put_in_place() {
    let place = Place::new();
    let (recorder, writer, at) = place.start(true);
    assert!(at.starts_with(place.directory.path().canonicalize().expect("a path").join("state")));
    assert!(!place.trace().exists());
    assert_eq!(locate_in(&place.state, &place.trace()), at);
    recorder.record(Event::new(Kind::Effect, "clock.now")).expect("recorded");
    let placed = writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    assert_eq!((placed.path.as_path(), placed.moved_aside), (place.trace().as_path(), None));
    assert!(is_sealed(&place.trace()));
    assert_eq!(place.waiting(), 0);
}

#[test]
fn traces_of_other_names_are_protected_later() {
    let place = Place::new();
    let put = |name: &str| {
        let placement =
            Placement::plan_with(&place.state, &place.work(name), &inside(true), false).expect("a placement");
        let (recorder, writer) = create(placement).expect("a writer");
        recorder.record(Event::new(Kind::Effect, "clock.now")).expect("recorded");
        writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    };
    fs::create_dir(place.work("runs")).expect("a directory");
    for number in 0..40 {
        put(&format!("runs/{number}\n.jsonl"));
    }
    fs::remove_file(place.work("runs/39\n.jsonl")).expect("removed");
    let protected = place.plan(true).expect("a placement").protected();
    let is_protected =
        |name: &str| protected.iter().any(|one| one.path == place.work(name) && one.identity.is_some());
    assert!((10..39).all(|number| is_protected(&format!("runs/{number}\n.jsonl"))));
    assert!(
        !is_protected("runs/39\n.jsonl") && !is_protected("runs/0\n.jsonl"),
        "the latest ones that are there"
    );
}

#[test]
fn a_trace_that_is_written_in_place_is_protected_for_as_long() {
    let place = Place::new();
    let (_, writer, at) = place.start(false);
    assert_eq!(at, place.trace());
    let put = |name: &str, own_trace: bool| {
        let placement = Placement::plan_with(&place.state, &place.work(name), &inside(own_trace), false);
        let placement = placement.expect("a placement");
        let (protected, (_, writer)) = (placement.protected(), create(placement).expect("a writer"));
        writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
        protected.iter().any(|one| one.path == at && one.identity.is_some())
    };
    fs::create_dir(place.work("runs")).expect("a directory");
    // The list is cut on the way.
    assert!((0..80).all(|number| put(&format!("runs/{number}.jsonl"), number % 2 == 0)));
    writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    assert!(!put("runs/last.jsonl", true));
}

#[test]
fn what_the_agent_planted_is_moved_aside() {
    let place = Place::new();
    let outside = place.directory.path().join("outside");
    fs::write(&outside, "outside").expect("written");
    let plants: [&dyn Fn(&Path); 4] = [
        &|path| fs::write(path, "{\"args\":{},forged").expect("written"),
        &|path| symlink(&outside, path).expect("linked"),
        &|path| fs::create_dir(path).expect("a directory"),
        &|path| {
            fs::create_dir(path.with_file_name("trace.jsonl.blobs")).expect("a directory");
            fs::write(path.with_file_name("trace.jsonl.blobs").join("x"), "x").expect("written");
        },
    ];
    for plant in plants {
        let (_, writer, _) = place.start(true);
        plant(&place.trace());
        let placed = writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
        assert_eq!(placed.path, place.trace());
        assert!(is_sealed(&place.trace()));
    }
    assert_eq!(fs::read_to_string(&outside).expect("it reads"), "outside");
}

#[test]
fn the_directory_is_the_one_that_was_held() {
    let place = Place::new();
    let (_, writer, _) = place.start(true);
    fs::rename(place.work("."), place.directory.path().join("moved")).expect_err("a dot cannot be renamed");
    fs::rename(place.directory.path().join("work"), place.directory.path().join("moved")).expect("renamed");
    symlink(place.directory.path().join("state"), place.directory.path().join("work")).expect("linked");
    writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    assert!(is_sealed(&place.directory.path().join("moved/trace.jsonl")));
}

#[test]
fn across_file_systems_the_trace_is_copied() {
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let place = Place::new();
    let state = StateDirectories::only(&other.path().join("state"));
    let same =
        fs::metadata(other.path()).expect("stat").dev() == fs::metadata(place.work(".")).expect("stat").dev();
    let placement = Placement::plan_with(&state, &place.trace(), &inside(true), false).expect("a placement");
    let (recorder, writer) = create(placement).expect("a writer");
    for size in [10, 300_000] {
        let mut blob = recorder.blob().expect("a blob");
        std::io::Write::write_all(&mut blob, &vec![b'x'; size]).expect("written");
        let blob = blob.finish().expect("stored");
        recorder.record(Event::new(Kind::Effect, "net.stream").arg("body", blob)).expect("recorded");
    }
    fs::write(place.trace(), "planted").expect("written");
    let placed = writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    assert_eq!(placed.path, place.trace());
    assert_eq!(placed.moved_aside, Some(place.work("trace.jsonl.1")));
    assert!(is_sealed(&place.trace()));
    assert_eq!(fs::metadata(place.trace()).expect("stat").mode() & 0o7777, 0o600);
    let names = fs::read_dir(place.work(".")).expect("it lists").count();
    assert_eq!(names, 3, "trace, blobs and what was planted (same file system: {same})");
    assert_eq!(fs::read_dir(other.path().join("state/pending")).expect("it lists").count(), 0);
}
