//! The essence of an entry: the members that count, in a form in which equal things are equal.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::normal;
use super::table::{self, Lane, NEVER, PRINCIPAL, Rule};

/// Ports from which the kernel picks (ip(7), ip_local_port_range).
const PICKED: std::ops::RangeInclusive<u64> = 32_768..=60_999;

/// The SHA-256 of nothing.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A member that counts: its name, and its value.
pub(super) type Member = (String, Value);

/// What counts of an entry.
#[derive(Debug)]
pub(super) struct Essence {
    pub(super) rule: &'static Rule,
    /// What it is about.
    pub(super) about: Vec<Member>,
    /// What else was asked.
    pub(super) more: Vec<Member>,
    /// What came of it.
    pub(super) outcome: Vec<Member>,
}

impl Essence {
    /// `None` of an entry that is not compared.
    pub(super) fn of(entry: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let (kind, op) = (text("kind")?, text("op")?);
        let empty = Map::new();
        let args = entry.get("args").and_then(Value::as_object).unwrap_or(&empty);
        let result = entry.get("result").unwrap_or(&Value::Null);
        let rule = table::rule(kind, op, result)?;
        if rule.open {
            return Some(Self::of_unknown(rule, args, result));
        }
        let outcome = match result.as_object() {
            Some(result) => members(rule.outcome, result),
            None => Vec::new(),
        };
        let mut essence =
            Self { rule, about: members(rule.about, args), more: members(rule.more, args), outcome };
        if op == "fs.open_read" && args.get("own").is_some_and(|own| own == true) {
            // Made anew for each run, with the certificate of its own authority.
            essence.more.retain(|(name, _)| name != "sha256" && name != "size");
        }
        if table::is_carrier(rule) {
            // Records of TLS may be cut otherwise; what came in answers is in the entries of the requests.
            let failures = essence.outcome.iter_mut().filter(|(name, _)| name == "failure");
            failures.for_each(|(_, failure)| *failure = without(failure, &["received"]));
        }
        if kind == "deny" {
            essence.mask();
        }
        if is_empty_input(args) {
            essence.more = vec![("sha256".to_owned(), EMPTY.into()), ("size".to_owned(), 0.into())];
        }
        Some(essence)
    }

    fn of_unknown(rule: &'static Rule, args: &Map<String, Value>, result: &Value) -> Self {
        let counted = args.iter().filter(|(name, _)| !NEVER.contains(&name.as_str()));
        let (about, more) = counted
            .map(|(name, value)| (name.clone(), value.clone()))
            .partition(|(name, _): &Member| PRINCIPAL.contains(&name.as_str()));
        let outcome = match result {
            Value::Null => Vec::new(),
            Value::Object(result) => result
                .iter()
                .filter(|(name, _)| !NEVER.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            other => vec![("result".to_owned(), other.clone())],
        };
        Self { rule, about, more, outcome }
    }

    /// The same without names that were made up at random; `None` where there is none.
    pub(super) fn without_made_up_names(&self) -> Option<Self> {
        let masked = |members: &[Member]| -> Vec<Member> {
            let masked = members.iter().map(|(name, value)| (name.clone(), without_names(value)));
            masked.collect()
        };
        let named = |members: &[Member]| members.iter().any(|(_, value)| without_names(value) != *value);
        (self.rule.lane != Lane::Request && (named(&self.about) || named(&self.more))).then(|| Self {
            rule: self.rule,
            about: masked(&self.about),
            more: masked(&self.more),
            outcome: self.outcome.clone(),
        })
    }

    /// Keyed digests of secrets are equal within one run alone.
    fn mask(&mut self) {
        for (_, value) in self.about.iter_mut().chain(&mut self.more) {
            if let Value::String(text) = value {
                *text = normal::mask(text);
            }
        }
    }
}

fn without_names(value: &Value) -> Value {
    match value {
        // Digests are no names.
        Value::String(text) if text.contains('/') => Value::from(normal::mask_names(text)),
        Value::Array(words) => Value::from_iter(words.iter().map(without_names)),
        other => other.clone(),
    }
}

/// Whether these are the arguments of a standard input from which nothing can come.
pub(super) fn is_empty_input(args: &Map<String, Value>) -> bool {
    let said = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default();
    said("stream") == "stdin" && said("why").starts_with("the null device")
}

/// The members of these names that are there, each with its exact bytes where it has some.
fn members(names: &[&str], from: &Map<String, Value>) -> Vec<Member> {
    let mut found = Vec::with_capacity(names.len());
    let has_exact = from.keys().any(|name| name.ends_with("_hex"));
    for name in names {
        found.extend(member(name, from).map(|value| ((*name).to_owned(), value)));
        if !has_exact {
            continue;
        }
        let exact = format!("{name}_hex");
        found.extend(from.get(&exact).map(|value| (exact, value.clone())));
    }
    found
}

fn member(name: &str, from: &Map<String, Value>) -> Option<Value> {
    match name {
        // An address is what it happened to be that day; a name says who was meant.
        "to" if from.contains_key("to") => from.get("to").cloned(),
        "to" => match from.get("names").and_then(Value::as_array) {
            Some(names) if !names.is_empty() => Some(sorted(names)),
            _ => from.get("address").cloned(),
        },
        "addresses" => from.get("answers").and_then(Value::as_array).map(|answers| sorted(answers)),
        "listening" => from.get("port").map(|port| match port.as_u64() {
            Some(port) if PICKED.contains(&port) => Value::from("any"),
            _ => port.clone(),
        }),
        "body" => from.get("body").map(body),
        "failure" => from.get("failure").map(failure),
        "upgraded" => from.get("upgraded").map(|upgraded| without(upgraded, &["transcript", "end"])),
        _ => from.get(name).cloned(),
    }
}

fn sorted(values: &[Value]) -> Value {
    let mut values = values.to_vec();
    values.sort_by_key(Value::to_string);
    Value::from(values)
}

fn without(value: &Value, names: &[&str]) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, _)| !names.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    }
}

/// A failure. Whether a client went away before the run ended, or with it, is a matter of chance.
fn failure(value: &Value) -> Value {
    let mut failure = value.clone();
    if value.get("side").is_some_and(|side| side == "agent")
        && value.get("kind").is_some_and(|kind| kind == "ended")
    {
        failure["kind"] = "abandoned".into();
    }
    failure
}

/// A body by its digest and size, wherever it is stored.
fn body(value: &Value) -> Value {
    let mut plain = Map::new();
    let digest = value.get("sha256").or_else(|| value.get("blob"));
    for (name, member) in [("sha256", digest), ("size", value.get("size")), ("whole", value.get("whole"))] {
        plain.extend(member.map(|member| (name.to_owned(), member.clone())));
    }
    Value::Object(plain)
}

/// Whether a written file had lost its name, so that this is not what is at the path.
pub(super) fn is_unlinked(entry: &Map<String, Value>) -> bool {
    entry.get("args").is_some_and(|args| args.get("unlinked").is_some())
}

/// The SHA-256 of these groups of members, one after the other, shortened.
pub(super) fn digest(first: &str, groups: &[&[Member]]) -> u128 {
    let mut hash = Sha256::new();
    hash.update(first.as_bytes());
    for group in groups {
        hash.update([0]);
        for (name, value) in *group {
            hash.update(name.as_bytes());
            // A text and what it would spell are not the same.
            hash.update([1, u8::from(value.is_string())]);
            match value {
                Value::String(text) => hash.update(text.as_bytes()),
                other => hash.update(other.to_string().as_bytes()),
            }
            hash.update([2]);
        }
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    u128::from_le_bytes(bytes)
}
