//! The tokens of canonical JSON.

use super::Malformed;

/// So many digits never make more than an f64 holds.
const PLAIN_DIGITS: usize = 300;

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

    fn escape(&mut self) -> Result<(), Malformed> {
        match self.next() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') => match self.code_unit()? {
                // A surrogate alone is no character (RFC 8259, section 8.2).
                0xd800..0xdc00 => {
                    self.expect(b'\\')?;
                    self.expect(b'u')?;
                    let from = self.at;
                    match self.code_unit()? {
                        0xdc00..0xe000 => Ok(()),
                        _ => Err(Malformed::Syntax { at: from }),
                    }
                }
                0xdc00..0xe000 => Err(self.syntax()),
                _ => Ok(()),
            },
            _ => Err(self.syntax()),
        }
    }

    /// Four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u16, Malformed> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        self.at += 4;
        unit.ok_or(Malformed::Syntax { at: self.at - 4 })
    }

    pub(super) fn number(&mut self) -> Result<&'a str, Malformed> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        // RFC 8259, section 6: no leading zero.
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[from..self.at];
        // More than 2^1024 is no number to the readers of entries.
        let may_be_large = text.len() > PLAIN_DIGITS || text.contains(['e', 'E']);
        if may_be_large && serde_json::from_str::<f64>(text).is_err() {
            return Err(Malformed::Syntax { at: from });
        }
        Ok(text)
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(self.syntax()) } else { Ok(()) }
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
