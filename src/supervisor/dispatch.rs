//! Takes one waiting call and hands it to the part that judges it.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;

use super::attributes::{self, Which};
use super::call::{Call, Reply};
use super::request::Request;
use super::task::Task;
use super::{Stop, Supervisor};
use crate::sys::refused::Refused;
use crate::sys::seccomp::{self, Answer, Notification};

impl Supervisor {
    pub(super) fn serve_one(&mut self) -> Result<(), Stop> {
        let notification = match seccomp::receive(self.listener.as_fd()) {
            Ok(notification) => notification,
            // The task was killed before it was heard.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => return Ok(()),
            Err(source) => return Err(Stop::Receive { call: "SECCOMP_IOCTL_NOTIF_RECV", source }),
        };
        // An effect whose entry has no room must not happen.
        self.recorder.make_room()?;
        self.hand_over.called(notification.pid);
        if matches!(i64::from(notification.number), libc::SYS_write | libc::SYS_writev) {
            return self.serve_write(notification);
        }
        if i64::from(notification.number) == libc::SYS_exit_group {
            return self.serve_end(notification);
        }
        let (reply, task) = self.judge_call(&notification)?;
        let begun = Instant::now();
        let sent = match (reply, task) {
            (Reply::Later(find), Some(task)) => match self.wait_for(notification.id, &task, find) {
                Ok(()) => return Ok(()),
                Err(errno) => answer(&self.listener, notification.id, Reply::Errno(errno)),
            },
            (Reply::Descriptor { file, close_on_exec }, _) => {
                self.give_at_hand(notification.id, &file, close_on_exec)
            }
            (reply, _) => self.answer_at_hand(notification.id, reply),
        };
        self.hand_over.answered(begun.elapsed());
        self.keep_statuses(false)?;
        sent.map_err(|refused| Stop::Receive { call: refused.call, source: refused.source })
    }

    /// Answers: the task is woken on this CPU, or where it was.
    fn answer_at_hand(&mut self, id: u64, reply: Reply) -> Result<(), Refused> {
        if self.hand_over.is_here() {
            return answer(&self.listener, id, reply);
        }
        // Older kernels know no difference.
        let _ = seccomp::wake_here(self.listener.as_fd(), false);
        let answered = answer(&self.listener, id, reply);
        let _ = seccomp::wake_here(self.listener.as_fd(), true);
        answered
    }

    /// Answers with a descriptor: in one step, or where the task is drawn in to this CPU in two, so
    /// that it goes on only when it may run anywhere again.
    fn give_at_hand(&mut self, id: u64, file: &OwnedFd, close_on_exec: bool) -> Result<(), Refused> {
        let Some(drawn_in) = self.hand_over.draw_in() else {
            let begun = Instant::now();
            let given = give(&self.listener, id, file, close_on_exec);
            self.hand_over.gave(begun.elapsed());
            return tolerant(given);
        };
        let number = seccomp::add_descriptor(self.listener.as_fd(), id, file.as_fd(), close_on_exec);
        drop(drawn_in);
        tolerant(give_number(&self.listener, id, number))
    }

    /// Reads a path argument of a call that waits.
    pub(super) fn path_of(&self, call: &Call, address: u64) -> nix::Result<Vec<u8>> {
        let path = call.path(address)?;
        self.check_waiting(call)?;
        Ok(path)
    }

    /// Asked once the memory of a call was read, and before anything is done for it: killed meanwhile, or gone by
    /// another thread's execve(2), what was read may be of the next program.
    pub(super) fn check_waiting(&self, call: &Call) -> nix::Result<()> {
        if seccomp::still_waits(self.listener.as_fd(), call.id) { Ok(()) } else { Err(Errno::ESRCH) }
    }

    fn judge_call(&mut self, notification: &Notification) -> Result<(Reply, Option<Rc<Task>>), Stop> {
        // Whoever waits in it, what is read is asked about once it is known who that is.
        let request = Request::is_one(notification.number).then(|| Request::read(notification));
        if let Some(Ok(request)) = &request
            && self.may_continue(notification, request)
        {
            self.mark_call(notification.pid, notification.number.unsigned_abs().into())?;
            return Ok((Reply::Continue, None));
        }
        let found = match &request {
            Some(Ok(request)) if request.is_relative() => {
                self.tasks.find_with_start(notification.pid, request.directory)
            }
            _ => self.tasks.find(notification.pid).map(|task| (task, None)),
        };
        let (task, start) = match found {
            Ok(found) => found,
            // Gone, or out of sight: it gets no answer that it could use.
            Err(errno) => {
                self.host_refused("open(/proc/PID)", errno.into());
                return Ok((Reply::Errno(Errno::ESRCH), None));
            }
        };
        if request.is_none() && !seccomp::still_waits(self.listener.as_fd(), notification.id) {
            return Ok((Reply::Errno(Errno::ESRCH), None));
        }
        if self.command_pid.is_none() {
            self.command_pid = Some(task.tgid);
            for signal in std::mem::take(&mut self.early_signals) {
                self.forward(signal.cast_unsigned());
            }
        }
        let Notification { id, number, arguments, .. } = *notification;
        let call = Call { id, number, arguments, task };
        self.mark_clock(&call)?;
        let reply = match request {
            Some(request) => self.open(&call, request, start)?,
            None => self.dispatch(&call)?,
        };
        Ok((reply, Some(call.task)))
    }

    fn dispatch(&mut self, call: &Call) -> Result<Reply, Stop> {
        let [a, b, c, d, e, _] = call.arguments;
        let here = libc::AT_FDCWD;
        let at = |register: u64| call.int(register);
        match i64::from(call.number) {
            libc::SYS_execve | libc::SYS_execveat => self.exec(call),
            libc::SYS_connect => self.connect(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_listen => self.listen(call),
            libc::SYS_socket => self.unix_datagram(call),
            libc::SYS_socketpair => self.datagram_pair(call),
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
            libc::SYS_flock => self.lock(call),
            libc::SYS_ioctl => Ok(self.set_foreground(call)),
            libc::SYS_getdents64 | libc::SYS_getdents => Ok(self.list(call)),
            libc::SYS_stat | libc::SYS_lstat | libc::SYS_fstat | libc::SYS_newfstatat | libc::SYS_statx => {
                self.show_status(call)
            }
            libc::SYS_clock_gettime | libc::SYS_gettimeofday | libc::SYS_time => self.read_clock(call),
            libc::SYS_sysinfo => Ok(self.show_sysinfo(call)),
            libc::SYS_statfs | libc::SYS_fstatfs => self.show_space(call),
            libc::SYS_getrandom => Ok(self.get_random(call)),
            libc::SYS_alarm | libc::SYS_setitimer | libc::SYS_timer_settime | libc::SYS_timerfd_create => {
                Ok(self.note_timer(call))
            }
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

/// Sends the answer. A task that was killed meanwhile needs none: ENOENT.
pub(super) fn answer(listener: &Arc<OwnedFd>, id: u64, reply: Reply) -> Result<(), Refused> {
    let sent = match reply {
        Reply::Continue => send(listener, id, Answer::Continue),
        Reply::Errno(errno) => send(listener, id, Answer::Errno(errno as i32)),
        Reply::Value(value) => send(listener, id, Answer::Value(value)),
        Reply::Descriptor { file, close_on_exec } => {
            let number = seccomp::add_descriptor(listener.as_fd(), id, file.as_fd(), close_on_exec);
            // Before the task goes on: whoever opens the other end of a pipe next would find this one.
            drop(file);
            give_number(listener, id, number)
        }
        Reply::Interrupted(number) => send(listener, id, Answer::Errno(number)),
        // A thread has no threads of its own.
        Reply::Later(_) => send(listener, id, Answer::Errno(libc::EAGAIN)),
    };
    tolerant(sent)
}

fn tolerant(sent: Result<(), Refused>) -> Result<(), Refused> {
    match sent {
        Err(refused) if refused.source.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn send(listener: &Arc<OwnedFd>, id: u64, answer: Answer) -> Result<(), Refused> {
    seccomp::answer(listener.as_fd(), id, answer).map_err(Refused::by("ioctl(SECCOMP_IOCTL_NOTIF_SEND)"))
}

fn give(listener: &Arc<OwnedFd>, id: u64, file: &OwnedFd, close_on_exec: bool) -> Result<(), Refused> {
    match seccomp::answer_with_descriptor(listener.as_fd(), id, file.as_fd(), close_on_exec) {
        Ok(()) => Ok(()),
        Err(error) => no_descriptor(listener, id, error),
    }
}

fn give_number(listener: &Arc<OwnedFd>, id: u64, number: std::io::Result<i64>) -> Result<(), Refused> {
    match number {
        Ok(number) => send(listener, id, Answer::Value(number)),
        Err(error) => no_descriptor(listener, id, error),
    }
}

fn no_descriptor(listener: &Arc<OwnedFd>, id: u64, error: std::io::Error) -> Result<(), Refused> {
    match error.raw_os_error() {
        // The host has no such answer: without one the task would wait for ever.
        Some(libc::EINVAL | libc::ENOTTY | libc::ENOSYS) => {
            Err(Refused::by("ioctl(SECCOMP_IOCTL_NOTIF_ADDFD)")(error))
        }
        // A full descriptor table is told to the task, and so is a security module that objects.
        errno => send(listener, id, Answer::Errno(errno.unwrap_or(libc::EIO))),
    }
}
