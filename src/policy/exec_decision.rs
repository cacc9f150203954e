//! Decisions about program starts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::exec_rule::{ExecProgram, ExecRule};
use super::looks::FileId;
use super::parse::Effect;
use super::path_rule::PathPattern;
use super::verdict::{PathAccess, RuleId, Verdict};
use super::{Policy, RuleBody};

impl Policy {
    /// Decides on the file that the kernel will run (`exe`, links followed, with its identity where known) and the
    /// words that it gets, its own name first.
    pub fn decide_exec(&self, exe: &Path, id: Option<FileId>, argv: &[OsString]) -> Verdict {
        self.decide_exec_of(exe, exe, id, argv)
    }

    /// The same for a start whose caller named the file as `spelled` (its directory resolved), which led to
    /// `exe`: a link that a directory or pattern of a rule covers is a name of its file (`/bin/sh` of `dash`).
    pub fn decide_exec_of(
        &self,
        spelled: &Path,
        exe: &Path,
        id: Option<FileId>,
        argv: &[OsString],
    ) -> Verdict {
        let Some((name, arguments)) = argv.split_first() else {
            return Verdict::no_rule("the program would be started without its own name");
        };
        let start = Start { spelled, exe, id, name, arguments };
        let (mut is_in_write_root, mut is_misnamed) = (false, false);
        let matching = self.rules.iter().enumerate().filter_map(|(at, rule)| {
            let RuleBody::Exec(exec) = &rule.body else {
                return None;
            };
            let specificity = (exec.program.rank(), exec.arguments.len());
            if rule.effect == Effect::Deny {
                return start.is_denied_by(exec).then_some((RuleId(at), rule.effect, specificity));
            }
            if !start.is_granted_by(exec) {
                is_misnamed |= start.has_arguments(exec) && start.is_file_of(&exec.program);
                return None;
            }
            // What the agent can replace is no longer the program that the word meant.
            if !start.is_at_path_of(&exec.program) && self.decide_path(PathAccess::Write, exe).is_allow() {
                is_in_write_root = true;
                return None;
            }
            Some((RuleId(at), rule.effect, specificity))
        });
        let matching: Vec<_> = matching.collect();
        let verdict = self.settle(matching.into_iter(), || {
            if is_in_write_root {
                "the program lies where a rule allows writing, so a rule must name its path".to_owned()
            } else if is_misnamed {
                "no rule allows this program under a name that is not its own".to_owned()
            } else {
                "no rule allows this program with these arguments".to_owned()
            }
        });
        self.limited(verdict, |limit| limit.decide_exec_of(spelled, exe, id, argv))
    }

    /// The programs that `exec:` rules grant, for the launcher to make them and their libraries readable.
    pub fn granted_programs(&self) -> impl Iterator<Item = (RuleId, &ExecRule)> {
        self.rules.iter().enumerate().filter_map(|(at, rule)| match &rule.body {
            RuleBody::Exec(exec) if rule.effect == Effect::Grant => Some((RuleId(at), exec)),
            _ => None,
        })
    }

    /// Whether an `exec:` rule names a program by this path (absolute), whichever file it leads to.
    pub fn names_program(&self, spelled: &Path) -> bool {
        self.granted_programs().any(|(_, exec)| match &exec.program {
            ExecProgram::Word { files, .. } => files.iter().any(|file| file.path == spelled),
            ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => pattern.covers(spelled),
        })
    }
}

/// A program start that is asked for.
struct Start<'a> {
    spelled: &'a Path,
    exe: &'a Path,
    id: Option<FileId>,
    name: &'a OsStr,
    arguments: &'a [OsString],
}

impl Start<'_> {
    fn is_granted_by(&self, rule: &ExecRule) -> bool {
        self.has_arguments(rule) && self.has_name(rule) && self.is_file_of(&rule.program)
    }

    /// Broader than a grant: the name that the program is given is the caller's choice and no way around a `deny:`,
    /// and a program of the denied name counts wherever it lies.
    fn is_denied_by(&self, rule: &ExecRule) -> bool {
        let is_namesake = match &rule.program {
            ExecProgram::Word { word, .. } => self.exe.file_name() == Some(OsStr::new(word)),
            _ => false,
        };
        self.has_arguments(rule) && (is_namesake || self.is_file_of(&rule.program))
    }

    fn has_arguments(&self, rule: &ExecRule) -> bool {
        let wanted = &rule.arguments;
        self.arguments.len() >= wanted.len()
            && wanted.iter().zip(self.arguments).all(|(want, have)| have == want.as_str())
    }

    /// Some programs are many, and choose by the name that they are given.
    fn has_name(&self, rule: &ExecRule) -> bool {
        let given = base_name(self.name.as_bytes());
        let is_given =
            |name: &OsStr| name.as_bytes() == given || given.strip_prefix(b"-") == Some(name.as_bytes());
        if self.exe.file_name().is_some_and(is_given) {
            return true;
        }
        match &rule.program {
            ExecProgram::Word { word, .. } => is_given(OsStr::new(word)),
            ExecProgram::Path { pattern: PathPattern::Literal { spelled, .. }, directory: false, .. } => {
                spelled.file_name().is_some_and(is_given)
            }
            ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => {
                self.spelled.file_name().is_some_and(is_given) && pattern.covers(self.spelled)
            }
        }
    }

    fn is_file_of(&self, program: &ExecProgram) -> bool {
        match program {
            ExecProgram::Word { files, .. } => files.iter().any(|file| match (file.id, self.id) {
                (Some(wanted), Some(found)) => wanted == found,
                _ => self.exe == file.resolved,
            }),
            ExecProgram::Path { id: Some(id), directory: false, .. } if Some(*id) == self.id => true,
            ExecProgram::Path { .. } | ExecProgram::Glob(_) => self.is_at_path_of(program),
        }
    }

    /// Whether the rule names the place of the file, whichever file lies there.
    fn is_at_path_of(&self, program: &ExecProgram) -> bool {
        match program {
            ExecProgram::Word { .. } => false,
            ExecProgram::Path { pattern, directory: false, .. } => pattern.names(self.exe),
            ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => pattern.covers(self.exe),
        }
    }
}

impl ExecProgram {
    /// Exact files before directories before patterns.
    fn rank(&self) -> (u8, (usize, bool, usize)) {
        match self {
            Self::Word { .. } => (2, (0, false, 0)),
            Self::Path { pattern, directory: false, .. } => (2, pattern.specificity()),
            Self::Path { pattern, .. } => (1, pattern.specificity()),
            Self::Glob(pattern) => (0, pattern.specificity()),
        }
    }
}

fn base_name(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}
