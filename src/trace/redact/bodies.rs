//! Whether a body that is text may stand in a line: not where it seems to hold a credential.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

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
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'%');
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(from) = bytes[at..].iter().position(|&byte| is_part(byte)).map(|skipped| at + skipped) {
        at =
            bytes[from..].iter().position(|&byte| !is_part(byte)).map_or(bytes.len(), |length| from + length);
        let (before, name) = (&bytes[..from], &text[from..at]);
        // multipart/form-data names its fields so (RFC 7578 section 4.2).
        let is_field = before.ends_with(b"name=\"");
        let gap = bytes[at..]
            .iter()
            .find(|byte| !matches!(byte, b'\\' | b'"' | b'\'' | b']' | b' ' | b'\t' | b'\r' | b'\n'));
        let is_secret = match gap {
            Some(b'=') => SECRET_NAMES.contains_key(&plain(name)) || chosen.hold(name),
            Some(b':' | b'>') => SECRET_NAMES.get(&plain(name)) == Some(&true) || chosen.hold(name),
            _ => false,
        };
        if is_secret || (is_field && (SECRET_NAMES.contains_key(&plain(name)) || chosen.hold(name))) {
            return true;
        }
    }
    false
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
