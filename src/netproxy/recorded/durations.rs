//! Text without the durations that it tells: how long something took is another time each time.

/// Units of time, the longest of those that begin alike first.
const UNITS: [&str; 22] = [
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "millis",
    "micros",
    "nanos",
    "msecs",
    "msec",
    "ms",
    "µs",
    "μs",
    "usec",
    "us",
    "ns",
    "seconds",
    "second",
    "secs",
    "sec",
    "s",
    "minutes",
    "minute",
    "min",
];

/// Words before a number that say that it is a duration, and those that do so of one with a fraction alone.
const TOOK: [&str; 6] = ["duration", "durations", "elapsed", "took", "latency", "runtime"];
const TIME: [&str; 10] =
    ["time", "times", "real", "user", "sys", "ms", "seconds", "secs", "milliseconds", "microseconds"];

/// Words beside them that say that somebody chose it.
const CHOSEN: [&str; 9] =
    ["timeout", "ttl", "delay", "interval", "limit", "deadline", "max", "min", "budget"];

/// What may stand between such a word and its number, and how much of it.
const BETWEEN: &[u8] = b" \t:=\"'\\(";
const MOST_BETWEEN: usize = 24;

/// What stands for a duration.
const MASK: &str = "duration";

/// The text with one word for each duration: a number with a unit of time, or behind a word as `elapsed`.
#[must_use]
pub fn without(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let (mut at, mut kept) = (0, 0);
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() || !may_begin(bytes, at) {
            at += 1;
            continue;
        }
        let number = Number::at(bytes, at);
        match number.duration(text, at) {
            Some(end) => {
                out.push_str(&text[kept..at]);
                out.push_str(MASK);
                (at, kept) = (end, end);
            }
            None => at = number.end,
        }
    }
    out.push_str(&text[kept..]);
    out
}

/// Whether a number may begin here: not within a word, a version or another number.
fn may_begin(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|at| bytes[at]);
    match before(1) {
        None => true,
        // An escape of JSON.
        Some(b'n' | b'r' | b't') => before(2) == Some(b'\\'),
        Some(byte) => byte.is_ascii() && !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'.' | b'-'),
    }
}

struct Number {
    end: usize,
    has_fraction: bool,
}

impl Number {
    fn at(bytes: &[u8], from: usize) -> Self {
        let digits = |from: usize| {
            let rest = &bytes[from..];
            from + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
        };
        let end = digits(from);
        let has_fraction =
            bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        Self { end: if has_fraction { digits(end + 1) } else { end }, has_fraction }
    }

    /// Where the duration ends that begins with this number, if it is one.
    fn duration(&self, text: &str, from: usize) -> Option<usize> {
        let rest = &text[self.end..];
        if let Some(end) = composed(text, self.end) {
            return Some(end);
        }
        let space = usize::from(rest.starts_with(' '));
        if let Some(unit) = UNITS.into_iter().find(|unit| rest[space..].starts_with(unit)) {
            let end = self.end + space + unit.len();
            return is_end(text, end).then_some(end).filter(|_| !is_chosen(text, from));
        }
        // Another part of a version, a size or a word follows, or an exponent.
        let ends = is_end(text, self.end) && !rest.starts_with('.') && !rest.starts_with('%');
        (ends && is_told(text, from, self.has_fraction)).then_some(self.end)
    }
}

/// The end of a duration of several parts, as `1m2.5s` and `0m3.604s`; its first number ends at `end`.
fn composed(text: &str, mut end: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    while matches!(bytes.get(end), Some(b'h' | b'm')) && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = Number::at(bytes, end + 1).end;
        if bytes.get(end) == Some(&b's') && is_end(text, end + 1) {
            return Some(end + 1);
        }
    }
    None
}

/// Whether no word goes on here.
fn is_end(text: &str, at: usize) -> bool {
    text[at..].chars().next().is_none_or(|char| !char.is_alphanumeric() && char != '_')
}

/// The parts of the word before a number: `duration` and `ms` of `"duration_ms": 1`.
fn word_before(text: &str, from: usize) -> Vec<String> {
    let bytes = text.as_bytes();
    let between =
        bytes[..from].iter().rev().take(MOST_BETWEEN).take_while(|byte| BETWEEN.contains(byte)).count();
    let end = from - between;
    let is_word = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let mut start = end - bytes[..end].iter().rev().take_while(is_word).count();
    // The letter of an escape of JSON is none of the word's.
    let is_escape =
        start > 0 && bytes[start - 1] == b'\\' && matches!(bytes.get(start), Some(b'n' | b'r' | b't'));
    start += usize::from(is_escape && start < end);
    let mut parts = vec![String::new()];
    for (at, byte) in bytes[start..end].iter().enumerate() {
        let begins_part = byte.is_ascii_uppercase() && at > 0 && bytes[start + at - 1].is_ascii_lowercase();
        if matches!(byte, b'_' | b'-') || begins_part {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| byte.is_ascii_alphanumeric()) {
            part.push(char::from(byte.to_ascii_lowercase()));
        }
    }
    parts
}

fn is_chosen(text: &str, from: usize) -> bool {
    word_before(text, from).iter().any(|part| CHOSEN.contains(&part.as_str()))
}

/// Whether the word before a number says that it is a duration.
fn is_told(text: &str, from: usize, has_fraction: bool) -> bool {
    let parts = word_before(text, from);
    let has = |words: &[&str]| parts.iter().any(|part| words.contains(&part.as_str()));
    (has(&TOOK) || (has_fraction && has(&TIME))) && !has(&CHOSEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_left_out() {
        for (one, other) in [
            ("# duration_ms 157.888986", "# duration_ms 98.1"),
            ("2 passed in 0.42s", "2 passed in 11.07s"),
            ("took 12 ms", "took 9 ms"),
            ("added 1 package in 531ms", "added 1 package in 1204ms"),
            ("✔ works (0.5ms)", "✔ works (1.25ms)"),
            ("real\t0m3.604s", "real\t1m0.01s"),
            (r#"{"elapsed": 15, "a": 1}"#, r#"{"elapsed": 16, "a": 1}"#),
            (r#"{"t":"ok\nduration_ms 1.5\n2.5s"}"#, r#"{"t":"ok\nduration_ms 2.5\n3.5s"}"#),
            (r#"{"o":"{\"durationMs\": 12}"}"#, r#"{"o":"{\"durationMs\": 7}"}"#),
            ("Time: 1.234", "Time: 0.9"),
            ("12 µs", "9 µs"),
        ] {
            assert_eq!(without(one), without(other), "{one}");
            assert_ne!(without(one), one);
        }
    }

    #[test]
    fn other_numbers_stay() {
        for text in [
            "a 12",
            "v1.2.3",
            "1.2.3s",
            "timeout 30s",
            r#"{"timeout_ms": 5000}"#,
            "time 12",
            "3 sets",
            "5 services",
            "file12.5s",
            "x-3s",
            "time 1.5.2",
            "time 1.5%",
            r#"{"temperature": 0.7}"#,
            "127.0.0.1:80",
            "12 m",
            "",
            "é12é",
        ] {
            assert_eq!(without(text), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(text in "[0-9a-zµ.:_\\\\ é-]{0,40}") {
            let once = without(&text);
            proptest::prop_assert!(once.matches(MASK).count() >= text.matches(MASK).count());
        }
    }
}
