//! Rules as written to a policy: values read, paths resolved, files included, everything that is wrong reported.

use std::path::{Path, PathBuf};

use super::credentials;
use super::env_rule::EnvRule;
use super::exec_rule::ExecRule;
use super::host::Host;
use super::host_rule::{self, NetValue};
use super::key::{self, Key};
use super::listen_rule;
use super::parse::{Effect, SpannedRule};
use super::path_rule::{PathFault, PathPattern, anchored};
use super::placed::Placed;
use super::planted;
use super::remarks;
use super::report::{Diagnostic, Origin, Report, Severity};
use super::secret_check;
use super::secret_rule::SecretRule;
use super::source::{Source, decode};
use super::udp_rule;
use super::unread;
use super::value::Value;
use super::verdict::PathAccess;
use super::{Policy, Rule, RuleBody};

/// Reads a policy file and everything that it includes.
///
/// # Errors
/// Every fault of every file at once.
pub fn load(path: &Path, host: &dyn Host) -> Result<Policy, Report> {
    let name = path.display().to_string();
    match read(&name, path, host) {
        Ok(text) => parse(&text, &name, host),
        Err(diagnostic) => Err(Report { diagnostics: vec![*diagnostic] }),
    }
}

/// Reads a policy from its text; `name` is the file that messages speak of, and `include:` starts from its directory.
///
/// # Errors
/// Every fault of the text and of every included file at once.
pub fn parse(text: &str, name: &str, host: &dyn Host) -> Result<Policy, Report> {
    let path = host.cwd().join(name);
    let mut checker = Checker::new(host);
    let file = OpenFile {
        name: name.to_owned(),
        directory: path.parent().unwrap_or_else(|| host.cwd()).to_owned(),
        base: host.cwd().to_owned(),
        identity: host.resolve(&path),
    };
    checker.read(file, text);
    checker.finish(name, text)
}

fn read(name: &str, path: &Path, host: &dyn Host) -> Result<String, Box<Diagnostic>> {
    let bytes = host.read_file(&host.cwd().join(path)).map_err(|error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => "`agentbox init` writes a first policy; `-p FILE` names another",
            _ => "name a text file that you may read",
        };
        Box::new(Diagnostic::of_file(format!("cannot read the policy {name}: {error}"), help))
    })?;
    decode(name, bytes)
}

/// A file whose rules are being read.
struct OpenFile {
    name: String,
    /// Where its `include:` lines start.
    directory: PathBuf,
    /// Where the relative paths of its rules start.
    base: PathBuf,
    /// What tells it from other files.
    identity: PathBuf,
}

struct Checker<'h> {
    host: &'h dyn Host,
    rules: Vec<Placed>,
    remarks: Vec<Diagnostic>,
    errors: Vec<Diagnostic>,
    /// The files that are open now, the outermost first.
    open: Vec<PathBuf>,
    done: Vec<PathBuf>,
    included: Vec<String>,
}

/// What is wrong with a value, and what would mend it.
struct Fault {
    message: String,
    help: String,
}

impl<'h> Checker<'h> {
    fn new(host: &'h dyn Host) -> Self {
        Self {
            host,
            rules: Vec::new(),
            remarks: Vec::new(),
            errors: Vec::new(),
            open: Vec::new(),
            done: Vec::new(),
            included: Vec::new(),
        }
    }

    fn finish(mut self, name: &str, text: &str) -> Result<Policy, Report> {
        self.errors.extend(unread::conflicts(&self.rules));
        self.errors.extend(secret_check::conflicts(&self.rules));
        self.errors.extend(listen_rule::conflicts(&self.rules));
        self.errors.extend(planted::conflicts(&self.rules, self.host));
        if !self.errors.is_empty() {
            return Err(Report { diagnostics: self.errors });
        }
        let mut remarks = self.remarks;
        remarks.extend(remarks::all(&self.rules, self.host));
        remarks.extend(credentials::warnings(&self.rules, self.host));
        remarks.extend(planted::withdraw(&mut self.rules, self.host));
        let (warnings, notes) = remarks.into_iter().partition(|remark| remark.severity == Severity::Warning);
        Ok(Policy {
            name: name.to_owned(),
            text: text.to_owned(),
            rules: self.rules.into_iter().map(|placed| placed.rule).collect(),
            warnings,
            notes,
            included: self.included,
            local_addresses: Vec::new(),
            limits: Vec::new(),
            cwd: self.host.cwd().to_owned(),
            home: self.host.home().map(Path::to_owned),
            index: super::index::Index::default(),
        })
    }

    fn read(&mut self, file: OpenFile, text: &str) {
        let source = Source::new(&file.name, text);
        let parsed = super::parse::parse(&source);
        let mut remarks = parsed.diagnostics.into_iter().peekable();
        self.open.push(file.identity.clone());
        for rule in parsed.rules {
            let at = source.error(rule.line, rule.value.span.clone(), "");
            // Faults of the grammar and of values come in the order of the text.
            while let Some(earlier) = remarks.next_if(|remark| remark.place() < at.place()) {
                self.remark(earlier);
            }
            let outcome = match rule.key {
                Key::Include => self.include(&rule.value, &file),
                _ => self.rule(&rule, &file, &at),
            };
            if let Err(fault) = outcome {
                self.errors.push(Diagnostic { message: fault.message, help: Some(fault.help), ..at });
            }
        }
        remarks.for_each(|remark| self.remark(remark));
        self.done.extend(self.open.pop());
    }

    fn remark(&mut self, remark: Diagnostic) {
        if remark.severity == Severity::Error { self.errors.push(remark) } else { self.remarks.push(remark) }
    }

    fn rule(&mut self, rule: &SpannedRule, file: &OpenFile, at: &Diagnostic) -> Result<(), Fault> {
        let body = self.body(rule, &file.base)?;
        let key = rule.key.name();
        let text = match rule.effect {
            Effect::Grant => format!("{key}: {}", rule.value.raw),
            Effect::Deny => format!("deny: {key} {}", rule.value.raw),
        };
        let value = match rule.value.tail.as_str() {
            "" => rule.value.text.clone(),
            tail => format!("{} {tail}", rule.value.text),
        };
        let origin = at.origin.clone().unwrap_or_else(|| Origin {
            file: file.name.clone(),
            line: rule.line + 1,
            column: 1,
        });
        let rule_as_read = Rule { origin, text, value, effect: rule.effect, body };
        self.rules.push(Placed { rule: rule_as_read, at: at.clone(), quoted: rule.value.quoted });
        Ok(())
    }

    fn body(&self, rule: &SpannedRule, base: &Path) -> Result<RuleBody, Fault> {
        let value = &rule.value;
        match rule.key {
            Key::Read => Ok(RuleBody::Path { access: PathAccess::Read, pattern: self.path(value, base)? }),
            Key::Write => {
                let pattern = self.path(value, base)?;
                if rule.effect == Effect::Grant && pattern.is_of_kernel() {
                    return Err(Fault {
                        message: "what is written under /proc changes the host's kernel or its processes"
                            .to_owned(),
                        help: "remove the rule: no policy can grant that".to_owned(),
                    });
                }
                Ok(RuleBody::Path { access: PathAccess::Write, pattern })
            }
            Key::Runtime => match self.path(value, base)? {
                PathPattern::Glob { .. } => Err(Fault {
                    message: "`runtime:` takes no glob".to_owned(),
                    help: "name the directory, or put its name in quotes".to_owned(),
                }),
                path => Ok(RuleBody::Runtime { path }),
            },
            Key::Net => self.net(value, rule.effect, base),
            Key::Exec => {
                let exec = ExecRule::parse(&value.text, base, self.host);
                exec.map(RuleBody::Exec)
                    .map_err(|fault| Fault { message: fault.to_string(), help: fault.help() })
            }
            Key::Env => {
                let env = EnvRule::parse(value, rule.effect);
                env.map(RuleBody::Env)
                    .map_err(|fault| Fault { message: fault.to_string(), help: fault.help() })
            }
            Key::Secret => {
                let secret = SecretRule::parse(value);
                secret
                    .map(RuleBody::Secret)
                    .map_err(|fault| Fault { message: fault.to_string(), help: fault.help() })
            }
            Key::Listen => {
                let port = listen_rule::parse(value).map(RuleBody::Listen);
                port.map_err(|fault| Fault { message: fault.to_string(), help: fault.help() })
            }
            key => Err(Fault {
                message: format!(
                    "`{}:` is not enforced by this version yet, so the policy is refused",
                    key.name()
                ),
                help: "remove the rule".to_owned(),
            }),
        }
    }

    fn path(&self, value: &Value, base: &Path) -> Result<PathPattern, Fault> {
        PathPattern::parse(value, base, self.host).map_err(Fault::from)
    }

    fn net(&self, value: &Value, effect: Effect, base: &Path) -> Result<RuleBody, Fault> {
        let parsed = match value.text.starts_with("udp:") {
            true => udp_rule::parse(value).map(NetValue::Host),
            false => host_rule::parse(value),
        };
        match parsed.map_err(|fault| Fault { message: fault.to_string(), help: fault.help() })? {
            NetValue::Unix(path) => Ok(RuleBody::UnixSocket(self.path(&path, base)?)),
            NetValue::Host(rule) if effect == Effect::Deny && rule.has_suffix() => Err(Fault {
                message: "a suffix belongs to a rule that grants".to_owned(),
                help: "write `deny: net HOST` or `deny: net HOST:PORT`".to_owned(),
            }),
            NetValue::Host(rule) => Ok(RuleBody::Net(rule)),
        }
    }

    fn include(&mut self, value: &Value, from: &OpenFile) -> Result<(), Fault> {
        if !value.tail.is_empty() {
            return Err(PathFault::Tail(value.tail.clone()).into());
        }
        if let Some(profile) = value.text.strip_prefix("profile/") {
            return self.include_profile(profile);
        }
        let path = anchored(&value.text, &from.directory, self.host)?;
        let identity = self.host.resolve(&path);
        let is_beside = !value.text.starts_with(['/', '~']);
        let name = match Path::new(&from.name).parent().filter(|_| is_beside) {
            Some(parent) => parent.join(&value.text).display().to_string(),
            None => value.text.clone(),
        };
        if !self.enter(&identity, &name)? {
            return Ok(());
        }
        let directory = identity.parent().unwrap_or_else(|| Path::new("/")).to_owned();
        let file = OpenFile { name: name.clone(), base: directory.clone(), directory, identity };
        match read(&name, &path, self.host) {
            Ok(text) => self.read(file, &text),
            Err(diagnostic) if diagnostic.origin.is_some() => self.errors.push(*diagnostic),
            Err(diagnostic) => {
                let help = "an included path starts at the directory of the file that includes it".to_owned();
                return Err(Fault { message: diagnostic.message, help });
            }
        }
        Ok(())
    }

    /// A policy that comes with the product; its relative paths start at the launch directory.
    fn include_profile(&mut self, profile: &str) -> Result<(), Fault> {
        let Some(text) = self.host.profile(profile) else {
            return Err(no_profile(profile, &self.host.profile_names()));
        };
        let name = format!("profile/{profile}");
        // No file has this path: NUL ends every name.
        let identity = PathBuf::from(format!("\0{name}"));
        if self.enter(&identity, &name)? {
            let cwd = self.host.cwd().to_owned();
            self.read(OpenFile { name, directory: cwd.clone(), base: cwd, identity }, text);
        }
        Ok(())
    }

    /// Whether an included file is to be read: not if it has been, and never inside itself.
    fn enter(&mut self, identity: &Path, name: &str) -> Result<bool, Fault> {
        if self.open.iter().any(|open| open == identity) {
            return Err(Fault {
                message: format!("`{name}` includes itself"),
                help: "remove one `include:` of the circle".to_owned(),
            });
        }
        if self.done.iter().any(|done| done == identity) {
            return Ok(false);
        }
        if self.open.len() >= MOST_OPEN {
            return Err(Fault {
                message: format!("more than {MOST_OPEN} files include one another"),
                help: "include them from one file".to_owned(),
            });
        }
        self.included.push(name.to_owned());
        Ok(true)
    }
}

/// Deeper nesting is a mistake, and each level takes a piece of the stack.
const MOST_OPEN: usize = 32;

impl From<PathFault> for Fault {
    fn from(fault: PathFault) -> Self {
        Self { message: fault.to_string(), help: fault.help().to_owned() }
    }
}

fn no_profile(asked: &str, names: &[&str]) -> Fault {
    let near = names.iter().map(|name| (key::distance(asked, name), name)).min();
    let near = near.filter(|(far, _)| asked.len() <= LONGEST_PROFILE && *far <= 2);
    let message = match near {
        Some((_, near)) => format!("there is no profile `{asked}`, did you mean `{near}`?"),
        None => format!("there is no profile `{asked}`"),
    };
    let help = match names {
        [] => "write `./profile/…` for a file of yours".to_owned(),
        names => format!("the profiles are {}; write `./profile/…` for a file of yours", names.join(", ")),
    };
    Fault { message, help }
}

/// No name of a profile is longer.
const LONGEST_PROFILE: usize = 24;
