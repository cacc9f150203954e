//! Whether a body that is text may stand in a line: not where it seems to hold a credential.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use memchr::memchr3_iter;

use super::chosen::{ChosenNames, plain};
use super::names::{SECRET_HEADERS, SECRET_MEMBERS, SECRET_PARAMETERS};

/// Secret names, as [`plain`] has them, and whether they are secret before a colon too: a JSON body with a `key` or
/// a `session` is ordinary.
static SECRET_NAMES: LazyLock<HashMap<String, bool>> = LazyLock::new(|| {
    let parameters = SECRET_PARAMETERS.iter().map(|name| (plain(name), false));
    let others = SECRET_HEADERS.iter().chain(SECRET_MEMBERS).chain(&["code"]);
    parameters.chain(others.map(|name| (plain(name), true))).collect()
});

/// See [`Redactor::names_credentials`](super::Redactor::names_credentials).
pub(super) fn names_credentials(text: &str, chosen: &ChosenNames) -> bool {
    let text = unescaped(text);
    let bytes = text.as_bytes();
    memchr3_iter(b'=', b':', b'>', bytes).any(|at| {
        // What it stands behind, however that is quoted.
        let end = bytes[..at].iter().rposition(|&byte| !is_gap(byte)).map_or(0, |last| last + 1);
        let from = bytes[..end].iter().rposition(|&byte| !is_part(byte)).map_or(0, |last| last + 1);
        let name = &text[from..end];
        let is_secret = !name.is_empty()
            && match bytes[at] {
                b'=' => SECRET_NAMES.contains_key(&plain(name)) || chosen.hold(name),
                _ => SECRET_NAMES.get(&plain(name)) == Some(&true) || chosen.hold(name),
            };
        is_secret
            || names_field(&text, at)
                .is_some_and(|name| SECRET_NAMES.contains_key(&plain(name)) || chosen.hold(name))
    })
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'%')
}

fn is_gap(byte: u8) -> bool {
    matches!(byte, b'\\' | b'"' | b'\'' | b']' | b' ' | b'\t' | b'\r' | b'\n')
}

/// The field that the sign at `at` names: multipart/form-data does it so (RFC 7578 section 4.2).
fn names_field(text: &str, at: usize) -> Option<&str> {
    let name = text[at..].strip_prefix("=\"").filter(|_| text[..at].ends_with("name"))?;
    let length = name.bytes().position(|byte| !is_part(byte)).unwrap_or(name.len());
    (length > 0).then(|| &name[..length])
}

/// The text with letters for their escapes in JSON.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains("\\u00") {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split("\\u00");
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[2..]);
            }
            None => plain.push_str(part),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_seen_in_any_form() {
        for text in [
            r#"{"access_token":"hunter2"}"#,
            r#"{"a": [{"clientSecret" : "hunter2"}]}"#,
            r#"{"pass\u0077ord":"hunter2"}"#,
            r#"{"body":"{\"refresh_token\": \"hunter2\"}"}"#,
            r#"{"code":"hunter2","grant_type":"authorization_code"}"#,
            "{\"id_token\"\n\t:\n\"hunter2\"}",
            "grant_type=x&client_secret=hunter2",
            "a=b;code_verifier=hunter2",
            "user[password]=hunter2",
            "%74oken=hunter2",
            "assertion=hunter2",
            "key=hunter2",
            "--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\nhunter2\r\n--b--",
            "<password>hunter2</password>",
            "Authorization: Bearer hunter2",
            "X-Api-Key: hunter2",
            "{'apiKey': 'hunter2'}",
            "api-key: hunter2",
            "token = hunter2",
        ] {
            assert!(names_credentials(text, &ChosenNames::default()), "{text}");
        }
    }

    #[test]
    fn other_texts_may_be_shown() {
        for text in [
            "",
            "hello, the password is not here",
            r#"{"usage":{"input_tokens":3,"output_tokens":5},"stop_reason":"end_turn"}"#,
            r#"{"key":"value","session":1,"text":"a token"}"#,
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"tok\"}}\n\n",
            "a=b&name=token",
            "\\u00",
            "\\u00é",
        ] {
            assert!(!names_credentials(text, &ChosenNames::default()), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC*(\\\\u00\\PC?)*\\PC*") {
            names_credentials(&text, &ChosenNames::default());
        }
    }
}
