//! What an entry is about, in a few words, for people.

use nix::sys::signal::Signal;
use serde_json::{Map, Value};

/// Characters of the arguments that are told where no one of them says it all.
const LONGEST_JSON: usize = 60;

/// What the entry is about, in a few words; whatever the agent put there is not escaped.
#[must_use]
pub fn brief(entry: &Map<String, Value>) -> String {
    let empty = Map::new();
    let args = entry.get("args").and_then(Value::as_object).unwrap_or(&empty);
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    if let Some(path) = text("path") {
        return path.to_owned();
    }
    if let Some(url) = text("url") {
        return match text("method") {
            Some(method) => format!("{method} {url}"),
            None => url.to_owned(),
        };
    }
    if let Some(words) = args.get("argv").and_then(Value::as_array) {
        return shell_words(words);
    }
    if let (Some(from), Some(to)) = (text("from"), text("to")) {
        return format!("{from} -> {to}");
    }
    if let Some(stream) = text("stream") {
        return stdio(stream, args);
    }
    let number = |name: &str| args.get(name).and_then(Value::as_i64);
    if let (Some("proc.exit"), Some(code), Some(signal)) =
        (entry.get("op").and_then(Value::as_str), number("code"), number("signal"))
    {
        return match i32::try_from(signal).ok().and_then(|signal| Signal::try_from(signal).ok()) {
            Some(signal) => format!("killed by {signal}"),
            None if signal != 0 => format!("killed by signal {signal}"),
            None => format!("exit code {code}"),
        };
    }
    let named = args.get("names").and_then(Value::as_array).and_then(|names| names.first()?.as_str());
    if let Some(host) = ["host", "name"].into_iter().find_map(text).or(named).or_else(|| text("address")) {
        return match args.get("port") {
            Some(port) if host.contains(':') => format!("[{host}]:{port}"),
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
    }
    if let (Some("exec"), Some(exe), Some(target)) =
        (entry.get("op").and_then(Value::as_str), text("exe"), text("target"))
    {
        // The first word is whatever the caller wrote there.
        let name = target.split(' ').next().unwrap_or_default();
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        return if last(name) == last(exe) { target.to_owned() } else { format!("{exe} as {target}") };
    }
    text("target").map_or_else(|| shorten(&spaced(args), LONGEST_JSON), str::to_owned)
}

/// What is recorded of a standard stream, as `stdout, 29 bytes`.
fn stdio(stream: &str, args: &Map<String, Value>) -> String {
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    match (text("why"), text("same_as"), args.get("size").and_then(Value::as_u64)) {
        (Some(why), ..) => format!("{stream}, not recorded: {why}"),
        (_, Some(other), _) => format!("{stream}, the same as {other}"),
        (_, _, Some(1)) => format!("{stream}, 1 byte"),
        (_, _, Some(size)) => format!("{stream}, {size} bytes"),
        _ => stream.to_owned(),
    }
}

/// JSON with a space after each comma and colon.
fn spaced(args: &Map<String, Value>) -> String {
    let members: Vec<String> =
        args.iter().map(|(key, value)| format!("{}: {value}", Value::from(key.as_str()))).collect();
    format!("{{{}}}", members.join(", "))
}

/// The first characters of `text`, with an ellipsis where some are left out.
#[must_use]
pub fn shorten(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns words as a shell would take them.
pub fn shell_words(words: &[Value]) -> String {
    let quoted = words.iter().map(|word| match word.as_str() {
        Some(word) => quote(word),
        None => word.to_string(),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "@%+=:,./-_".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}
