//! `agentbox run`: from the words of the command line to a run and its last words.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Failure;
use super::duration;
use super::last_words;
use super::replayable::ReplayArguments;
use super::secrets;
use super::tls::TlsArguments;
use super::voice::{Voice, tell};
use super::worktree::{self, Worktree};
use crate::command;
use crate::netproxy::StreamOptions;
use crate::plan::{self, HostFacts, LaunchPlan, Request};
use crate::policy::{
    self, Effect, ExecProgram, ExecRule, FileId, Host as _, LaunchHost, PathAccess, Policy, RuleBody, looks,
};
use crate::run;
use crate::supervisor::access::Protected;
use crate::sys::mountinfo;
use crate::sys::refused::Named;
use crate::trace::redact::ChosenName;
use crate::trace::{self, Placement, Reach, recover_pending};

/// What `run --help` says after the options.
const AFTER_HELP: &str = "\
Examples:
  agentbox run -- python3 agent.py
  agentbox run -p strict.policy -t runs/1.jsonl -- npm test
  agentbox run --observe -- ./agent      then read `agentbox show --denied` and write the policy

Options after the first word of CMD belong to CMD. Its output is passed on byte for byte; what agentbox \
says stands on stderr, before the start or after the end: lines that begin with `agentbox:`, and \
before the start remarks on the policy.

Exit codes: the command's own; 128+n for signal n; 2 usage or policy; 125 agentbox could not do what it \
promises; 126 the command cannot be executed; 127 it was not found.";

/// Run a command, confined by a policy and recorded.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct RunCommand {
    #[command(flatten)]
    policy: PolicyArgument,
    /// Where the trace goes
    #[arg(short, long, value_name = "FILE", default_value = "trace.jsonl")]
    trace: PathBuf,
    /// Refuse nothing: record what would have been refused
    #[arg(long)]
    observe: bool,
    /// Overwrite a file that is no trace
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    tls: TlsArguments,
    /// End a connection on which no byte has moved for so long, as 30s or 10m; else it may be silent for ever
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    idle_timeout: Option<Duration>,
    /// Redact the values of this header field, parameter or member in the trace as well; `*` stands for any letters
    #[arg(long, value_name = "PATTERN")]
    redact: Vec<ChosenName>,
    #[command(flatten)]
    voice: Voice,
    #[command(flatten)]
    replay: ReplayArguments,
    #[arg(skip)]
    early: Option<Early>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    words: Vec<OsString>,
}

/// Which policy.
#[derive(Debug, clap::Args)]
pub(super) struct PolicyArgument {
    /// The policy file
    #[arg(short, long, value_name = "FILE", default_value = crate::plan::DEFAULT_POLICY)]
    pub(super) policy: PathBuf,
}

/// Whether diagnostics may be coloured (no-color.org).
pub(super) fn colored() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Everything that a plan is made from, read from the host.
pub(super) struct Prepared {
    pub(super) policy: Policy,
    pub(super) command: command::Command,
    pub(super) facts: HostFacts,
    pub(super) host: LaunchHost,
    /// All that was seen on the way, until there is a plan.
    pub(super) looks: looks::Remembering,
}

pub(super) fn prepare(policy: &PolicyArgument, words: &[OsString]) -> Result<Prepared, Failure> {
    let unreadable = |error: std::io::Error| match error.raw_os_error() {
        None => Failure::launcher(error.to_string()),
        Some(_) => Failure::launcher(format!(
            "the working directory: getcwd: {}: start agentbox in one that exists",
            Named(&error)
        )),
    };
    let looks = looks::remember();
    let facts = HostFacts::gather().map_err(unreadable)?;
    let host = LaunchHost::new()
        .map_err(unreadable)?
        .profiles(command::profiles::profile, || command::profiles::names().collect())
        .finder(command::programs);
    let mut policy = policy::load(&policy.policy, &host)?;
    policy.set_local_addresses(&facts.addresses);
    let command = command::resolve(words, &facts.environment, &facts.cwd)?;
    Ok(Prepared { policy, command, facts, host, looks })
}

/// A run that was begun before its words were read.
#[derive(Debug)]
pub(super) struct Early {
    /// What the command is to get as standard input, as it seems.
    input: run::Input,
    begun: Result<run::Begun, run::RunError>,
}

impl Early {
    /// Begins the run that `words` seem to ask for.
    pub(super) fn begin(words: &[OsString]) -> Self {
        let is_plain = words.iter().take_while(|word| *word != "--").any(|word| word == "--no-replay");
        Self::with(if is_plain { run::Input::Passed } else { run::Input::Kept })
    }

    fn with(input: run::Input) -> Self {
        Self { input, begun: run::begin(None, input, run::Outputs::default()) }
    }

    /// The same, or another if it seemed wrong.
    fn of(early: Option<Self>, input: run::Input) -> Result<run::Begun, run::RunError> {
        match early {
            Some(early) if early.input == input => early.begun,
            Some(Self { begun, .. }) => {
                begun.and_then(run::Begun::take_back).and_then(|()| Self::with(input).begun)
            }
            None => Self::with(input).begun,
        }
    }
}

impl RunCommand {
    /// The same, begun already.
    pub(super) fn begun(self, early: Early) -> Self {
        Self { early: Some(early), ..self }
    }

    /// Runs the command; the code is the command's own.
    pub(super) fn run(mut self) -> Result<u8, Failure> {
        // First of all, for it goes on by itself; what it says is said when there is a plan.
        let input = if self.replay.wanted() { run::Input::Kept } else { run::Input::Passed };
        let begun = Early::of(self.early.take(), input);
        recover_pending();
        let Prepared { policy, command, facts, host, looks } = prepare(&self.policy, &self.words)?;
        self.voice.tell(policy.warnings.iter().map(|warning| warning.render(colored())));
        self.voice.tell(missing_programs(&policy));
        let trace = host.resolve(&facts.cwd.join(&self.trace));
        let facts = facts.with_terminal();
        let enforce = !self.observe;
        let reach = reach(&policy, &facts, &trace, enforce);
        let tls = self.tls.interception(&policy, enforce)?;
        let (secrets, unset) = secrets::gather(&policy, &facts)?;
        self.voice.tell(unset);
        let signals = run::hold_signals()?;
        let placement = Placement::plan(&self.trace, &reach, self.force)?;
        looks.look_again();
        self.voice.tell(former(&placement));
        let mut protected = protected(&placement);
        // Through another one the next trace would land elsewhere.
        protected.extend(plan::links_to(&facts.cwd.join(&self.trace)));
        let authority = tls.as_ref().map(|tls| tls.name.common_name());
        let (facts, typed) = (&facts, self.words);
        let placeholders = secrets.placeholders();
        let words = typed.clone();
        let replay = self.replay.wanted();
        let request =
            Request { policy, command, typed, facts, protected, enforce, authority, placeholders, replay };
        let plan = LaunchPlan::new(request, &host);
        drop(looks);
        secrets::check(&secrets, &words, &plan)?;
        let repeat = self.replay.repeat(&plan, facts, &words, secrets.placeholders())?;
        let idle_timeout = self.idle_timeout;
        let redacted = self.redact.into_iter().collect();
        let streams = StreamOptions {
            tls,
            secrets,
            idle_timeout,
            redacted,
            replayable: replay,
            ..StreamOptions::default()
        };
        let outcome = run::run(begun?, plan, placement, signals, streams, repeat)?;
        let placed = outcome.trace.placed();
        if replay
            && let Err(error) =
                trace::remember_head(&placed.head, placed.awaited_at.as_ref().unwrap_or(&placed.path))
        {
            // The run is over and its trace whole: the code stays the command's.
            tell([format!("agentbox: {error}; so `replay` will ask for the policy of this trace by -p")]);
        }
        self.voice.tell(last_words::of(&outcome, enforce, &facts.environment));
        if outcome.code != 0 && enforce {
            self.voice.tell(hidden_repository(&outcome.policy, &facts.cwd));
        }
        outcome.trace.finish().map_err(run::RunError::from)?;
        Ok(outcome.code)
    }
}

/// That former traces pile up: what is evidence is not removed unasked.
fn former(placement: &Placement) -> Option<String> {
    const MANY: usize = 20;
    let (count, name) = (placement.former(), placement.destination());
    let name = name.display();
    (count >= MANY).then(|| {
        format!(
            "agentbox: {count} former traces are kept as {name}.1 and on: remove those that you do not need, each with \
             its .blobs"
        )
    })
}

/// What rules let the agent reach, the trace too, be it by another mount.
pub(super) fn reach(policy: &Policy, facts: &HostFacts, trace: &Path, enforce: bool) -> Reach {
    let may = |access, path: &Path| policy.decide_path(access, path).is_allow();
    let aliases = mountinfo::aliases(&facts.mounts, trace);
    let is_granted = |trace: &Path| {
        let directory = trace.parent().unwrap_or(trace);
        may(PathAccess::Read, trace) || may(PathAccess::Write, trace) || may(PathAccess::Read, directory)
    };
    let own_trace = !enforce || is_granted(trace) || aliases.iter().any(|alias| is_granted(alias));
    let trees = if enforce { policy.shown().map(Path::to_owned).collect() } else { vec!["/".into()] };
    Reach { own_trace, apart: false, trees, aliases }
}

/// What the agent can neither read nor alter of the trace.
pub(super) fn protected(placement: &Placement) -> Vec<Protected> {
    placement.protected().into_iter().map(unlisted).collect()
}

/// A trace, or what belongs to one.
pub(super) fn unlisted(file: trace::Protected) -> Protected {
    let id = |identity: trace::FileIdentity| FileId { dev: identity.dev, ino: identity.ino };
    Protected { path: file.path, id: file.identity.map(id), unlisted: true }
}

/// Words of `exec:` that name no program: a misspelt one would go unseen. Those of the shipped
/// profiles name what may be there.
fn missing_programs(policy: &Policy) -> Option<String> {
    let missing = |rule: &policy::Rule| match &rule.body {
        RuleBody::Exec(ExecRule { program: ExecProgram::Word { word, files }, .. })
            if files.is_empty() && rule.effect == Effect::Grant && !is_shipped(rule) =>
        {
            Some(format!("`{}` ({}:{})", word.escape_debug(), rule.origin.file, rule.origin.line))
        }
        _ => None,
    };
    let mut words: Vec<_> = policy.rules.iter().filter_map(missing).collect();
    let more = words.len().saturating_sub(3);
    words.truncate(3);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!words.is_empty()).then(|| {
        format!(
            "agentbox: no such program along PATH, so the rule allows nothing: {}{more}",
            words.join(", ")
        )
    })
}

fn is_shipped(rule: &policy::Rule) -> bool {
    rule.origin.file.starts_with("profile/")
}

/// Git only looks whether its repository is there, which is no refusal that the run could tell of.
fn hidden_repository(policy: &Policy, cwd: &Path) -> Option<String> {
    let Worktree { gitdir, common } = worktree::around(cwd)?;
    let path = common.unwrap_or(gitdir);
    if policy.decide_path(PathAccess::Read, &path).is_allow() {
        return None;
    }
    let rule = policy.suggestion(&policy::Denied::Path { access: PathAccess::Read, path });
    Some(format!(
        "agentbox: this is a git worktree whose repository is not visible (to allow it: {rule}, or `write:` to commit)"
    ))
}
