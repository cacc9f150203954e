//! Digests of program files, computed beside the run: a program starts before it is hashed.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::digest::{self, Digests};
use super::remembered::Remembered;
use super::view::Found;
use crate::policy::FileId;
use crate::trace::{Event, Kind, Recorder};

struct Job {
    file: File,
    path: PathBuf,
    /// It lies in a directory that the run has for itself.
    own: bool,
    recorder: Recorder,
}

/// The thread that hashes.
#[derive(Debug, Default)]
pub(super) struct Hasher {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    seen: HashSet<FileId>,
    /// For small programs, before there is a thread.
    digests: Digests,
    /// The private state directory, where digests are kept from run to run.
    state: Option<OwnedFd>,
    /// When the run ended.
    ending: Arc<OnceLock<Instant>>,
}

/// Largest program, in bytes, that is hashed in less time than a thread takes to start and end.
const SMALL: i64 = 64 << 10;

/// Longest time that the end of a run waits for digests.
const LAST: Duration = Duration::from_secs(30);

impl std::fmt::Debug for Job {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Hasher {
    /// One that keeps digests in `state`.
    pub(super) fn new(state: Option<OwnedFd>) -> Self {
        Self { state, ..Self::default() }
    }

    /// Whether the digest of a program file is still to be recorded: once a run.
    pub(super) fn wants(&self, id: FileId) -> bool {
        !self.seen.contains(&id)
    }

    /// Records the digest of a program file.
    pub(super) fn image(&mut self, found: &Found, own: bool, recorder: &Recorder) {
        self.seen.insert(found.id());
        // Executable but not readable: its path and inode stand in the spawn.
        let Ok(file) = File::open(found.own_path()) else { return };
        let job = Job { file, path: found.path.clone(), own, recorder: recorder.clone() };
        if self.jobs.is_none() && found.status.st_size <= SMALL {
            record(&mut self.digests, &job);
            return;
        }
        let jobs = self.jobs.get_or_insert_with(|| {
            let (jobs, work) = channel::<Job>();
            let ending = Arc::clone(&self.ending);
            let state = self.state.take();
            self.thread = std::thread::Builder::new()
                .name("hasher".to_owned())
                .spawn(move || {
                    let mut digests = Digests::with(state.and_then(Remembered::open));
                    for job in work {
                        if let Some(end) = ending.get() {
                            digests.limit(Some(LAST.saturating_sub(end.elapsed())));
                        }
                        record(&mut digests, &job);
                    }
                    digests.keep();
                })
                .ok();
            jobs
        });
        // Without its thread the job is dropped, and the trace has no digest of that file.
        let _ = jobs.send(job);
    }

    /// Waits for what is left.
    pub(super) fn finish(&mut self) {
        // Set once: nobody else does.
        let _ = self.ending.set(Instant::now());
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; the digests it owed are missing.
            let _ = thread.join();
        }
    }
}

fn record(digests: &mut Digests, job: &Job) {
    let mut event = Event::new(Kind::Observe, "proc.image").path("path", &job.path);
    if job.own {
        event = event.arg("own", true);
    }
    let event = digest::add_to(event, &digests.of(job.file.as_fd()));
    // A writer that failed stops the run by itself.
    let _ = job.recorder.record(event);
}
