//! What came of an exchange with the outside, or where a name leads now, in a few words.

use serde_json::{Map, Value};

/// The outcome of an entry; none where the row says enough.
pub(super) fn brief(entry: &Map<String, Value>) -> Option<String> {
    let op = entry.get("op")?.as_str()?;
    let other_end = match op {
        "fs.rename" => "to",
        "fs.link" => "of",
        "fs.symlink" => "text",
        _ => return of_the_world(op, entry.get("result")?),
    };
    Some(entry.get("args")?.get(other_end)?.as_str()?.to_owned())
}

fn of_the_world(op: &str, result: &Value) -> Option<String> {
    match op {
        "dns.lookup" => lookup(result),
        "http.exchange" => exchange(result),
        "net.stream" => stream(result),
        _ => None,
    }
}

fn lookup(result: &Value) -> Option<String> {
    let answers = result.get("answers")?.as_array()?;
    if answers.is_empty() {
        return Some(result.get("code")?.as_str()?.to_owned());
    }
    Some(answers.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
}

fn exchange(result: &Value) -> Option<String> {
    let mut said = Vec::new();
    said.extend(result.get("status").map(Value::to_string));
    said.extend(result.pointer("/body/size").and_then(Value::as_u64).map(bytes));
    if let Some(upgraded) = result.get("upgraded") {
        said.extend(stream(upgraded));
    }
    said.extend(failure(result));
    (!said.is_empty()).then(|| said.join(", "))
}

fn stream(result: &Value) -> Option<String> {
    let size = |way: &str| result.get(way).and_then(Value::as_u64).map(bytes);
    let mut said = vec![format!("{} up", size("up")?), format!("{} down", size("down")?)];
    said.extend(failure(result));
    Some(said.join(", "))
}

/// A failure in two words, or the sentence that tells it.
fn failure(result: &Value) -> Option<String> {
    let part = |name: &str| result.pointer(&format!("/failure/{name}"))?.as_str();
    match (part("kind"), part("side")) {
        (Some(kind), Some(side)) => Some(format!("{kind} ({side})")),
        _ => result.get("error").and_then(Value::as_str).map(str::to_owned),
    }
}

/// A size as people read it.
fn bytes(size: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut whole = size;
    while whole >= 10_000 && unit + 1 < UNITS.len() {
        whole /= 1024;
        unit += 1;
    }
    format!("{whole} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(op: &str, result: &Value) -> Option<String> {
        brief(json!({"op": op, "result": result}).as_object().expect("an object"))
    }

    #[test]
    fn an_outcome_is_a_few_words() {
        let says = |op, result: Value, expected: &str| {
            assert_eq!(outcome(op, &result).as_deref(), Some(expected), "{result}");
        };
        let failure = json!({"kind": "reset", "side": "origin", "received": 4});
        says("http.exchange", json!({"status": 200, "body": {"size": 12_345_678}}), "200, 11 MiB");
        says("http.exchange", json!({"status": 204}), "204");
        says("http.exchange", json!({"error": "x", "failure": failure}), "reset (origin)");
        says("http.exchange", json!({"error": "the upgrade failed"}), "the upgrade failed");
        says("net.stream", json!({"up": 3, "down": 9999}), "3 B up, 9999 B down");
        says(
            "net.stream",
            json!({"up": 3, "down": 4, "failure": failure}),
            "3 B up, 4 B down, reset (origin)",
        );
        says("dns.lookup", json!({"code": "NXDOMAIN", "answers": []}), "NXDOMAIN");
        says("dns.lookup", json!({"code": "NOERROR", "answers": ["192.0.2.1", "::1"]}), "192.0.2.1 ::1");
        let upgraded = json!({"status": 101, "upgraded": {"up": 1, "down": 2}});
        says("http.exchange", upgraded, "101, 1 B up, 2 B down");
    }

    #[test]
    fn names_lead_to_other_names() {
        for (op, name) in [("fs.rename", "to"), ("fs.link", "of"), ("fs.symlink", "text")] {
            let entry = json!({"op": op, "args": {"path": "a", name: "b"}});
            assert_eq!(brief(entry.as_object().expect("an object")).as_deref(), Some("b"), "{op}");
        }
    }

    #[test]
    fn others_have_none() {
        assert_eq!(outcome("fs.write", &json!({"status": 200})), None);
        assert_eq!(outcome("net.stream", &json!("what")), None);
        assert_eq!(outcome("dns.lookup", &json!({"answers": []})), None);
    }
}
