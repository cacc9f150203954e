//! What /proc shows of a task: whether it is blocked, and in which call.
//!
//! A task that is seen blocked in the same call twice may have run in between. So the number of times that it
//! was taken from its CPU is read before the first look at its call and after the second: the call is shown of
//! a task alone that is off its CPU (proc_pid_syscall(5)), and a task that has run meanwhile was taken from it
//! once more by then.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::time::Duration;

/// A task that is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocked {
    /// How often it was taken from its CPU.
    pub(super) switches: u64,
    pub(super) call: WaitingCall,
}

/// The call in which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitingCall {
    pub(super) number: i64,
    pub(super) arguments: [u64; 6],
}

/// What a look at a task shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// It waits.
    Blocked(Blocked),
    /// It is dead, and waits to be buried.
    Dead,
    /// It runs, or stands still in our hands, or is gone.
    Moving,
}

/// Calls whose caller waits, uninterruptibly, for the child that shares its memory.
const BIRTHS: [i64; 3] = [libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3];

/// Looks at a task.
pub(super) fn of(task: i32) -> Sight {
    look(task, false)
}

/// Looks at a task that waits for our answer: uninterruptibly, where it came to wait after we had received its call, or
/// has got a signal since (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, seccomp_unotify(2)).
pub(super) fn of_represented(task: i32) -> Sight {
    look(task, true)
}

fn look(task: i32, is_represented: bool) -> Sight {
    let Some((state, switches)) = status(&format!("/proc/{task}/status")) else { return Sight::Moving };
    match state {
        b'Z' | b'X' => Sight::Dead,
        b'S' | b'D' => match call_of(task) {
            Some(call) if state == b'S' || is_represented || BIRTHS.contains(&call.number) => {
                Sight::Blocked(Blocked { switches, call })
            }
            _ => Sight::Moving,
        },
        _ => Sight::Moving,
    }
}

/// Whether a task has not moved since it was seen so.
pub(super) fn is_as_it_was(task: i32, seen: &Blocked) -> bool {
    call_of(task) == Some(seen.call)
        && status(&format!("/proc/{task}/status"))
            .is_some_and(|(state, switches)| switches == seen.switches && (state == b'S' || state == b'D'))
}

/// Whether each of these tasks waits, or is dead, on two looks with nothing between them.
pub(in crate::supervisor) fn are_at_rest(tasks: impl Iterator<Item = i32>) -> bool {
    let seen: Vec<_> = tasks.map(|task| (task, of(task))).collect();
    seen.into_iter().all(|(task, sight)| match sight {
        Sight::Blocked(blocked) => is_as_it_was(task, &blocked),
        Sight::Dead => true,
        Sight::Moving => false,
    })
}

/// The calls in which these tasks wait, with their first arguments, on two such looks; `None` where one does not.
pub(in crate::supervisor) fn calls_at_rest(tasks: impl Iterator<Item = i32>) -> Option<Vec<(i32, i64, u64)>> {
    let mut calls = Vec::new();
    for task in tasks {
        match of(task) {
            Sight::Blocked(blocked) => calls.push((task, blocked)),
            Sight::Dead => {}
            Sight::Moving => return None,
        }
    }
    let is_still = calls.iter().all(|(task, blocked)| is_as_it_was(*task, blocked));
    let call = |(task, Blocked { call, .. }): (i32, Blocked)| (task, call.number, call.arguments[0]);
    is_still.then(|| calls.into_iter().map(call).collect())
}

/// Whether a task waits for room for what it writes, or is dead.
pub(in crate::supervisor) fn waits_to_write(task: i32) -> bool {
    match of(task) {
        Sight::Blocked(blocked) => writes(&blocked),
        Sight::Dead => true,
        Sight::Moving => false,
    }
}

/// Whether a task waits for something else, or is dead.
pub(in crate::supervisor) fn is_elsewhere(task: i32) -> bool {
    match of(task) {
        Sight::Blocked(blocked) => !writes(&blocked),
        Sight::Dead => true,
        Sight::Moving => false,
    }
}

fn writes(blocked: &Blocked) -> bool {
    [libc::SYS_write, libc::SYS_writev].contains(&blocked.call.number)
}

/// For how long a task has run (schedstats of the kernel); no time where the kernel does not count it.
pub(in crate::supervisor) fn has_run(task: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{task}/schedstat")).unwrap_or_default();
    let ran = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(ran.unwrap_or(0))
}

/// Whether a task runs, or waits for a CPU or a disk.
pub(super) fn runs(task: i32) -> bool {
    let state = status(&format!("/proc/{task}/status")).map(|(state, _)| state);
    match state {
        Some(b'D') => call_of(task).is_none_or(|call| !BIRTHS.contains(&call.number)),
        state => state == Some(b'R'),
    }
}

/// Whether it writes to a device, as a terminal, that may take no more for now.
pub(super) fn writes_to_device(task: i32, call: &WaitingCall) -> bool {
    let [descriptor, ..] = call.arguments;
    let path = format!("/proc/{task}/fd/{}", descriptor & 0xffff_ffff);
    [libc::SYS_write, libc::SYS_writev].contains(&call.number)
        && fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device())
}

/// How often a task was taken from its CPU.
pub(super) fn switches(task: i32) -> Option<u64> {
    status(&format!("/proc/{task}/status")).map(|(_, switches)| switches)
}

/// Pid 1 of the run and the threads of this process but the calling one, and how often each was taken from
/// its CPU; `None` when one of them is at work.
pub(super) fn bystanders(init: i32) -> Option<Vec<(String, u64)>> {
    let own = nix::unistd::gettid().as_raw();
    let mut found = vec![format!("/proc/{init}/status")];
    for entry in fs::read_dir("/proc/self/task").ok()? {
        let name = entry.ok()?.file_name();
        let thread: i32 = name.to_str()?.parse().ok()?;
        if thread != own {
            found.push(format!("/proc/self/task/{thread}/status"));
        }
    }
    let asleep = |path: String| match status(&path)? {
        (b'S', switches) => Some((path, switches)),
        _ => None,
    };
    found.into_iter().map(asleep).collect()
}

/// The state of the task behind a file `status`, and how often it was taken from its CPU.
fn status(path: &str) -> Option<(u8, u64)> {
    let text = fs::read(path).ok()?;
    let mut state = None;
    let mut switches = 0_u64;
    for line in text.split(|byte| *byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"State:\t") {
            state = rest.first().copied();
        } else if let Some(rest) = line
            .strip_prefix(b"voluntary_ctxt_switches:\t")
            .or_else(|| line.strip_prefix(b"nonvoluntary_ctxt_switches:\t"))
        {
            switches = switches.wrapping_add(std::str::from_utf8(rest).ok()?.parse().ok()?);
        }
    }
    Some((state?, switches))
}

fn call_of(task: i32) -> Option<WaitingCall> {
    let text = fs::read_to_string(format!("/proc/{task}/syscall")).ok()?;
    parse(&text)
}

fn parse(text: &str) -> Option<WaitingCall> {
    let mut words = text.split_whitespace();
    // `running`, or -1 outside of a call.
    let number: i64 = words.next()?.parse().ok().filter(|number| *number >= 0)?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(WaitingCall { number, arguments })
}

/// Whether a signal waits for the task that it does not block.
pub(super) fn has_signal(task: i32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{task}/status")) else { return false };
    let set = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn calls_are_read_as_the_kernel_writes_them() {
        let text = "230 0x1 0x0 0x7ffe0 0x0 0x6 0xff 0x7ffd 0x7f01\n";
        let call = WaitingCall { number: 230, arguments: [1, 0, 0x7ffe0, 0, 6, 0xff] };
        assert_eq!(parse(text), Some(call));
        assert!(
            ["running\n", "-1 0x7ffe 0x7f\n", "", "3 0x1\n"].into_iter().all(|text| parse(text).is_none())
        );
    }

    #[test]
    fn a_sleeping_task_is_blocked_and_stays_so() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("starts");
        let task = i32::try_from(child.id()).expect("a pid");
        let blocked = loop {
            match of(task) {
                Sight::Blocked(blocked) if blocked.call.number == libc::SYS_clock_nanosleep => break blocked,
                _ => std::thread::yield_now(),
            }
        };
        assert!(is_as_it_was(task, &blocked) && !has_signal(task));
        assert!(!is_as_it_was(task, &Blocked { switches: blocked.switches + 1, ..blocked }));
        child.kill().expect("kill");
        while of(task) != Sight::Dead {
            std::thread::yield_now();
        }
        child.wait().expect("ends");
        assert_eq!(of(task), Sight::Moving);
    }
}
