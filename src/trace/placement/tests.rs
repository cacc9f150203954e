//! Checks where traces are put, and what they never replace.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::super::event::{Event, Kind};
use super::super::verify::{Expectation, Outcome, verify};
use super::super::writer::create;
use super::super::{Recorder, WriterHandle};
use super::pending::{locate_in, locate_to_stay, recover};
use super::*;

mod in_place;
mod recovery;

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
        Placement::plan_with(&self.state, &self.trace(), &inside(inside_granted), false)
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

fn inside(own_trace: bool) -> Reach {
    Reach { own_trace, ..Reach::default() }
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

    let forced =
        Placement::plan_with(&place.state, &place.trace(), &inside(false), true).expect("a placement");
    assert_eq!(fs::read(forced.written_at()).expect("it reads"), b"");
}

#[test]
fn links_directories_and_pipes_are_refused() {
    let place = Place::new();
    let target = place.work("target");
    fs::write(&target, "{\"args\":{}").expect("written");
    symlink(&target, place.trace()).expect("linked");
    assert!(matches!(place.plan(false), Err(TraceError::Occupied { .. })));
    let forced =
        Placement::plan_with(&place.state, &place.trace(), &inside(false), true).expect("a placement");
    assert_eq!(fs::read_to_string(&target).expect("it reads"), "{\"args\":{}");
    drop(forced);
    fs::create_dir(place.trace()).expect("a directory");
    assert!(matches!(place.plan(false), Err(TraceError::Occupied { .. })));
    fs::remove_dir(place.trace()).expect("removed");
    nix::unistd::mkfifo(&place.trace(), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    assert!(matches!(place.plan(false), Err(TraceError::Occupied { .. })));
    for path in ["/", "..", "x/"] {
        let result = Placement::plan_with(&place.state, Path::new(path), &inside(false), false);
        assert!(matches!(result, Err(TraceError::NoFileName { .. })), "{path}");
    }
    let missing =
        Placement::plan_with(&place.state, &place.work("missing/trace.jsonl"), &inside(false), false);
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
fn a_rotation_that_was_cut_short_is_finished() {
    let place = Place::new();
    place.run(false);
    // The trace was renamed, its blobs were not.
    fs::rename(place.trace(), place.work("trace.jsonl.1")).expect("renamed");
    place.run(false);
    assert!(is_sealed(&place.work("trace.jsonl.1")) && is_sealed(&place.trace()));
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
    let placement = Placement::plan_with(&place.state, &place.work("other.jsonl"), &inside(true), false)
        .expect("a placement");
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
    assert!(
        protected.iter().any(|protected| protected.path.ends_with("state") && protected.identity.is_some())
    );

    drop(placement);
    let again = place.plan(false).expect("a placement");
    assert!(again.protected().iter().any(|protected| protected.path == place.work("trace.jsonl.1")));
}
