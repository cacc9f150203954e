//! Canonical JSON: the bytes that Python's `json.dumps(sort_keys=True, separators=(",", ":"), ensure_ascii=False)` prints.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

/// Returns the canonical text of `value`.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

/// Appends the canonical text of `value` to `out`.
pub fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => write_object(out, map),
    }
}

/// Appends the canonical text of an object to `out`, keys in code point order.
pub fn write_object(out: &mut String, map: &Map<String, Value>) {
    out.push('{');
    for_each_member(map, |position, key, value| {
        if position > 0 {
            out.push(',');
        }
        write_string(out, key);
        out.push(':');
        write_value(out, value);
    });
    out.push('}');
}

/// Goes through the members in the order in which they stand in the text.
pub(super) fn for_each_member<'a>(
    map: &'a Map<String, Value>,
    mut each: impl FnMut(usize, &'a str, &'a Value),
) {
    // UTF-8 sorts as its code points do, so the order of bytes is Python's order. The map is sorted already
    // unless serde_json was built to keep the order of insertion.
    if map.keys().is_sorted() {
        map.iter().enumerate().for_each(|(position, (key, value))| each(position, key, value));
        return;
    }
    let mut members: Vec<(&String, &Value)> = map.iter().collect();
    members.sort_unstable_by_key(|(key, _)| key.as_bytes());
    members.into_iter().enumerate().for_each(|(position, (key, value))| each(position, key, value));
}

/// What stands for a byte in a string: itself, the letter behind a backslash, or `\\u` and four digits.
const PLAIN: u8 = 0;
const LONG: u8 = 1;
const ESCAPES: [u8; 256] = {
    let mut escapes = [PLAIN; 256];
    let mut byte = 0;
    while byte < 0x20 {
        escapes[byte] = LONG;
        byte += 1;
    }
    escapes[0x08] = b'b';
    escapes[0x0c] = b'f';
    escapes[b'\n' as usize] = b'n';
    escapes[b'\r' as usize] = b'r';
    escapes[b'\t' as usize] = b't';
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes
};

/// What stands for a byte, as far as two bytes hold it.
const WRITTEN: [[u8; 2]; 256] = {
    let mut written = [[0; 2]; 256];
    let mut byte = 0_u16;
    while byte < 256 {
        written[byte as usize] = match ESCAPES[byte as usize] {
            PLAIN => [byte.to_le_bytes()[0], 0],
            escape => [b'\\', escape],
        };
        byte += 1;
    }
    written
};

/// How many bytes those are, and [`TOO_LONG`] where they do not hold it.
const LENGTHS: [u8; 256] = {
    let mut lengths = [1; 256];
    let mut byte = 0;
    while byte < 256 {
        lengths[byte] = match ESCAPES[byte] {
            PLAIN => 1,
            LONG => 2 | TOO_LONG,
            _ => 2,
        };
        byte += 1;
    }
    lengths
};
const TOO_LONG: u8 = 0x80;

/// Text that is looked at together: most of it needs no escape at all.
const PART: usize = 64;

/// Appends `text` to `out` as a JSON string: only `"`, `\` and the C0 controls are escaped.
pub fn write_string(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut rest = text;
    while !rest.is_empty() {
        let mut length = rest.len().min(PART);
        while !rest.is_char_boundary(length) {
            length -= 1;
        }
        let (part, after) = rest.split_at(length);
        write_part(out, part);
        rest = after;
    }
    out.push('"');
}

fn write_part(out: &mut String, part: &str) {
    let is_escaped = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    // Without a branch for each byte, so that many are looked at by one instruction.
    if !part.bytes().fold(false, |found, byte| found | is_escaped(byte)) {
        return out.push_str(part);
    }
    let (mut escaped, mut length, mut lengths) = ([0; 2 * PART + 2], 0, 0);
    for byte in part.bytes() {
        let at = usize::from(byte);
        let Some([first, second]) = escaped.get_mut(length..length + 2) else { break };
        [*first, *second] = WRITTEN[at];
        length += usize::from(LENGTHS[at] & !TOO_LONG);
        lengths |= LENGTHS[at];
    }
    match std::str::from_utf8(&escaped[..length]) {
        Ok(escaped) if lengths < TOO_LONG => out.push_str(escaped),
        _ => part.chars().for_each(|letter| write_letter(out, letter)),
    }
}

fn write_letter(out: &mut String, letter: char) {
    let byte = u8::try_from(letter).unwrap_or(b'?');
    match ESCAPES[usize::from(byte)] {
        PLAIN => out.push(letter),
        LONG => {
            out.push_str("\\u00");
            out.push(hex_digit(byte >> 4));
            out.push(hex_digit(byte));
        }
        escape => {
            out.push('\\');
            out.push(char::from(escape));
        }
    }
}

/// Appends a float as Python's `repr` prints it: the shortest digits that read back the same,
/// with an exponent below 1e-4 and from 1e16 on.
pub fn write_float(out: &mut String, value: f64) {
    let has_exponent = !(1e-4..1e16).contains(&value.abs()) && value != 0.0;
    if has_exponent || !value.is_finite() {
        return out.push_str(&with_exponent(value));
    }
    if let Some(micros) = as_micros(value) {
        let _ = write!(out, "{}.{:06}", micros / MICROS, micros % MICROS);
        let digits = out.trim_end_matches('0').len();
        // One digit stays behind the point.
        let length = if out.as_bytes()[..digits].ends_with(b".") { digits + 1 } else { digits };
        return out.truncate(length);
    }
    let from = out.len();
    let _ = write!(out, "{value}");
    if !out[from..].contains('.') {
        out.push_str(".0");
    }
}

const MICROS: u64 = 1_000_000;

/// The millionths that a number is made of, where there is no other with six decimals as near to it: then these are
/// the shortest that read back the same. Below 2^32 two floats that follow each other are less than a millionth apart.
fn as_micros(value: f64) -> Option<u64> {
    const PRECISE: std::ops::Range<f64> = 1e-4..4_294_967_296.0;
    if !PRECISE.contains(&value) {
        return None;
    }
    let micros = (value * 1e6).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^32 millions")]
    (micros / 1e6 == value).then_some(micros as u64)
}

fn with_exponent(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let Ok(exponent) = exponent.parse::<i32>() else {
        return scientific;
    };
    let direction = if exponent < 0 { '-' } else { '+' };
    let size = exponent.unsigned_abs();
    format!("{mantissa}e{direction}{size:02}")
}

fn write_number(out: &mut String, number: &Number) {
    match number.as_f64() {
        Some(float) if number.is_f64() => write_float(out, float),
        _ => _ = write!(out, "{number}"),
    }
}

/// Whether `digits`, which stand behind `\\u`, are how [`write_string`] writes a letter.
pub(super) fn is_long_escape(digits: &[u8; 4]) -> bool {
    let [b'0', b'0', high @ (b'0' | b'1'), low @ (b'0'..=b'9' | b'a'..=b'f')] = digits else { return false };
    let low = if low.is_ascii_digit() { low - b'0' } else { low - b'a' + 10 };
    ESCAPES[usize::from((high - b'0') * 16 + low)] == LONG
}

/// Whether a number is written as it is printed: an integer of 64 bits, or a float in its shortest form.
pub(super) fn is_number(text: &str) -> bool {
    if is_of_micros(text) {
        return true;
    }
    let mut printed = String::with_capacity(text.len());
    if text.contains(['.', 'e']) {
        // Not as serde_json reads it, which may be off by one unit in the last place.
        match text.parse::<f64>() {
            // Out of range it is no number for serde_json, nor for most other readers.
            Ok(float) if float.is_finite() => write_float(&mut printed, float),
            _ => return false,
        }
    } else {
        let integer =
            text.parse::<u64>().map(Number::from).or_else(|_| text.parse::<i64>().map(Number::from));
        let Ok(integer) = integer else { return false };
        write_number(&mut printed, &integer);
    }
    printed == text
}

/// Whether it is a positive number in its shortest form and of the range of [`as_micros`], as times are.
fn is_of_micros(text: &str) -> bool {
    const MOST: u64 = 4_294_967_296;
    let Some((whole, fraction)) = text.split_once('.') else { return false };
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(whole.as_bytes(), [b'1'..=b'9', ..])
        && matches!(fraction.as_bytes(), [b'0'] | [.., b'1'..=b'9'])
        && whole.len() <= 10
        && fraction.len() <= 6
        && are_digits(whole)
        && are_digits(fraction)
        && whole.parse().is_ok_and(|whole: u64| whole < MOST)
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble & 0x0f), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests;
