//! What the cloned child tells the launcher before the command runs.

use std::error::Error;
use std::io;

use crate::ns::init::CommandEnd;

/// The launcher's word that the command may start.
pub(super) const GO: u8 = b'G';

/// A step of the launch, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    DeathSignal,
    Namespaces,
    Order,
    IdMap,
    Hostname,
    Network,
    Stdio,
    View,
    Init,
    WorkingDirectory,
    Limits,
    Privileges,
    Landlock,
    Filter,
    Exec,
}

const STEPS: [Step; 15] = [
    Step::DeathSignal,
    Step::Namespaces,
    Step::Order,
    Step::IdMap,
    Step::Hostname,
    Step::Network,
    Step::Stdio,
    Step::View,
    Step::Init,
    Step::WorkingDirectory,
    Step::Limits,
    Step::Privileges,
    Step::Landlock,
    Step::Filter,
    Step::Exec,
];

/// A step that failed: the call and its errno (0 where there is none).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) call: String,
    pub(super) errno: i32,
}

impl Failure {
    pub(super) fn new(step: Step, call: &str, error: &io::Error) -> Self {
        Self { step, call: call.to_owned(), errno: error.raw_os_error().unwrap_or(0) }
    }

    /// An error that names its call, and the errno of its cause.
    pub(super) fn text(step: Step, error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        let mut errno = None;
        while let Some(error) = cause.filter(|_| errno.is_none()) {
            errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
            cause = error.source();
        }
        Self { step, call: error.to_string(), errno: errno.unwrap_or(0) }
    }
}

/// A message on the channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// The command's process is in the view; the descriptor is its root.
    View,
    /// The filter is installed and the command waits; the descriptor is the listener.
    Ready { landlock: bool },
    /// The view is entered, the old root left, and pid 1 is init.
    Entered,
    /// A step failed and nothing runs.
    Failed(Failure),
    /// How the command ended.
    End(CommandEnd),
    /// The sockets of the network namespace wait on their own channel; the descriptor, if there
    /// is one, is the file that the command reads as standard input.
    Sockets,
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ready { landlock } => vec![b'R', u8::from(*landlock)],
            Self::Failed(failure) => {
                let step = STEPS.iter().position(|step| *step == failure.step).unwrap_or(0);
                let mut bytes = vec![b'F', u8::try_from(step).unwrap_or(0)];
                bytes.extend(failure.errno.to_le_bytes());
                bytes.extend(failure.call.bytes().take(4096));
                bytes
            }
            Self::Sockets => vec![b'S'],
            Self::View => vec![b'V'],
            Self::Entered => vec![b'I'],
            // Sent by pid 1 in its own form.
            Self::End(_) => Vec::new(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&tag, rest) = bytes.split_first()?;
        match tag {
            b'R' => Some(Self::Ready { landlock: rest.first() == Some(&1) }),
            b'F' => {
                let (&step, rest) = rest.split_first()?;
                let (errno, call) = rest.split_first_chunk::<4>()?;
                Some(Self::Failed(Failure {
                    step: *STEPS.get(usize::from(step))?,
                    errno: i32::from_le_bytes(*errno),
                    call: String::from_utf8_lossy(call).into_owned(),
                }))
            }
            crate::ns::init::END => CommandEnd::decode(bytes).map(Self::End),
            b'S' => Some(Self::Sockets),
            b'V' => Some(Self::View),
            b'I' => Some(Self::Entered),
            _ => None,
        }
    }
}

/// What pid 1 or the command's process said last.
pub(super) enum LastWords {
    End(CommandEnd),
    Failed(Failure),
}

pub(super) fn end_of(bytes: &[u8]) -> Option<LastWords> {
    match Message::decode(bytes)? {
        Message::End(end) => Some(LastWords::End(end)),
        Message::Failed(failure) => Some(LastWords::Failed(failure)),
        Message::View | Message::Ready { .. } | Message::Sockets | Message::Entered => None,
    }
}
