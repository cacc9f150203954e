//! Makes text harmless for a terminal: nothing that the agent named can move the cursor or begin a row.

use std::fmt::Write as _;

/// Returns `text` with every control and direction character escaped.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if !is_dangerous(c) => out.push(c),
            _ if u32::from(c) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            _ => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
        }
    }
    out
}

/// Returns JSON with the same meaning and every control and direction character escaped as JSON has it.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_dangerous(c) {
            // All of them are in the basic plane, so four digits are enough.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// C0, DEL and C1 controls, line separators, and what changes the direction of text (Unicode UAX #9).
fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_dangerous_is_left() {
        assert_eq!(text("a\nb\r\t\u{1b}[2J\u{7f}\u{9b}31m"), "a\\nb\\r\\t\\x1b[2J\\x7f\\x9b31m");
        assert_eq!(text("\u{202e}gpj\u{2066}\u{2028}"), "\\u{202e}gpj\\u{2066}\\u{2028}");
        assert_eq!(text("é 😀 日本"), "é 😀 日本");
    }

    proptest::proptest! {
        #[test]
        fn escaped_json_means_the_same(value: String) {
            let stored = serde_json::to_string(&value).expect("JSON");
            let shown = json(&stored);
            proptest::prop_assert!(!shown.chars().any(is_dangerous));
            proptest::prop_assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), value);
        }
    }
}
