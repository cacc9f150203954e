//! What the files of a process say of what is mounted for the run, and of the sockets of its network
//! (proc_pid_mounts(5), proc_pid_mountinfo(5), proc_pid_net(5)).
//!
//! A replay has its own mounts, and its sockets in an order of its own. No task of a run can make a namespace: all of
//! them see the same.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use super::process::numbered;

/// What such a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// What is mounted, or how much has gone through the network.
    Whole,
    /// Sockets, each with its owner and its number.
    Sockets,
}

/// What stands before the lines of sockets.
const HEAD: &[u8] = b"sl ";
/// The words of a line: its addresses, its state, its owner, its number.
const LOCAL: usize = 1;
const STATE: usize = 3;
const OWNER: usize = 7;
const NUMBER: usize = 9;

impl Place {
    /// Which file of a process, or of a thread, it is.
    pub(super) fn of(path: &Path) -> Option<Self> {
        match numbered(path)?[..] {
            ["mounts" | "mountinfo"] | ["net", "dev" | "unix"] => Some(Self::Whole),
            ["net", "tcp" | "tcp6" | "udp" | "udp6"] => Some(Self::Sockets),
            _ => None,
        }
    }

    /// What is noted of such a content: with owners as the run sees them, and not as we do (user_namespaces(7)).
    pub(super) fn held(self, content: &[u8], user: impl Fn(u32) -> u32) -> Vec<u8> {
        let owner = |line: &[u8]| {
            let id = std::str::from_utf8(&line[words(line).get(OWNER)?.clone()]).ok()?.parse().ok()?;
            with_word(line, OWNER, format!("{:5}", user(id)).as_bytes())
        };
        self.each(content, owner)
    }

    /// What was noted, with the numbers that the same sockets have `today`: links of descriptors name them too.
    pub(super) fn shown(self, held: &[u8], today: &[u8]) -> Vec<u8> {
        let known: HashMap<_, _> = lines(today).filter_map(socket).collect();
        self.each(held, |line| with_word(line, NUMBER, known.get(socket(line)?.0)?))
    }

    fn each(self, content: &[u8], change: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
        if self == Self::Whole || !content.trim_ascii_start().starts_with(HEAD) {
            return content.to_vec();
        }
        lines(content).map(|line| change(line).unwrap_or_else(|| line.to_vec())).collect::<Vec<_>>().concat()
    }
}

fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split_inclusive(|&byte| byte == b'\n')
}

/// Where the words of a line stand.
fn words(line: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    for word in line.split(|byte| byte.is_ascii_whitespace()) {
        found.extend((!word.is_empty()).then_some(at..at + word.len()));
        at += word.len() + 1;
    }
    found
}

/// What tells a socket from others, and its number.
fn socket(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let words = words(line);
    // Its place in the table; other lines name what stands below.
    line[..words.first()?.end].strip_suffix(b":")?;
    Some((&line[words.get(LOCAL)?.start..words.get(STATE)?.end], &line[words.get(NUMBER)?.clone()]))
}

/// The line with another word in that place. What the kernel fills up to a width stays as wide.
fn with_word(line: &[u8], place: usize, word: &[u8]) -> Option<Vec<u8>> {
    let words = words(line);
    let (before, after) = (words.get(place.checked_sub(1)?)?.end, words.get(place)?.end);
    let shown = [&line[..before], b" ", word, &line[after..]].concat();
    let Some(text) = shown.strip_suffix(b" \n") else { return Some(shown) };
    let mut shown = text.trim_ascii_end().to_vec();
    shown.resize(line.len().saturating_sub(1).max(shown.len()), b' ');
    shown.push(b'\n');
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn line(number: u32, local: &str, owner: u32, inode: u32) -> String {
        let line = format!(
            "{number:4}: {local} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {owner:5} {:8} {inode} 1 0",
            0
        );
        format!("{line:149}\n")
    }

    #[test]
    fn sockets_have_the_owners_of_the_run() {
        let own = [HEADER, &line(0, "0100007F:22C3", 0, 7), &line(1, "0100007F:0035", 1_000_000, 8)].concat();
        let held = Place::Sockets.held(own.as_bytes(), |id| if id == 0 { 65534 } else { 0 });
        let wanted = [HEADER, &line(0, "0100007F:22C3", 65534, 7), &line(1, "0100007F:0035", 0, 8)].concat();
        assert_eq!(String::from_utf8(held).expect("text"), wanted);
        assert_eq!(Place::Whole.held(own.as_bytes(), |_| 1), own.as_bytes());
    }

    #[test]
    fn sockets_stand_in_the_recorded_order_with_the_numbers_of_today() {
        let held = [HEADER, &line(0, "A:1", 0, 7), &line(1, "B:1", 0, 8), &line(2, "C:1", 0, 9)].concat();
        let today = [HEADER, &line(0, "B:1", 5, 12_345_678), &line(1, "A:1", 5, 8)].concat();
        let shown = Place::Sockets.shown(held.as_bytes(), today.as_bytes());
        let wanted = [HEADER, &line(0, "A:1", 0, 8), &line(1, "B:1", 0, 12_345_678), &line(2, "C:1", 0, 9)];
        assert_eq!(String::from_utf8(shown).expect("text"), wanted.concat());
        for odd in ["", "x", "  sl \n a b c d e f g h i j\n"] {
            assert_eq!(Place::Sockets.shown(odd.as_bytes(), b"  sl \n 0:\n"), odd.as_bytes());
        }
    }

    #[test]
    fn files_of_processes_and_threads_are_known() {
        for (path, file) in [
            ("/proc/7/mounts", Some(Place::Whole)),
            ("/proc/7/task/8/mountinfo", Some(Place::Whole)),
            ("/proc/7/net/tcp6", Some(Place::Sockets)),
            ("/proc/7/task/8/net/unix", Some(Place::Whole)),
            ("/proc/7/mountstats", None),
            ("/proc/net/tcp", None),
            ("/proc/7/net/netlink", None),
        ] {
            assert_eq!(Place::of(Path::new(path)), file, "{path}");
        }
    }
}
