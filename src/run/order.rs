//! What the launcher tells the cloned child: the parts of the plan, each when it is needed.
//!
//! The clone is made before the plan is, so that its namespaces are ready by then. What is not said
//! here, the run does not have.

use std::borrow::Cow;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use nix::errno::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::RunError;
use super::message::{Failure, Step};
use crate::fsview::{Content, FsSpec, LandlockRule};
use crate::ns::channel;
use crate::ns::net::NetSpec;
use crate::plan::LaunchPlan;
use crate::policy::lossless;
use crate::supervisor::filter::{FilterOptions, compile};
use crate::sys::process;
use crate::sys::seccomp::Instruction;

/// For pid 1: what it builds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cell<'a> {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) hostname: Cow<'a, str>,
    pub(super) net: Cow<'a, NetSpec>,
    pub(super) fs: Cow<'a, FsSpec>,
    /// Sockets of the host that have a door in the view.
    #[serde(with = "lossless::paths")]
    pub(super) unix: Vec<PathBuf>,
}

impl<'a> Cell<'a> {
    pub(super) fn of(plan: &'a LaunchPlan) -> Self {
        Self {
            uid: plan.process.uid,
            gid: plan.process.gid,
            hostname: Cow::Borrowed(&plan.process.hostname),
            net: Cow::Borrowed(&plan.net),
            fs: Cow::Borrowed(&plan.fs),
            unix: plan.unix.clone(),
        }
    }
}

/// For the command's process: what it executes, and within which limits.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start<'a> {
    #[serde(with = "lossless::path")]
    pub(super) cwd: PathBuf,
    #[serde(with = "lossless::path")]
    pub(super) program: PathBuf,
    #[serde(with = "lossless::paths")]
    pub(super) argv: Vec<PathBuf>,
    /// `NAME=VALUE`
    #[serde(with = "lossless::paths")]
    pub(super) env: Vec<PathBuf>,
    pub(super) landlock: Cow<'a, [LandlockRule]>,
    /// Programs are mapped where they always are.
    pub(super) fixed_addresses: bool,
}

impl<'a> Start<'a> {
    pub(super) fn of(plan: &'a LaunchPlan) -> Result<Self, RunError> {
        let process = &plan.process;
        let env = process.env.iter().map(|(name, value)| {
            let mut variable = name.clone();
            variable.push("=");
            variable.push(value);
            word(&variable)
        });
        Ok(Self {
            cwd: process.cwd.clone(),
            program: word(process.program.as_os_str())?,
            argv: process.argv.iter().map(|argument| word(argument)).collect::<Result<_, _>>()?,
            env: env.collect::<Result<_, _>>()?,
            landlock: Cow::Borrowed(&plan.landlock),
            fixed_addresses: plan.replay,
        })
    }
}

/// A word that the kernel takes.
fn word(text: &OsStr) -> Result<PathBuf, RunError> {
    if text.as_bytes().contains(&0) { Err(RunError::ZeroByte) } else { Ok(text.into()) }
}

/// The same words for execve(2).
pub(super) fn c_strings(words: &[PathBuf]) -> Result<Vec<CString>, Failure> {
    words.iter().map(|word| c_string(word.clone().into_os_string())).collect()
}

/// The same word for execve(2).
pub(super) fn c_string(word: OsString) -> Result<CString, Failure> {
    CString::new(word.into_encoded_bytes())
        .map_err(|_| Failure::new(Step::Order, "execve", &Errno::EINVAL.into()))
}

/// The filter where Landlock keeps signals inside, and the one for elsewhere.
pub(super) fn filters(
    plan: &LaunchPlan,
    (replayed, pipes): (bool, [bool; 2]),
) -> Result<[Vec<Instruction>; 2], RunError> {
    let (full_mediation, hides_names) = (plan.access.policy.full_mediation(), plan.hides_names());
    let filter = |signals_are_scoped| -> Result<Vec<Instruction>, RunError> {
        let replayable = plan.replay;
        let options = FilterOptions {
            full_mediation,
            signals_are_scoped,
            replayable,
            replayed,
            hides_names,
            orders_output: replayable && pipes[0],
            orders_error: replayable && pipes[1],
        };
        let program = compile(options).map_err(RunError::Filter)?;
        Ok(program.iter().map(|one| (one.code, one.jt, one.jf, one.k)).collect())
    };
    Ok([filter(true)?, filter(false)?])
}

/// Tells the child; a child that is gone has said why on the channel.
pub(super) fn tell(socket: BorrowedFd<'_>, order: &impl Serialize) -> Result<(), RunError> {
    let bytes =
        serde_json::to_vec(order).map_err(|error| RunError::call("the plan")(std::io::Error::from(error)))?;
    tell_bytes(socket, &bytes)
}

/// Tells the child the two programs of its filter.
pub(super) fn tell_filters(
    socket: BorrowedFd<'_>,
    plan: &LaunchPlan,
    (replayed, pipes): (bool, [bool; 2]),
) -> Result<(), RunError> {
    filters(plan, (replayed, pipes))?.iter().try_for_each(|filter| tell_bytes(socket, &pack(filter)))
}

/// Hands the child the files of the host that generated ones take over: it has lost its rights to those of unmapped
/// users. It reads them while the launcher goes on.
pub(super) fn tell_contents<'a>(
    socket: BorrowedFd<'_>,
    contents: impl Iterator<Item = &'a Content>,
    authority: &str,
) -> Result<(), RunError> {
    let mut contents = contents.peekable();
    if contents.peek().is_none() {
        return Ok(());
    }
    tell(socket, &authority)?;
    for content in contents {
        for file in content.open()? {
            match channel::send(socket, &[SOURCE], &[file.as_fd()]) {
                Err(error) if is_gone(&error) => return Ok(()),
                other => other.map_err(RunError::call("sendmsg"))?,
            }
        }
    }
    Ok(())
}

/// What is shorter is not written by itself.
const SMALL: usize = 16 << 10;

/// The message that a file comes with.
const SOURCE: u8 = b'S';

/// A child that is gone has said why on the channel.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET))
}

/// Tells the child so many bytes.
fn tell_bytes(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), RunError> {
    match channel::send_order(socket, bytes) {
        Err(error) if is_gone(&error) => Ok(()),
        other => other.map_err(RunError::call("sendmsg")),
    }
}

/// Hears one that is written as JSON.
pub(super) fn hear<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<T, Failure> {
    let bytes = hear_bytes(socket).map_err(|error| Failure::new(Step::Order, "recvmsg", &error))?;
    serde_json::from_slice(&bytes).map_err(|error| Failure::text(Step::Order, &error))
}

/// Hears one of the two programs.
pub(super) fn hear_filter(socket: BorrowedFd<'_>) -> Result<Vec<Instruction>, Failure> {
    let bytes = hear_bytes(socket).map_err(|error| Failure::new(Step::Order, "recvmsg", &error))?;
    Ok(unpack(&bytes))
}

/// What files of the view take over from files of the host.
pub(super) struct Contents<'a> {
    /// The certificate of the run's authority.
    authority: String,
    /// Each with its files, until it is written.
    contents: Vec<(&'a Content, Vec<File>)>,
}

impl<'a> Contents<'a> {
    /// Hears what [`tell_contents`] told; ends the process when the launcher is gone.
    fn hear(socket: BorrowedFd<'_>, fs: &'a FsSpec) -> std::io::Result<Self> {
        let authority = serde_json::from_slice(&hear_bytes(socket)?)?;
        let hear_one = |_| match channel::receive(socket)?.1.into_iter().next() {
            Some(file) => Ok(File::from(file)),
            None => process::exit_now(125),
        };
        let hear_all = |content: &'a Content| {
            let files = content.sources().map(hear_one).collect::<std::io::Result<_>>()?;
            Ok((content, files))
        };
        let contents = fs.taken_over().map(hear_all).collect::<std::io::Result<_>>()?;
        Ok(Self { authority, contents })
    }

    /// Writes the one of this number into `to`; they are heard when the first is asked for.
    pub(super) fn write(
        heard: &mut Option<Self>,
        (socket, fs): (BorrowedFd<'_>, &'a FsSpec),
        number: usize,
        to: &mut File,
    ) -> std::io::Result<()> {
        let Self { authority, contents } = match heard {
            Some(contents) => contents,
            None => heard.insert(Self::hear(socket, fs)?),
        };
        let (content, files) = contents.get_mut(number).ok_or(Errno::EBADMSG)?;
        let mut to = BufWriter::with_capacity(SMALL, to);
        content.write(std::mem::take(files), authority, &mut to).map_err(|error| error.source)?;
        to.flush()
    }
}

/// Hears an order; ends the process when the launcher is gone.
fn hear_bytes(socket: BorrowedFd<'_>) -> std::io::Result<Vec<u8>> {
    match channel::receive_order(socket) {
        Ok(None) => process::exit_now(125),
        Ok(Some(bytes)) => Ok(bytes),
        Err(error) => Err(error),
    }
}

fn pack(filter: &[Instruction]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(filter.len() * 8);
    for (code, jump_true, jump_false, operand) in filter {
        bytes.extend(code.to_le_bytes());
        bytes.extend([*jump_true, *jump_false]);
        bytes.extend(operand.to_le_bytes());
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Vec<Instruction> {
    let (instructions, _) = bytes.as_chunks::<8>();
    let unpack_one = |[c0, c1, jump_true, jump_false, k0, k1, k2, k3]: &[u8; 8]| {
        (u16::from_le_bytes([*c0, *c1]), *jump_true, *jump_false, u32::from_le_bytes([*k0, *k1, *k2, *k3]))
    };
    instructions.iter().map(unpack_one).collect()
}

#[cfg(test)]
mod tests {
    use super::{pack, unpack};

    #[test]
    fn a_filter_survives_the_channel() {
        let filter = vec![(0x20, 0, 0, 4), (0x15, 1, 255, 0xc000_003e), (6, 0, 0, u32::MAX)];
        assert_eq!(unpack(&pack(&filter)), filter);
    }
}
