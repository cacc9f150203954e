//! The header of a trace: what was run, under which policy, and what the trace proves.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::trace::brief::shell_words;
use crate::trace::escape;

/// Writes the header of a `run.start` entry, each line begun by `#` so that no row looks like it.
pub(super) fn write(entry: &Map<String, Value>, out: &mut impl Write) -> io::Result<()> {
    let Some(args) = entry.get("args").and_then(Value::as_object) else {
        return Ok(());
    };
    let mut line = |name: &str, text: String| writeln!(out, "# {name:<14}{}", escape::text(&text));
    if let Some(words) = args.get("argv").and_then(Value::as_array) {
        line("command", shell_words(words))?;
    }
    for (name, key) in [
        ("executable", "executable"),
        ("", "executable_sha256"),
        ("policy", "policy_name"),
        ("policy digest", "policy_sha256"),
        ("directory", "cwd"),
        ("isolation", "level"),
        ("mechanisms", "mechanisms"),
        ("host", "host"),
    ] {
        if let Some(value) = args.get(key) {
            line(name, words(value))?;
        }
    }
    if let Some(channels) = args.get("capture").and_then(Value::as_object) {
        writeln!(out, "#")?;
        for (channel, state) in channels {
            writeln!(out, "# {:<14} {}", escape::text(channel), escape::text(&words(state)))?;
        }
    }
    writeln!(out, "#")
}

/// A value as a few words: a list by commas, an object by what is true or has a value in it.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(map) => {
            let member = |(key, value): (&String, &Value)| match value {
                Value::Bool(true) => Some(key.clone()),
                Value::Bool(false) | Value::Null => None,
                other => Some(format!("{key} {}", words(other))),
            };
            map.iter().filter_map(member).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_header_says_what_the_trace_proves() {
        let entry = json!({"args": {
            "argv": ["python3", "agent.py"], "policy_sha256": "ab", "host": {"kernel": "6.18", "arch": "x86_64"},
            "level": "namespaces", "mechanisms": ["landlock", "seccomp"],
            "capture": {"files read": ["enforced", "recorded"], "clock": "not covered\n1  x", "TCP": {"enforced": true, "recorded": false}},
        }});
        let mut out = Vec::new();
        write(entry.as_object().expect("an object"), &mut out).expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(
            text,
            "# command       python3 agent.py\n# policy digest ab\n# isolation     namespaces\n# mechanisms    landlock, seccomp\n\
             # host          arch x86_64, kernel 6.18\n#\n# TCP            enforced\n# clock          not covered\\n1  x\n\
             # files read     enforced, recorded\n#\n"
        );
    }
}
