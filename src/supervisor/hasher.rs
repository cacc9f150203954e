//! Digests of program files: of those that the run cannot write beside it, so that a program starts before it is
//! hashed, and of the others before they run.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::content::{Content, Identity};
use super::digest::{self, Digests};
use super::remembered::Remembered;
use super::view::Found;
use crate::policy::FileId;
use crate::trace::{Event, Kind, Recorder};

/// Whose a program file is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// It lies in a directory that the run has for itself.
    pub(super) own: bool,
    /// The run can write it.
    pub(super) writable: bool,
}

struct Job {
    file: File,
    /// The file when it was started.
    identity: Identity,
    path: PathBuf,
    own: bool,
    /// Its times may not show that it changes.
    is_untimed: bool,
    recorder: Recorder,
    /// For whoever waits until it is recorded.
    done: Option<Sender<()>>,
}

/// The thread that hashes.
#[derive(Debug, Default)]
pub(super) struct Hasher {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Files that cannot change unseen.
    seen: HashSet<Identity>,
    /// Records small programs, before there is a thread.
    records: Records,
    /// The private state directory, where digests are kept from run to run.
    state: Option<OwnedFd>,
    /// When the run ended.
    ending: Arc<OnceLock<Instant>>,
}

/// What was recorded.
#[derive(Debug, Default)]
struct Records {
    digests: Digests,
    /// The latest path and content of each file.
    latest: HashMap<FileId, (PathBuf, Content)>,
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

    /// Whether the digest of a program file is still to be recorded: once for as long as it provably has not changed.
    pub(super) fn wants(&self, identity: &Identity) -> bool {
        !self.seen.contains(identity)
    }

    /// Records the digest of a program file, whose task stands at its exec event: while that runs, nobody can write
    /// the file (ETXTBSY, execve(2); not on Linux 6.11 and 6.12).
    pub(super) fn image(&mut self, found: &Found, owner: Owner, recorder: &Recorder) {
        let identity = Identity::of(&found.status);
        // Stores into shared memory leave no time there (no page_mkwrite in mm/shmem.c).
        let is_untimed = owner.writable
            && fstatfs(&found.file).is_ok_and(|status| status.filesystem_type() == TMPFS_MAGIC);
        let is_settled = identity.is_settled();
        if is_settled && !is_untimed {
            self.seen.insert(identity);
        }
        // Executable but not readable: its path and inode stand in the spawn.
        let Ok(file) = File::open(found.own_path()) else { return };
        let (done, end) = channel();
        let waits = owner.writable || !is_settled;
        let job = Job {
            file,
            identity,
            path: found.path.clone(),
            own: owner.own,
            is_untimed,
            recorder: recorder.clone(),
            done: waits.then_some(done),
        };
        if self.jobs.is_none() && found.status.st_size <= SMALL {
            self.records.add(&job);
            return;
        }
        // Without its thread the job is dropped, and the trace has no digest of that file.
        let _ = self.jobs().send(job);
        if waits {
            // It ends without a word where there is no thread.
            let _ = end.recv();
        }
    }

    fn jobs(&mut self) -> &Sender<Job> {
        self.jobs.get_or_insert_with(|| {
            let (jobs, work) = channel::<Job>();
            let ending = Arc::clone(&self.ending);
            let state = self.state.take();
            let latest = std::mem::take(&mut self.records.latest);
            self.thread = std::thread::Builder::new()
                .name("hasher".to_owned())
                .spawn(move || {
                    let digests = Digests::with(state.and_then(Remembered::open));
                    let mut records = Records { digests, latest };
                    for job in work {
                        if let Some(end) = ending.get() {
                            records.digests.limit(Some(LAST.saturating_sub(end.elapsed())));
                        }
                        records.add(&job);
                        // Who waits is there.
                        let _ = job.done.map(|done| done.send(()));
                    }
                    records.digests.keep();
                })
                .ok();
            jobs
        })
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

impl Records {
    fn add(&mut self, job: &Job) {
        let content = match job.is_untimed {
            true => self.digests.anew(job.file.as_fd()),
            false => self.digests.of(job.file.as_fd()),
        };
        let mut event = Event::new(Kind::Observe, "proc.image").path("path", &job.path);
        if job.own {
            event = event.arg("own", true);
        }
        let status = fstat(&job.file);
        if status.is_ok_and(|status| Identity::of(&status) != job.identity) {
            event = event.arg("undigested", "it changed after it was started");
        } else if self.is_new(job, &content, status.is_ok_and(|status| status.st_nlink > 1)) {
            event = digest::add_to(event, &content);
        } else {
            return;
        }
        // A writer that failed stops the run by itself.
        let _ = job.recorder.record(event);
    }

    /// Whether something else was recorded of the file, or nothing. One of several names is enough.
    fn is_new(&mut self, job: &Job, content: &std::io::Result<Content>, has_names: bool) -> bool {
        let Ok(content) = content else { return true };
        let id = FileId { dev: job.identity.device, ino: job.identity.inode };
        let is_same =
            |(path, latest): &(PathBuf, Content)| latest == content && (has_names || *path == job.path);
        if self.latest.get(&id).is_some_and(is_same) {
            return false;
        }
        self.latest.insert(id, (job.path.clone(), content.clone()));
        true
    }
}
