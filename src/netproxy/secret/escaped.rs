//! Finds a value whose bytes may stand escaped, each in a way of its own: all ways to read a text are followed at once.

use memchr::{memchr2_iter, memchr3_iter};

use super::escapes::{Escape, LONGEST, begins_escape, escape, is_token};

/// Letters of a line of base64 that goes on behind its end: no usual encoder writes shorter lines (76 in RFC 2045, 64 in
/// RFC 7468, 60 in Ruby).
pub(super) const LINE: usize = 60;

/// Room for what is reached from one place: more than the longest escape.
const AHEAD: usize = 16;
const _: () = assert!(LONGEST < AHEAD);

/// A value, by what may follow each part of it (Baeza-Yates and Gonnet, "A new approach to text searching", 1992).
pub(super) struct Escaped {
    /// Which places of the value hold each byte; none where it does not occur.
    rows: Box<[u16; 256]>,
    places: Vec<u64>,
    words: usize,
    length: usize,
    /// Lines may end in it.
    is_base64: bool,
}

const NOWHERE: u16 = u16::MAX;

/// What stands at one place of a text besides the byte itself.
enum Beside {
    Nothing,
    Escape(Escape),
    /// The end of a line, so long.
    Break(usize),
}

impl Escaped {
    pub(super) fn new(value: &[u8], is_base64: bool) -> Self {
        // One place more: behind the last byte.
        let words = value.len() / 64 + 1;
        let mut escaped = Self {
            rows: Box::new([NOWHERE; 256]),
            places: Vec::new(),
            words,
            length: value.len(),
            is_base64,
        };
        for (at, byte) in value.iter().enumerate() {
            escaped.add(*byte, at);
            if *byte == b' ' {
                // As in forms.
                escaped.add(b'+', at);
            }
        }
        escaped
    }

    fn add(&mut self, byte: u8, at: usize) {
        let row = &mut self.rows[usize::from(byte)];
        if *row == NOWHERE {
            *row = u16::try_from(self.places.len() / self.words).unwrap_or(NOWHERE);
            self.places.resize(self.places.len() + self.words, 0);
        }
        self.places[usize::from(*row) * self.words + at / 64] |= 1 << (at % 64);
    }

    /// Whether anything in `text` could be it in an escaped form: where the first and the last such place are.
    pub(super) fn suspects(&self, text: &[u8], column: usize) -> Option<(usize, usize)> {
        let counts = |at: &usize| match self.beside(text, *at, column) {
            Beside::Nothing => false,
            Beside::Escape(escape) => escape.bytes().iter().all(|byte| self.row(*byte).is_some()),
            Beside::Break(_) => true,
        };
        let mut found = memchr3_iter(b'%', b'&', b'\\', text).filter(counts);
        let (first, last) = (found.next(), found.next_back());
        let mut ends = memchr2_iter(b'\r', b'\n', text).filter(|at| self.is_base64 && counts(at));
        let (one, other) = (ends.next(), ends.next_back());
        let all = [first, last, one, other];
        Some((all.into_iter().flatten().min()?, all.into_iter().flatten().max()?))
    }

    /// Writes `instead` over every form of it, again and again; the end of the last one. `column` letters of tokens
    /// stand before `text`.
    pub(super) fn replace(&self, text: &mut [u8], instead: &[u8], column: usize) -> usize {
        let Some((first, last)) = self.suspects(text, column) else { return 0 };
        let reach = (self.length + self.length / LINE * 2 + 2) * LONGEST;
        let (mut from, to) = (first.saturating_sub(reach), (last + reach).min(text.len()));
        let mut done = 0;
        while let Some((first, end)) = self.ends(&text[..to], from, column) {
            let start = self.start(&text[..first], from, column);
            let letters = text[start..end].iter_mut().filter(|byte| !byte.is_ascii_control());
            letters.zip(instead.iter().cycle()).for_each(|(byte, other)| *byte = *other);
            (from, done) = (end, end);
        }
        done
    }

    /// Where the first one ends that begins at `from` or behind it, and where it does if its last letters are read as an
    /// escape.
    fn ends(&self, text: &[u8], from: usize, column: usize) -> Option<(usize, usize)> {
        // For each place ahead: the parts of the value that may end there. A bit says whether there are any.
        let (mut ahead, mut any) = (vec![0; AHEAD * self.words], 0u16);
        let mut here = vec![0; self.words];
        let mut found = None;
        for at in from..=text.len() {
            let slot = at % AHEAD;
            let goes_on = any >> slot & 1 == 1;
            if found.is_some_and(|(first, _)| at > first + LONGEST) {
                break;
            }
            if !goes_on && text.get(at).is_none_or(|byte| !self.begins(*byte)) {
                continue;
            }
            let own = slot * self.words..(slot + 1) * self.words;
            here.copy_from_slice(&ahead[own.clone()]);
            ahead[own].fill(0);
            any &= !(1 << slot);
            if is_set(&here, self.length - 1) {
                found = Some((found.map_or(at, |(first, _)| first), at));
            }
            let Some(byte) = text.get(at) else { break };
            let mut set = |is_any: bool, to: usize| any |= u16::from(is_any) << (to % AHEAD);
            set(self.forth(&here, &[*byte], &mut ahead, at + 1), at + 1);
            match self.beside(text, at, column) {
                Beside::Nothing => {}
                Beside::Escape(escape) => {
                    let to = at + escape.length;
                    set(self.forth(&here, escape.bytes(), &mut ahead, to), to);
                }
                Beside::Break(length) => {
                    merge(&mut ahead, &here, at + length);
                    set(goes_on, at + length);
                }
            }
        }
        found
    }

    /// Whether it may begin with this.
    fn begins(&self, byte: u8) -> bool {
        begins_escape(byte) || self.row(byte).is_some_and(|row| row[0] & 1 == 1)
    }

    /// Where the longest one begins that ends with `text`, at `from` or behind it.
    fn start(&self, text: &[u8], from: usize, column: usize) -> usize {
        let mut ahead = vec![0; AHEAD * self.words];
        let mut here = vec![0; self.words];
        here[self.length / 64] |= 1 << (self.length % 64);
        merge(&mut ahead, &here, text.len());
        let (mut start, mut empty) = (text.len(), 0);
        for at in (from..text.len()).rev() {
            let own = at % AHEAD * self.words;
            here.fill(0);
            self.back(&ahead, at + 1, &text[at..=at], &mut here);
            match self.beside(text, at, column) {
                Beside::Escape(escape) if at + escape.length <= text.len() => {
                    self.back(&ahead, at + escape.length, escape.bytes(), &mut here);
                }
                Beside::Break(length) if at + length <= text.len() => {
                    let there = (at + length) % AHEAD * self.words;
                    here.iter_mut().zip(&ahead[there..]).for_each(|(word, other)| *word |= other);
                }
                _ => {}
            }
            ahead[own..own + self.words].copy_from_slice(&here);
            if is_set(&here, 0) {
                start = at;
            }
            empty = if here.iter().all(|word| *word == 0) { empty + 1 } else { 0 };
            if empty == AHEAD {
                break;
            }
        }
        start
    }

    /// Reads on over `bytes`, from the parts that end `here` and from the beginning; whether that leads anywhere.
    fn forth(&self, here: &[u64], bytes: &[u8], ahead: &mut [u64], to: usize) -> bool {
        let into = &mut ahead[to % AHEAD * self.words..][..self.words];
        let (mut parts, mut first, mut any) = (Vec::new(), 1, 0);
        for (at, byte) in bytes.iter().enumerate() {
            let Some(row) = self.row(*byte) else { return false };
            let is_last = at + 1 == bytes.len();
            if !is_last && parts.is_empty() {
                parts = here.to_vec();
            }
            let mut carry = std::mem::take(&mut first);
            for word in 0..self.words {
                let from = if parts.is_empty() { here[word] } else { parts[word] };
                let next = (from << 1 | carry) & row[word];
                carry = from >> 63;
                if is_last {
                    into[word] |= next;
                    any |= next;
                } else {
                    parts[word] = next;
                }
            }
        }
        any != 0
    }

    /// Reads back over `bytes`, from the rests that begin at `from`.
    fn back(&self, ahead: &[u64], from: usize, bytes: &[u8], into: &mut [u64]) {
        let mut rests = ahead[from % AHEAD * self.words..][..self.words].to_vec();
        for byte in bytes.iter().rev() {
            let Some(row) = self.row(*byte) else { return };
            let mut carry = 0;
            for (word, own) in rests.iter_mut().zip(row).rev() {
                (*word, carry) = ((*word >> 1 | carry) & own, *word << 63);
            }
        }
        into.iter_mut().zip(rests).for_each(|(into, word)| *into |= word);
    }

    fn beside(&self, text: &[u8], at: usize, column: usize) -> Beside {
        let is_wrapped = || self.is_base64 && is_wrapped(&text[..at], column);
        match text[at] {
            b'\r' | b'\n' if is_wrapped() => Beside::Break(1),
            byte if begins_escape(byte) => match escape(&text[at..]) {
                None => Beside::Nothing,
                Some(escape) if matches!(escape.bytes(), b"\r" | b"\n") => {
                    if is_wrapped() {
                        Beside::Break(escape.length)
                    } else {
                        Beside::Nothing
                    }
                }
                Some(escape) => Beside::Escape(escape),
            },
            _ => Beside::Nothing,
        }
    }

    fn row(&self, byte: u8) -> Option<&[u64]> {
        let row = self.rows[usize::from(byte)];
        (row != NOWHERE).then(|| &self.places[usize::from(row) * self.words..][..self.words])
    }
}

fn is_set(words: &[u64], at: usize) -> bool {
    words[at / 64] >> (at % 64) & 1 == 1
}

fn merge(ahead: &mut [u64], here: &[u64], to: usize) {
    let there = to % AHEAD * here.len();
    ahead[there..].iter_mut().zip(here).for_each(|(into, word)| *into |= word);
}

/// Whether a line of base64 may go on behind an end that stands after `before`.
pub(super) fn is_wrapped(before: &[u8], column: usize) -> bool {
    let line = before.strip_suffix(b"\r").unwrap_or(before);
    letters(line, column) >= LINE
}

/// How many letters of tokens stand at the end of `text`, behind `column` others; no more than matter.
pub(super) fn letters(text: &[u8], column: usize) -> usize {
    let count = text.iter().rev().take(LINE).take_while(|byte| is_token(**byte)).count();
    if count == text.len() { (count + column).min(LINE) } else { count }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One byte in one of its forms.
    fn form(byte: u8, how: u8) -> String {
        let name = match byte {
            b'+' => "&plus;",
            b'/' => "&sol;",
            b'=' => "&equals;",
            b'&' => "&amp;",
            b'"' => "&quot;",
            _ => "",
        };
        match how % 10 {
            1 => format!("%{byte:02X}"),
            2 => format!("%{byte:02x}"),
            3 => format!("&#{byte};"),
            4 => format!("&#x{byte:02X};"),
            5 => format!("&#x000{byte:x};"),
            6 => format!("\\u{byte:04x}"),
            7 => format!("\\x{byte:02X}"),
            8 if !byte.is_ascii_alphanumeric() => format!("\\{}", char::from(byte)),
            9 if !name.is_empty() => name.to_owned(),
            _ => char::from(byte).to_string(),
        }
    }

    proptest! {
        #[test]
        fn every_mixture_of_forms_is_found(
            value in "[a-f0-9%&\\\\/+=\"]{8,69}[a-f0-9/+=]",
            how in proptest::collection::vec(0u8..10, 70),
            before in "[a-f0-9%&#;x\\\\/]{0,9}",
            after in "[a-z0-9%&;\\\\ ]{0,9}",
        ) {
            let value = value.as_bytes();
            let escaped: String = value.iter().zip(how).map(|(byte, how)| form(*byte, how)).collect();
            prop_assume!(escaped.as_bytes() != value);
            let mut text = format!("{before}{escaped}{after}").into_bytes();
            let done = Escaped::new(value, false).replace(&mut text, b"_", 0);
            prop_assert!(done >= before.len() + escaped.len());
            let covered = &text[before.len()..before.len() + escaped.len()];
            prop_assert!(covered.iter().all(|byte| *byte == b'_'), "{}", String::from_utf8_lossy(&text));
            prop_assert!(text.ends_with(&after.as_bytes()[done - before.len() - escaped.len()..]));
        }
    }

    #[test]
    fn lines_of_base64_may_end_in_it() {
        let value = [&b"Q".repeat(40)[..], &b"x/+w".repeat(20)[..]].concat();
        for end in ["\n", "\r\n", "\\n", "\\r\\n", "%0A", "&#10;"] {
            for width in [60, 64, 76] {
                let lines: Vec<_> = value.chunks(width).map(String::from_utf8_lossy).collect();
                let mut text = format!("x: {}.", lines.join(end)).into_bytes();
                let length = text.len();
                assert_eq!(Escaped::new(&value, true).replace(&mut text, b"_", 0), length - 1, "{end:?}");
                let left = String::from_utf8(text).unwrap();
                assert!(
                    left.replace(['\r', '\n'], "").trim_start_matches("x: ").starts_with("____"),
                    "{left}"
                );
                assert!(!left.contains('Q') && left.ends_with("_."), "{left}");
            }
        }
        let mut text = [&value[..30], b"\n", &value[30..]].concat();
        assert_eq!(Escaped::new(&value, true).replace(&mut text, b"_", 0), 0, "no such lines are written");
        assert_eq!(Escaped::new(&value, true).replace(&mut text, b"_", 30), text.len());
    }
}
