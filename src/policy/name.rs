//! Names of hosts: one form for rules and queries, and patterns whose `*` labels stand for any labels.

use serde::{Deserialize, Serialize};

/// A name in a rule: labels in lower-case ASCII; `*` is one label or more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamePattern {
    labels: Vec<String>,
}

/// Why a name in a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameFault {
    #[error("`{0}` is no name: its last part is a number")]
    Numeric(String),
    #[error("only a whole label can be a pattern in a host (`*.example.org`), not `{0}`")]
    PartialGlob(String),
    #[error("`{0}` is no name of a host")]
    Invalid(String),
}

impl NameFault {
    pub(super) fn help(&self) -> String {
        match self {
            Self::Numeric(text) if text.contains('*') => {
                "write an address range: `net: cidr/127.0.0.0/8`".to_owned()
            }
            Self::Numeric(_) => "write an IPv4 address as four decimal numbers".to_owned(),
            Self::PartialGlob(label) => format!("write each name, or `*` in place of `{label}`"),
            Self::Invalid(_) => "write a name such as `api.example.org`".to_owned(),
        }
    }
}

impl NamePattern {
    pub(super) fn parse(text: &str) -> Result<Self, NameFault> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let invalid = || NameFault::Invalid(text.to_owned());
        for label in text.split('.') {
            if label != "*" && super::pattern::has_glob(label) {
                return Err(NameFault::PartialGlob(label.to_owned()));
            }
        }
        if text.split('.').all(|label| label == "*" || is_number(label))
            && text.split('.').any(|label| label != "*")
        {
            return Err(NameFault::Numeric(text.to_owned()));
        }
        // `*` is no character of a name: the rest is brought in form around it.
        let mut labels = Vec::new();
        for label in text.split('.') {
            if label == "*" {
                labels.push(label.to_owned());
            } else {
                let ascii = ascii(label).ok_or_else(invalid)?;
                labels.extend(ascii.split('.').map(str::to_owned));
            }
        }
        let length: usize = labels.iter().map(|label| label.len() + 1).sum();
        if length > LONGEST_NAME + 1 {
            return Err(invalid());
        }
        match labels.last() {
            Some(last) if is_number(last) => Err(NameFault::Numeric(text.to_owned())),
            _ => Ok(Self { labels }),
        }
    }

    /// Whether it stands for this name, which is in the form of [`canonical`].
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<&str> = name.split('.').collect();
        let (mut label, mut at) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let here = name.get(at);
            let matched = match (self.labels.get(label), here) {
                (None, None) => return true,
                (Some(star), Some(_)) if star == "*" => {
                    retry = Some((label, at + 1));
                    true
                }
                (Some(wanted), Some(found)) => wanted == found,
                _ => false,
            };
            if matched {
                label += 1;
                at += 1;
            } else if let Some((star, after)) = retry.filter(|(_, after)| *after < name.len()) {
                retry = Some((star, after + 1));
                label = star + 1;
                at = after + 1;
            } else {
                return false;
            }
        }
    }

    /// Whether some name is meant by both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        overlap(&self.labels, &other.labels)
    }

    /// Whether it is the bare name of the loopback.
    pub(super) fn is_localhost(&self) -> bool {
        self.labels == ["localhost"]
    }

    /// Whether names of any owner match: the last label is a pattern.
    pub fn is_open_ended(&self) -> bool {
        self.labels.last().is_some_and(|label| label == "*")
    }

    /// Orders rules that match the same name: exact ones first, then by the number of labels.
    pub(super) fn specificity(&self) -> (bool, usize) {
        let stars = self.labels.iter().filter(|label| *label == "*").count();
        (stars == 0, self.labels.len() - stars)
    }
}

/// Each pair of rests is looked at once: a name has few labels, and a rule may be hostile.
fn overlap(one: &[String], two: &[String]) -> bool {
    // `meets[i][j]`: some labels are matched by both rests.
    let mut meets = vec![vec![false; two.len() + 1]; one.len() + 1];
    meets[one.len()][two.len()] = true;
    for i in (0..one.len()).rev() {
        for j in (0..two.len()).rev() {
            let (star_one, star_two) = (one[i] == "*", two[j] == "*");
            // One label for both; a star may go on and take the next one too.
            let here = star_one || star_two || one[i] == two[j];
            meets[i][j] = here
                && (meets[i + 1][j + 1] || (star_one && meets[i][j + 1]) || (star_two && meets[i + 1][j]));
        }
    }
    meets[0][0]
}

impl std::fmt::Display for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.labels.join("."))
    }
}

/// The form in which names are compared: lower-case ASCII, no trailing dot. `None` for what is no name:
/// addresses, names whose last label is a number (RFC 1123, 2.1), broken ones.
pub fn canonical(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let ascii = ascii(name)?;
    let last = ascii.rsplit('.').next()?;
    (ascii.len() <= LONGEST_NAME && !is_number(last)).then_some(ascii)
}

/// RFC 1035, 2.3.4, without the root's own byte.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// IDNA (UTS 46) to ASCII in lower case; underscores are allowed, since services use them.
fn ascii(name: &str) -> Option<String> {
    // Most names are in form already; `xn--` labels are checked for what they stand for.
    let is_plain = name.bytes().all(|b| b.is_ascii()) && !name.to_ascii_lowercase().contains("xn--");
    let ascii = if is_plain { name.to_ascii_lowercase() } else { idna::domain_to_ascii(name).ok()? };
    let valid = |label: &str| {
        !label.is_empty()
            && label.len() <= LONGEST_LABEL
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    ascii.split('.').all(valid).then_some(ascii)
}

/// As the URL standard decides: digits alone, or hexadecimal.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|b| b.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        NamePattern::parse(pattern).expect("a pattern").matches(&canonical(name).expect("a name"))
    }

    #[test]
    fn stars_are_whole_labels() {
        assert!(matches("*.y.org", "a.y.org"));
        assert!(matches("*.y.org", "a.b.Y.org."));
        assert!(!matches("*.y.org", "y.org"));
        assert!(!matches("*.y.org", "evily.org"));
        assert!(matches("*", "localhost"));
        assert!(matches("a.*.org", "a.b.c.org"));
        assert!(!matches("a.*.org", "a.org"));
        assert!(matches("*.a.*.b", "x.a.a.y.b"));
        assert!(matches("Bücher.example", "xn--bcher-kva.example"));
        assert!(matches("x.org.", "x.org"));
    }

    #[test]
    fn patterns_overlap_where_a_name_fits_both() {
        let pattern = |text: &str| NamePattern::parse(text).expect("a pattern");
        for (one, two, meets) in [
            ("a.org", "a.org", true),
            ("a.org", "b.org", false),
            ("*.org", "a.org", true),
            ("*.org", "org", false),
            ("*.x.org", "a.*.org", true),
            ("*.x.org", "*.y.org", false),
            ("a.*", "*.org", true),
            ("*", "*.x.org", true),
            ("*.a.*", "b.a", false),
            ("*.a.*", "b.*", true),
        ] {
            assert_eq!(pattern(one).overlaps(&pattern(two)), meets, "{one} {two}");
            assert_eq!(pattern(two).overlaps(&pattern(one)), meets, "{two} {one}");
        }
    }

    #[test]
    fn numbers_are_no_names() {
        for text in ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.*", "1.2.3.256", "a.7"] {
            assert!(matches!(NamePattern::parse(text), Err(NameFault::Numeric(_))), "{text}");
        }
        assert_eq!(canonical("2130706433"), None);
        assert_eq!(canonical("127.0.0.1"), None);
        assert_eq!(canonical("a..b"), None);
        assert_eq!(canonical(""), None);
        assert_eq!(canonical("_dmarc.x.org").as_deref(), Some("_dmarc.x.org"));
    }

    #[test]
    fn partial_patterns_are_refused() {
        for text in ["api-*.x", "a?.x", "[ab].x", "**.x"] {
            assert!(matches!(NamePattern::parse(text), Err(NameFault::PartialGlob(_))), "{text}");
        }
    }
}
