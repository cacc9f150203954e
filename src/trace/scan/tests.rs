//! Checks the scanner against serde_json.

use proptest::prelude::*;
use serde_json::Value;

use super::super::canonical;
use super::*;

const SHA: &str = "05a780b077141b104927c9cdebc39c2c25a603dcf39eb975679d7aa1f63bbb32";

fn line(args: &str) -> String {
    format!(
        "{{\"args\":{args},\"i\":3,\"kind\":\"deny\",\"op\":\"read\",\"prev\":\"{SHA}\",\"sha\":\"{SHA}\",\"ts\":1.5}}"
    )
}

fn scan(line: &str) -> Result<u64, Malformed> {
    Scanner::default().scan(line.as_bytes()).map(|fields| fields.index)
}

#[test]
fn the_members_are_found() {
    let line = line("{\"target\":\"x\"}");
    let mut scanner = Scanner::default();
    let fields = scanner.scan(line.as_bytes()).expect("an entry");
    assert_eq!(
        (fields.index, fields.kind, fields.op, fields.args),
        (3, "deny", "read", "{\"target\":\"x\"}")
    );
    assert_eq!((fields.prev, fields.sha), (SHA, SHA));
    assert!(fields.before_sha.ends_with(&format!("\"prev\":\"{SHA}\"")));
    assert_eq!(fields.after_sha, ",\"ts\":1.5}");
}

#[test]
fn blobs_are_mentioned_with_their_size() {
    let line = line(&format!(
        "{{\"a\":[{{\"blob\":\"{SHA}\",\"size\":7}}],\"b\":{{\"blob\":\"{SHA}\"}},\"size\":9}}"
    ));
    let mut scanner = Scanner::default();
    scanner.scan(line.as_bytes()).expect("an entry");
    let mention = |size| BlobMention { sha256: SHA.to_owned(), size, private: false };
    assert_eq!(scanner.blobs(), [mention(Some(7)), mention(None)]);
}

#[test]
fn only_canonical_text_is_taken() {
    for args in [
        "{ }",
        "{\"a\":1,}",
        "{\"a\" :1}",
        "{\"a\":01}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":1e}",
        "{\"a\":+1}",
        "{\"a\":nul}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\udc00\\ud800\"}",
        "{\"a\":\"\\ud800\\u0041\"}",
        "{\"a\":\"\\ud800\\n\"}",
        "{\"\\udfff\":1}",
        "{\"a\":1e999}",
        "{\"a\":-1.8e308}",
        "{a:1}",
        "{\"a\":\"\t\"}",
        "[1,]",
        "{\"a\":NaN}",
        "{\"a\":\"\\u0041\"}",
        "{\"a\":\"\\/\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\ud83d\\ude00\"}",
        "{\"a\":\"\\u00e9\"}",
        "{\"a\":\"\\u000A\"}",
        "{\"a\":\"\\u000a\"}",
        "{\"a\":\"\\u001F\"}",
        "{\"a\":\"\\u0022\"}",
        "{\"\\u0062lob\":1}",
        "{\"a\":1e999}",
        "{\"a\":1.000e-00}",
        "{\"a\":1.50}",
        "{\"a\":1E+16}",
        "{\"a\":1e16}",
        "{\"a\":10000000000000000.0}",
        "{\"a\":0.1000000000000000055}",
        "{\"a\":-0}",
        "{\"a\":18446744073709551616}",
        "{\"a\":-9223372036854775809}",
    ] {
        assert!(matches!(scan(&line(args)), Err(Malformed::Syntax { .. })), "{args}");
    }
    assert!(matches!(scan(&line("{\"b\":1,\"a\":2}")), Err(Malformed::UnorderedKeys { .. })));
    assert!(matches!(scan(&line("{\"b\":{\"a\":1,\"a\":1}}")), Err(Malformed::RepeatedKey { .. })));
    assert!(matches!(scan(&line(&"9".repeat(400))), Err(Malformed::Syntax { .. })));
    assert!(matches!(scan(&line(&format!("{{\"a\":{}}}", "9".repeat(308)))), Err(Malformed::Syntax { .. })));
    assert_eq!(scan(&line("{\"a\":[1e+308,\"😀\"]}")), Ok(3));
    assert_eq!(scan(&line("{\"\\n\":1,\" \":2,\"\\\"\":3,\"a\":4}")), Ok(3));
}

#[test]
fn what_the_writers_print_is_taken() {
    let controls: String = (0..0x80).filter_map(char::from_u32).collect();
    for args in [
        serde_json::json!({"a": controls}).to_string().replace("\u{7f}", "\u{7f}\u{2028}é😀"),
        "{\"a\":[0,-1,18446744073709551615,-9223372036854775808,0.0,-0.0,1e+16,1e-05,5e-324,1.5]}".to_owned(),
        "{\"a\":[1795960678.080639,1795960678.0,4294967295.999999,0.30000000000000004,123.456]}".to_owned(),
    ] {
        assert_eq!(scan(&line(&args)), Ok(3), "{args}");
    }
}

#[test]
fn missing_members_are_named() {
    for (gone, name) in
        [("\"i\":3,", "i"), ("\"kind\":\"deny\",", "kind"), ("\"op\":\"read\",", "op"), (",\"ts\":1.5", "ts")]
    {
        assert_eq!(scan(&line("{}").replace(gone, "")), Err(Malformed::Field { name }));
    }
    assert_eq!(scan(&line("[]")), Err(Malformed::Field { name: "args" }));
    assert_eq!(scan(&line("{}").replace("\"i\":3", "\"i\":-3")), Err(Malformed::Field { name: "i" }));
}

#[test]
fn deep_nesting_ends() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(scan(&line(&deep)), Err(Malformed::TooDeep));
}

proptest! {
    #[test]
    fn canonical_text_is_always_taken(text in any::<String>(), key in any::<String>(), float in any::<f64>(), int: i64) {
        let value = serde_json::json!({key: text, "n": [float, int, null, true, {"x": {}}]});
        let line = line(&canonical::to_string(&value));
        prop_assert_eq!(scan(&line), Ok(3));
    }

    #[test]
    fn what_is_taken_is_json(text in "[\\[{\"a:,0-9.eE+\\-\\\\unl}\\]]{0,40}") {
        let line = line(&text);
        if scan(&line).is_ok() {
            prop_assert!(serde_json::from_str::<Value>(&line).is_ok_and(|value| value.is_object()));
        }
    }

    #[test]
    fn any_bytes_are_scanned_without_panic(bytes: Vec<u8>) {
        let _ = Scanner::default().scan(&bytes);
    }
}
