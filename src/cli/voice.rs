//! How much is said: `--quiet` leaves what went wrong.

use std::borrow::Cow;
use std::io::Write as _;

use crate::trace::escape;

/// How much is said.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Voice {
    /// Say only what is wrong: no summary, no notes
    #[arg(short, long)]
    quiet: bool,
}

impl Voice {
    /// Whether only what is wrong is said.
    pub(super) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Says what is good to know, on stderr.
    pub(super) fn tell(self, lines: impl IntoIterator<Item = String>) {
        if !self.quiet {
            tell(lines);
        }
    }
}

/// Says what is wrong or was asked for, on stderr.
pub(super) fn tell(lines: impl IntoIterator<Item = String>) {
    let mut stderr = std::io::stderr().lock();
    for line in lines {
        let line = line.trim_end();
        // What stands under our name is one line, whatever the paths in it are called; drawings of a
        // policy's faults escape what they quote.
        let line = if line.starts_with("agentbox: ") { escape::text(line).into() } else { Cow::from(line) };
        // A closed stderr has no reader to tell.
        let _ = writeln!(stderr, "{line}");
    }
}
