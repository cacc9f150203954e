//! Names that the user chose to have redacted as well (`--redact`).

use std::str::FromStr;
use std::sync::Arc;

use super::names::percent_decoded;

/// Names of header fields, parameters and members, in which `*` stands for any letters. Upper and lower case, `-` and
/// `_` are taken as the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenNames(Arc<[ChosenName]>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenName {
    given: String,
    plain: String,
}

impl FromStr for ChosenName {
    type Err = String;

    fn from_str(given: &str) -> Result<Self, String> {
        if given.chars().all(|letter| letter == '*') {
            return Err("it names nothing: give a name such as `x-internal-*`".to_owned());
        }
        if given.contains(|letter: char| letter.is_whitespace() || ":=&;?\"'".contains(letter)) {
            return Err("it is the name of a field, a parameter or a member, and not a value".to_owned());
        }
        Ok(Self { given: given.to_owned(), plain: plain(given) })
    }
}

impl FromIterator<ChosenName> for ChosenNames {
    fn from_iter<I: IntoIterator<Item = ChosenName>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}

impl ChosenNames {
    /// As they were given.
    #[must_use]
    pub fn given(&self) -> Vec<&str> {
        self.0.iter().map(|name| name.given.as_str()).collect()
    }

    /// Whether `name` is one.
    pub(super) fn hold(&self, name: &str) -> bool {
        !self.0.is_empty() && {
            let name = plain(name);
            self.0.iter().any(|chosen| matches(&chosen.plain, &name))
        }
    }
}

/// The form in which names are compared.
pub(super) fn plain(name: &str) -> String {
    let name = if name.contains('%') { percent_decoded(name) } else { name.to_owned() };
    name.to_ascii_lowercase().replace(['-', '_'], "")
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_patterns() {
        for (pattern, name, expected) in [
            ("x-internal-*", "X-Internal-Ticket", true),
            ("x-internal-*", "x-intern", false),
            ("*_pin", "userPin", true),
            ("*_pin", "pins", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "abb", false),
            ("ab*ba", "aba", false),
            ("pin", "%70in", true),
            ("pin", "pin2", false),
        ] {
            let chosen: ChosenNames = [pattern.parse::<ChosenName>().unwrap()].into_iter().collect();
            assert_eq!(chosen.hold(name), expected, "{pattern} {name}");
        }
        for pattern in ["", "*", "a=b", "a b", "x:"] {
            assert!(pattern.parse::<ChosenName>().is_err(), "{pattern}");
        }
    }
}
