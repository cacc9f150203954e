//! Checks the canonical form against fixed examples and against a real Python.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::{to_string, write_float};

#[test]
fn floats_print_as_python_prints_them() {
    for (value, expected) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (1_795_960_678.408, "1795960678.408"),
        (0.000_1, "0.0001"),
        (0.000_01, "1e-05"),
        (0.000_012_3, "1.23e-05"),
        (1e15, "1000000000000000.0"),
        (9_999_999_999_999_998.0, "9999999999999998.0"),
        (1e16, "1e+16"),
        (1.5e300, "1.5e+300"),
        (5e-324, "5e-324"),
        (-2.5, "-2.5"),
        (123.456, "123.456"),
    ] {
        let mut printed = String::new();
        write_float(&mut printed, value);
        assert_eq!(printed, expected);
    }
}

#[test]
fn strings_escape_only_what_they_must() {
    let text = "a\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}é\u{2028}😀";
    assert_eq!(to_string(&json!(text)), "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\u{7f}é\u{2028}😀\"");
}

#[test]
fn keys_stand_in_code_point_order() {
    // UTF-16 would put the emoji before U+FFFD.
    let value = json!({"\u{1f600}": 1, "\u{fffd}": 2, "b": 3, "B": {"z": [], "a": {}}});
    assert_eq!(to_string(&value), "{\"B\":{\"a\":{},\"z\":[]},\"b\":3,\"\u{fffd}\":2,\"\u{1f600}\":1}");
}

#[test]
fn random_values_print_as_python_prints_them() {
    let program = "import sys, json\nfor line in sys.stdin.buffer:\n    v = json.loads(line)\n    sys.stdout.buffer.write((json.dumps(v, sort_keys=True, separators=(',', ':'), ensure_ascii=False) + '\\n').encode())\n";
    let Ok(mut python) =
        Command::new("python3").args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    else {
        let _ = writeln!(std::io::stderr(), "SKIP canonical form against Python: there is no python3");
        return;
    };
    let mut runner = TestRunner::deterministic();
    let values: Vec<Value> =
        (0..2000).map(|_| values().new_tree(&mut runner).expect("a value").current()).collect();
    let mut stdin = python.stdin.take().expect("a pipe");
    let lines: Vec<String> = values.iter().map(|value| serde_json::to_string(value).expect("JSON")).collect();
    let feeder = std::thread::spawn(move || {
        for line in lines {
            writeln!(stdin, "{line}").expect("python reads");
        }
    });
    let output = python.wait_with_output().expect("python ends");
    feeder.join().expect("the feeder ends");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    // Not lines(): it would also take a carriage return off the end.
    let printed: Vec<&str> = printed.split_terminator('\n').collect();
    assert_eq!(printed.len(), values.len());
    for (value, expected) in values.iter().zip(printed) {
        assert_eq!(to_string(value), expected);
    }
}

fn values() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no NaN", |f| f.is_finite()).prop_map(Value::from),
        (-1.0e6..1.0e6_f64).prop_map(Value::from),
        (0_u64..4_000_000_000_000_000)
            .prop_map(|micros| Value::from(std::time::Duration::from_micros(micros).as_secs_f64())),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        any::<String>().prop_map(Value::from),
        "[\\x00-\\x7f]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
