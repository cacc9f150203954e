//! Where the relative paths of a task start: its working directory, or what a descriptor of it refers to.

use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::{Task, Tasks};
use crate::sys::descriptor;

impl Task {
    /// Where a path of it starts that goes out from `directory`, a descriptor or AT_FDCWD.
    pub(in crate::supervisor) fn start(&self, directory: i32) -> nix::Result<OsString> {
        if directory == libc::AT_FDCWD {
            return self.working_directory();
        }
        self.opened(directory).map_err(|errno| if errno == Errno::ENOENT { Errno::EBADF } else { errno })
    }

    /// Its working directory.
    pub(in crate::supervisor) fn working_directory(&self) -> nix::Result<OsString> {
        let (link, name) = match (self.working.get(), self.directory.get()) {
            (Some(link), _) => (link, c""),
            (None, Some(directory)) => {
                let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let link = openat(directory, "cwd", flags, Mode::empty())?;
                (self.working.get_or_init(|| link), c"")
            }
            (None, None) => (self.directory()?, c"cwd"),
        };
        short_link(link, name).unwrap_or_else(|| self.link("cwd"))
    }

    /// What its descriptor `number` refers to.
    pub(in crate::supervisor) fn opened(&self, number: i32) -> nix::Result<OsString> {
        let name = format!("fd/{number}");
        let short =
            CString::new(name.as_str()).ok().and_then(|name| short_link(self.directory().ok()?, &name));
        short.unwrap_or_else(|| self.link(&name))
    }
}

impl Tasks {
    /// Finds the task `tid`, which waits in a call that starts at `directory`, with where that is. Who is told where a
    /// task is need not ask whether it is alive: that is looked up through its own directory of /proc.
    pub(in crate::supervisor) fn find_with_start(
        &mut self,
        tid: i32,
        directory: i32,
    ) -> nix::Result<(Rc<Task>, Option<OsString>)> {
        if let Some(task) = self.known.get(&tid)
            && let Ok(start) = task.start(directory)
        {
            return Ok((Rc::clone(task), Some(start)));
        }
        Ok((self.find(tid)?, None))
    }
}

/// A link that is asked for at nearly every open: the other way allocates a page. `None` where there is more of it.
fn short_link(directory: &OwnedFd, name: &CStr) -> Option<nix::Result<OsString>> {
    let mut target = [0; 256];
    match descriptor::read_link(directory.as_fd(), name, &mut target) {
        Ok(length) if length < target.len() => Some(Ok(OsString::from_vec(target[..length].to_vec()))),
        Ok(_) => None,
        Err(error) => Some(Err(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn who_is_told_where_a_task_is_has_found_it_and_a_task_that_is_gone_is_nowhere() {
        let mut sleep = Command::new("sleep");
        let mut child = sleep.arg("60").current_dir("/proc").stdin(Stdio::null()).spawn().expect("starts");
        let tid = i32::try_from(child.id()).expect("a pid");
        let mut tasks = Tasks::default();
        let mut start =
            |directory| tasks.find_with_start(tid, directory).map(|(task, start)| (task.tid, start));
        // Whoever was not met yet is looked at first.
        assert_eq!(start(libc::AT_FDCWD), Ok((tid, None)));
        for _ in 0..2 {
            assert_eq!(start(libc::AT_FDCWD), Ok((tid, Some("/proc".into()))));
            assert_eq!(start(0), Ok((tid, Some("/dev/null".into()))));
            // It is there all the same.
            assert_eq!(start(99), Ok((tid, None)));
        }
        child.kill().and_then(|()| child.wait()).expect("ends");
        for directory in [libc::AT_FDCWD, 0, 99] {
            assert!(start(directory).is_err());
        }
    }
}
