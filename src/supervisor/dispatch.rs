//! Takes one waiting call and hands it to the part that judges it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;

use super::attributes::{self, Which};
use super::call::{Call, Reply};
use super::{Stop, Supervisor};
use crate::sys::seccomp::{self, Answer, Notification};

impl Supervisor {
    pub(super) fn serve_one(&mut self) -> Result<(), Stop> {
        let notification = match seccomp::receive(self.listener.as_fd()) {
            Ok(notification) => notification,
            // The task was killed before it was heard.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => return Ok(()),
            Err(source) => return Err(Stop::Receive { call: "SECCOMP_IOCTL_NOTIF_RECV", source }),
        };
        let reply = self.judge_call(&notification)?;
        answer(&self.listener, notification.id, reply);
        Ok(())
    }

    fn judge_call(&mut self, notification: &Notification) -> Result<Reply, Stop> {
        // Gone, or out of sight: it gets no answer that it could use.
        let Ok(task) = self.tasks.find(notification.pid) else { return Ok(Reply::Errno(Errno::ESRCH)) };
        if !seccomp::still_waits(self.listener.as_fd(), notification.id) {
            return Ok(Reply::Errno(Errno::ESRCH));
        }
        if self.command_pid.is_none() {
            self.command_pid = Some(task.tgid);
        }
        let call = Call { number: notification.number, arguments: notification.arguments, task };
        self.dispatch(&call)
    }

    fn dispatch(&mut self, call: &Call) -> Result<Reply, Stop> {
        let [a, b, c, d, e, _] = call.arguments;
        let here = libc::AT_FDCWD;
        let at = |register: u64| call.int(register);
        match i64::from(call.number) {
            libc::SYS_open | libc::SYS_creat | libc::SYS_openat | libc::SYS_openat2 => self.open(call),
            libc::SYS_execve | libc::SYS_execveat => self.exec(call),
            libc::SYS_connect => self.connect(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_listen => self.listen(call),
            libc::SYS_socket | libc::SYS_socketpair => self.unix_datagram(call),
            libc::SYS_mkdir => self.make_directory(call, here, a, b),
            libc::SYS_mkdirat => self.make_directory(call, at(a), b, c),
            libc::SYS_mknod => self.make_node(call, here, a, b),
            libc::SYS_mknodat => self.make_node(call, at(a), b, c),
            libc::SYS_unlink => self.remove(call, here, a, 0),
            libc::SYS_rmdir => self.remove(call, here, a, libc::AT_REMOVEDIR),
            libc::SYS_unlinkat => self.remove(call, at(a), b, at(c)),
            libc::SYS_symlink => self.make_link(call, a, here, b),
            libc::SYS_symlinkat => self.make_link(call, a, at(b), c),
            libc::SYS_rename => self.rename(call, (here, a), (here, b), 0),
            libc::SYS_renameat => self.rename(call, (at(a), b), (at(c), d), 0),
            libc::SYS_renameat2 => self.rename(call, (at(a), b), (at(c), d), e),
            libc::SYS_link => self.hard_link(call, (here, a), (here, b), 0),
            libc::SYS_linkat => self.hard_link(call, (at(a), b), (at(c), d), at(e)),
            libc::SYS_truncate => self.truncate(call, a, b),
            _ => self.dispatch_attributes(call),
        }
    }

    fn dispatch_attributes(&mut self, call: &Call) -> Result<Reply, Stop> {
        let [a, b, c, d, e, _] = call.arguments;
        let here = libc::AT_FDCWD;
        let at = |register: u64| call.int(register);
        let path = |path, follow| Which::Path { directory: here, path, follow };
        let follow_unless = |flags: u64| at(flags) & libc::AT_SYMLINK_NOFOLLOW == 0;
        match i64::from(call.number) {
            libc::SYS_chmod => self.change_mode(call, path(a, true), b),
            libc::SYS_fchmod => self.change_mode(call, Which::Descriptor(at(a)), b),
            libc::SYS_fchmodat => {
                self.change_mode(call, Which::Path { directory: at(a), path: b, follow: true }, c)
            }
            libc::SYS_fchmodat2 => {
                let which = Which::PathOrDescriptor { directory: at(a), path: b, follow: follow_unless(d) };
                self.change_mode(call, which, c)
            }
            libc::SYS_chown => self.change_owner(call, path(a, true), b, c),
            libc::SYS_lchown => self.change_owner(call, path(a, false), b, c),
            libc::SYS_fchown => self.change_owner(call, Which::Descriptor(at(a)), b, c),
            libc::SYS_fchownat => {
                let which = Which::PathOrDescriptor { directory: at(a), path: b, follow: follow_unless(e) };
                self.change_owner(call, which, c, d)
            }
            libc::SYS_utime => self.times(call, path(a, true), attributes::seconds(call, b)),
            libc::SYS_utimes => self.times(call, path(a, true), attributes::timevals(call, b)),
            libc::SYS_futimesat if b == 0 => {
                self.times(call, Which::Descriptor(at(a)), attributes::timevals(call, c))
            }
            libc::SYS_futimesat => {
                let which = Which::Path { directory: at(a), path: b, follow: true };
                self.times(call, which, attributes::timevals(call, c))
            }
            libc::SYS_utimensat if b == 0 => {
                self.times(call, Which::Descriptor(at(a)), attributes::timespecs(call, c))
            }
            libc::SYS_utimensat => {
                let which = Which::PathOrDescriptor { directory: at(a), path: b, follow: follow_unless(d) };
                self.times(call, which, attributes::timespecs(call, c))
            }
            libc::SYS_setxattr => self.set_attribute(call, path(a, true), [b, c, d, e]),
            libc::SYS_lsetxattr => self.set_attribute(call, path(a, false), [b, c, d, e]),
            libc::SYS_fsetxattr => self.set_attribute(call, Which::Descriptor(at(a)), [b, c, d, e]),
            libc::SYS_removexattr => self.remove_attribute(call, path(a, true), b),
            libc::SYS_lremovexattr => self.remove_attribute(call, path(a, false), b),
            libc::SYS_fremovexattr => self.remove_attribute(call, Which::Descriptor(at(a)), b),
            // Newer forms: programs fall back to the older ones.
            _ => Ok(Reply::Errno(Errno::ENOSYS)),
        }
    }

    fn times(
        &mut self,
        call: &Call,
        which: Which,
        times: nix::Result<[nix::sys::time::TimeSpec; 2]>,
    ) -> Result<Reply, Stop> {
        match times {
            Ok(times) => self.change_times(call, which, times),
            Err(errno) => Ok(Reply::Errno(errno)),
        }
    }
}

/// Threads that wait in the stead of tasks, and the most that there may be: one that waits for a
/// task that was killed goes on waiting.
static WAITING: AtomicUsize = AtomicUsize::new(0);
const MOST_WAITING: usize = 2048;

/// Sends the answer. A task that was killed meanwhile needs none: ENOENT.
fn answer(listener: &Arc<std::os::fd::OwnedFd>, id: u64, reply: Reply) {
    let sent = match reply {
        Reply::Continue => seccomp::answer(listener.as_fd(), id, Answer::Continue),
        Reply::Errno(errno) => seccomp::answer(listener.as_fd(), id, Answer::Errno(errno as i32)),
        Reply::Value(value) => seccomp::answer(listener.as_fd(), id, Answer::Value(value)),
        Reply::Descriptor { file, close_on_exec } => {
            seccomp::answer_with_descriptor(listener.as_fd(), id, file.as_fd(), close_on_exec)
        }
        Reply::Later(find) => {
            let listener_of_thread = Arc::clone(listener);
            let room = WAITING.fetch_add(1, Ordering::Relaxed) < MOST_WAITING;
            let wait = move || {
                answer(&listener_of_thread, id, find());
                WAITING.fetch_sub(1, Ordering::Relaxed);
            };
            if room && std::thread::Builder::new().name("waiter".to_owned()).spawn(wait).is_ok() {
                return;
            }
            WAITING.fetch_sub(1, Ordering::Relaxed);
            seccomp::answer(listener.as_fd(), id, Answer::Errno(libc::EAGAIN))
        }
    };
    // A full descriptor table of the task is told to it; everything else has no receiver.
    if let Err(error) = sent
        && let Some(errno @ (libc::EMFILE | libc::ENFILE)) = error.raw_os_error()
    {
        // Killed in between: nobody is left to hear it.
        let _ = seccomp::answer(listener.as_fd(), id, Answer::Errno(errno));
    }
}
