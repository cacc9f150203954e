//! The recorded request that is the most like one that has no answer, and what differs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Blobs;
use super::asked::Asked;
use super::exchanges::{RecordedExchange, content};
use super::normal;
use crate::trace::redact::Redactor;

/// Differences that are told.
const MOST: usize = 16;

/// Letters of a value that are told.
const SHORT: usize = 80;

/// Letters before the place at which two values part.
const BEFORE: usize = 30;

/// Finds it among `all`, each with the process that it was recorded of and whether it has answered already.
pub(super) fn closest<'a>(
    all: impl Iterator<Item = (&'a Arc<RecordedExchange>, Option<&'a str>, bool)>,
    asked: &Asked,
    body: Option<&[u8]>,
    proc: Option<&str>,
    (blobs, redactor): (&Blobs, &Redactor),
) -> Option<Value> {
    let scored = all.map(|(exchange, of, is_taken)| {
        let bonus = u32::from(!is_taken) * 2 + u32::from(of == proc);
        (alike(&exchange.asked, asked) * 4 + bonus, exchange, of, is_taken)
    });
    // The first of those that are equally alike.
    let best = scored.reduce(|best, next| if next.0 > best.0 { next } else { best });
    let (_, exchange, of, is_taken) = best?;
    let mut differs = differences(&exchange.asked, asked);
    if exchange.asked.body != asked.body {
        let recorded = content(&exchange.body, blobs);
        differs.extend(in_bodies((recorded.as_deref(), body), (&exchange.asked, asked), redactor));
    }
    if is_taken && differs.is_empty() {
        differs.push(json!({"field": "count", "recorded": "it was made once", "live": "once more"}));
    }
    differs.truncate(MOST);
    let mut closest = json!({"entry": exchange.entry, "differs": differs});
    if let Some(of) = of {
        closest["proc"] = of.into();
    }
    Some(closest)
}

/// How much two requests have in common.
fn alike(one: &Asked, other: &Asked) -> u32 {
    let parts = |url: &str| {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let authority = place.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        (authority, place.to_owned(), query.to_owned())
    };
    let (one_url, other_url) = (parts(&one.url), parts(&other.url));
    let headers = one.headers.iter().filter(|pair| other.headers.contains(pair)).count().min(20);
    u32::from(one_url.0 == other_url.0) * 100
        + u32::from(one_url.1 == other_url.1) * 200
        + u32::from(one_url.2 == other_url.2) * 50
        + u32::from(one.method == other.method) * 100
        + u32::from(one.body == other.body) * 50
        + u32::try_from(headers).unwrap_or(0)
}

fn differences(recorded: &Asked, live: &Asked) -> Vec<Value> {
    let mut differs = Vec::new();
    let mut tell = |field: &str, recorded: Option<&str>, live: Option<&str>| {
        if recorded != live {
            let (recorded, live) = (recorded.map(short), live.map(short));
            differs.push(json!({"field": field, "recorded": recorded, "live": live}));
        }
    };
    tell("method", Some(&recorded.method), Some(&live.method));
    tell("url", Some(&recorded.url), Some(&live.url));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in recorded.headers.iter().chain(&live.headers) {
        if !names.contains(&name.as_str()) && !normal::is_hop_by_hop(name) {
            names.push(name);
        }
    }
    for name in names {
        let all = |asked: &Asked| {
            let values = asked.headers.iter().filter(|(other, _)| other == name);
            let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
            (!values.is_empty()).then(|| values.join(", "))
        };
        tell(&format!("header {name}"), all(recorded).as_deref(), all(live).as_deref());
    }
    differs
}

/// Where two bodies part.
pub(super) fn in_bodies(
    (recorded, live): (Option<&[u8]>, Option<&[u8]>),
    (one, other): (&Asked, &Asked),
    redactor: &Redactor,
) -> Vec<Value> {
    let (Some(recorded), Some(live)) = (recorded, live) else {
        return vec![json!({"field": "body", "recorded": one.body, "live": other.body})];
    };
    let parse = |body: &[u8]| serde_json::from_slice::<Value>(body).ok();
    if let (Some(mut recorded), Some(mut live)) = (parse(recorded), parse(live)) {
        redactor.json(&mut recorded);
        redactor.json(&mut live);
        let mut differs = Vec::new();
        in_values(String::new(), &recorded, &live, &mut differs);
        return differs;
    }
    let at = recorded.iter().zip(live).take_while(|(one, other)| one == other).count();
    let is_secret =
        [recorded, live].iter().any(|body| redactor.names_credentials(&String::from_utf8_lossy(body)));
    let from = |body: &[u8]| {
        let rest = String::from_utf8_lossy(body.get(at..).unwrap_or_default());
        if is_secret { "not shown: it may hold a credential".to_owned() } else { short(&rest) }
    };
    vec![json!({"field": "body", "byte": at, "recorded": from(recorded), "live": from(live)})]
}

/// The members that differ, each named as by RFC 6901.
fn in_values(pointer: String, recorded: &Value, live: &Value, differs: &mut Vec<Value>) {
    if recorded == live || differs.len() >= MOST {
        return;
    }
    match (recorded, live) {
        (Value::Object(one), Value::Object(other)) => {
            let added = other.keys().filter(|key| !one.contains_key(*key));
            for key in one.keys().chain(added) {
                let name = key.replace('~', "~0").replace('/', "~1");
                let member = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                in_values(format!("{pointer}/{name}"), &member(one), &member(other), differs);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                in_values(format!("{pointer}/{index}"), one, other, differs);
            }
        }
        _ => {
            let (recorded, live) = parted(&recorded.to_string(), &live.to_string());
            differs.push(json!({"field": format!("body {pointer}"), "recorded": recorded, "live": live}));
        }
    }
}

/// Two texts from a little before the place at which they part.
fn parted(one: &str, other: &str) -> (String, String) {
    let common = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let skipped = common.saturating_sub(BEFORE);
    let from = |text: &str| {
        let rest: String = text.chars().skip(skipped).collect();
        if skipped > 0 { format!("…{}", short(&rest)) } else { short(&rest) }
    };
    (from(one), from(other))
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
