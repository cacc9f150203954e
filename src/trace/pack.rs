//! A trace in one file: the trace, the policy that it holds, and its blobs as they are stored.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::blob_check::{content_is, is_redacted, open_blob};
use super::error::TraceError;
use super::held::{Copying, Held};
use super::layout::{
    BLOB_SUFFIX, BLOBS_SUFFIX, DEFAULT_NAME, DIRECTORY_MODE, FILE_MODE, POLICY_SUFFIX, REDACTED_NAME,
    blob_name,
};
use super::reader::{Line, Reader};
use super::scan::{BlobMention, Scanner};
use super::ustar::{self, BLOCK, END, Fault};

/// Names of members; the trace comes first.
const TRACE: &str = DEFAULT_NAME;
const POLICY: &str = "policy";
const BLOBS: &str = "blobs/";

/// What was packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packed {
    /// Bodies that are in it.
    pub blobs: u64,
    /// Private ones that were left out.
    pub left_out: u64,
}

/// Writes a trace, which was verified, with its blobs into `to`; without the private ones if it is to be `redacted`.
///
/// # Errors
/// When something cannot be read or written, or a blob was changed since.
pub fn pack(trace: &Held, redacted: bool, to: &File) -> io::Result<Packed> {
    let mut to = BufWriter::new(to);
    let file = trace.read()?;
    let size = file.metadata()?.len();
    member(&mut to, TRACE, size, file)?;
    if let Some(policy) = policy_of(trace.read()?)?.flatten() {
        member(&mut to, POLICY, policy.len() as u64, policy.as_bytes())?;
    }
    let directory = trace.blobs().directory();
    let was_redacted = is_redacted(directory);
    let mut packed = Packed::default();
    for (sha256, is_public) in mentioned(trace.read()?)? {
        if redacted && !is_public {
            packed.left_out += 1;
            continue;
        }
        match open_blob(directory, &sha256) {
            Ok(file) => {
                packed.blobs += 1;
                let size = file.metadata()?.len();
                to.write_all(&ustar::header(&format!("{BLOBS}{}", blob_name(&sha256)), size))?;
                copy_checked(&mut to, &sha256, file.take(size))?;
                to.write_all(&END[..ustar::padding(size)])?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && was_redacted && !is_public => {
                packed.left_out += 1;
            }
            Err(error) => return Err(error),
        }
    }
    if redacted || was_redacted {
        member(&mut to, &format!("{BLOBS}{REDACTED_NAME}"), 0, io::empty())?;
    }
    to.write_all(&END)?;
    to.flush()?;
    Ok(packed)
}

fn member(to: &mut impl Write, name: &str, size: u64, content: impl Read) -> io::Result<()> {
    to.write_all(&ustar::header(name, size))?;
    if io::copy(&mut content.take(size), to)? != size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    to.write_all(&END[..ustar::padding(size)])
}

/// Copies a blob as it is stored, and checks that it is the one of that name.
fn copy_checked(to: &mut impl Write, sha256: &str, file: io::Take<File>) -> io::Result<()> {
    let mut file = Copying { from: file, to };
    let is_right =
        content_is(&mut file, &BlobMention { sha256: sha256.to_owned(), size: None, private: false });
    if file.from.limit() > 0 || !is_right? {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the blob {sha256} was altered")));
    }
    Ok(())
}

/// The blobs that a trace refers to, and whether an entry does so that does not call it private.
fn mentioned(trace: File) -> io::Result<BTreeMap<String, bool>> {
    let mut blobs = BTreeMap::new();
    let mut reader = Reader::new(trace);
    let mut scanner = Scanner::default();
    while let Some(Line::Whole(line)) = reader.next_line()? {
        if scanner.scan(line).is_err() {
            continue;
        }
        for mention in scanner.blobs() {
            *blobs.entry(mention.sha256.clone()).or_default() |= !mention.private;
        }
    }
    Ok(blobs)
}

/// The policy that the first entry of a trace holds, if that can be read.
fn policy_of(trace: File) -> io::Result<Option<Option<String>>> {
    let mut reader = Reader::new(trace);
    let Some(Line::Whole(line)) = reader.next_line()? else { return Ok(None) };
    let Ok(entry) = serde_json::from_slice::<Value>(line) else { return Ok(None) };
    let policy = entry.get("args").and_then(|args| args.get("policy")).and_then(Value::as_str);
    Ok(Some(policy.map(str::to_owned)))
}

/// Whether the file at `path` is meant to be a packed trace.
pub(super) fn is_packed(path: &Path) -> bool {
    let mut block = [0; BLOCK];
    let flags = nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    file.and_then(|mut file| file.read_exact(&mut block)).is_ok() && ustar::begins_with(&block, TRACE)
}

/// Unpacks `packed` into `directory`, which is empty, and gives the path of the trace. What is in it was not verified.
///
/// # Errors
/// When it is no packed trace, or something cannot be read or written.
pub fn unpack(packed: &Path, directory: &Path) -> Result<PathBuf, TraceError> {
    let read = |source| TraceError::Read { path: packed.to_owned(), source };
    let file = File::open(packed).map_err(read)?;
    let left = file.metadata().map_err(read)?.len();
    let fault = |fault| TraceError::Packed { path: packed.to_owned(), fault };
    let mut unpacking = Unpacking { input: BufReader::new(file), left, directory, latest: None };
    match unpacking.all() {
        Ok(trace) => Ok(trace),
        Err(Stopped::Fault(found)) => Err(fault(found)),
        Err(Stopped::Read(source)) => Err(read(source)),
        Err(Stopped::Create(path, source)) => Err(TraceError::Create { path, source }),
    }
}

enum Stopped {
    Fault(Fault),
    Read(io::Error),
    Create(PathBuf, io::Error),
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

struct Unpacking<'a> {
    input: BufReader<File>,
    /// Bytes that were not read yet.
    left: u64,
    directory: &'a Path,
    /// The blob that was unpacked last: they come in order, each once.
    latest: Option<String>,
}

impl Unpacking<'_> {
    fn all(&mut self) -> Result<PathBuf, Stopped> {
        let trace = self.directory.join(TRACE);
        let foreign = |name: String| Stopped::Fault(Fault::Foreign { name });
        match self.next()? {
            Some((name, size)) if name == TRACE => self.put(&name, size, &trace)?,
            Some((name, _)) => return Err(foreign(name)),
            None => return Err(Fault::CutOff.into()),
        }
        let mentioned = File::open(&trace).and_then(mentioned).map_err(Stopped::Read)?;
        let policy = File::open(&trace).and_then(policy_of).map_err(Stopped::Read)?;
        let blobs = self.directory.join(format!("{TRACE}{BLOBS_SUFFIX}"));
        let made = DirBuilder::new().mode(DIRECTORY_MODE).create(&blobs);
        made.map_err(|source| Stopped::Create(blobs.clone(), source))?;
        let mut next = self.next()?;
        if let Some((name, size)) = next.take_if(|(name, _)| name == POLICY) {
            let path = self.directory.join(format!("{TRACE}{POLICY_SUFFIX}"));
            self.put(&name, size, &path)?;
            let packed = std::fs::read(&path).map_err(|source| Stopped::Create(path.clone(), source))?;
            // A beginning that cannot be read is for the verifier to tell.
            if policy.is_some_and(|policy| policy.map(String::into_bytes) != Some(packed)) {
                return Err(Fault::OtherPolicy.into());
            }
            next = self.next()?;
        }
        while let Some((name, size)) = next {
            let file = self.blob(&name, &mentioned).ok_or_else(|| foreign(name.clone()))?;
            self.put(&name, size, &blobs.join(file))?;
            next = self.next()?;
        }
        if self.left > 0 { Err(Fault::AfterEnd.into()) } else { Ok(trace) }
    }

    /// The name in the directory of blobs of the member `name`, if it is one that comes next.
    fn blob(&mut self, name: &str, mentioned: &BTreeMap<String, bool>) -> Option<String> {
        let file = name.strip_prefix(BLOBS)?;
        let sha256 = file.strip_suffix(BLOB_SUFFIX);
        let is_known = file == REDACTED_NAME || sha256.is_some_and(|sha256| mentioned.contains_key(sha256));
        let is_next = self.latest.as_deref().is_none_or(|latest| latest < file);
        self.latest = Some(file.to_owned());
        (is_known && is_next).then(|| file.to_owned())
    }

    /// The name and size of the next member, or `None` at the end.
    fn next(&mut self) -> Result<Option<(String, u64)>, Stopped> {
        let mut block = [0; BLOCK];
        self.take(&mut block)?;
        let Some((name, size)) = ustar::read(&block)? else {
            // The second one of the end.
            self.take(&mut block)?;
            return if block == [0; BLOCK] { Ok(None) } else { Err(Fault::AfterEnd.into()) };
        };
        if size > self.left { Err(Fault::TooLarge { name, size }.into()) } else { Ok(Some((name, size))) }
    }

    fn take(&mut self, bytes: &mut [u8]) -> Result<(), Stopped> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.left = self.left.saturating_sub(bytes.len() as u64);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Fault::CutOff.into()),
            Err(error) => Err(Stopped::Read(error)),
        }
    }

    /// Unpacks the content of the member `name`.
    fn put(&mut self, name: &str, size: u64, path: &Path) -> Result<(), Stopped> {
        let create = |source| Stopped::Create(path.to_owned(), source);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path).map_err(create)?;
        let copied = io::copy(&mut Read::by_ref(&mut self.input).take(size), &mut file).map_err(create)?;
        if copied != size {
            return Err(Fault::CutOff.into());
        }
        self.left -= size;
        let mut padding = [0; BLOCK];
        let padding = &mut padding[..ustar::padding(size)];
        self.take(padding)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Fault::Header { name: name.to_owned() }.into());
        }
        Ok(())
    }
}
