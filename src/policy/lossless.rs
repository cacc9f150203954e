//! Paths and words of the kernel as JSON text, without loss.
//!
//! They may hold any bytes but NUL, JSON text is Unicode. A byte that is not UTF-8 stands as the private
//! character U+10FE00 plus the byte. So do the bytes of such a character itself: no two words look alike.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is added to a byte.
const PRIVATE: u32 = 0x10_FE00;

/// The byte that `letter` stands for.
fn private_byte(letter: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(letter).checked_sub(PRIVATE)?).ok()?;
    (byte >= 0x80).then_some(byte)
}

/// Whether there may be private letters: each begins with this byte, as few others do. The words are short: to ask
/// what the processor can do, as `memchr` does first, would take each process of a launch longer than all of them.
fn may_be_private(text: &str) -> bool {
    text.as_bytes().contains(&0xF4)
}

/// `word` as it is, where it can stand in a text like that.
fn plain(word: &OsStr) -> Option<&str> {
    let is_plain = |text: &str| !text.chars().any(|letter| private_byte(letter).is_some());
    word.to_str().filter(|text| !may_be_private(text) || is_plain(text))
}

/// Whether a word can stand in a text as it is.
pub(crate) fn is_plain(word: &OsStr) -> bool {
    plain(word).is_some()
}

/// Writes a word as text.
pub(crate) fn encode(word: &OsStr) -> Cow<'_, str> {
    if let Some(text) = plain(word) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(word.len());
    let push_bytes = |text: &mut String, bytes: &[u8]| {
        text.extend(bytes.iter().filter_map(|byte| char::from_u32(PRIVATE + u32::from(*byte))));
    };
    for chunk in word.as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            match private_byte(letter) {
                Some(_) => push_bytes(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes()),
                None => text.push(letter),
            }
        }
        push_bytes(&mut text, chunk.invalid());
    }
    Cow::Owned(text)
}

/// Reads what [`encode`] wrote.
pub(crate) fn decode(text: &str) -> OsString {
    decode_owned(text.to_owned())
}

fn decode_owned(text: String) -> OsString {
    if !may_be_private(&text) {
        return text.into();
    }
    let mut word = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match private_byte(letter) {
            Some(byte) => word.push(byte),
            None => word.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(word)
}

/// `#[serde(with = "lossless::path")]`, for a path or a word.
pub(crate) mod path {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(word: &impl AsRef<OsStr>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&encode(word.as_ref()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<OsString>>(from: D) -> Result<T, D::Error> {
        Ok(decode_owned(String::deserialize(from)?).into())
    }
}

/// `#[serde(with = "lossless::optional_path")]`
pub(crate) mod optional_path {
    use super::*;

    pub(crate) fn serialize<S: Serializer, T: AsRef<OsStr>>(
        word: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        word.as_ref().map(|word| encode(word.as_ref())).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<OsString>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(|text| decode_owned(text).into()))
    }
}

/// `#[serde(with = "lossless::paths")]`
pub(crate) mod paths {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| encode(path.as_os_str())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<String>::deserialize(from)?.into_iter().map(|text| decode_owned(text).into()).collect())
    }
}

/// `#[serde(with = "lossless::bytes")]`, for the content of a file.
pub(crate) mod bytes {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(content: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&encode(OsStr::from_bytes(content)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Ok(decode_owned(String::deserialize(from)?).into_vec())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_stays_as_it_is() {
        assert_eq!(encode(OsStr::new("/tmp/Überlauf\n")), "/tmp/Überlauf\n");
        assert!(is_plain(OsStr::new("\u{10FE7F}\u{10FF00}")));
    }

    #[test]
    fn private_letters_are_not_taken_for_bytes() {
        let (letter, byte) = (OsStr::new("\u{10FEFF}"), OsStr::from_bytes(b"\xff"));
        assert_eq!(encode(byte), "\u{10FEFF}");
        assert_ne!(encode(letter), encode(byte));
        assert_eq!(decode(&encode(letter)), letter);
        assert!(!is_plain(letter) && !is_plain(byte));
    }

    proptest! {
        #[test]
        fn every_word_comes_back(word: Vec<u8>) {
            let word = OsString::from_vec(word);
            prop_assert_eq!(decode(&encode(&word)), word);
        }
    }
}
