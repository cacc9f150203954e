//! The end of a run's streams: what is left arrives, and what arrived is said.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::flags::Flags;
use super::input::Hashing;
use super::relay::{Arrived, Relay};
use super::treatment::Treatment;
use super::{StdioError, Stream};
use crate::trace::{BlobRef, BlobWriter, Event, Kind};

/// Why a stream is not digested.
pub(super) fn why(treatment: Treatment) -> &'static str {
    match treatment {
        Treatment::Passed(what) => what,
        Treatment::Pipe => "a pipe",
        Treatment::Unusable => "not open in that direction",
        Treatment::File | Treatment::Relayed | Treatment::WithOutput => "",
    }
}

/// The launcher's side while the command runs.
#[derive(Debug)]
pub(in crate::run) struct Running {
    pub(super) treatments: [Treatment; 3],
    pub(super) relays: [Option<Relay>; 3],
    /// Closed when nobody writes any more.
    pub(super) finish: OwnedFd,
    pub(super) hashing: Option<Hashing>,
    /// Those of terminals, when the command started.
    pub(super) flags: Flags,
}

/// Signals that end the wait for a reader that takes nothing.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
/// How long such a reader is waited for when a signal has ended the run, in milliseconds.
const PATIENCE: u16 = 2000;

impl Running {
    /// Waits until everything that was written has arrived; nobody may write any more. A reader
    /// that is slow is waited for as the command would have waited: until a signal comes, or,
    /// after one has ended the run (`interrupted`), for two seconds in which it takes nothing.
    pub(in crate::run) fn finish(self, interrupted: bool) -> Report {
        let Self { treatments, relays, finish, hashing, flags } = self;
        drop((finish, flags));
        let [input, output, error] = &relays;
        let outwards: Vec<&Relay> = [output, error].into_iter().flatten().collect();
        let complete = outwards.is_empty() || drain(&outwards, interrupted);
        let mut kept = Kept::default();
        let mut stream = |stream: Stream, relay: &Option<Relay>| match treatments[stream as usize] {
            Treatment::WithOutput => Said::WithOutput,
            Treatment::Relayed => relay.as_ref().map_or(Said::Nothing(""), |relay| {
                let (arrived, body) = relay.take_kept();
                match stream {
                    Stream::Input => kept.take("pipe", body),
                    Stream::Output | Stream::Error if arrived.size == 0 => {}
                    Stream::Output => kept.outputs[0] = body.and_then(|body| body.finish().ok()),
                    Stream::Error => kept.outputs[1] = body.and_then(|body| body.finish().ok()),
                }
                Said::Arrived(arrived)
            }),
            other => Said::Nothing(why(other)),
        };
        let mut said =
            [stream(Stream::Input, input), stream(Stream::Output, output), stream(Stream::Error, error)];
        if let Some(hashing) = hashing {
            kept.offset = Some(hashing.offset());
            said[0] = match hashing.finish() {
                Ok((content, body)) => {
                    kept.take("file", body);
                    Said::Held { sha256: content.sha256, size: content.size, changed: content.changed }
                }
                Err(error) => Said::Unreadable(error),
            };
        }
        Report { said, complete, kept }
    }
}

/// Whether all of `relays` have ended.
fn drain(relays: &[&Relay], interrupted: bool) -> bool {
    let mut signals = SigSet::empty();
    signals.extend(ENDING);
    // Without it only the reader ends the wait.
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).ok();
    let size = || relays.iter().map(|relay| relay.arrived().size).sum::<u64>();
    let mut before = size();
    loop {
        let ended = |relay: &&Relay| {
            let mut watched = [PollFd::new(relay.ended(), PollFlags::empty())];
            !matches!(poll(&mut watched, PollTimeout::ZERO), Ok(0) | Err(_))
        };
        let Some(waiting) = relays.iter().find(|relay| !ended(relay)) else { return true };
        let mut watched = vec![PollFd::new(waiting.ended(), PollFlags::empty())];
        watched.extend(signals.as_ref().map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
        let timeout = if interrupted { PollTimeout::from(PATIENCE) } else { PollTimeout::NONE };
        match poll(&mut watched, timeout) {
            Ok(0) => {
                let now = size();
                if now == before {
                    return false;
                }
                before = now;
            }
            Ok(_) if watched.get(1).and_then(PollFd::any) == Some(true) => return false,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

#[derive(Debug)]
enum Said {
    Nothing(&'static str),
    Arrived(Arrived),
    Held { sha256: String, size: u64, changed: bool },
    Unreadable(io::Error),
    WithOutput,
}

/// Standard input, and the beginning of standard output and error, where they are kept in the trace.
#[derive(Debug, Default)]
struct Kept {
    kind: Option<&'static str>,
    /// Of a file: where it was read from.
    offset: Option<u64>,
    content: Option<BlobRef>,
    outputs: [Option<BlobRef>; 2],
}

impl Kept {
    fn take(&mut self, kind: &'static str, body: Option<BlobWriter>) {
        let Some(body) = body else { return };
        self.kind = Some(kind);
        // Where it fails the trace has failed, and is not sealed.
        self.content = body.finish().ok();
    }

    fn add_to(&self, event: Event, stream: Stream) -> Event {
        let [output, error] = &self.outputs;
        match (stream, output, error) {
            (Stream::Input, ..) => self.add_input_to(event),
            (Stream::Output, Some(content), _) | (Stream::Error, _, Some(content)) => {
                event.arg("content", content.clone().private())
            }
            _ => event,
        }
    }

    fn add_input_to(&self, event: Event) -> Event {
        let (Some(kind), Some(content)) = (self.kind, &self.content) else { return event };
        let event = event.arg("kind", kind).arg("content", content.clone().private());
        match self.offset {
            Some(offset) => event.arg("offset", offset),
            None => event,
        }
    }
}

/// What became of the three streams.
#[derive(Debug)]
pub(in crate::run) struct Report {
    kept: Kept,
    said: [Said; 3],
    /// All output has arrived, or its reader has left.
    complete: bool,
}

impl Report {
    /// One event for each stream.
    pub(in crate::run) fn events(&self) -> impl Iterator<Item = Event> {
        Stream::ALL.into_iter().zip(&self.said).map(|(stream, said)| {
            let event = Event::new(Kind::Observe, "stdio").arg("stream", stream.key());
            let event = self.kept.add_to(event, stream);
            match said {
                Said::Nothing(why) => event.arg("covered", false).arg("why", *why),
                Said::Unreadable(error) => event.arg("covered", false).arg("why", error.to_string()),
                Said::WithOutput => event.arg("same_as", Stream::Output.key()),
                Said::Held { sha256, size, changed } => {
                    let event = event.arg("sha256", sha256.as_str()).arg("size", *size);
                    if *changed { event.arg("changed", true) } else { event }
                }
                Said::Arrived(arrived) => self.arrived(event, stream, arrived),
            }
        })
    }

    fn arrived(&self, event: Event, stream: Stream, arrived: &Arrived) -> Event {
        let mut event = event.arg("sha256", arrived.sha256()).arg("size", arrived.size);
        if !self.complete && stream != Stream::Input {
            event = event.arg("complete", false);
        }
        if let Some(written) = arrived.closed_at {
            event = event.arg("closed_at", written);
        }
        match arrived.failure {
            Some(errno) => event.arg("error", errno.desc()),
            None => event,
        }
    }

    /// Why the run was stopped, if output could not be written.
    pub(in crate::run) fn failure(&self) -> Option<StdioError> {
        let outwards = Stream::ALL.into_iter().zip(&self.said).skip(1);
        outwards
            .filter_map(|(stream, said)| match said {
                Said::Arrived(Arrived { failure: Some(source), .. }) => {
                    Some(StdioError::Lost { stream, source: *source })
                }
                _ => None,
            })
            .next()
    }
}
