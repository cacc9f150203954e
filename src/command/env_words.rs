//! The words that env(1) makes of the argument in a `#!` line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::surroundings::os_string;

/// Options of env that take the following word.
const TAKES_WORD: [&[u8]; 6] = [b"-u", b"--unset", b"-C", b"--chdir", b"-a", b"--argv0"];

/// The program that `env ARGUMENT` starts; none when it would start nothing.
#[must_use]
pub fn program(argument: &OsStr) -> Option<OsString> {
    let mut words = match split_string(argument.as_bytes()) {
        Some(text) => split(text).into_iter(),
        // Without -S the kernel's one argument is one word, blanks included.
        None => vec![argument.as_bytes().to_vec()].into_iter(),
    };
    while let Some(word) = words.next() {
        if word == b"--" {
            continue;
        }
        if word.starts_with(b"-") {
            if TAKES_WORD.contains(&word.as_slice()) {
                words.next();
            }
            continue;
        }
        if !word.contains(&b'=') {
            return Some(os_string(&word));
        }
    }
    None
}

/// What follows `-S`, `-vS`, `-iS` or `--split-string=`.
fn split_string(argument: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = argument.strip_prefix(b"--split-string=") {
        return Some(rest);
    }
    let rest = argument.strip_prefix(b"-")?;
    let end = rest.iter().position(|byte| !b"iv0".contains(byte))?;
    rest[end..].strip_prefix(b"S")
}

/// Splits as `env -S`: blanks part words, quotes keep them, `\` escapes, `#` begins a comment.
fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\'' | b'"' if quote.is_none() => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            _ if quote == Some(byte) => quote = None,
            b'\\' => match bytes.next() {
                Some(b'c') => break,
                Some(b'_') if quote.is_none() => words.extend(word.take()),
                Some(b'_') => word.get_or_insert_default().push(b' '),
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => break,
            },
            b'#' if quote.is_none() && word.is_none() => break,
            b' ' | b'\t' | b'\n' if quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(argument: &str) -> Option<String> {
        program(OsStr::new(argument)).map(|word| word.to_string_lossy().into_owned())
    }

    #[test]
    fn plain_and_split() {
        assert_eq!(asked("python3").as_deref(), Some("python3"));
        assert_eq!(asked("python3 -u").as_deref(), Some("python3 -u"));
        assert_eq!(asked("-S python3 -u").as_deref(), Some("python3"));
        assert_eq!(asked("-Snode --no-warnings").as_deref(), Some("node"));
        assert_eq!(asked("-vS node").as_deref(), Some("node"));
        assert_eq!(asked("--split-string=node -e").as_deref(), Some("node"));
    }

    #[test]
    fn options_and_assignments_come_first() {
        assert_eq!(asked("-S -i A=1 B='x y' -u HOME perl -w").as_deref(), Some("perl"));
        assert_eq!(asked("-S -- ruby").as_deref(), Some("ruby"));
        assert_eq!(asked("-S 'my prog' x").as_deref(), Some("my prog"));
        assert_eq!(asked("-S A=1 # perl"), None);
        assert_eq!(asked("-i"), None);
    }
}
