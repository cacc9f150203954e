//! Chooses entries.

use serde_json::{Map, Value};

use super::operations;

/// Which entries to print; an entry must pass every option that is given.
#[derive(clap::Args, Debug, Default)]
pub(super) struct Filter {
    /// Only entries of this kind: meta, effect, observe, deny
    #[arg(long, value_name = "KIND", value_parser = ["meta", "effect", "observe", "deny"])]
    kind: Vec<String>,

    /// Only entries of this operation, as `fs.open_read` or `fs.*`
    #[arg(long, value_name = "OP")]
    op: Vec<String>,

    /// Only entries of this process and those that it started, as `0.2`
    #[arg(long, value_name = "LINEAGE")]
    proc: Option<String>,

    /// Only entries about a path that matches, or that lies under it
    #[arg(long, value_name = "GLOB")]
    path: Option<String>,

    /// The same path as it is from here.
    #[arg(skip)]
    from_here: Option<String>,

    /// Only entries about this host, as `example.org` or `*.example.org`
    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// Only what was refused
    #[arg(long)]
    denied: bool,

    /// Only the entry of this number, all of it
    #[arg(long, value_name = "N")]
    pub(super) entry: Option<u64>,
}

impl Filter {
    /// What programs name in full is meant by a relative path too.
    pub(super) fn resolve(mut self) -> Self {
        let absolute = self.path.as_deref().and_then(|path| std::path::absolute(path).ok());
        self.from_here = absolute.and_then(|path| path.into_os_string().into_string().ok());
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        let lists = self.kind.is_empty() && self.op.is_empty();
        let texts = self.proc.is_none() && self.path.is_none() && self.host.is_none();
        lists && texts && !self.denied && self.entry.is_none()
    }

    /// What is wrong with an operation that was asked for.
    pub(super) fn misspelt(&self) -> Option<String> {
        self.op.iter().find_map(|wanted| operations::unknown(wanted))
    }

    pub(super) fn takes(&self, entry: &Map<String, Value>) -> bool {
        let field = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, op) = (field("kind"), field("op"));
        let empty = Map::new();
        let args = entry.get("args").and_then(Value::as_object).unwrap_or(&empty);
        (!self.denied || kind == "deny")
            && self.entry.is_none_or(|number| entry.get("i").and_then(Value::as_u64) == Some(number))
            && (self.kind.is_empty() || self.kind.iter().any(|wanted| wanted == kind))
            && (self.op.is_empty() || self.op.iter().any(|wanted| matches(wanted, op)))
            && self.proc.as_deref().is_none_or(|wanted| is_descendant(wanted, field("proc")))
            && self.path.as_deref().is_none_or(|wanted| {
                let wanted = || [Some(wanted), self.from_here.as_deref()].into_iter().flatten();
                paths(kind, op, args).any(|path| wanted().any(|wanted| is_under(wanted, path)))
            })
            && self.host.as_deref().is_none_or(|wanted| hosts(op, args).any(|host| is_host(wanted, host)))
    }
}

/// The strings of an entry that are paths.
fn paths<'a>(kind: &str, op: &str, args: &'a Map<String, Value>) -> impl Iterator<Item = &'a str> {
    let target_is_path = kind == "deny" && (op == "read" || op == "write" || op.starts_with("fs."));
    let names = ["path", "resolved", "from", "to", "of", "executable"];
    let target = target_is_path.then_some("target");
    names.into_iter().chain(target).filter_map(|name| args.get(name)?.as_str())
}

/// The strings of an entry that are hosts or addresses.
fn hosts<'a>(op: &str, args: &'a Map<String, Value>) -> impl Iterator<Item = &'a str> {
    let target_is_host = op == "net" || op.starts_with("net.") || op.starts_with("dns.");
    let target = target_is_host.then_some("target");
    let named =
        ["host", "name", "address"].into_iter().chain(target).filter_map(|name| args.get(name)?.as_str());
    named.chain(args.get("url").and_then(Value::as_str).map(url_host))
}

fn url_host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Whether `host`, with or without a port, is meant by `wanted`.
fn is_host(wanted: &str, host: &str) -> bool {
    let (wanted, host) = (wanted.to_lowercase(), host.to_lowercase());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => &host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    [host.as_str(), name, bare].into_iter().any(|candidate| matches(&wanted, candidate))
}

fn is_under(wanted: &str, path: &str) -> bool {
    let root = wanted.trim_end_matches('/');
    matches(wanted, path) || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether `lineage` is `wanted` or below it: `0.2` has the child `0.2.1`, the later image `0.2:1`, the thread `0.2#1`.
fn is_descendant(wanted: &str, lineage: &str) -> bool {
    lineage.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':', '#', '~']))
}

/// Whether `text` matches a pattern in which `*` stands for any characters and `?` for one.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star does not match: only that star needs to be tried again.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after_star, from)) = retry else {
                    return false;
                };
                retry = Some((after_star, from + 1));
                p = after_star;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn takes(filter: &Filter, entry: &Value) -> bool {
        filter.takes(entry.as_object().expect("an object"))
    }

    #[test]
    fn patterns_match() {
        for (pattern, text, expected) in [
            ("fs.*", "fs.open_read", true),
            ("fs.*", "net.get", false),
            ("*.rs", "src/a.rs", true),
            ("a*b*c", "aXbXbc", true),
            ("a?c", "abc", true),
            ("", "", true),
            ("*", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn each_option_chooses() {
        let entry =
            json!({"kind": "deny", "op": "read", "args": {"target": "src/secret.txt"}, "proc": "0.2.1"});
        let yes = [
            Filter { denied: true, ..Filter::default() },
            Filter { kind: vec!["meta".into(), "deny".into()], ..Filter::default() },
            Filter { op: vec!["re*".into()], ..Filter::default() },
            Filter { proc: Some("0.2".into()), ..Filter::default() },
            Filter { path: Some("src".into()), ..Filter::default() },
            Filter { path: Some("*.txt".into()), ..Filter::default() },
        ];
        assert!(yes.iter().all(|filter| takes(filter, &entry)));
        let no = [
            Filter { kind: vec!["meta".into()], ..Filter::default() },
            Filter { proc: Some("0.20".into()), ..Filter::default() },
            Filter { path: Some("sr".into()), ..Filter::default() },
            Filter { host: Some("src".into()), ..Filter::default() },
            Filter { entry: Some(7), ..Filter::default() },
        ];
        assert!(!no.iter().any(|filter| takes(filter, &entry)));
    }

    #[test]
    fn hosts_are_found_where_they_stand() {
        let filter = |host: &str| Filter { host: Some(host.to_owned()), ..Filter::default() };
        let get =
            json!({"kind": "effect", "op": "net.get", "args": {"url": "https://u@API.example.org:8443/x"}});
        assert!(takes(&filter("api.example.org"), &get) && takes(&filter("*.example.org"), &get));
        let deny = json!({"kind": "deny", "op": "net", "args": {"target": "[::1]:80"}});
        assert!(takes(&filter("::1"), &deny) && !takes(&filter("::2"), &deny));
    }
}
