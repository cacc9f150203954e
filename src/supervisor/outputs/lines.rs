//! The order of a run as it is written down: a line for each turn.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

/// Longest order that is kept, in turns: the agent can take as many as it likes.
pub(super) const MOST: usize = 1 << 16;
/// Stands for the end of a process in the place of a number of writes.
const END: &str = "end";

/// A turn of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) process: String,
    pub(super) does: Does,
}

/// What it does then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Does {
    /// It writes so often to standard output or error of the run.
    Print { count: u64 },
    /// It ends.
    End,
    /// It writes so often to what another process of the run reads; before that it had written such things `first` times.
    Tell { count: u64, first: u64, reader: String },
}

/// The parent of a process, by its name.
fn parent_of(process: &str) -> &str {
    process.rsplit_once('.').map_or("", |(parent, _)| parent)
}

impl Line {
    /// What was written down so; `None` where it was not.
    pub(super) fn of(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let process = words.next()?.to_owned();
        let count = |word: &str| word.parse().ok().filter(|count| *count > 0);
        let does = match (words.next()?, words.next(), words.next(), words.next()) {
            (END, None, ..) => Does::End,
            (word, None, ..) => Does::Print { count: count(word)? },
            (word, Some(first), Some(reader), None) => {
                Does::Tell { count: count(word)?, first: first.parse().ok()?, reader: reader.to_owned() }
            }
            _ => return None,
        };
        Some(Self { process, does })
    }

    /// Who sees it: the parent of whoever ends, the reader of what is written within the run.
    pub(super) fn house(&self) -> &str {
        match &self.does {
            Does::Print { .. } => &self.process,
            Does::End => parent_of(&self.process),
            Does::Tell { reader, .. } => reader,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = &self.process;
        match &self.does {
            Does::Print { count } => write!(formatter, "{process} {count}"),
            Does::End => write!(formatter, "{process} {END}"),
            Does::Tell { count, first, reader } => write!(formatter, "{process} {count} {first} {reader}"),
        }
    }
}

/// What was done, in its order.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
    /// There were more.
    pub(super) is_cut: bool,
    /// The last line that is no [`Does::Tell`].
    last: Option<usize>,
    /// By who sees them, the last that are none of [`Does::Print`].
    last_seen: HashMap<String, usize>,
}

impl Lines {
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// A process prints.
    pub(super) fn print(&mut self, process: &str) {
        if self.is_cut {
            return;
        }
        if let Some(Line { process: last, does: Does::Print { count } }) =
            self.last.and_then(|last| self.lines.get_mut(last))
            && last == process
        {
            *count += 1;
            return;
        }
        self.last = self.push(process, Does::Print { count: 1 }).or(self.last);
    }

    /// A process ends.
    pub(super) fn end(&mut self, process: &str) {
        if let Some(line) = self.push(process, Does::End) {
            self.last = Some(line);
            self.last_seen.insert(parent_of(process).to_owned(), line);
        }
    }

    /// A process tells another one of the run something: `count` writes from its `first` one on.
    pub(super) fn tell(&mut self, process: &str, (first, count): (u64, u64), reader: &str) {
        if self.is_cut {
            return;
        }
        if let Some(Line { process: last, does: Does::Tell { count: told, first: begun, .. } }) =
            self.last_seen.get(reader).and_then(|line| self.lines.get_mut(*line))
            && last == process
            && *begun + *told == first
        {
            *told += count;
            return;
        }
        let reader = reader.to_owned();
        if let Some(line) = self.push(process, Does::Tell { count, first, reader: reader.clone() }) {
            self.last_seen.insert(reader, line);
        }
    }

    fn push(&mut self, process: &str, does: Does) -> Option<usize> {
        if self.is_cut || self.lines.len() >= MOST {
            self.is_cut = true;
            return None;
        }
        self.lines.push(Line { process: process.to_owned(), does });
        Some(self.lines.len() - 1)
    }

    /// Writes all of them down.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        self.lines.iter().try_for_each(|line| writeln!(to, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_the_longest_order_is_not_counted() {
        let mut lines = Lines::default();
        for turn in 0..=MOST {
            lines.print(if turn % 2 == 0 { "0" } else { "0.0" });
        }
        assert!(lines.is_cut && lines.len() == MOST);
        lines.print("0.0");
        assert_eq!(
            lines.lines.last(),
            Some(&Line { process: "0.0".to_owned(), does: Does::Print { count: 1 } })
        );
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let mut lines = Lines::default();
        lines.print("0");
        lines.tell("0.1", (0, 2), "0");
        lines.print("0");
        lines.tell("0.1", (2, 1), "0");
        lines.tell("0.2", (5, 1), "0");
        lines.tell("0.1", (3, 1), "0");
        lines.end("0.1");
        lines.print("0");
        let mut text = Vec::new();
        lines.write(&mut text).expect("into memory");
        let text = String::from_utf8(text).expect("text");
        assert_eq!(text, "0 2\n0.1 3 0 0\n0.2 1 5 0\n0.1 1 3 0\n0.1 end\n0 1\n");
        assert!(text.lines().map(Line::of).eq(lines.lines.into_iter().map(Some)));
        for text in ["0", "0 0", "0 x", "0 1 2", "0 1 x 0", "0 1 2 0 0", "0 end 1"] {
            assert_eq!(Line::of(text), None, "{text}");
        }
    }
}
