//! Why a step differs: the classes that a report names and `--lenient` accepts.

use std::fmt;

/// The class of a difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// Another command, directory, program or argument.
    CommandChanged,
    /// Another policy.
    PolicyChanged,
    /// Other variables were passed.
    EnvironmentChanged,
    /// A file that was read, a program, or the standard input held something else.
    InputChanged,
    /// A request that resembles a recorded one, and differs from it.
    RequestChanged,
    /// The same request had another answer.
    ResponseChanged,
    /// The same request had an answer, and now has none.
    ResponseMissing,
    /// A recorded step did not happen.
    MissingEffect,
    /// A step happened that was not recorded.
    ExtraEffect,
    /// The same steps, in another order.
    OrderChanged,
    /// Something was refused in one run alone, or in another way.
    DenialChanged,
    /// A file that was written, or a standard stream, holds something else.
    OutputChanged,
    /// The command ended in another way.
    ExitStatusChanged,
    /// Nothing but a time differs.
    TimeOnly,
    /// What no control holds: a random number of a library, a name made up by the other side.
    UncontrolledSource,
}

impl Cause {
    /// All of them, in the order in which a report counts them.
    pub const ALL: [Self; 15] = [
        Self::CommandChanged,
        Self::PolicyChanged,
        Self::EnvironmentChanged,
        Self::InputChanged,
        Self::RequestChanged,
        Self::ResponseChanged,
        Self::ResponseMissing,
        Self::MissingEffect,
        Self::ExtraEffect,
        Self::OrderChanged,
        Self::DenialChanged,
        Self::OutputChanged,
        Self::ExitStatusChanged,
        Self::TimeOnly,
        Self::UncontrolledSource,
    ];

    /// The word that stands on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CommandChanged => "command-changed",
            Self::PolicyChanged => "policy-changed",
            Self::EnvironmentChanged => "environment-changed",
            Self::InputChanged => "input-changed",
            Self::RequestChanged => "request-changed",
            Self::ResponseChanged => "response-changed",
            Self::ResponseMissing => "response-missing",
            Self::MissingEffect => "missing-effect",
            Self::ExtraEffect => "extra-effect",
            Self::OrderChanged => "order-changed",
            Self::DenialChanged => "denial-changed",
            Self::OutputChanged => "output-changed",
            Self::ExitStatusChanged => "exit-status-changed",
            Self::TimeOnly => "time-only",
            Self::UncontrolledSource => "uncontrolled-source",
        }
    }
}

/// As everywhere: what a report says can be given to `--lenient`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
