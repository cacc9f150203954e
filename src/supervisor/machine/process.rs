//! When a process began, in ticks since the machine was started, as its file `stat` says (proc_pid_stat(5)).
//!
//! A replay takes less time than the run did, and what it leaves out is no time of the kernel's.

use std::path::Path;

/// Fields between the name of the program, which may hold anything, and that one.
const BEFORE: usize = 19;

/// Whether this is the file of a process or of a thread.
pub(super) fn is_stat(path: &Path) -> bool {
    let is_id = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rest) = path.to_str().and_then(|path| path.strip_prefix("/proc/")) else { return false };
    match rest.split('/').collect::<Vec<_>>()[..] {
        [process, "stat"] => is_id(process),
        [process, "task", thread, "stat"] => is_id(process) && is_id(thread),
        _ => false,
    }
}

/// Where the number stands in such a content.
fn place(content: &[u8]) -> Option<std::ops::Range<usize>> {
    let name = content.iter().rposition(|&byte| byte == b')')?;
    let mut start = name + 2;
    for _ in 0..BEFORE {
        start += content.get(start..)?.iter().position(|&byte| byte == b' ')? + 1;
    }
    let digits = content.get(start..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then_some(start..start + digits)
}

/// When the process began whose file holds this.
pub(super) fn began(content: &[u8]) -> Option<&[u8]> {
    content.get(place(content)?)
}

/// The same content of a process that began then; `None` where it says so already, or cannot. Who reads its own runs,
/// though it waits for us.
pub(super) fn begun_at(content: &[u8], began: &[u8], is_own: bool) -> Option<Vec<u8>> {
    let place = place(content)?;
    let is_number = !began.is_empty() && began.len() <= 20 && began.iter().all(u8::is_ascii_digit);
    if !is_number || &content[place.clone()] == began {
        return None;
    }
    let mut begun = [&content[..place.start], began, &content[place.end..]].concat();
    if is_own && let Some(name) = content.iter().rposition(|&byte| byte == b')') {
        begun[name + 2] = b'R';
    }
    Some(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &[u8] = b"7 (a) b) S 1 7 7 0 -1 4194560 151 0 0 0 0 0 0 0 20 0 1 0 4597006 2703360 230 18446744073709551615\n";

    #[test]
    fn the_beginning_stands_behind_any_name() {
        assert_eq!(began(STAT), Some(&b"4597006"[..]));
        let moved = begun_at(STAT, b"12", false).expect("another time");
        assert_eq!(began(&moved), Some(&b"12"[..]));
        assert!(
            moved.starts_with(b"7 (a) b) S 1 ") && moved.ends_with(b" 12 2703360 230 18446744073709551615\n")
        );
        assert!(begun_at(STAT, b"12", true).expect("another time").starts_with(b"7 (a) b) R 1 "));
        assert_eq!(begun_at(STAT, b"4597006", true), None);
        assert_eq!(
            [&b""[..], b"x", b"1 2", &[b'1'; 21]].map(|began| begun_at(STAT, began, false)),
            [const { None }; 4]
        );
        assert_eq!(began(b"7 (sh) S 1 7 7 0 -1 4194560 151 0 0"), None);
    }

    #[test]
    fn files_of_processes_and_threads_are_known() {
        for (path, is) in [
            ("/proc/7/stat", true),
            ("/proc/7/task/8/stat", true),
            ("/proc/stat", false),
            ("/proc/self/stat", false),
            ("/proc/7/task/stat", false),
            ("/sys/7/stat", false),
        ] {
            assert_eq!(is_stat(Path::new(path)), is, "{path}");
        }
    }
}
