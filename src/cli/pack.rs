//! `agentbox pack` and `agentbox unpack`: a trace as one file, and back.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::Failure;
use crate::trace::layout::{BLOBS_SUFFIX, DEFAULT_NAME, DIRECTORY_MODE, FILE_MODE, POLICY_SUFFIX};
use crate::trace::{self, Held, Opened, Outcome, TraceError, escape};

/// What `pack --help` says after the options.
const AFTER_PACK: &str = "\
The file is a tar archive (ustar). Every command that takes a trace takes it.
A trace holds secrets of its run: see --redacted.

Exit codes: 0 done; 1 the trace was tampered with; 2 usage, or no trace.";

/// Make one file of a trace, its bodies and its policy
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_PACK)]
pub(super) struct PackCommand {
    /// The trace
    #[arg(value_name = "TRACE", conflicts_with = "trace")]
    file: Option<PathBuf>,
    /// The trace, where it is not given as an argument
    #[arg(short, long, default_value = DEFAULT_NAME)]
    trace: PathBuf,
    /// The file to write; an existing one is never overwritten
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Leave out the private bodies: seed, environment, inputs, answers with tokens. It cannot be replayed
    #[arg(long)]
    redacted: bool,
}

impl PackCommand {
    /// Packs.
    pub(super) fn run(self) -> Result<u8, Failure> {
        let opened = trace::open(self.file.as_ref().unwrap_or(&self.trace)).map_err(unreadable)?;
        let held = intact(&opened)?;
        let shown = escape::text(&self.output.to_string_lossy());
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::usage(format!(
                "{shown} is there already and is left as it is: name another file with -o"
            )),
            _ => Failure::usage(format!("cannot write {shown}: {error}")),
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&self.output);
        let file = file.map_err(refused)?;
        let packed = trace::pack(&held, self.redacted, &file).map_err(|error| {
            // What is not whole is of no use.
            let _ = fs::remove_file(&self.output);
            refused(error)
        })?;
        let bodies = |count: u64| if count == 1 { "body" } else { "bodies" };
        say(format!("packed as {shown}: the trace, and {} {} beside it", packed.blobs, bodies(packed.blobs)));
        if let count @ 1.. = packed.left_out {
            say(format!("left out: {count} private {}; it cannot be replayed", bodies(count)));
        }
        Ok(0)
    }
}

/// Restore a packed trace: DIR/trace.jsonl, its bodies, and its policy as DIR/trace.jsonl.policy
#[derive(Debug, clap::Args)]
pub(super) struct UnpackCommand {
    /// The packed trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The directory to restore it in; nothing in it is overwritten
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
}

impl UnpackCommand {
    /// Unpacks.
    pub(super) fn run(self) -> Result<u8, Failure> {
        let opened = trace::open(&self.file).map_err(unreadable)?;
        if !opened.is_packed() {
            let shown = escape::text(&self.file.to_string_lossy());
            let mut start = [0; 64];
            let read = File::open(opened.path()).and_then(|mut file| file.read(&mut start));
            let is_trace = trace::looks_like_a_trace(&start[..read.unwrap_or_default()]);
            let how = if is_trace { ": it can be used as it is" } else { "" };
            return Err(Failure::usage(format!("{shown} is no packed trace{how}")));
        }
        intact(&opened)?;
        let shown = escape::text(&self.output.to_string_lossy());
        let restored = restore(opened.path(), &self.output);
        restored.map_err(|error| Failure::usage(format!("cannot unpack into {shown}: {error}")))?;
        say(format!("unpacked as {}", escape::text(&self.output.join(DEFAULT_NAME).to_string_lossy())));
        Ok(0)
    }
}

/// Copies a trace that lies apart, and what belongs to it, into `directory`, the trace itself last.
fn restore(trace: &Path, directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    let names = [BLOBS_SUFFIX, POLICY_SUFFIX, ""].map(|suffix| format!("{DEFAULT_NAME}{suffix}"));
    if let Some(name) = names.iter().find(|name| directory.join(name).symlink_metadata().is_ok()) {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{name} is there already: name another directory with -o"),
        ));
    }
    let partial = tempdir_in(directory)?;
    let copied = names.iter().try_for_each(|name| copy(&trace.with_file_name(name), &partial.join(name)));
    let placed = copied.and_then(|()| names.iter().try_for_each(|name| place(&partial, directory, name)));
    let _ = fs::remove_dir_all(&partial);
    placed
}

/// A new directory in `directory`.
fn tempdir_in(directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join(format!(".unpack-{}", std::process::id()));
    DirBuilder::new().mode(DIRECTORY_MODE).create(&path)?;
    Ok(path)
}

/// Copies a file, or a directory of files; what is not there is left out.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = match from.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !found.is_dir() {
        let mut to = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(to)?;
        return io::copy(&mut File::open(from)?, &mut to).map(drop);
    }
    DirBuilder::new().mode(DIRECTORY_MODE).create(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

/// Gives it its place, if that is free.
fn place(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    match renameat2(AT_FDCWD, &from.join(name), AT_FDCWD, &to.join(name), RenameFlags::RENAME_NOREPLACE) {
        Err(nix::errno::Errno::ENOENT) if from.join(name).symlink_metadata().is_err() => Ok(()),
        other => Ok(other?),
    }
}

/// Refuses a trace that is not what was recorded.
fn intact(opened: &Opened) -> Result<Held, Failure> {
    let (held, found) = opened.verify().map_err(unreadable)?;
    let shown = escape::text(&opened.name().to_string_lossy());
    match found.outcome {
        Outcome::Tampered { entry, reason } => {
            return Err(Failure::diverged(format!("{shown}: TAMPERED — at entry {entry}: {reason}")));
        }
        Outcome::Unsealed | Outcome::Torn { .. } => {
            say(format!("{shown} is not sealed: nothing says that this is all"));
        }
        Outcome::Sealed => {}
    }
    if found.lacking.is_some() {
        return Err(Failure::usage(format!(
            "{shown} is without its bodies: a trace is moved together with the directory {BLOBS_SUFFIX} beside it"
        )));
    }
    if found.left_out > 0 {
        say(format!("{shown} is without its private parts: {} were left out", found.left_out));
    }
    Ok(held)
}

fn unreadable(error: TraceError) -> Failure {
    Failure::usage(error.to_string())
}

fn say(text: String) {
    // A closed stderr has no reader to tell.
    let _ = writeln!(io::stderr(), "agentbox: {text}");
}
