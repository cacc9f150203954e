//! Which members of two entries differ, one by one.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use super::essence::{Essence, Member};
use super::normal;
use crate::trace::brief::shorten;

/// A member that differs; `None` where it is absent.
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    /// Its name, as `sha256`, `headers.date` or `result.status`.
    pub name: String,
    /// What was recorded.
    pub recorded: Option<Value>,
    /// What the other run has.
    pub live: Option<Value>,
}

/// Characters that are told of texts that differ, and how many of them before the difference.
const EXCERPT: usize = 120;
const BEFORE: usize = 20;

/// Header fields of an answer that only tell the time.
const TIMES: &[&str] = &["result.headers.date", "result.headers.expires", "result.headers.age"];

/// The members that count and differ.
pub(super) fn differing(recorded: &Map<String, Value>, live: &Map<String, Value>) -> Vec<Field> {
    let (ours, theirs) = (named(recorded), named(live));
    let mut fields = Vec::new();
    let [mine, others] = [&ours, &theirs].map(|members| first(members));
    let mut told = HashSet::new();
    for (name, _) in ours.iter().chain(&theirs).filter(|(name, _)| told.insert(name)) {
        let value = |members: &HashMap<&String, &Value>| members.get(name).map(|value| Value::clone(value));
        part(name, value(&mine), value(&others), &mut fields);
    }
    for (place, name) in [("/args/body/text", "body.text"), ("/result/body/text", "result.body.text")] {
        texts(place, name, (recorded, live), &mut fields);
    }
    fields
}

/// Members by their names; the first of one name counts.
fn first(members: &[Member]) -> HashMap<&String, &Value> {
    members.iter().rev().map(|(name, value)| (name, value)).collect()
}

/// Whether these fields tell the time, and nothing else.
pub(super) fn tell_the_time(fields: &[Field]) -> bool {
    !fields.is_empty() && fields.iter().all(|field| TIMES.contains(&field.name.as_str()))
}

/// Whether these fields differ in nothing but names that were made up at random, as by mkstemp(3).
pub(super) fn are_made_up(fields: &[Field]) -> bool {
    let differ_so = |field: &Field| match (&field.recorded, &field.live) {
        (Some(Value::String(ours)), Some(Value::String(theirs))) => normal::differ_by_chance(ours, theirs),
        _ => false,
    };
    !fields.is_empty() && fields.iter().all(differ_so)
}

/// The words of one list that the other lacks.
pub(super) fn lacking(words: Option<&Value>, other: Option<&Value>) -> Option<Value> {
    let words = words?.as_array()?;
    let others = other.and_then(Value::as_array).into_iter().flatten();
    let others: HashSet<String> = others.map(Value::to_string).collect();
    let lacks = |word: &&Value| !others.contains(&word.to_string());
    Some(Value::from_iter(words.iter().filter(lacks).cloned()))
}

fn named(entry: &Map<String, Value>) -> Vec<Member> {
    let Some(essence) = Essence::of(entry) else { return Vec::new() };
    let outcome = essence.outcome.into_iter().map(|(name, value)| {
        let name = if name == "result" { name } else { format!("result.{name}") };
        (name, value)
    });
    essence.about.into_iter().chain(essence.more).chain(outcome).collect()
}

/// Goes into what has members of its own.
fn part(name: &str, recorded: Option<Value>, live: Option<Value>, fields: &mut Vec<Field>) {
    if recorded == live {
        return;
    }
    let (ours, theirs) = (recorded.as_ref().and_then(parts), live.as_ref().and_then(parts));
    // Where a word was put in, all that follow would seem to differ.
    let comparable = match (&recorded, &live) {
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) => {
            ours.len() == theirs.len() || !ours.iter().chain(theirs).all(Value::is_string)
        }
        _ => true,
    };
    match (ours, theirs) {
        (Some(mut ours), Some(mut theirs)) if comparable => {
            let mut names: Vec<String> = ours.keys().chain(theirs.keys()).cloned().collect();
            names.sort();
            names.dedup();
            let before = fields.len();
            for inner in names {
                part(&format!("{name}.{inner}"), ours.remove(&inner), theirs.remove(&inner), fields);
            }
            if fields.len() == before {
                // The same parts, in another order.
                fields.push(Field { name: name.to_owned(), recorded, live });
            }
        }
        _ => fields.push(Field { name: name.to_owned(), recorded, live }),
    }
}

/// The members of an object, or the fields of a header.
fn parts(value: &Value) -> Option<BTreeMap<String, Value>> {
    match value {
        Value::Object(members) => {
            Some(members.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        Value::Array(words) if words.len() > 1 && words.iter().all(Value::is_string) => {
            Some(words.iter().enumerate().map(|(at, word)| (at.to_string(), word.clone())).collect())
        }
        Value::Array(pairs) if !pairs.is_empty() => {
            let mut fields: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for pair in pairs {
                let [Value::String(name), value] = pair.as_array()?.as_slice() else { return None };
                fields.entry(name.to_ascii_lowercase()).or_default().push(value.clone());
            }
            let single = |mut values: Vec<Value>| match values.len() {
                1 => values.remove(0),
                _ => Value::from(values),
            };
            Some(fields.into_iter().map(|(name, values)| (name, single(values))).collect())
        }
        _ => None,
    }
}

/// Bodies that stand in the entries: the place at which they part.
fn texts(
    place: &str,
    name: &str,
    (recorded, live): (&Map<String, Value>, &Map<String, Value>),
    fields: &mut Vec<Field>,
) {
    let text = |entry: &Map<String, Value>| {
        let (first, rest) = place[1..].split_once('/')?;
        Some(entry.get(first)?.pointer(&format!("/{rest}"))?.as_str()?.to_owned())
    };
    let (Some(ours), Some(theirs)) = (text(recorded), text(live)) else { return };
    if ours == theirs {
        return;
    }
    let common = ours.chars().zip(theirs.chars()).take_while(|(a, b)| a == b).count();
    let excerpt = |text: &str| {
        let tail: String = text.chars().skip(common.saturating_sub(BEFORE)).collect();
        Some(Value::from(shorten(&tail, EXCERPT)))
    };
    fields.push(Field { name: name.to_owned(), recorded: excerpt(&ours), live: excerpt(&theirs) });
}

/// signal(7).
const SIGPIPE: i64 = 13;
const SIGTERM: i64 = 15;

/// Whether these are two ends of a process other than the command, of which one came because the reader of its
/// pipe had gone: which of two that end at once is the first is chance.
pub(super) fn tell_of_a_closed_pipe(recorded: &Map<String, Value>, live: &Map<String, Value>) -> bool {
    let both = [recorded, live];
    let is_command = both.iter().any(|entry| entry.get("proc").is_none_or(|proc| proc == "0"));
    let signal = |entry: &Map<String, Value>| entry.get("args")?.get("signal")?.as_i64();
    !is_command && both.iter().any(|entry| signal(entry) == Some(SIGPIPE))
}

/// Whether these are two ends of a worker, of which one came by itself and the other by its manager: a pool that is
/// closed ends those that have not yet ended.
pub(super) fn tell_of_a_closed_pool(recorded: &Map<String, Value>, live: &Map<String, Value>) -> bool {
    let argument = |entry: &Map<String, Value>, name: &str| entry.get("args")?.get(name)?.as_i64();
    let is_ended = |entry| argument(entry, "signal") == Some(SIGTERM);
    let has_ended = |entry| argument(entry, "code") == Some(0);
    (is_ended(recorded) && has_ended(live)) || (has_ended(recorded) && is_ended(live))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_worker_ends_by_itself_or_with_its_pool() {
        let entry = |args: Value| match json!({"proc": "0.1", "args": args}) {
            Value::Object(entry) => entry,
            _ => Map::new(),
        };
        let [killed, ended, failed, other] =
            [json!({"signal": 15}), json!({"code": 0}), json!({"code": 1}), json!({"signal": 9})].map(entry);
        assert!(tell_of_a_closed_pool(&killed, &ended) && tell_of_a_closed_pool(&ended, &killed));
        assert!(!tell_of_a_closed_pool(&killed, &failed) && !tell_of_a_closed_pool(&other, &ended));
        assert!(!tell_of_a_closed_pool(&ended, &failed));
    }

    #[test]
    fn only_what_differs_is_named() {
        let entry = |date: &str, text: &str| {
            let entry = json!({"kind": "effect", "op": "http.exchange", "ts": date, "args": {"method": "GET", "url": "http://h/"},
                "result": {"status": 200, "headers": [["Date", date], ["x", "y"]], "body": {"sha256": text, "size": 4, "text": text},
                    "timing": {"start": 1}}});
            entry.as_object().cloned().expect("an object")
        };
        let names = |a, b| differing(&a, &b).into_iter().map(|field| field.name).collect::<Vec<_>>();
        assert_eq!(names(entry("1", "a"), entry("2", "a")), ["result.headers.date"]);
        assert_eq!(names(entry("1", "a"), entry("1", "b")), ["result.body.sha256", "result.body.text"]);
        assert!(tell_the_time(&differing(&entry("1", "a"), &entry("2", "a"))));
        assert!(!tell_the_time(&differing(&entry("1", "a"), &entry("2", "b"))));
    }
}
