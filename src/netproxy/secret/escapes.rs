//! What the escapes of URLs, HTML, JSON and programs stand for.

/// The longest that is known: `&#x0000027;`.
pub(super) const LONGEST: usize = 11;

/// Digits of a number in HTML: more are never written.
const DIGITS: usize = 7;

/// Characters of ASCII that have names in HTML ("Named character references").
const NAMED: [(&[u8], u8); 35] = [
    (b"amp", b'&'),
    (b"lt", b'<'),
    (b"gt", b'>'),
    (b"quot", b'"'),
    (b"apos", b'\''),
    (b"excl", b'!'),
    (b"num", b'#'),
    (b"dollar", b'$'),
    (b"percnt", b'%'),
    (b"lpar", b'('),
    (b"rpar", b')'),
    (b"ast", b'*'),
    (b"midast", b'*'),
    (b"plus", b'+'),
    (b"comma", b','),
    (b"period", b'.'),
    (b"sol", b'/'),
    (b"colon", b':'),
    (b"semi", b';'),
    (b"equals", b'='),
    (b"quest", b'?'),
    (b"commat", b'@'),
    (b"lsqb", b'['),
    (b"lbrack", b'['),
    (b"bsol", b'\\'),
    (b"rsqb", b']'),
    (b"rbrack", b']'),
    (b"Hat", b'^'),
    (b"lowbar", b'_'),
    (b"grave", b'`'),
    (b"lcub", b'{'),
    (b"lbrace", b'{'),
    (b"verbar", b'|'),
    (b"vert", b'|'),
    (b"rcub", b'}'),
];

/// An escape: how long it is, and the bytes that it stands for.
#[derive(Clone, Copy)]
pub(super) struct Escape {
    pub(super) length: usize,
    bytes: [u8; 4],
    count: usize,
}

impl Escape {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    fn byte(byte: u8, length: usize) -> Self {
        Self { length, bytes: [byte, 0, 0, 0], count: 1 }
    }

    /// A character, as UTF-8.
    fn of(code: u32, length: usize) -> Option<Self> {
        let mut bytes = [0; 4];
        let count = char::from_u32(code)?.encode_utf8(&mut bytes).len();
        Some(Self { length, bytes, count })
    }
}

/// Whether an escape may begin with it.
pub(super) fn begins_escape(byte: u8) -> bool {
    matches!(byte, b'%' | b'&' | b'\\')
}

/// Letters of tokens, of base64, and of what stands for them in URLs, HTML and JSON.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=%\\&#;".contains(&byte)
}

/// Whether it is a brace of `\u{2d}`, as far as that has come.
pub(super) fn is_brace(before: &[u8], byte: u8) -> bool {
    match byte {
        b'{' => before.ends_with(b"\\u"),
        b'}' => {
            let digits = before.iter().rev().take(DIGITS).take_while(|byte| byte.is_ascii_hexdigit()).count();
            before[..before.len() - digits].ends_with(b"\\u{")
        }
        _ => false,
    }
}

/// The escape that `text` begins with.
pub(super) fn escape(text: &[u8]) -> Option<Escape> {
    match text {
        [b'\\', b'u', b'{', rest @ ..] => {
            let digits = rest.iter().take(DIGITS).position(|byte| *byte == b'}')?;
            Escape::of(number(&rest[..digits], 16)?, digits + 4)
        }
        [b'\\', b'U', rest @ ..] => Escape::of(number(rest.get(..8)?, 16)?, 10),
        [b'%' | b'\\', b'u', rest @ ..] => Escape::of(number(rest.get(..4)?, 16)?, 6),
        [b'%', rest @ ..] => Some(Escape::byte(u8::try_from(number(rest.get(..2)?, 16)?).ok()?, 3)),
        [b'&', b'#', b'x' | b'X', rest @ ..] => numbered(rest, 16, 3),
        [b'&', b'#', rest @ ..] => numbered(rest, 10, 2),
        [b'&', rest @ ..] => {
            let end = rest.iter().take(LONGEST).position(|byte| *byte == b';')?;
            let (_, byte) = NAMED.iter().find(|(name, _)| *name == &rest[..end])?;
            Some(Escape::byte(*byte, end + 2))
        }
        [b'\\', b'x', rest @ ..] => Some(Escape::byte(u8::try_from(number(rest.get(..2)?, 16)?).ok()?, 4)),
        [b'\\', b'n', ..] => Some(Escape::byte(b'\n', 2)),
        [b'\\', b'r', ..] => Some(Escape::byte(b'\r', 2)),
        [b'\\', b'0'..=b'3', ..] => Some(Escape::byte(u8::try_from(number(text.get(1..4)?, 8)?).ok()?, 4)),
        [b'\\', byte, ..] if byte.is_ascii_punctuation() || *byte == b' ' => Some(Escape::byte(*byte, 2)),
        _ => None,
    }
}

/// A character by its number, up to a semicolon or whatever is no digit: readers of HTML go on without one. `before`
/// bytes stand in front.
fn numbered(text: &[u8], base: u32, before: usize) -> Option<Escape> {
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(base);
    let digits = text.iter().take(DIGITS + 1).take_while(is_digit).count();
    let end = usize::from(text.get(digits) == Some(&b';'));
    if digits > DIGITS {
        return None;
    }
    Escape::of(number(&text[..digits], base)?, before + digits + end)
}

fn number(digits: &[u8], base: u32) -> Option<u32> {
    let add = |value: u32, digit: &u8| Some(value * base + char::from(*digit).to_digit(base)?);
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stands_for_what_its_language_says() {
        for (text, bytes) in [
            ("%2f", "/"),
            ("%2F", "/"),
            ("%u003D", "="),
            ("&#43;", "+"),
            ("&#0043;", "+"),
            ("&#x3D;", "="),
            ("&#X3d;", "="),
            ("&#x000002B;", "+"),
            ("&equals;", "="),
            ("&#45", "-"),
            ("&#x2D", "-"),
            ("\\u{2d}", "-"),
            ("\\u{00002D}", "-"),
            ("\\U0000002d", "-"),
            ("\\u003d", "="),
            ("\\u00E9", "é"),
            ("\\x3D", "="),
            ("\\075", "="),
            ("\\/", "/"),
            ("\\\\", "\\"),
            ("\\n", "\n"),
        ] {
            let found = escape(format!("{text}tail").as_bytes()).unwrap();
            assert_eq!((found.bytes(), found.length), (bytes.as_bytes(), text.len()), "{text}");
            assert!(text.len() <= LONGEST);
        }
        for text in
            ["", "a", "%", "%2", "%zz", "&", "&;", "&#;", "&#x;", "&nothing;", "\\", "\\u00", "\\a", "\\07"]
        {
            assert!(escape(text.as_bytes()).is_none(), "{text}");
        }
    }
}
