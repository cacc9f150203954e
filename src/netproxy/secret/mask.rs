//! Takes secrets out of bytes that pass, wherever they are cut.

use std::sync::Arc;
use std::task::Context;

use bytes::{Bytes, BytesMut};

use super::escaped::{LINE, is_wrapped, letters};
use super::escapes::{LONGEST, begins_escape, escape, is_brace, is_token};
use super::needle::{Needle, Shared};

/// The forms of the secrets that one host knows.
pub(super) type Needles = Arc<[Needle]>;

/// Bytes that are searched for one secret of up to 64 letters before others have their turn.
const TURN: usize = 256 << 10;

/// One direction of one message. The end of what came waits for more where a secret could have begun in it.
///
/// What waits depends on the kind of its letters alone. Were it what begins as the secret does, a client that makes
/// the host say its guesses would learn from the size of the pieces how far each is right.
pub(super) struct Mask {
    needles: Needles,
    held: BytesMut,
    /// So much of it has passed all the same; what follows it is searched with it.
    passed: usize,
    /// Letters of tokens right before it.
    column: usize,
    /// The next letter holds some of a secret that has been written over.
    shared: Option<Shared>,
    /// The most letters that wait; an escape is one.
    most: usize,
    /// Some secret holds more than the letters of tokens.
    is_text: bool,
    /// What was searched letter by letter since others had their turn.
    worked: usize,
    /// So were the last bytes that came.
    is_slow: bool,
}

impl Mask {
    pub(super) fn new(needles: Needles) -> Self {
        // In base64 ends of lines come in between, each of two escapes at most; a line may end at once.
        let letters = |length: usize| length - 1 + (length / LINE + 1) * 4;
        let most = needles.iter().map(|needle| letters(needle.span())).max().unwrap_or(0);
        let is_text = needles.iter().any(|needle| !needle.bytes().iter().all(|byte| is_token(*byte)));
        Self {
            needles,
            held: BytesMut::new(),
            passed: 0,
            column: 0,
            shared: None,
            most,
            is_text,
            worked: 0,
            is_slow: false,
        }
    }

    /// The same for other bytes.
    pub(super) fn again(&self) -> Self {
        Self {
            needles: Arc::clone(&self.needles),
            held: BytesMut::new(),
            passed: 0,
            column: 0,
            shared: None,
            worked: 0,
            is_slow: false,
            ..*self
        }
    }

    /// Whether it is the turn of others: then the task of `cx` goes on behind them.
    pub(super) fn has_worked(&mut self, cx: &Context<'_>) -> bool {
        let is_much = self.worked >= TURN;
        if is_much {
            self.worked = 0;
            cx.waker().wake_by_ref();
        }
        is_much
    }

    /// Whether the last bytes were searched letter by letter: what comes next is better searched in few pieces.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }

    #[cfg(test)]
    pub(super) fn worked(&self) -> usize {
        self.worked
    }

    /// What may pass now.
    pub(super) fn pass(&mut self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let bytes = match self.shared.take() {
            Some(shared) => {
                let mut bytes = BytesMut::from(&bytes[..]);
                shared.write(&mut bytes[0]);
                bytes.freeze()
            }
            None => bytes,
        };
        let is_plain = self.held.is_empty()
            && !self.needles.iter().any(|needle| needle.may_be_in(&bytes, self.column))
            && self.beginning(&bytes, 0) == 0;
        self.is_slow = false;
        if is_plain {
            self.column = letters(&bytes, self.column);
            return bytes;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(&bytes);
        let (mut done, shared) = replace_plain(&self.needles, &mut all);
        self.shared = shared;
        if self.needles.iter().any(|needle| needle.escaped.suspects(&all, self.column).is_some()) {
            let words = self.needles.iter().map(|needle| needle.bytes().len() / 64 + 1);
            self.is_slow = true;
            self.worked += all.len() * words.sum::<usize>();
            done = done.max(replace_escaped(&self.needles, &mut all, self.column));
        }
        let until = all.len() - self.beginning(&all, done);
        self.held = all.split_off(until);
        self.column = letters(&all, self.column);
        let passed = self.passed.min(until);
        self.passed -= passed;
        all.freeze().slice(passed..)
    }

    /// Nothing more is waited for: what waited passes. Where something comes all the same, what has not passed of a
    /// secret does not.
    pub(super) fn finish(&mut self) -> Bytes {
        let passed = std::mem::replace(&mut self.passed, self.held.len());
        Bytes::copy_from_slice(&self.held[passed..])
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.held.len() == self.passed
    }

    /// How many of the last bytes, from `done` on, could be the beginning of any secret of the kind.
    fn beginning(&self, bytes: &[u8], done: usize) -> usize {
        // Letters from each place to the end, of the fewest; an escape may be one.
        let mut fewest = [0; 2 * LONGEST];
        let (mut count, mut beyond) = (0, 0);
        for at in (done..bytes.len()).rev() {
            let byte = bytes[at];
            let is_end = matches!(byte, b'\r' | b'\n') && is_wrapped(&bytes[..at], self.column);
            let could_be = if self.is_text {
                !byte.is_ascii_control()
            } else {
                is_token(byte) || is_brace(&bytes[..at], byte)
            };
            if !is_end && !could_be {
                break;
            }
            let behind = |length: usize| fewest[(at + length) % fewest.len()];
            let mut letters = behind(1) + usize::from(!is_end);
            if begins_escape(byte) {
                match escape(&bytes[at..]) {
                    Some(escape) => letters = letters.min(behind(escape.length) + 1),
                    None if bytes.len() - at < LONGEST => letters = 1,
                    None => {}
                }
            }
            fewest[at % fewest.len()] = letters;
            beyond += 1;
            if letters <= self.most {
                (count, beyond) = (bytes.len() - at, 0);
            }
            if beyond == LONGEST {
                break;
            }
        }
        count
    }
}

/// Writes over every form; the end of the last one. The bytes behind it are as they were. `column` letters of tokens
/// stand before them.
pub(super) fn replace(needles: &[Needle], bytes: &mut [u8], column: usize) -> usize {
    replace_plain(needles, bytes).0.max(replace_escaped(needles, bytes, column))
}

/// The same for forms with escapes.
fn replace_escaped(needles: &[Needle], bytes: &mut [u8], column: usize) -> usize {
    let escaped = |needle: &Needle| needle.escaped.replace(bytes, &needle.instead, column);
    needles.iter().map(escaped).max().unwrap_or(0)
}

/// The same for forms without escapes; and what the letter behind the bytes shares with the last one.
fn replace_plain(needles: &[Needle], bytes: &mut [u8]) -> (usize, Option<Shared>) {
    let (mut done, mut shared) = (0, None);
    // Where each form comes next.
    let mut next: Vec<Option<usize>> = needles.iter().map(|needle| needle.finder.find(bytes)).collect();
    loop {
        for (needle, at) in needles.iter().zip(&mut next) {
            if at.is_some_and(|at| at < done) {
                *at = needle.finder.find(&bytes[done..]).map(|found| done + found);
            }
        }
        // Of two that begin in one place the longer.
        let first = needles.iter().zip(&next).filter_map(|(needle, at)| Some(((*at)?, needle)));
        let Some((at, needle)) = first.min_by_key(|(at, needle)| (*at, usize::MAX - needle.instead.len()))
        else {
            return (done, shared);
        };
        done = at + needle.instead.len();
        shared = needle.write(bytes, at);
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::super::needle::forms;
    use super::*;

    fn masked(needles: &Needles, pieces: &[&[u8]]) -> Vec<u8> {
        let mut mask = Mask::new(Arc::clone(needles));
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&mask.pass(Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&mask.finish());
        out
    }

    #[test]
    fn only_what_could_be_a_beginning_waits() {
        let needles: Needles = forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into();
        let mut mask = Mask::new(needles);
        assert_eq!(mask.pass("data: {\"x\": 1}\n\n".into()), "data: {\"x\": 1}\n\n");
        assert!(mask.is_empty());
        assert_eq!(mask.pass("token ghp_01".into()), "token ");
        assert_eq!(mask.pass("2345678".into()), "");
        assert_eq!(mask.pass("9 and ghp_012".into()), "ghp_XXXXXXXXXX and ");
        assert_eq!(mask.pass("!".into()), "ghp_012!");
        assert!(mask.is_empty());
    }

    #[test]
    fn others_have_their_turn() {
        let mut mask = Mask::new(forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into());
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        mask.pass(vec![b'x'; TURN].into());
        assert!(!mask.has_worked(cx), "nothing in it is looked at closer");
        mask.pass(b"%67%68%70 ".repeat(TURN / 10).into());
        assert!(mask.has_worked(cx) && !mask.has_worked(cx));
    }

    #[test]
    fn pieces_do_not_tell_how_far_a_guess_is_right() {
        let needles: Needles = forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into();
        let sizes = |guess: &'static str| {
            let mut mask = Mask::new(Arc::clone(&needles));
            [mask.pass(guess.into()).len(), mask.pass(" ".into()).len()]
        };
        for length in 1..14 {
            let (right, wrong) = (&"ghp_0123456789"[..length], &"AbC-987654321xyz"[..length]);
            assert_eq!(sizes(right), sizes(wrong), "{right}");
        }
    }

    /// Cuts that end at both ends.
    fn pieces(text: &[u8], cuts: Vec<usize>) -> Vec<&[u8]> {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect()
    }

    #[test]
    fn the_rest_of_a_secret_does_not_pass() {
        let needles: Needles = forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into();
        let mut mask = Mask::new(needles);
        assert_eq!(mask.pass("x ghp_0123".into()), "x ");
        assert_eq!(mask.finish(), "ghp_0123");
        assert!(mask.is_empty() && mask.finish().is_empty());
        assert_eq!(mask.pass("45".into()), "");
        assert_eq!(mask.pass("6789 ".into()), "XXXXXX ");
        assert_eq!(mask.pass("6789 ".into()), "6789 ");
    }

    #[test]
    fn shared_letters_are_written_over_wherever_they_are_cut() {
        let (value, placeholder) = (b"ghp_0123456789", b"ghp_XXXXXXXXXX");
        let needles: Needles = forms(value, placeholder).into();
        for before in ["", "a", "ab"] {
            let text = |middle: &[u8]| STANDARD.encode([before.as_bytes(), middle, b"tail"].concat());
            let (text, expected) = (text(value), text(placeholder));
            for cut in 0..=text.len() {
                let (one, other) = text.as_bytes().split_at(cut);
                assert_eq!(masked(&needles, &[one, other]), expected.as_bytes(), "{before:?} {cut}");
            }
        }
    }

    #[test]
    fn escapes_wait_as_one_letter() {
        let mut mask = Mask::new(forms(b"a/b=c/d=", b"PPPPPPPP").into());
        for (piece, passed) in [
            ("text &#x2F;&#x2F;", "text "),
            (" a&#x2", "&#x2F;&#x2F; "),
            ("F;b&#x3D", ""),
            (";c\\u002fd", ""),
            ("%3D.", "PPPPPPPPPPPPPPPPPPPPPPPPP"),
            (" ", ". "),
        ] {
            assert_eq!(mask.pass(piece.into()), passed, "{piece}");
        }
    }

    #[test]
    fn no_cut_lets_a_short_secret_pass_in_which_a_line_ends() {
        let value = b"ghp_0123456789abcdef";
        let needles: Needles = forms(value, b"PPPPPPPPPPPPPPPPPPPP").into();
        for end in ["\n", "\r\n", "\\n", "\\r\\n", "%0D%0A", "&#13;&#10;", "\\u000d\\u000a"] {
            for before in 37..57 {
                let encoded = STANDARD.encode([&b"x".repeat(before)[..], value].concat());
                let text = [&encoded[..76], end, &encoded[76..]].concat();
                let whole = masked(&needles, &[text.as_bytes()]);
                let own = &encoded.as_bytes()[(before * 8).div_ceil(6)..(before + value.len()) * 8 / 6];
                let shows = |part: &[u8]| memchr::memmem::find(&whole, part).is_some();
                assert!(!own.windows(4).any(shows), "{}", String::from_utf8_lossy(&whole));
                let halves = (0..=text.len()).map(|cut| pieces(text.as_bytes(), vec![cut]));
                for pieces in halves.chain([text.as_bytes().chunks(1).collect()]) {
                    assert_eq!(masked(&needles, &pieces), whole, "{before} {pieces:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_cut_lets_an_escaped_or_wrapped_secret_pass(
            cuts in proptest::collection::vec(0usize..2000, 0..20),
            before in "[a-z&%\\\\]{0,70}",
        ) {
            let value = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLE/KEYab==wJalrXUtnFEMI/K7MDENG+bPxRfiCYEX";
            let needles: Needles = forms(value, &b"P".repeat(value.len())).into();
            let wrap = |by: &[u8]| {
                let lines = STANDARD.encode([by, &value[..]].concat());
                lines.as_bytes().chunks(76).map(|line| [line, b"\r\n"].concat()).collect::<Vec<_>>().concat()
            };
            let html: String = value.iter().map(|byte| match byte {
                b'/' => "&#x2F;".to_owned(),
                b'+' => "&#43;".to_owned(),
                b'=' => "\\u003d".to_owned(),
                byte => char::from(*byte).to_string(),
            }).collect();
            let programs: String = value.iter().map(|byte| match byte {
                b'/' => "\\u{2f}".to_owned(),
                b'+' => "&#43".to_owned(),
                b'=' => "\\U0000003D".to_owned(),
                byte => char::from(*byte).to_string(),
            }).collect();
            let texts = [wrap(b""), wrap(b"x"), wrap(b"xy"), html.into_bytes(), programs.into_bytes()];
            for text in texts {
                let whole = masked(&needles, &[&text[..]]);
                let shows = |part: &[u8]| memchr::memmem::find(&whole, part).is_some();
                prop_assert!(!text.windows(9).any(shows), "{}", String::from_utf8_lossy(&whole));
                let text = [before.as_bytes(), b" ", &text].concat();
                let out = masked(&needles, &pieces(&text, cuts.clone()));
                prop_assert_eq!(&out[before.len() + 1..], &whole[..]);
            }
        }

        #[test]
        fn no_cut_lets_a_secret_pass(
            value in "[ab%\"/]{8,12}",
            around in proptest::collection::vec("[ab%\"/]{0,9}", 1..5),
            cuts in proptest::collection::vec(0usize..200, 0..12),
        ) {
            let placeholder = "P".repeat(value.len());
            let needles: Needles = forms(value.as_bytes(), placeholder.as_bytes()).into();
            let text = around.join(&value);
            let pieces = pieces(text.as_bytes(), cuts);
            for out in [masked(&needles, &pieces), masked(&needles, &[text.as_bytes()])] {
                prop_assert_eq!(out.len(), text.len());
                prop_assert_eq!(memchr::memmem::find(&out, value.as_bytes()), None);
            }
        }

        #[test]
        fn what_holds_none_passes_as_it_is(text: Vec<u8>, cut in 0usize..100) {
            let needles: Needles = forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into();
            let cut = cut.min(text.len());
            prop_assert_eq!(masked(&needles, &[&text[..cut], &text[cut..]]), text);
        }
    }
}
