//! `agentbox show`: prints a trace, one line an entry.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Failure;
use super::output::written;
use super::voice::{Voice, tell};
use crate::trace::{self, Line, Reader, TraceError, escape};

mod filter;
mod header;
mod meta;
mod operations;
mod outcome;
mod row;

use filter::Filter;

/// Prints a trace, one line an entry
#[derive(clap::Args, Debug)]
pub struct ShowCommand {
    /// The trace
    #[arg(value_name = "TRACE", conflicts_with = "trace")]
    file: Option<PathBuf>,

    /// The trace, where it is not given as an argument
    #[arg(short, long, default_value = trace::layout::DEFAULT_NAME)]
    trace: PathBuf,

    #[command(flatten)]
    filter: Filter,

    /// Print the stored lines
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    voice: Voice,
}

impl ShowCommand {
    /// Runs the command and returns its exit code.
    ///
    /// # Errors
    /// The trace cannot be read, or its entries not be written.
    pub fn run(self) -> Result<u8, Failure> {
        let unreadable = |error: TraceError| Failure::usage(error.to_string());
        let asked = self.file.as_deref().unwrap_or(&self.trace);
        let opened = trace::open(asked).map_err(unreadable)?;
        if opened.name() != asked {
            let place = escape::text(&opened.name().to_string_lossy());
            self.voice.tell([format!("agentbox: this trace is not in place yet, it is read from {place}")]);
        }
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let style = Style {
            json: self.json,
            terminal: is_terminal,
            color: is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        let mut out = BufWriter::new(stdout.lock());
        let filter = self.filter.resolve();
        let printed = print(opened.path(), &filter, &style, &mut out)
            .and_then(|ending| out.flush().map(|()| ending).map_err(Stopped::Output));
        match printed {
            Ok(ending) => {
                tell(ending.notes());
                if ending.shown == 0 && !filter.is_empty() {
                    let why = filter.misspelt().map(|why| format!(": {why}")).unwrap_or_default();
                    self.voice.tell([format!("agentbox: no entry matches{why}")]);
                }
                Ok(0)
            }
            Err(Stopped::Output(error)) => written(0, Err(error)),
            Err(Stopped::Trace(error)) => Err(unreadable(error)),
        }
    }
}

/// How to print.
struct Style {
    json: bool,
    terminal: bool,
    color: bool,
}

/// Why printing ended early.
enum Stopped {
    Output(io::Error),
    Trace(TraceError),
}

/// How the trace ended.
#[derive(Default)]
struct Ending {
    sealed: bool,
    unreadable: u64,
    first_unreadable: u64,
    torn: Option<usize>,
    /// Entries that the filter takes.
    shown: u64,
}

impl Ending {
    /// What is to be said of it.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unreadable > 0 {
            let (count, line) = (self.unreadable, self.first_unreadable);
            notes.push(format!(
                "agentbox: {count} lines are no entries, the first is line {line}: see agentbox verify"
            ));
        }
        if let Some(bytes) = self.torn {
            notes.push(format!("agentbox: the last line is torn ({bytes} bytes): the run was interrupted"));
        } else if !self.sealed {
            notes.push("agentbox: the trace is not sealed: nothing says that this is all".to_owned());
        }
        notes
    }
}

fn print(path: &Path, filter: &Filter, style: &Style, out: &mut impl Write) -> Result<Ending, Stopped> {
    let read = |source| Stopped::Trace(TraceError::Read { path: path.to_owned(), source });
    let file = File::open(path).map_err(read)?;
    let mut reader = Reader::new(file);
    let mut ending = Ending::default();
    let mut place = None;
    let mut number = 0;
    while let Some(line) = reader.next_line().map_err(read)? {
        number += 1;
        let (Line::Whole(bytes) | Line::Torn(bytes)) = line else {
            ending.note_unreadable(number);
            break;
        };
        if number == 1 && !trace::looks_like_a_trace(bytes) {
            return Err(Stopped::Trace(TraceError::NotATrace { path: path.to_owned() }));
        }
        if matches!(line, Line::Torn(_)) {
            ending.torn = Some(bytes.len());
            break;
        }
        let Some(entry) = parse(bytes) else {
            ending.note_unreadable(number);
            continue;
        };
        ending.sealed = entry.get("op").is_some_and(|op| op == "run.seal");
        if number == 1 {
            place = entry.get("args").and_then(|args| Some(args.get("cwd")?.as_str()?.to_owned()));
        }
        if filter.takes(&entry) {
            ending.shown += 1;
            print_entry(bytes, &entry, (filter, place.as_deref()), style, out).map_err(Stopped::Output)?;
        }
    }
    Ok(ending)
}

impl Ending {
    fn note_unreadable(&mut self, line: u64) {
        if self.unreadable == 0 {
            self.first_unreadable = line;
        }
        self.unreadable += 1;
        self.sealed = false;
    }
}

fn parse(line: &[u8]) -> Option<Map<String, Value>> {
    let entry: Map<String, Value> = serde_json::from_slice(line).ok()?;
    (entry.contains_key("kind") && entry.contains_key("op")).then_some(entry)
}

fn print_entry(
    line: &[u8],
    entry: &Map<String, Value>,
    (filter, place): (&Filter, Option<&str>),
    style: &Style,
    out: &mut impl Write,
) -> io::Result<()> {
    if style.json {
        // A terminal would act on the control characters that JSON lets stand.
        match std::str::from_utf8(line) {
            Ok(text) if style.terminal => out.write_all(escape::json(text).as_bytes())?,
            _ => out.write_all(line)?,
        }
        return out.write_all(b"\n");
    }
    if filter.is_empty() && entry.get("op").is_some_and(|op| op == "run.start") {
        header::write(entry, out)?;
    }
    row::write(entry, place, style.color, out)?;
    if filter.entry.is_some() {
        // A row tells what fits in it.
        let whole = serde_json::to_string_pretty(entry)?;
        whole.lines().try_for_each(|line| writeln!(out, "{}", escape::json(line)))?;
    }
    Ok(())
}
