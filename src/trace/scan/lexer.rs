//! The tokens of canonical JSON.

use super::super::canonical;
use super::Malformed;

/// A place in a text.
pub(super) struct Lexer<'a> {
    pub(super) text: &'a str,
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0 }
    }

    pub(super) fn string(&mut self) -> Result<&'a str, Malformed> {
        self.expect(b'"')?;
        let from = self.at;
        loop {
            self.at += plain_length(&self.bytes[self.at..]);
            match self.next() {
                Some(b'"') => return Ok(&self.text[from..self.at - 1]),
                Some(b'\\') => self.escape()?,
                // The end of the line, or a control character, which canonical text has nowhere.
                _ => return Err(self.syntax()),
            }
        }
    }

    /// Takes one of the escapes that the writers make: one letter has one spelling, so that a reader who compares
    /// the text finds what another one finds who decodes it.
    fn escape(&mut self) -> Result<(), Malformed> {
        match self.next() {
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') if self.bytes[self.at..].first_chunk().is_some_and(canonical::is_long_escape) => {
                self.at += 4;
                Ok(())
            }
            _ => Err(self.syntax()),
        }
    }

    /// Takes a number in the spelling in which it is printed.
    pub(super) fn number(&mut self) -> Result<&'a str, Malformed> {
        let is_of_number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'0'..=b'9');
        let length = self.bytes[self.at..].iter().take_while(|byte| is_of_number(byte)).count();
        let text = &self.text[self.at..self.at + length];
        if !canonical::is_number(text) {
            return Err(self.syntax());
        }
        self.at += length;
        Ok(text)
    }

    pub(super) fn word(&mut self) -> Result<(), Malformed> {
        let rest = &self.bytes[self.at..];
        let word = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word.as_bytes()));
        self.at += word.ok_or_else(|| self.syntax())?.len();
        Ok(())
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return Err(self.syntax());
        }
        self.at += 1;
        Ok(())
    }

    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn syntax(&self) -> Malformed {
        Malformed::Syntax { at: self.at }
    }
}

/// Returns how many bytes come before the first quote, backslash or control character.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    // Eight bytes at a time: a byte below `n` borrows into its high bit when `n` is taken from it. A borrow may
    // spoil later bytes, never earlier ones, and only the first hit counts.
    let below = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & HIGHS;
    let equal = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks::<8>();
    for (position, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let hits = below(word, 0x20) | equal(word, b'"') | equal(word, b'\\');
        if hits != 0 {
            return position * 8 + hits.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    words.len() * 8 + rest.iter().position(is_special).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::plain_length;

    proptest! {
        #[test]
        fn the_plain_length_is_that_of_a_plain_loop(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0x1e_u8..0x24, 0x5b_u8..0x5e], 0..40),
        ) {
            let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
            prop_assert_eq!(plain_length(&bytes), bytes.iter().position(special).unwrap_or(bytes.len()));
        }
    }
}
