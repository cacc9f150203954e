//! Standard input, output and error of a run.
//!
//! Nothing of the launcher's own is handed in but a terminal, /dev/null, and an input that can
//! only be read. Output goes through pipes of ours, so that it is digested on its way; one pipe
//! where both streams lead to one place, which keeps their order. What the command cannot be told
//! any more stops the run: it has written into a pipe of ours what the disk then has no room for.

mod flags;
mod input;
mod relay;
mod report;
mod treatment;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, pipe2};
use serde_json::{Map, Value};

use self::flags::Flags;
use self::input::Hashing;
pub(super) use self::relay::is_unread;
use self::relay::{Flow, Relay};
pub(super) use self::report::{Report, Running};
pub use self::treatment::NULL_DEVICE_BOTH_WAYS;
use self::treatment::{Descriptor, Treatment};
use crate::policy::FileId;
use crate::supervisor::OutputPipe;
use crate::sys::descriptor;
use crate::sys::refused::{Named, remedy};
use crate::trace::Recorder;

/// What the command gets as standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// The launcher's own: what the command does not read of a pipe is left to others.
    Passed,
    /// The same; of a pipe what may be kept in the trace on its way, which is up to 64 KiB more than the
    /// command reads.
    Kept,
    /// What the launcher's own holds, in a pipe.
    Piped,
}

/// What the command gets as standard output and error, other than by what the launcher's own are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outputs {
    /// A pipe as standard output, where the launcher's own can be written at all.
    pub output: bool,
    /// A pipe as standard error.
    pub error: bool,
    /// One pipe for both.
    pub together: bool,
    /// Where standard output, and standard error, end.
    pub ends: [Option<End>; 2],
}

/// The end of an output whose reader leaves before the command has written everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Bytes that reach the reader.
    pub size: u64,
    /// Bytes that the command has written by then.
    pub written: u64,
}

/// One of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 0.
    Input,
    /// Descriptor 1.
    Output,
    /// Descriptor 2.
    Error,
}

impl Stream {
    const ALL: [Self; 3] = [Self::Input, Self::Output, Self::Error];

    fn key(self) -> &'static str {
        match self {
            Self::Input => "stdin",
            Self::Output => "stdout",
            Self::Error => "stderr",
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Input => "standard input",
            Self::Output => "standard output",
            Self::Error => "standard error",
        })
    }
}

/// Why standard input, output or error cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// A call failed.
    #[error("{stream}: {call}: {}: {}", Named(source), remedy(source).unwrap_or("the host refuses it"))]
    Call {
        /// The stream.
        stream: Stream,
        /// The call.
        call: &'static str,
        /// Its errno.
        source: io::Error,
    },
    /// Standard input is a directory, which would lead out of the view.
    #[error("standard input is a directory: give the command a file, a pipe or /dev/null")]
    Directory,
    /// What the command wrote could not be passed on.
    #[error("{stream} cannot be written: {source}; the run was stopped, for what the command wrote was lost")]
    Lost {
        /// The stream.
        stream: Stream,
        /// The errno of write(2).
        source: nix::Error,
    },
}

/// What the command gets in place of the launcher's descriptors.
#[derive(Debug, Default)]
pub(super) struct CommandEnds {
    ends: [Option<OwnedFd>; 3],
    /// Standard input is a regular file.
    file: bool,
}

impl CommandEnds {
    /// Puts them in place, in the cloned child; gives the file that is now standard input.
    ///
    /// # Errors
    /// The errno of dup2(2).
    pub(super) fn install(&self) -> nix::Result<Option<OwnedFd>> {
        let [input, output, error] = &self.ends;
        // A file that cannot be mounted or opened from here (deleted, of another user, in a mount
        // that is not ours) is relayed by the launcher, who has it open.
        let file = if self.file { input::open_read_only(io::stdin().as_fd()).ok() } else { None };
        file.as_ref().or(input.as_ref()).map_or(Ok(()), dup2_stdin)?;
        output.as_ref().map_or(Ok(()), dup2_stdout)?;
        error.as_ref().map_or(Ok(()), dup2_stderr)?;
        Ok(file)
    }
}

/// The launcher's side, before anything is copied: it has one thread until the clone.
#[derive(Debug)]
pub(super) struct Stdio {
    treatments: [Treatment; 3],
    flows: [Option<Flow>; 3],
    /// The command's own open of the file that is standard input.
    file: Option<File>,
}

impl Stdio {
    /// Decides and makes the pipes.
    ///
    /// # Errors
    /// When a descriptor cannot be looked at, is a directory, or no descriptor is left.
    pub(super) fn prepare(input: Input, outputs: Outputs) -> Result<(Self, CommandEnds), StdioError> {
        let (own_input, own_output, own_error) = (io::stdin(), io::stdout(), io::stderr());
        let own = [own_input.as_fd(), own_output.as_fd(), own_error.as_fd()];
        let (output, error) = treatment::outputs(own[1], own[2], outputs)?;
        let mut ends = CommandEnds::default();
        let input = Descriptor::of(Stream::Input, own[0])?.as_input()?.of(input);
        let mut stdio = Self { treatments: [input, output, error], flows: [None, None, None], file: None };
        let until = [None, outputs.ends[0], outputs.ends[1]];
        for (((stream, own), treatment), until) in
            Stream::ALL.into_iter().zip(own).zip(stdio.treatments).zip(until)
        {
            let failed = |call| move |source| StdioError::Call { stream, call, source };
            let end = match treatment {
                Treatment::Passed(_) => continue,
                Treatment::Pipe => match input::open_again(own).map_err(failed("open"))? {
                    Some(again) => again,
                    None => continue,
                },
                Treatment::Unusable => unusable(stream).map_err(failed("open(/dev/null)"))?,
                Treatment::WithOutput => {
                    let output = ends.ends[1].as_ref().map(OwnedFd::try_clone).transpose();
                    ends.ends[2] = output.map_err(failed("dup"))?;
                    continue;
                }
                Treatment::File | Treatment::Relayed => {
                    let (flow, end) = flow(stream, own, until).map_err(failed("pipe2"))?;
                    stdio.flows[stream as usize] = Some(flow);
                    end
                }
            };
            ends.ends[stream as usize] = Some(end);
        }
        ends.file = input == Treatment::File;
        Ok((stdio, ends))
    }

    /// Hears whether the command reads its standard input from a file of its own.
    pub(super) fn settle_input(&mut self, file: Option<OwnedFd>) {
        match file {
            Some(file) => {
                self.flows[0] = None;
                self.file = Some(File::from(file));
            }
            None if self.treatments[0] == Treatment::File => self.treatments[0] = Treatment::Relayed,
            None => {}
        }
    }

    /// The mounts that what is handed in leads to.
    pub(super) fn mounts(&self) -> Vec<u64> {
        let passed = |treatment: &Treatment| matches!(treatment, Treatment::Passed(_) | Treatment::Pipe);
        let own = [io::stdin().as_fd(), io::stdout().as_fd(), io::stderr().as_fd()].map(descriptor::mount_id);
        let own = own.into_iter().zip(&self.treatments).filter(|(_, treatment)| passed(treatment));
        let file = self.file.as_ref().map(|file| descriptor::mount_id(file.as_fd()));
        // Without STATX_MNT_ID (Linux 5.8) there is no such call.
        own.map(|(mount, _)| mount).chain(file).flatten().collect()
    }

    /// The pipe that the command reads as it is, if it does.
    pub(super) fn input_pipe(&self) -> Option<FileId> {
        let status = fstat(io::stdin()).ok().filter(|_| self.treatments[0] == Treatment::Pipe)?;
        Some(FileId { dev: status.st_dev, ino: status.st_ino })
    }

    /// Whether standard output, and standard error, are pipes of ours.
    pub(super) fn pipes(&self) -> [bool; 2] {
        [1, 2].map(|at| matches!(self.treatments[at], Treatment::Relayed | Treatment::WithOutput))
    }

    /// Whether the reader of an output leaves where the recorded one did.
    pub(super) fn has_end(&self) -> bool {
        self.flows.iter().flatten().any(|flow| flow.end.is_some())
    }

    /// The pipes that the command writes.
    pub(super) fn output_pipes(&self) -> nix::Result<Vec<OutputPipe>> {
        let flows = self.flows.iter().flatten().filter(|flow| !flow.inwards);
        let end = |flow: &Flow| flow.end.map(|end| end.written);
        flows.map(|flow| OutputPipe::new(&flow.from, Arc::clone(&flow.taken), end(flow))).collect()
    }

    /// For each stream, what the trace proves.
    pub(super) fn manifest(&self) -> Map<String, Value> {
        let state = |treatment: &Treatment| match treatment {
            Treatment::File | Treatment::Relayed | Treatment::WithOutput => "recorded".to_owned(),
            other => format!("not covered ({})", report::why(*other)),
        };
        let states = self.treatments.iter().map(state);
        Stream::ALL
            .iter()
            .zip(states)
            .map(|(stream, state)| (stream.key().to_owned(), state.into()))
            .collect()
    }

    /// Starts to copy and to digest; `init` is pid 1 of the run. What passes is kept where there is a recorder.
    ///
    /// # Errors
    /// When no thread or descriptor is left.
    pub(super) fn start(
        self,
        init: BorrowedFd<'_>,
        recorder: Option<&Recorder>,
    ) -> Result<Running, StdioError> {
        let (finished, finish) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| StdioError::Call {
            stream: Stream::Output,
            call: "pipe2",
            source: errno.into(),
        })?;
        self.let_go()?;
        let mut relays = [None, None, None];
        for ((stream, flow), relay) in Stream::ALL.into_iter().zip(self.flows).zip(&mut relays) {
            let failed = |source| StdioError::Call { stream, call: "clone", source };
            let start = |flow: Flow| {
                let kept = recorder.and_then(|recorder| recorder.blob().ok());
                Relay::start(flow, finished.as_fd(), init, kept)
            };
            *relay = flow.map(start).transpose().map_err(failed)?;
        }
        let hashing = self.file.map(|file| Hashing::start(file, recorder)).transpose();
        let hashing =
            hashing.map_err(|source| StdioError::Call { stream: Stream::Input, call: "clone", source })?;
        let flags = Flags::look(&self.treatments);
        Ok(Running { treatments: self.treatments, relays, finish, hashing, flags })
    }

    /// The launcher holds neither a pipe that the command reads nor an output that it may close:
    /// whoever is at the other end sees when the command has closed it. Standard error stays, for
    /// the launcher's own last words.
    fn let_go(&self) -> Result<(), StdioError> {
        let failed = |stream, call| move |source| StdioError::Call { stream, call, source };
        let null = || nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty());
        for (stream, install) in [
            (Stream::Input, dup2_stdin::<OwnedFd> as fn(OwnedFd) -> nix::Result<()>),
            (Stream::Output, dup2_stdout),
        ] {
            if matches!(self.treatments[stream as usize], Treatment::Pipe | Treatment::Relayed) {
                let null = null().map_err(io::Error::from).map_err(failed(stream, "open(/dev/null)"))?;
                install(null).map_err(io::Error::from).map_err(failed(stream, "dup2"))?;
            }
        }
        Ok(())
    }
}

/// A descriptor that refuses the stream's direction with EBADF.
fn unusable(stream: Stream) -> io::Result<OwnedFd> {
    let mode = if stream == Stream::Input { OFlag::O_WRONLY } else { OFlag::O_RDONLY };
    Ok(nix::fcntl::open("/dev/null", mode | OFlag::O_CLOEXEC, Mode::empty())?)
}

fn flow(stream: Stream, own: BorrowedFd<'_>, end: Option<End>) -> io::Result<(Flow, OwnedFd)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    if end.is_some() {
        // One page: the command is to be little further than it was when the pipe closes.
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(1))?;
    }
    let own = own.try_clone_to_owned()?;
    let (from, to, command, inwards) = match stream {
        Stream::Input => (own, writer, reader, true),
        Stream::Output | Stream::Error => {
            // The command can read there as well: ours must not wait for what that has taken.
            fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            (reader, own, writer, false)
        }
    };
    Ok((Flow { from: Arc::new(from), taken: Arc::default(), to, inwards, end }, command))
}
