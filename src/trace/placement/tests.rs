//! Checks where traces are put, and what they never replace.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::super::event::{Event, Kind};
use super::super::verify::{Expectation, Outcome, verify};
use super::super::writer::create;
use super::super::{Recorder, WriterHandle};
use super::pending::{locate_in, recover};
use super::*;

struct Place {
    directory: tempfile::TempDir,
    state: StateDirectories,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("work")).expect("a directory");
        let state = StateDirectories::only(&directory.path().join("state"));
        Self { directory, state }
    }

    fn trace(&self) -> PathBuf {
        self.work("trace.jsonl")
    }

    fn work(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("a path").join("work").join(name)
    }

    fn plan(&self, inside_granted: bool) -> Result<Placement, TraceError> {
        Placement::plan_with(&self.state, &self.trace(), inside_granted, false)
    }

    fn start(&self, inside_granted: bool) -> (Recorder, WriterHandle, PathBuf) {
        let placement = self.plan(inside_granted).expect("a placement");
        let at = placement.written_at();
        let (recorder, writer) = create(placement).expect("a writer");
        let mut blob = recorder.blob().expect("a blob");
        std::io::Write::write_all(&mut blob, b"body").expect("written");
        let blob = blob.finish().expect("stored");
        recorder.record(Event::new(Kind::Meta, "run.start").arg("body", blob)).expect("recorded");
        (recorder, writer, at)
    }

    fn run(&self, inside_granted: bool) -> Placed {
        let (_, writer, _) = self.start(inside_granted);
        writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed")
    }

    fn waiting(&self) -> usize {
        fs::read_dir(self.directory.path().join("state/pending")).map_or(0, Iterator::count)
    }
}

fn is_sealed(path: &Path) -> bool {
    verify(path, &Expectation::default()).expect("a trace").outcome == Outcome::Sealed
}

#[test]
fn former_traces_are_renamed_with_their_blobs() {
    let place = Place::new();
    for _ in 0..3 {
        assert_eq!(place.run(false).path, place.trace());
    }
    for name in ["trace.jsonl", "trace.jsonl.1", "trace.jsonl.2"] {
        assert!(is_sealed(&place.work(name)), "{name}");
        let mode = |path: &Path| fs::metadata(path).expect("stat").mode() & 0o7777;
        assert_eq!(mode(&place.work(name)), 0o600);
        assert_eq!(mode(&place.work(&format!("{name}.blobs"))), 0o700);
    }
}

#[test]
fn what_is_no_trace_is_left_alone() {
    let place = Place::new();
    fs::write(place.trace(), "precious").expect("written");
    let error = place.plan(false).expect_err("refused");
    assert!(matches!(error, TraceError::NotReplaceable { .. }), "{error}");
    assert!(matches!(place.plan(true), Err(TraceError::NotReplaceable { .. })));
    assert_eq!(fs::read_to_string(place.trace()).expect("it reads"), "precious");

    let forced = Placement::plan_with(&place.state, &place.trace(), false, true).expect("a placement");
    assert_eq!(fs::read(forced.written_at()).expect("it reads"), b"");
}

#[test]
fn links_directories_and_pipes_are_refused() {
    let place = Place::new();
    let target = place.work("target");
    fs::write(&target, "{\"args\":{}").expect("written");
    symlink(&target, place.trace()).expect("linked");
    assert!(matches!(place.plan(false), Err(TraceError::Occupied { .. })));
    let forced = Placement::plan_with(&place.state, &place.trace(), false, true).expect("a placement");
    assert_eq!(fs::read_to_string(&target).expect("it reads"), "{\"args\":{}");
    drop(forced);
    fs::create_dir(place.trace()).expect("a directory");
    assert!(matches!(place.plan(false), Err(TraceError::Occupied { .. })));
    fs::remove_dir(place.trace()).expect("removed");
    nix::unistd::mkfifo(&place.trace(), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    assert!(matches!(place.plan(false), Err(TraceError::Occupied { .. })));
    for path in ["/", "..", "x/"] {
        let result = Placement::plan_with(&place.state, Path::new(path), false, false);
        assert!(matches!(result, Err(TraceError::NoFileName { .. })), "{path}");
    }
    let missing = Placement::plan_with(&place.state, &place.work("missing/trace.jsonl"), false, false);
    assert!(matches!(missing, Err(TraceError::OpenDirectory { .. })));
}

#[test]
fn an_empty_file_is_replaced() {
    let place = Place::new();
    fs::write(place.trace(), "").expect("written");
    assert_eq!(place.run(false).path, place.trace());
    assert!(!place.work("trace.jsonl.1").exists());
}

#[test]
fn two_runs_never_share_a_trace() {
    for inside_granted in [false, true] {
        let place = Place::new();
        let (_recorder, writer, _) = place.start(inside_granted);
        for inside_granted in [false, true] {
            assert!(matches!(place.plan(inside_granted), Err(TraceError::Busy { .. })));
        }
        writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
        assert!(place.plan(inside_granted).is_ok());
    }
}

#[test]
fn a_run_that_never_starts_leaves_nothing() {
    for inside_granted in [false, true] {
        let place = Place::new();
        drop(place.plan(inside_granted).expect("a placement"));
        assert_eq!(fs::read_dir(place.work(".")).expect("it lists").count(), 0);
        assert_eq!(place.waiting(), 0);
    }
}

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

/// Leaves what a killed run leaves: its files without the processes that held them.
fn killed(place: &Place) -> PathBuf {
    let (_, writer, at) = place.start(true);
    let copy = place.directory.path().join("copy");
    while fs::metadata(&at).expect("stat").len() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pending = at.parent().expect("a parent").to_owned();
    let status = std::process::Command::new("cp").arg("-a").args([&pending, &copy]).status().expect("cp runs");
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
    let recovered = recover(&place.state);
    assert_eq!(recovered.len(), 1);
    assert_eq!(recovered[0].to.as_ref().expect("placed"), &place.trace());
    assert_eq!(verify(&place.trace(), &Expectation::default()).expect("a trace").entries, 1);
    assert_eq!(place.waiting(), 0);
    assert!(recover(&place.state).is_empty());
}

#[test]
fn a_killed_runs_trace_does_not_follow_a_replaced_directory() {
    let place = Place::new();
    let at = killed(&place);
    let work = place.directory.path().join("work");
    fs::rename(&work, place.directory.path().join("moved")).expect("renamed");
    fs::create_dir(place.directory.path().join("bait")).expect("a directory");
    symlink(place.directory.path().join("bait"), &work).expect("linked");
    let recovered = recover(&place.state);
    assert!(matches!(recovered[0].to, Err(TraceError::DirectoryReplaced { .. })));
    assert!(at.exists());
    assert_eq!(fs::read_dir(place.directory.path().join("bait")).expect("it lists").count(), 0);
}

#[test]
fn a_running_trace_is_not_recovered() {
    let place = Place::new();
    let (_, writer, at) = place.start(true);
    assert!(recover(&place.state).is_empty());
    assert!(at.exists());
    writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
}

#[test]
fn a_rotation_that_was_cut_short_is_finished() {
    let place = Place::new();
    place.run(false);
    // The trace was renamed, its blobs were not.
    fs::rename(place.trace(), place.work("trace.jsonl.1")).expect("renamed");
    place.run(false);
    assert!(is_sealed(&place.work("trace.jsonl.1")) && is_sealed(&place.trace()));
}

#[test]
fn across_file_systems_the_trace_is_copied() {
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let place = Place::new();
    let state = StateDirectories::only(&other.path().join("state"));
    let same = fs::metadata(other.path()).expect("stat").dev() == fs::metadata(place.work(".")).expect("stat").dev();
    let placement = Placement::plan_with(&state, &place.trace(), true, false).expect("a placement");
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

#[test]
fn a_state_directory_that_others_can_enter_is_not_used() {
    let place = Place::new();
    let state = place.directory.path().join("state");
    fs::create_dir(&state).expect("a directory");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).expect("changed");
    assert!(matches!(place.plan(true), Err(TraceError::StateDirectory { .. })));
    fs::remove_dir(&state).expect("removed");
    symlink(place.directory.path().join("work"), &state).expect("linked");
    assert!(matches!(place.plan(true), Err(TraceError::StateDirectory { .. })));
}

#[test]
fn what_must_be_protected_is_named() {
    let place = Place::new();
    place.run(false);
    let placement =
        Placement::plan_with(&place.state, &place.work("other.jsonl"), true, false).expect("a placement");
    let protected = placement.protected();
    let find = |path: &Path| protected.iter().find(|protected| protected.path == path);
    for name in ["trace.jsonl", "trace.jsonl.blobs"] {
        assert!(find(&place.work(name)).expect("named").identity.is_some(), "{name}");
    }
    for name in ["other.jsonl", "other.jsonl.blobs"] {
        assert_eq!(find(&place.work(name)).expect("named").identity, None, "{name}");
    }
    let written = fs::metadata(placement.written_at()).expect("stat");
    let identity = FileIdentity { dev: written.dev(), ino: written.ino() };
    assert_eq!(find(&placement.written_at()).expect("named").identity, Some(identity));
    assert!(protected.iter().any(|protected| protected.path.ends_with("state/pending")));

    drop(placement);
    let again = place.plan(false).expect("a placement");
    assert!(again.protected().iter().any(|protected| protected.path == place.work("trace.jsonl.1")));
}
