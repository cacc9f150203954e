//! Rules that need requests to be read, and others that forbid it.

use std::borrow::Cow;

use super::address;
use super::host_rule::{NetRule, NetTarget};
use super::parse::Effect;
use super::placed::Placed;
use super::report::{Diagnostic, Report, Severity};
use super::source::Source;
use super::verdict::Transport;
use super::{Policy, Rule, RuleBody, RuleId};

/// One error for each `tunnel` or `udp:` rule whose host has methods or paths in another rule.
pub(super) fn conflicts(rules: &[Placed]) -> Vec<Diagnostic> {
    let grants = rules.iter().filter(|placed| placed.rule.effect == Effect::Grant);
    grants.filter_map(|placed| conflict(placed, rules)).collect()
}

fn conflict(placed: &Placed, rules: &[Placed]) -> Option<Diagnostic> {
    let blind = net(&placed.rule).filter(|net| net.tunnel || net.transport == Transport::Udp)?;
    let is_met = |other: &NetRule| {
        // HTTP/3 is spoken in datagrams, at the port of https where a rule names none.
        let speaks = blind.tunnel || other.port.is_some() || matches!(blind.port, Some(80 | 443));
        speaks && other.overlaps(blind)
    };
    let other = &rules.iter().find(|other| looks_at(&other.rule).is_some_and(|net| is_met(&net)))?.rule;
    let form = if blind.tunnel { "`tunnel` leaves" } else { "datagrams leave" };
    let message =
        format!("{form} unread what `{}` ({}:{}) looks at", other.text, other.origin.file, other.origin.line);
    let help = match blind.tunnel {
        true => "remove `tunnel` here, or the methods and the path there",
        false => "remove this rule, or the methods and the path there",
    };
    let help = if matches!(other.body, RuleBody::Secret(_)) { "remove one of the two" } else { help };
    Some(Diagnostic { severity: Severity::Error, message, help: Some(help.to_owned()), ..placed.at.clone() })
}

/// One warning for each rule with methods or a path whose host another rule grants wholly.
pub(super) fn void(rules: &[Placed]) -> Vec<Diagnostic> {
    let grants = || rules.iter().filter(|placed| placed.rule.effect == Effect::Grant);
    let whole: Vec<(&Rule, &NetRule)> = grants()
        .filter_map(|placed| Some((&placed.rule, net(&placed.rule)?)))
        .filter(|(_, net)| !net.is_conditional() && net.transport == Transport::Tcp)
        .collect();
    let warning = |placed: &Placed| {
        let narrow = net(&placed.rule).filter(|net| net.is_conditional())?;
        // Where a secret goes, only such a rule allows a change of protocol.
        let goes_there =
            |rule: &Rule| matches!(&rule.body, RuleBody::Secret(secret) if secret.place().overlaps(narrow));
        if narrow.names_upgrade() && rules.iter().any(|other| goes_there(&other.rule)) {
            return None;
        }
        let (wide, _) = whole.iter().find(|(_, wide)| wide.covers(narrow))?;
        let message = format!(
            "this adds nothing: `{}` ({}:{}) allows every request to that host",
            wide.text, wide.origin.file, wide.origin.line
        );
        let help = "grants add up; narrow the wide rule, or take away with `deny: net`".to_owned();
        Some(Diagnostic { severity: Severity::Warning, message, help: Some(help), ..placed.at.clone() })
    };
    grants().filter_map(warning).collect()
}

impl Policy {
    /// The rules that hold only where requests are read, also inside TLS.
    pub fn needs_reading(&self) -> impl Iterator<Item = RuleId> {
        let needs = |(at, rule)| looks_at(rule).is_some().then_some(RuleId(at));
        self.rules.iter().enumerate().filter_map(needs)
    }

    /// For a run that leaves all TLS unread.
    ///
    /// # Errors
    /// One error for each rule that could not be held then.
    pub fn check_unread(&self) -> Result<(), Report> {
        let diagnostics: Vec<Diagnostic> = self.needs_reading().map(|id| self.unread(id)).collect();
        if diagnostics.is_empty() { Ok(()) } else { Err(Report { diagnostics }) }
    }

    fn unread(&self, id: RuleId) -> Diagnostic {
        let rule = &self.rules[id.0];
        let message = format!("`{}` cannot be held when TLS is left unread (`--no-intercept`)", rule.text);
        let help = "run without `--no-intercept`, or name the host alone";
        let help =
            if matches!(rule.body, RuleBody::Secret(_)) { "run without `--no-intercept`" } else { help };
        let text = if rule.origin.file == self.name { self.text.as_str() } else { "" };
        let source = Source::new(&rule.origin.file, text);
        let line = rule.origin.line.saturating_sub(1);
        let start = source.lines.get(line).map_or(0, |text| {
            text.char_indices().nth(rule.origin.column.saturating_sub(1)).map_or(0, |(at, _)| at)
        });
        let value = rule.text.split_once("net").or_else(|| rule.text.split_once("secret:"));
        let length = value.map_or(1, |(_, value)| value.len().saturating_sub(1).max(1));
        let diagnostic = source.error(line, start..start + length, message).help(help);
        Diagnostic { origin: Some(rule.origin.clone()), ..diagnostic }
    }
}

/// The place whose requests a rule looks at.
fn looks_at(rule: &Rule) -> Option<Cow<'_, NetRule>> {
    match &rule.body {
        RuleBody::Net(net) if net.is_conditional() => Some(Cow::Borrowed(net)),
        RuleBody::Secret(secret) => Some(Cow::Owned(secret.place())),
        _ => None,
    }
}

fn net(rule: &Rule) -> Option<&NetRule> {
    match &rule.body {
        RuleBody::Net(net) => Some(net),
        _ => None,
    }
}

impl NetRule {
    /// Whether some connection is meant by both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let ports = self.port.is_none() || other.port.is_none() || self.port == other.port;
        ports
            && match (&self.target, &other.target) {
                (NetTarget::Name(one), NetTarget::Name(two)) => one.overlaps(two),
                (NetTarget::Range(one), NetTarget::Range(two)) => one.contains(two) || two.contains(one),
                (NetTarget::Range(range), NetTarget::Address(address))
                | (NetTarget::Address(address), NetTarget::Range(range)) => range.contains(address),
                (NetTarget::Range(range), NetTarget::Loopback)
                | (NetTarget::Loopback, NetTarget::Range(range)) => {
                    address::LOOPBACKS.iter().any(|loopback| range.contains(loopback))
                }
                (one, two) => one == two,
            }
    }

    /// Whether it means every connection that the other means, as far as can be told without a resolver.
    fn covers(&self, other: &Self) -> bool {
        let private = self.private || !other.private;
        let ports = self.port.is_none() || self.port == other.port;
        private
            && ports
            && match (&self.target, &other.target) {
                (NetTarget::Name(one), NetTarget::Name(two)) => one == two || one.matches(&two.to_string()),
                (NetTarget::Range(one), NetTarget::Range(two)) => one.contains(two),
                (NetTarget::Range(range), NetTarget::Address(address)) => range.contains(address),
                (one, two) => one == two,
            }
    }
}
