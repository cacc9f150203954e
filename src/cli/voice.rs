//! How much is said: `--quiet` leaves what went wrong.

use super::run::tell;

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
