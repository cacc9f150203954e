//! Spans of time on the command line: `30s`, `10m`.

use std::time::Duration;

/// The units, in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// Reads one: a whole number and a unit, more than nothing.
///
/// # Errors
/// What is expected instead.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| millis);
    let millis = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(*unit)).filter(|&all| all > 0);
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| "a whole number with its unit: 500ms, 30s, 10m, 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit() {
        let millis = |text| parse(text).map(|span| span.as_millis()).ok();
        assert_eq!(
            ["500ms", "30s", "10m", "2h"].map(millis),
            [Some(500), Some(30_000), Some(600_000), Some(7_200_000)]
        );
        for wrong in [
            "",
            "30",
            "s",
            "0s",
            "-1s",
            "1.5s",
            "1 s",
            "1d",
            "10S",
            "99999999999999999999s",
            "9999999999999999h",
        ] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }
}
