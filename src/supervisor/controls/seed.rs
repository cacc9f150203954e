//! The seed of a run: as secret as the keys that the run makes of it.

use std::fmt;
use std::io;

/// Bytes of a seed.
const LENGTH: usize = 32;

/// All randomness of a run comes from it.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed([u8; LENGTH]);

impl Seed {
    /// One that nobody else has.
    ///
    /// # Errors
    /// When the kernel gives no randomness.
    pub fn fresh() -> io::Result<Self> {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    /// The seed of these bytes.
    #[must_use]
    pub fn new(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// The seed that is written so, in hexadecimal.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
        let byte = |pair: &[u8; 2]| {
            let digits = pair.iter().all(u8::is_ascii_hexdigit).then_some(pair)?;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
        bytes.try_into().ok().map(Self)
    }

    /// Its bytes, for a private blob and nowhere else.
    #[must_use]
    pub fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Seed(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::Seed;

    #[test]
    fn a_seed_is_read_whole_or_not_at_all() {
        let text = "0123456789abcdef".repeat(4);
        assert_eq!(Seed::from_hex(&text).expect("a seed").bytes()[..2], [0x01, 0x23]);
        let wrong = [&text[1..], &text[2..], "", &format!("{text}00"), &text.replace("01", "+1")];
        assert!(wrong.into_iter().all(|text| Seed::from_hex(text).is_none()));
    }

    #[test]
    fn a_seed_is_never_printed() {
        assert_eq!(format!("{:?}", Seed::new([7; 32])), "Seed(..)");
        assert_ne!(Seed::fresh().expect("randomness"), Seed::fresh().expect("randomness"));
    }
}
