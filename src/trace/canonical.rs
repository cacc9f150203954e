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

/// The bytes that do not stand in a string as they are.
const ESCAPED: [bool; 256] = {
    let mut escaped = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        escaped[byte] = true;
        byte += 1;
    }
    escaped[b'"' as usize] = true;
    escaped[b'\\' as usize] = true;
    escaped
};

/// Appends `text` to `out` as a JSON string: only `"`, `\` and the C0 controls are escaped.
pub fn write_string(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut plain_from = 0;
    let is_escaped = |byte: &u8| ESCAPED[usize::from(*byte)];
    while let Some(length) = text.as_bytes()[plain_from..].iter().position(is_escaped) {
        let at = plain_from + length;
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        match text.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => {
                out.push_str("\\u00");
                out.push(hex_digit(control >> 4));
                out.push(hex_digit(control));
            }
        }
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}

/// Appends a float as Python's `repr` prints it: the shortest digits that read back the same,
/// with an exponent below 1e-4 and from 1e16 on.
pub fn write_float(out: &mut String, value: f64) {
    let has_exponent = !(1e-4..1e16).contains(&value.abs()) && value != 0.0;
    if has_exponent || !value.is_finite() {
        return out.push_str(&with_exponent(value));
    }
    let from = out.len();
    let _ = write!(out, "{value}");
    if !out[from..].contains('.') {
        out.push_str(".0");
    }
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

fn hex_digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble & 0x0f), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests;
