//! What stands for a secret inside: random, and of a shape that clients take.

use std::io;

/// Beginnings that say whose a key is, and nothing of the key. A longer one stands before what begins alike.
const PREFIXES: [&str; 30] = [
    "sk-ant-api03-",
    "sk-ant-",
    "sk-or-v1-",
    "sk-proj-",
    "sk-svcacct-",
    "sk_live_",
    "sk_test_",
    "sk-",
    "github_pat_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "glpat-",
    "gldt-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AIza",
    "hf_",
    "gsk_",
    "xai-",
    "npm_",
    "pypi-",
    "r8_",
    "pplx-",
    "dop_v1_",
    "shpat_",
    "SG.",
];

const HEX: &[u8] = b"0123456789abcdef";
const UPPER: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const ALPHANUMERIC: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Random letters: fewer could be met by chance or guessed.
const FEWEST: usize = 24;

/// The same of hexadecimal digits.
const FEWEST_DIGITS: usize = 32;

/// More than that needs no header field of its size.
const MOST: usize = 256;

/// A placeholder: what the process sees, and the random part by which it is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placeholder {
    pub(super) text: String,
    /// Where the random part begins.
    random_from: usize,
}

impl Placeholder {
    /// Makes one for `value`, of which nothing goes in but a public beginning, the length and the kind of letters.
    pub(super) fn random(value: &[u8]) -> io::Result<Self> {
        let prefix =
            PREFIXES.iter().find(|prefix| value.starts_with(prefix.as_bytes())).copied().unwrap_or("");
        let rest = &value[prefix.len()..];
        let (alphabet, fewest) = match rest {
            _ if rest.iter().all(|byte| HEX.contains(byte)) => (HEX, FEWEST_DIGITS),
            _ if rest.iter().all(|byte| UPPER.contains(byte)) => (UPPER, FEWEST),
            _ => (ALPHANUMERIC, FEWEST),
        };
        let mut text = prefix.to_owned();
        for _ in 0..rest.len().clamp(fewest, MOST) {
            text.push(char::from(letter(alphabet)?));
        }
        Ok(Self { text, random_from: prefix.len() })
    }

    /// One of a run that was recorded.
    pub(super) fn restored(text: &str) -> Self {
        let prefix =
            PREFIXES.iter().find(|prefix| text.starts_with(**prefix)).map_or(0, |prefix| prefix.len());
        Self { text: text.to_owned(), random_from: prefix }
    }

    /// Whether it can have been made by us.
    pub(super) fn is_one(&self) -> bool {
        let core = self.core().as_bytes();
        (FEWEST..=MOST).contains(&core.len()) && core.iter().all(|byte| ALPHANUMERIC.contains(byte))
    }

    /// The part that nothing else holds. Its letters stand as they are in URLs, JSON and forms.
    pub(super) fn core(&self) -> &str {
        &self.text[self.random_from..]
    }
}

/// One letter, each as likely as the others.
fn letter(alphabet: &[u8]) -> io::Result<u8> {
    let fair = 256 / alphabet.len() * alphabet.len();
    loop {
        let mut byte = [0];
        getrandom::fill(&mut byte).map_err(io::Error::other)?;
        let drawn = usize::from(byte[0]);
        if drawn < fair {
            return Ok(alphabet[drawn % alphabet.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> String {
        Placeholder::random(value.as_bytes()).unwrap().text
    }

    #[test]
    fn clients_take_it_and_it_says_nothing() {
        let key = "sk-ant-api03-Abc_def-GHI0123456789012345678901234567890123456789";
        let placeholder = of(key);
        assert!(placeholder.starts_with("sk-ant-api03-") && placeholder.len() == key.len(), "{placeholder}");
        assert_ne!(placeholder, of(key));
        assert!(
            of("ghp_0123456789").len() == 36
                && of("ghp_0123456z").starts_with("ghp_")
                && of("ghp_0123456z").len() == 28
        );
        let digits = of(&"0a1b".repeat(16));
        assert!(digits.len() == 64 && digits.bytes().all(|byte| HEX.contains(&byte)), "{digits}");
        assert_eq!(of("12345678").len(), 32);
        assert_eq!(of(&"A+/=".repeat(1000)).len(), MOST);
        assert!(of("pass word").bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
