//! What the files of a process say of when it began, and what it has used (proc_pid_stat(5) and its kin).
//!
//! A replay takes less time and other memory than the run did. Whether a process runs, waits or has ended is always
//! what is.

use std::path::Path;

/// Files of a process, or of a thread, that say such things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    Stat,
    Statm,
    Status,
}

/// The words of `stat` that are held, counted from 1: when it began, which older traces hold alone; then its faults,
/// times, memory, and the processor.
const HELD: [usize; 12] = [22, 10, 11, 12, 13, 14, 15, 16, 17, 23, 24, 39];
/// The first word behind the name of the program, which may hold anything.
const FIRST: usize = 3;
/// How the lines of `status` begin that are held.
const HELD_LINES: [&[u8]; 4] = [b"Vm", b"Rss", b"voluntary_", b"nonvoluntary_"];

/// The names below the directory of a process, or of a thread of it.
pub(super) fn numbered(path: &Path) -> Option<Vec<&str>> {
    let is_id = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let words: Vec<_> = path.to_str()?.strip_prefix("/proc/")?.split('/').collect();
    match &words[..] {
        [process, "task", thread, names @ ..] if is_id(process) && is_id(thread) => Some(names.to_vec()),
        [process, names @ ..] if is_id(process) => Some(names.to_vec()),
        _ => None,
    }
}

impl Usage {
    /// Which file of a process it is.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let &[name] = &numbered(path)?[..] else { return None };
        [("stat", Self::Stat), ("statm", Self::Statm), ("status", Self::Status)]
            .into_iter()
            .find_map(|(own, file)| (own == name).then_some(file))
    }

    /// What is noted of such a content.
    pub(super) fn held(self, content: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Stat => {
                let words = words(content)?;
                let held = HELD.map(|number| words.get(number - FIRST).copied());
                Some(held.into_iter().collect::<Option<Vec<_>>>()?.join(&b' '))
            }
            Self::Statm => Some(content.to_vec()),
            Self::Status => {
                Some(lines(content).filter(|line| key(line).is_some()).collect::<Vec<_>>().concat())
            }
        }
    }

    /// The content with what was noted; `None` where it says so already, or cannot. Who reads its own runs, though it
    /// waits for us.
    pub(super) fn shown(self, content: &[u8], held: &[u8], is_own: bool) -> Option<Vec<u8>> {
        let shown = match self {
            Self::Stat => with_words(content, held, is_own)?,
            Self::Statm if numbers(held.trim_ascii_end()).is_some() => held.to_vec(),
            Self::Statm => return None,
            Self::Status => {
                let shown = |line| if is_own { running(line) } else { line };
                lines(content).map(|line| held_line(shown(line), held)).collect::<Vec<_>>().concat()
            }
        };
        (shown != content).then_some(shown)
    }
}

/// The content of `stat` without what the kernel tells of its memory to those alone who may look into it
/// (proc_pid_stat(5), PTRACE_MODE_READ_FSCREDS), as we may.
pub(super) fn without_addresses(content: &[u8]) -> Vec<u8> {
    let Some((mut words, name)) = words(content).zip(content.iter().rposition(|&byte| byte == b')')) else {
        return Vec::new();
    };
    for (number, word) in (FIRST..).zip(&mut words) {
        match number {
            26 | 27 => *word = b"1",
            28..=30 | 35 | 45.. => *word = b"0",
            _ => {}
        }
    }
    [&content[..name + 2], &words.join(&b' '), b"\n"].concat()
}

/// The content of `status` with users and groups as the run sees them, and not as we do (user_namespaces(7)).
pub(super) fn with_owners(content: &[u8], user: impl Fn(u32) -> u32, group: impl Fn(u32) -> u32) -> Vec<u8> {
    let id = |word: &str, of: &dyn Fn(u32) -> u32| {
        word.parse().map_or_else(|_| word.to_owned(), |id| of(id).to_string())
    };
    let mapped = |line: &[u8], of: &dyn Fn(u32) -> u32| {
        let line = String::from_utf8_lossy(line);
        let is_gap = |letter: char| letter == '\t' || letter == ' ' || letter == '\n';
        line.split_inclusive(is_gap)
            .map(|word| {
                let number = word.trim_end_matches(is_gap);
                id(number, of) + &word[number.len()..]
            })
            .collect::<String>()
            .into_bytes()
    };
    lines(content)
        .map(|line| match line.split(|&byte| byte == b':').next() {
            Some(b"Uid") => mapped(line, &user),
            Some(b"Gid" | b"Groups") => mapped(line, &group),
            _ => line.to_vec(),
        })
        .collect::<Vec<_>>()
        .concat()
}

/// The words behind the name.
fn words(content: &[u8]) -> Option<Vec<&[u8]>> {
    let name = content.iter().rposition(|&byte| byte == b')')?;
    Some(content.get(name + 2..)?.trim_ascii_end().split(|&byte| byte == b' ').collect())
}

/// Words that are numbers of the kernel's.
fn numbers(text: &[u8]) -> Option<Vec<&[u8]>> {
    let is_number = |word: &&[u8]| (1..=20).contains(&word.len()) && word.iter().all(u8::is_ascii_digit);
    let words: Vec<_> = text.split(|&byte| byte == b' ').collect();
    words.iter().all(is_number).then_some(words)
}

fn with_words(content: &[u8], held: &[u8], is_own: bool) -> Option<Vec<u8>> {
    let mut words = words(content)?;
    for (number, word) in HELD.into_iter().zip(numbers(held)?) {
        *words.get_mut(number - FIRST)? = word;
    }
    if is_own {
        *words.first_mut()? = b"R";
    }
    let name = content.iter().rposition(|&byte| byte == b')')?;
    Some([&content[..name + 2], &words.join(&b' '), b"\n"].concat())
}

fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split_inclusive(|&byte| byte == b'\n')
}

/// What stands before the colon of a line that is held.
fn key(line: &[u8]) -> Option<&[u8]> {
    let key = &line[..line.iter().position(|&byte| byte == b':')?];
    HELD_LINES.iter().any(|start| key.starts_with(start)).then_some(key)
}

fn running(line: &[u8]) -> &[u8] {
    if line.starts_with(b"State:") { b"State:\tR (running)\n" } else { line }
}

fn held_line<'a>(line: &'a [u8], held: &'a [u8]) -> &'a [u8] {
    let Some(own) = key(line) else { return line };
    lines(held).find(|held| key(held) == Some(own) && held.ends_with(b"\n")).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &[u8] = b"7 (a) b) S 1 7 7 0 -1 4194560 151 0 0 0 5 6 0 0 20 0 1 0 4597006 2703360 230 18446744073709551615 1 2 3 4 5 6 7 8 9 10 11 12 17 1 0 0\n";

    #[test]
    fn words_stand_behind_any_name() {
        let (stat, held) = (Usage::Stat, b"12 1 2 3 4 5 6 7 8 9 10 11");
        assert_eq!(stat.held(STAT).as_deref(), Some(&b"4597006 151 0 0 0 5 6 0 0 2703360 230 1"[..]));
        let shown = stat.shown(STAT, held, false).expect("others");
        assert!(
            shown.starts_with(b"7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12 9 10 18446744")
        );
        assert!(shown.ends_with(b" 12 17 11 0 0\n"));
        assert_eq!(stat.held(&shown).as_deref(), Some(&held[..]));
        // As older traces have it.
        let begun = stat.shown(STAT, b"12", true).expect("another time");
        assert!(begun.starts_with(b"7 (a) b) R 1 ") && begun.len() == STAT.len() - 5);
        assert_eq!(stat.shown(STAT, b"4597006", false), None);
        assert_eq!(
            [&b""[..], b"x", b"1  2", b"1\n", &[b'1'; 21]].map(|held| stat.shown(STAT, held, false)),
            [const { None }; 5]
        );
        assert_eq!(stat.held(b"7 (sh) S 1 7 7 0 -1 4194560 151 0 0"), None);
    }

    #[test]
    fn addresses_are_for_who_may_look() {
        let words: Vec<_> = (4..=52).map(|number| number.to_string()).collect();
        let stat = format!("1 (a) S {}\n", words.join(" "));
        let shown = String::from_utf8(without_addresses(stat.as_bytes())).expect("text");
        assert!(
            shown.contains(" 25 1 1 0 0 0 31 32 33 34 0 36 ") && shown.ends_with(" 43 44 0 0 0 0 0 0 0 0\n")
        );
    }

    #[test]
    fn users_and_groups_are_those_inside() {
        let content = b"Name:\ta\nUid:\t5\t5\t6\t5\nGid:\t7\t7\t7\t7\nGroups:\t7 8 \nNgid:\t5\n";
        let inside =
            with_owners(content, |id| if id == 5 { 0 } else { 99 }, |id| if id == 7 { 1 } else { 99 });
        assert_eq!(inside, b"Name:\ta\nUid:\t0\t0\t99\t0\nGid:\t1\t1\t1\t1\nGroups:\t1 99 \nNgid:\t5\n");
    }

    #[test]
    fn lines_and_pages_are_those_that_were_noted() {
        let content = b"Name:\tVmRSS: 1\nState:\tS\nVmRSS:\t  20 kB\nRssAnon:\t 7 kB\nThreads:\t1\n";
        let held = Usage::Status.held(content).expect("lines");
        assert_eq!(held, b"VmRSS:\t  20 kB\nRssAnon:\t 7 kB\n");
        let shown = Usage::Status.shown(content, b"VmRSS:\t 3 kB\nState:\tZ\nVmSize: 9", false);
        let wanted = b"Name:\tVmRSS: 1\nState:\tS\nVmRSS:\t 3 kB\nRssAnon:\t 7 kB\nThreads:\t1\n";
        assert_eq!(shown.as_deref(), Some(&wanted[..]));
        assert_eq!(Usage::Status.shown(content, &held, false), None);
        assert_eq!(Usage::Statm.shown(b"1 2\n", b"3 4\n", false).as_deref(), Some(&b"3 4\n"[..]));
        assert_eq!(Usage::Statm.shown(b"1 2\n", b"3 x\n", false), None);
    }

    #[test]
    fn files_of_processes_and_threads_are_known() {
        for (path, file) in [
            ("/proc/7/stat", Some(Usage::Stat)),
            ("/proc/7/task/8/stat", Some(Usage::Stat)),
            ("/proc/7/statm", Some(Usage::Statm)),
            ("/proc/7/task/7/status", Some(Usage::Status)),
            ("/proc/7/maps", None),
            ("/proc/stat", None),
            ("/proc/self/stat", None),
            ("/proc/7/task/stat", None),
            ("/sys/7/stat", None),
        ] {
            assert_eq!(Usage::of(Path::new(path)), file, "{path}");
        }
    }
}
