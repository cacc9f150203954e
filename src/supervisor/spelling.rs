//! How paths are spelled, and what a spelling means without looking at any file.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::task::Task;

/// Takes slashes from the end; one is left of a path that has nothing else.
#[must_use]
pub fn trim_slashes(path: &[u8]) -> &[u8] {
    let mut trimmed = path;
    while trimmed.len() > 1 && trimmed.last() == Some(&b'/') {
        trimmed = &trimmed[..trimmed.len() - 1];
    }
    trimmed
}

/// Puts what means the calling task into words: the links /proc/self and /proc/thread-self mean
/// whoever follows them, and that would be us.
pub(super) fn name_self<'a>(task: &Task, spelled: &'a [u8]) -> Cow<'a, [u8]> {
    let squeezed = squeeze(spelled);
    let path = &*squeezed;
    let own = |rest: &[u8]| {
        let mut text = format!("/proc/{}", task.inner_tgid()).into_bytes();
        text.extend_from_slice(rest);
        Cow::Owned(text)
    };
    if path == b"/etc/mtab" {
        return own(b"/mounts");
    }
    if !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/") {
        return Cow::Borrowed(spelled);
    }
    let below = |prefix: &[u8]| path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest[0] == b'/');
    if let Some(rest) = below(b"/dev/fd") {
        return own(&[b"/fd", rest].concat());
    }
    for (name, number) in
        [(&b"/dev/stdin"[..], &b"/fd/0"[..]), (b"/dev/stdout", b"/fd/1"), (b"/dev/stderr", b"/fd/2")]
    {
        if path == name {
            return own(number);
        }
    }
    if let Some(rest) = below(b"/proc/self") {
        return own(rest);
    }
    if let Some(rest) = below(b"/proc/thread-self") {
        return own(&[format!("/task/{}", task.inner_tid()).as_bytes(), rest].concat());
    }
    for name in [&b"/proc/mounts"[..], b"/proc/net"] {
        if let Some(rest) = below(name) {
            return own(&[&name[b"/proc".len()..], rest].concat());
        }
    }
    squeezed
}

/// Whether that is a link which means whoever follows it, and which [`name_self`] therefore puts into words whole.
pub(super) fn is_own_link(spelled: &[u8]) -> bool {
    const LINKS: [&[u8]; 9] = [
        b"/etc/mtab",
        b"/dev/fd",
        b"/dev/stdin",
        b"/dev/stdout",
        b"/dev/stderr",
        b"/proc/self",
        b"/proc/thread-self",
        b"/proc/mounts",
        b"/proc/net",
    ];
    LINKS.contains(&&*squeeze(spelled))
}

/// Takes out what means nothing to the kernel: `//` and `/./`.
#[must_use]
pub fn squeeze(path: &[u8]) -> Cow<'_, [u8]> {
    let idle = |part: &[u8]| part == b"//" || part == b"/.";
    if !path.windows(2).any(idle) {
        return Cow::Borrowed(path);
    }
    let mut squeezed = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        if rest.starts_with(b"//") {
            rest = after;
        } else if rest.starts_with(b"/./") {
            rest = &rest[2..];
        } else {
            squeezed.push(first);
            rest = after;
        }
    }
    Cow::Owned(squeezed)
}

/// A path that goes through a link of /proc/PID which names an object.
#[derive(Clone, Copy, Debug)]
pub struct MagicLink<'a> {
    /// The directory of /proc that holds the link.
    pub directory: &'a [u8],
    /// The link.
    pub name: &'a [u8],
    /// What follows, with its slash.
    pub rest: &'a [u8],
}

impl<'a> MagicLink<'a> {
    /// Reads an absolute path; none for one that goes through no such link.
    #[must_use]
    pub fn parse(path: &'a [u8]) -> Option<Self> {
        let mut at = b"/proc/".len();
        let after = path.strip_prefix(b"/proc/")?;
        let pid = component(after);
        if pid.is_empty() || !pid.iter().all(u8::is_ascii_digit) {
            return None;
        }
        at += pid.len() + 1;
        if component(path.get(at..)?) == b"task" {
            at += b"task/".len();
            at += component(path.get(at..)?).len() + 1;
        }
        let mut name = component(path.get(at..)?);
        let mut directory_end = at - 1;
        if name == b"fd" {
            directory_end = at + 2;
            at += 3;
            name = component(path.get(at..)?);
            if name.is_empty() || !name.iter().all(u8::is_ascii_digit) {
                return None;
            }
        } else if ![&b"cwd"[..], b"root", b"exe"].contains(&name) {
            return None;
        }
        let rest = path.get(at + name.len()..)?;
        Some(Self { directory: path.get(..directory_end)?, name, rest })
    }
}

/// What comes before the first slash.
#[must_use]
pub fn component(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Whether `absolute` has no `.`, no `..`, no double slash and none at its end.
pub(super) fn is_clean(absolute: &[u8]) -> bool {
    let Some(rest) = absolute.strip_prefix(b"/") else { return false };
    rest.split(|&byte| byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

/// Removes `.`, `..` and double slashes by their spelling alone.
#[must_use]
pub fn lexical(absolute: &[u8]) -> PathBuf {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in absolute.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    let mut path = PathBuf::from("/");
    path.extend(parts.into_iter().map(|part| Path::new(OsStr::from_bytes(part))));
    path
}

/// Whether the path is that of a terminal.
pub(super) fn is_terminal(absolute: &[u8]) -> bool {
    [&b"/dev/tty"[..], b"/dev/ptmx", b"/dev/console"].contains(&absolute)
        || absolute.strip_prefix(b"/dev/pts/").is_some_and(|name| name.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::{MagicLink, lexical};
    use std::path::Path;

    #[test]
    fn magic_links_are_told_from_paths() {
        let parse = |path: &'static [u8]| {
            MagicLink::parse(path).map(|magic| (magic.directory, magic.name, magic.rest))
        };
        assert_eq!(parse(b"/proc/7/fd/3"), Some((&b"/proc/7/fd"[..], &b"3"[..], &b""[..])));
        assert_eq!(parse(b"/proc/7/task/8/fd/3/x"), Some((&b"/proc/7/task/8/fd"[..], &b"3"[..], &b"/x"[..])));
        assert_eq!(parse(b"/proc/7/cwd"), Some((&b"/proc/7"[..], &b"cwd"[..], &b""[..])));
        assert_eq!(parse(b"/proc/7/exe/"), Some((&b"/proc/7"[..], &b"exe"[..], &b"/"[..])));
        assert_eq!(parse(b"/proc/7/fd"), None);
        assert_eq!(parse(b"/proc/7/fd/"), None);
        assert_eq!(parse(b"/proc/7/status"), None);
        assert_eq!(parse(b"/proc/x/fd/1"), None);
        assert_eq!(parse(b"/proc"), None);
        assert_eq!(parse(b"/proc/7"), None);
        assert_eq!(parse(b"/proc/7/task"), None);
    }

    #[test]
    fn what_means_nothing_is_taken_out() {
        assert_eq!(*super::squeeze(b"//proc/.//self/./fd/.."), b"/proc/self/fd/.."[..]);
        assert_eq!(*super::squeeze(b"/a/.b/./."), b"/a/.b/."[..]);
        assert_eq!(*super::squeeze(b"/a/b/"), b"/a/b/"[..]);
    }

    #[test]
    fn lexical_never_leaves_the_root() {
        assert_eq!(lexical(b"/a/./b//../c"), Path::new("/a/c"));
        assert_eq!(lexical(b"/../../x"), Path::new("/x"));
    }
}
