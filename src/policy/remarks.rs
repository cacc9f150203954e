//! Warnings and notes about rules that are valid but may not say what was meant.

use super::RuleBody;
use super::address;
use super::env_rule::EnvRule;
use super::exec_rule::ExecProgram;
use super::host::Host;
use super::host_rule::{NetRule, NetTarget};
use super::parse::Effect;
use super::path_rule::PathPattern;
use super::placed::Placed;
use super::report::{Diagnostic, Severity};
use super::udp_rule::DNS;
use super::unread;
use super::verdict::Transport;

/// All of them, in the order of the rules.
pub(super) fn all(rules: &[Placed], host: &dyn Host) -> Vec<Diagnostic> {
    let mut remarks = Vec::new();
    // Whoever writes what only this tool reads knows what the rest means here.
    let maybe_older: &[Placed] = if rules.iter().any(is_new) { &[] } else { rules };
    remarks.extend(older_meaning(
        maybe_older,
        |placed| is_grant(placed) && is_path_glob(placed),
        "glob characters in a path are patterns here, and were plain characters for the older tool",
        "put the path in double quotes if they belong to its name",
    ));
    remarks.extend(older_meaning(
        maybe_older,
        // Cut in two at the comma or the comment, such a value meant nothing to it.
        |placed| is_grant(placed) && placed.quoted && !placed.rule.value.contains([',', '#', '"', '\\']),
        "quotes around a value quote it here, and were part of it for the older tool",
        "nothing is to be done if the policy was written for this tool",
    ));
    remarks.extend(unread::void(rules));
    for placed in rules {
        remarks.extend(network(placed));
        remarks.extend(split_path(placed, host));
        remarks.extend(odd_path(placed, host));
        remarks.extend(missing_program(placed));
        remarks.extend(missing_path(placed, host));
    }
    remarks
}

fn remark(
    placed: &Placed,
    severity: Severity,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Diagnostic {
    Diagnostic { severity, message: message.into(), help: Some(help.into()), ..placed.at.clone() }
}

fn is_grant(placed: &Placed) -> bool {
    placed.rule.effect == Effect::Grant
}

/// Whether the older tool had no such rule.
fn is_new(placed: &Placed) -> bool {
    let deep = |pattern: &PathPattern| matches!(pattern, PathPattern::Glob { spelled, .. } if spelled.contains("**"));
    let grants = match &placed.rule.body {
        RuleBody::Path { pattern, .. } | RuleBody::UnixSocket(pattern) => deep(pattern),
        RuleBody::Exec(exec) => matches!(&exec.program, ExecProgram::Glob(pattern) if deep(pattern)),
        RuleBody::Net(rule) => rule.private || rule.tunnel || matches!(rule.target, NetTarget::Range(_)),
        RuleBody::Env(rule) => matches!(rule, EnvRule::Assign { .. }),
        RuleBody::Runtime { .. } | RuleBody::Secret(_) | RuleBody::Listen(_) => true,
    };
    grants || !is_grant(placed) || placed.rule.origin.file.starts_with("profile/")
}

fn is_path_glob(placed: &Placed) -> bool {
    match &placed.rule.body {
        RuleBody::Path { pattern, .. } | RuleBody::UnixSocket(pattern) => pattern.is_glob(),
        RuleBody::Exec(exec) => matches!(exec.program, ExecProgram::Glob(_)),
        _ => false,
    }
}

/// One warning for all rules that an older policy would have meant otherwise.
fn older_meaning(
    rules: &[Placed],
    counts: impl Fn(&Placed) -> bool,
    message: &str,
    help: &str,
) -> Option<Diagnostic> {
    // Nothing that comes with the product was written for the older tool.
    let mut found =
        rules.iter().filter(|placed| counts(placed) && !placed.rule.origin.file.starts_with("profile/"));
    let first = found.next()?;
    let message = match found.count() {
        0 => message.to_owned(),
        more => format!("{message} (and {more} more of such rules)"),
    };
    Some(remark(first, Severity::Warning, message, help))
}

fn network(placed: &Placed) -> Option<Diagnostic> {
    let RuleBody::Net(rule) = &placed.rule.body else {
        return None;
    };
    if placed.rule.effect == Effect::Deny {
        let NetTarget::Name(name) = &rule.target else {
            return None;
        };
        return (name.to_string() == "*").then(|| {
            let message = "`*` stands for names; literal addresses are not denied by it";
            remark(
                placed,
                Severity::Warning,
                message,
                "add `deny: net cidr/0.0.0.0/0` and `deny: net cidr/::/0`",
            )
        });
    }
    match rule {
        NetRule { port: Some(DNS), transport: Transport::Tcp, .. } => {
            let message = "port 53 is answered by the launcher's own name server, whatever the address";
            let help = "remove the port: names need none but the `net:` rule of the host itself";
            Some(remark(placed, Severity::Warning, message, help))
        }
        NetRule { target: NetTarget::Range(range), .. }
            if !address::is_inside_special(range) && address::holds_special(range) =>
        {
            let message = format!("`{range}` does not open the private and other special ranges inside it");
            Some(remark(
                placed,
                Severity::Warning,
                message,
                "name such a range by a rule of its own: `net: cidr/10.0.0.0/8`",
            ))
        }
        NetRule { target: NetTarget::Name(name), private: true, .. } if name.is_open_ended() => {
            let message = "anyone can make such a name lead into your network, the metadata service included";
            Some(remark(placed, Severity::Warning, message, "name the hosts that are meant"))
        }
        NetRule { target: NetTarget::Name(name), .. } if name.is_open_ended() && name.to_string() != "*" => {
            let message = "names of any owner match this";
            Some(remark(placed, Severity::Warning, message, "end the name with a domain: `*.example.org`"))
        }
        _ => None,
    }
}

/// `read: ./a,b` is two paths. If `./a,b` is there, the comma was meant as a part of it.
fn split_path(placed: &Placed, host: &dyn Host) -> Option<Diagnostic> {
    let RuleBody::Path { pattern: PathPattern::Literal { spelled, .. }, .. } = &placed.rule.body else {
        return None;
    };
    let rest = placed.at.line.get(placed.at.span.end..)?;
    let next = rest.strip_prefix(',').filter(|next| !next.starts_with(char::is_whitespace))?;
    let next = next.split([',', '#']).next().unwrap_or("").trim_end();
    if placed.quoted || next.is_empty() {
        return None;
    }
    let mut whole = spelled.clone().into_os_string();
    whole.push(",");
    whole.push(next);
    host.exists(whole.as_ref()).then(|| {
        let message = format!("the comma ends this path, and `{}` exists", whole.display());
        remark(placed, Severity::Warning, message, "put the whole path in double quotes if it is meant")
    })
}

/// A path that is valid and names nothing, in a form that other tools would read otherwise.
fn odd_path(placed: &Placed, host: &dyn Host) -> Option<Diagnostic> {
    let RuleBody::Path { pattern: PathPattern::Literal { resolved, .. }, .. } = &placed.rule.body else {
        return None;
    };
    if placed.quoted || host.exists(resolved) {
        return None;
    }
    let value = &placed.rule.value;
    if value.split('/').any(|part| part.starts_with('$')) {
        let message = format!("variables are not expanded, so this is a file named `{value}`");
        return Some(remark(
            placed,
            Severity::Warning,
            message,
            "write the path, with `~` for the home directory",
        ));
    }
    let is_list =
        value.split_whitespace().skip(1).any(|word| word.starts_with(['/', '~']) || word.starts_with("./"));
    is_list.then(|| {
        let message = format!("a blank does not end a path, so this is one file named `{value}`");
        remark(placed, Severity::Warning, message, "write a comma between two paths, or quotes around one")
    })
}

fn missing_program(placed: &Placed) -> Option<Diagnostic> {
    let RuleBody::Exec(exec) = &placed.rule.body else {
        return None;
    };
    let ExecProgram::Word { word, files } = &exec.program else {
        return None;
    };
    files.is_empty().then(|| {
        let message = format!("no program `{word}` was found along PATH, so the rule stands for nothing now");
        remark(placed, Severity::Note, message, "install it before the start, or write its path")
    })
}

fn missing_path(placed: &Placed, host: &dyn Host) -> Option<Diagnostic> {
    let (RuleBody::Path { pattern, .. }
    | RuleBody::UnixSocket(pattern)
    | RuleBody::Runtime { path: pattern }) = &placed.rule.body
    else {
        return None;
    };
    let PathPattern::Literal { spelled, resolved } = pattern else {
        return None;
    };
    (is_grant(placed) && !host.exists(resolved)).then(|| {
        let message = format!("`{}` does not exist", spelled.display());
        remark(placed, Severity::Note, message, "the rule takes effect when it appears")
    })
}
