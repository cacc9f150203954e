//! A system call that the kernel refused: its name, its errno by name, and what usually mends it.

use std::fmt;
use std::io;

use nix::errno::Errno;

/// A call and what the kernel said.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {}", Named(source))]
pub struct Refused {
    /// The call, as its manual page names it.
    pub call: &'static str,
    /// Its errno.
    pub source: io::Error,
}

impl Refused {
    /// For `map_err`: names the call.
    pub fn by<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> Self {
        move |source| Self { call, source: source.into() }
    }
}

/// Shows an error with the name of its errno (`EPERM: Operation not permitted`), which is what the
/// manual pages say.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a>(pub &'a io::Error);

impl fmt::Display for Named<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.raw_os_error() {
            Some(number) => write!(formatter, "{}", Errno::from_raw(number)),
            None => write!(formatter, "{}", self.0),
        }
    }
}

/// What usually makes a call work that gives this errno; `None` where it depends on the call.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_raw(error.raw_os_error()?) {
        Errno::ENOSYS => {
            "Linux 5.19 or newer is needed, and a container's seccomp profile must allow the call"
        }
        Errno::EMFILE => "raise the limit of open files (ulimit -n)",
        Errno::ENFILE => "raise fs.file-max",
        Errno::EAGAIN => "raise the limit of processes (ulimit -u, or the container's pids limit)",
        Errno::ENOMEM => "more memory is needed: raise ulimit -v or the container's memory limit",
        Errno::EFBIG => "raise the limit of the size of files (ulimit -f)",
        Errno::EDQUOT => "raise the quota of the file system",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_shown_by_name() {
        let refused = Refused::by("fsmount")(Errno::EPERM);
        assert_eq!(refused.to_string(), "fsmount: EPERM: Operation not permitted");
        assert_eq!(Named(&io::Error::other("odd")).to_string(), "odd");
    }
}
