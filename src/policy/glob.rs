//! Patterns for paths: `**` stands for any number of components.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pattern::{GlobError, Pattern, has_glob};

/// A pattern for the components below a directory. What it matches it covers with everything below.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Glob {
    parts: Vec<Part>,
    /// The bits of the parts that are `**`; no two are neighbours.
    any_depth: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    AnyDepth,
    Literal(String),
    Pattern(Pattern),
}

/// One bit for each component, and one for "matched".
const MOST_PARTS: usize = 63;

impl Glob {
    /// `parts`: the components as written, the first of them usually the first that holds a glob character.
    pub(super) fn new(parts: &[String]) -> Result<Self, GlobError> {
        let mut compiled: Vec<Part> = Vec::new();
        for part in parts {
            let part = match part.as_str() {
                "" | "." => continue,
                ".." => return Err(GlobError::ParentAfterGlob),
                "**" if compiled.last() == Some(&Part::AnyDepth) => continue,
                "**" => Part::AnyDepth,
                text if text.contains("**") => return Err(GlobError::JoinedStars),
                text if has_glob(text) => Part::Pattern(Pattern::new(text)?),
                text => Part::Literal(text.to_owned()),
            };
            compiled.push(part);
        }
        if compiled.len() > MOST_PARTS {
            return Err(GlobError::TooLong);
        }
        let bits = compiled.iter().enumerate().filter(|(_, part)| **part == Part::AnyDepth);
        let any_depth = bits.fold(0, |bits, (at, _)| bits | 1 << at);
        Ok(Self { parts: compiled, any_depth })
    }

    /// Whether the path below the base, or a directory above it, matches.
    pub(super) fn covers<'a>(&self, below: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut states = self.closure(1);
        for component in below {
            if self.is_match(states) {
                return true;
            }
            states = self.step(states, component);
            if states == 0 {
                return false;
            }
        }
        self.is_match(states)
    }

    /// Whether something strictly below this directory could match.
    pub(super) fn may_cover_below<'a>(&self, directory: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut states = self.closure(1);
        for component in directory {
            if self.is_match(states) {
                return true;
            }
            states = self.step(states, component);
        }
        states != 0
    }

    /// Components other than `**`, and bytes that are pinned: more is more specific.
    pub(super) fn specificity(&self) -> (usize, usize) {
        let pinned = self.parts.iter().map(|part| match part {
            Part::AnyDepth => 0,
            Part::Literal(text) => text.len(),
            Part::Pattern(pattern) => pattern.pinned(),
        });
        (self.parts.iter().filter(|part| **part != Part::AnyDepth).count(), pinned.sum())
    }

    fn is_match(&self, states: u64) -> bool {
        states & (1 << self.parts.len()) != 0
    }

    fn step(&self, states: u64, component: &[u8]) -> u64 {
        let mut next = states & self.any_depth;
        let mut single = states & !self.any_depth;
        while single != 0 {
            let at = single.trailing_zeros();
            single &= single - 1;
            let matched = match self.parts.get(at as usize) {
                Some(Part::Literal(text)) => text.as_bytes() == component,
                Some(Part::Pattern(pattern)) => pattern.matches(component),
                Some(Part::AnyDepth) | None => false,
            };
            next |= u64::from(matched) << (at + 1);
        }
        self.closure(next)
    }

    /// `**` may stand for nothing.
    fn closure(&self, states: u64) -> u64 {
        states | (states & self.any_depth) << 1
    }
}

impl TryFrom<Vec<String>> for Glob {
    type Error = GlobError;

    fn try_from(parts: Vec<String>) -> Result<Self, GlobError> {
        Self::new(&parts)
    }
}

impl From<Glob> for Vec<String> {
    fn from(glob: Glob) -> Self {
        glob.parts.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnyDepth => "**",
            Self::Literal(text) => text,
            Self::Pattern(pattern) => pattern.as_str(),
        })
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.clone().into();
        write!(f, "Glob({:?})", parts.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(glob: &str, path: &str) -> bool {
        let parts: Vec<String> = glob.split('/').map(str::to_owned).collect();
        Glob::new(&parts).expect("a glob").covers(path.split('/').map(str::as_bytes))
    }

    #[test]
    fn paths() {
        assert!(path("**/.env", ".env"));
        assert!(path("**/.env", "a/b/.env"));
        assert!(path("**/.env", "a/.env/inside"));
        assert!(!path("**/.env", "a/b.env"));
        assert!(path("src/**/*.py", "src/a.py"));
        assert!(path("src/**/*.py", "src/a/b/c.py"));
        assert!(!path("src/*.py", "src/a/c.py"));
        assert!(path("dir/**", "dir"));
        assert!(path("a/*/c", "a/b/c/d"));
        assert!(path("**/a/**/b", "x/a/a/y/b"));
    }

    #[test]
    fn faults() {
        assert_eq!(Glob::new(&["a**".into()]), Err(GlobError::JoinedStars));
        assert_eq!(Glob::new(&["*".into(), "..".into()]), Err(GlobError::ParentAfterGlob));
        assert_eq!(Glob::new(&vec!["*".into(); 64]), Err(GlobError::TooLong));
    }
}
