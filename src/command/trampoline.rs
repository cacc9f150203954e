//! Scripts that are shell for one line and Python from then on.
//!
//! A `#!` line can hold neither blanks in the interpreter's path nor more than 255 bytes. For such
//! paths pip, uv and distlib write a shell line that Python reads as a string:
//!
//! ```text
//! #!/bin/sh
//! '''exec' '/a path/with blanks/bin/python' "$0" "$@"
//! ' '''
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::surroundings::os_string;

/// As much of a script as its first two lines may take.
const LOOKED_AT: u64 = 8192;

/// The Python that such a script hands itself to; none if it is an ordinary script.
pub(super) fn python(script: &Path) -> Option<PathBuf> {
    let start = BufReader::new(File::open(script).ok()?.take(LOOKED_AT));
    let line = start.split(b'\n').nth(1)?.ok()?;
    let rest = line.strip_prefix(b"'''exec' ")?;
    let (quote, rest) = match rest {
        [quote @ (b'"' | b'\''), rest @ ..] => (*quote, rest),
        _ => (b' ', rest),
    };
    let end = rest.iter().position(|byte| *byte == quote)?;
    let path = PathBuf::from(os_string(&rest[..end]));
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Option<PathBuf> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("tool");
        std::fs::write(&path, text).expect("a script");
        python(&path)
    }

    #[test]
    fn the_three_quotings() {
        let with = |word: &str| named(&format!("#!/bin/sh\n'''exec' {word} \"$0\" \"$@\"\n' '''\n"));
        assert_eq!(with("'/a b/python'"), Some("/a b/python".into()));
        assert_eq!(with("\"/a b/python\""), Some("/a b/python".into()));
        assert_eq!(with("/a/python"), Some("/a/python".into()));
        assert_eq!(with("python"), None);
        assert_eq!(named("#!/bin/sh\necho\n"), None);
        assert_eq!(named("#!/bin/sh"), None);
        assert_eq!(named("#!/bin/sh\n'''exec' '/a"), None);
    }
}
