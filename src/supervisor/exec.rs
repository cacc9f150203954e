//! Program starts: judged before, on a copy of the arguments, and again at the exec event, on
//! what the kernel really took.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::absent::is_on_host;
use super::access::Decision;
use super::arguments::{quoted, read_start};
use super::call::{Call, Reply};
use super::image::{follow_up, is_loader, only_tells};
use super::interpreters::{Chain, Loader, Refused, Script};
use super::view::{Found, Spelled, View, found};
use super::{Refusal, Stop, Supervisor, denials, environment};
use crate::policy::{ExecProgram, FileId, PathAccess, RuleBody, RuleId, Verdict, lossless};
use crate::sys::refused;
use crate::trace::{Event, Kind};

/// Most bytes of an argument list that a refusal records: trying costs the agent nothing.
const TARGET_BYTES: usize = 64 << 10;

/// The command of the run, which needs no rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandTable {
    /// Files that the command is and may start again with any arguments: its program and its
    /// own interpreter.
    pub own: Vec<OwnProgram>,
}

/// A program of the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnProgram {
    /// Final path.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// Device and inode.
    pub id: FileId,
}

/// A program start that was allowed and has not happened yet.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) id: FileId,
    /// Where the image was when it was judged.
    pub(super) path: PathBuf,
    pub(super) argv: Vec<OsString>,
    /// The script, when the image is only its interpreter, and interpreters that are scripts too.
    pub(super) scripts: Vec<Script>,
    pub(super) loader: Loader,
    pub(super) label: String,
    /// What `env` of a `#!/usr/bin/env NAME` line will start.
    pub(super) follow_up: Option<Vec<OsString>>,
    pub(super) pins_arguments: bool,
}

/// Why a start is refused, or what it will be.
enum Judgement {
    Allow(Expected),
    Deny { rule: Option<RuleId>, reason: String },
    Errno(Errno),
}

impl Supervisor {
    pub(super) fn exec(&mut self, call: &Call) -> Result<Reply, Stop> {
        if !self.started
            && let Err(errno @ (Errno::EPERM | Errno::ENOSYS)) = call.task.fetch(0)
        {
            // Every later connect(2) needs it: better known before anything runs.
            self.host_refused("pidfd_getfd", errno.into());
            return Ok(Reply::Errno(Errno::EACCES));
        }
        let (file, argv) = match self.read_exec(call) {
            Ok(read) => read,
            Err((Errno::ENOENT | Errno::ENOTDIR, Some((spelled, argv)))) => {
                return self.exec_absent(call, &spelled.absolute, &argv);
            }
            Err((errno, located)) => {
                if located.is_none() && matches!(errno, Errno::EPERM | Errno::ENOSYS) {
                    self.host_refused("process_vm_readv", errno.into());
                }
                return Ok(Reply::Errno(errno));
            }
        };
        let (spelled, file) = file;
        match self.heads.can_run(&file) {
            Ok(true) => {}
            Ok(false) => {
                let reason = "the agent can write there, and no exec rule names a path there";
                self.refuse_exec(call, &file.path, &argv, None, reason, false)?;
                return Ok(Reply::Errno(Errno::EACCES));
            }
            Err(errno) => return Ok(Reply::Errno(errno)),
        }
        match self.judge_exec(call, &spelled, &file, &argv) {
            Judgement::Errno(errno) => Ok(Reply::Errno(errno)),
            Judgement::Deny { rule, reason } => {
                let (tid, id) = (call.task.tid, file.id());
                let enforce = self.access.enforce;
                if !enforce || !self.denials.is_same_lookup(tid, id, &argv, &spelled.absolute) {
                    self.refuse_exec(call, &file.path, &argv, rule, &reason, false)?;
                }
                if enforce {
                    Ok(Reply::Errno(Errno::EACCES))
                } else {
                    self.start(call, Expected::any(&file, argv))
                }
            }
            Judgement::Allow(expected) => self.start(call, expected),
        }
    }

    fn judge_exec(&mut self, call: &Call, spelled: &Spelled, file: &Found, argv: &[OsString]) -> Judgement {
        let chain = self.chain(call, file, spelled, argv);
        let started_by_env = self.follow_up_allows(call, spelled, file, argv);
        let called = if file.path.as_os_str().as_bytes() == spelled.absolute {
            file.path.clone()
        } else {
            self.view.place(&spelled.absolute).map_or_else(|_| file.path.clone(), |place| place.path())
        };
        let verdict = if started_by_env {
            self.refusal(&called, file, argv).map_or_else(|| Ok(("#!".to_owned(), false)), Err)
        } else {
            self.judge_image(&called, file, argv)
        };
        let (label, pins_arguments) = match verdict {
            Ok(allowed) => allowed,
            Err((rule, reason)) => return Judgement::Deny { rule, reason },
        };
        if pins_arguments && let Some(variable) = environment::loads_code(&environment::passed(call)) {
            let reason = format!("the rule pins arguments, and {variable} loads other code");
            return Judgement::Deny { rule: None, reason };
        }
        let Chain { images, argv, scripts, loader } = match chain {
            Ok(Ok(chain)) => chain,
            Ok(Err((rule, reason))) => return Judgement::Deny { rule, reason },
            // What kind of file it is is told of those that may start alone.
            Err(errno) => return Judgement::Errno(errno),
        };
        let refusal = images.iter().find_map(|(image, argv)| self.refuse_interpreter(image, argv));
        if let Some((rule, reason)) = refusal {
            return Judgement::Deny { rule, reason };
        }
        if scripts.iter().any(|script| self.could_be_swapped(script)) {
            let reason = "the script is named through a directory or link that the agent can change";
            return Judgement::Deny { rule: None, reason: reason.to_owned() };
        }
        let image = images.last().map(|(image, _)| image);
        let follow_up = image.and_then(|image| follow_up(image, &argv));
        let image = image.unwrap_or(file);
        let (id, path) = (image.id(), image.path.clone());
        Judgement::Allow(Expected { id, path, argv, scripts, loader, label, follow_up, pins_arguments })
    }

    /// Why `file` may not run whatever allows it.
    pub(super) fn refusal(&self, spelled: &Path, file: &Found, argv: &[OsString]) -> Option<Refused> {
        self.decide_image(spelled, file, argv).err()
    }

    /// The same with what the rules say.
    pub(super) fn decide_image(
        &self,
        spelled: &Path,
        file: &Found,
        argv: &[OsString],
    ) -> Result<(FileId, Verdict), Refused> {
        if is_loader(&file.path) && !only_tells(argv) {
            return Err((None, "the dynamic loader runs any file".to_owned()));
        }
        self.decide_opened(spelled, file, argv)
    }

    /// The same for every file that the kernel opens to start a program: it shows what is in it, too.
    pub(super) fn decide_opened(
        &self,
        spelled: &Path,
        file: &Found,
        argv: &[OsString],
    ) -> Result<(FileId, Verdict), Refused> {
        let refuse = |reason: &str| Err((None, reason.to_owned()));
        let path = file.path.as_os_str().as_bytes();
        let is_gone = self.view.has_lost_its_name(file).unwrap_or(true);
        if is_gone || path.first() != Some(&b'/') || path.starts_with(b"/memfd:") {
            return refuse("the file has no name");
        }
        let id = self.view.id_of(file);
        if self.access.is_protected(&file.path, Some(id)) {
            return refuse("it belongs to the launcher");
        }
        if let Decision::Deny { rule: Some(rule), reason } =
            self.access.decide(PathAccess::Read, &file.path, Some(id))
        {
            return Err((Some(rule), reason));
        }
        match self.access.policy.decide_exec_of(spelled, &file.path, Some(id), argv) {
            Verdict::Deny { rule: Some(rule), reason } => Err((Some(rule), reason)),
            verdict => Ok((id, verdict)),
        }
    }

    /// Judges the file that the kernel runs or that it reads a `#!` line from.
    pub(super) fn judge_image(
        &self,
        spelled: &Path,
        file: &Found,
        argv: &[OsString],
    ) -> Result<(String, bool), Refused> {
        let refuse = |reason: &str| Err((None, reason.to_owned()));
        let (id, verdict) = self.decide_image(spelled, file, argv)?;
        if self.command.own.iter().any(|own| own.id == id) {
            return Ok(("the command".to_owned(), false));
        }
        let Verdict::Allow { rule } = verdict else {
            return refuse(&reason_of(&verdict));
        };
        let writable =
            matches!(self.access.decide(PathAccess::Write, &file.path, Some(id)), Decision::Allow(_));
        let rule_body = self.access.policy.rules.get(rule.0).map(|rule| &rule.body);
        let Some(RuleBody::Exec(exec)) = rule_body else { return refuse("no exec rule") };
        if writable && matches!(exec.program, ExecProgram::Word { .. }) {
            return refuse("the agent can write it, and no exec rule names it by its path");
        }
        Ok((self.access.label(Some(rule), ""), !exec.arguments.is_empty()))
    }

    /// Whether this is what `env` was to start for a script: the words, and a program of that name
    /// among the system's own.
    fn follow_up_allows(&mut self, call: &Call, spelled: &Spelled, file: &Found, argv: &[OsString]) -> bool {
        let Some(expected) = self.follow_ups.remove(&call.task.tgid) else { return false };
        let name = Path::new(OsStr::from_bytes(&spelled.typed)).file_name();
        let wanted = argv.first().and_then(|word| Path::new(word).file_name());
        expected == argv && name == wanted && self.is_fixed(file)
    }

    fn read_exec(&self, call: &Call) -> Result<((Spelled, Found), Vec<OsString>), ExecError> {
        let [a, b, c, _, e, _] = call.arguments;
        let plain = |errno| (errno, None);
        let at = i64::from(call.number) == libc::SYS_execveat;
        let (directory, path, argv, flags) =
            if at { (call.int(a), b, c, call.int(e)) } else { (libc::AT_FDCWD, a, b, 0) };
        let (typed, argv) = read_start(call.task.tid, path, argv).map_err(plain)?;
        let path = match typed {
            Some(path) => self.check_waiting(call).map(|()| path),
            None => self.path_of(call, path),
        };
        let path = path.map_err(plain)?;
        if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            let file = call.task.descriptor(directory).and_then(found).map_err(plain)?;
            let typed = format!("/dev/fd/{directory}").into_bytes();
            return Ok(((Spelled { typed, ..Spelled::of_file(&file.path) }, file), argv));
        }
        let mut spelled = View::absolute(&call.task, directory, &path).map_err(plain)?;
        if directory != libc::AT_FDCWD && path.first() != Some(&b'/') {
            // So the kernel names it to an interpreter (execveat(2), NOTES).
            spelled.typed = [format!("/dev/fd/{directory}/").as_bytes(), &path].concat();
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        match self.view.find(&spelled.absolute, follow) {
            Ok(file) => Ok(((spelled, file), argv)),
            Err(errno) => Err((errno, Some((spelled, argv)))),
        }
    }

    fn exec_absent(&mut self, call: &Call, absolute: &[u8], argv: &[OsString]) -> Result<Reply, Stop> {
        let path = self.view.leads_to(absolute);
        let shown = matches!(self.access.decide(PathAccess::Read, &path, None), Decision::Allow(_));
        if shown || !is_on_host(&path) {
            return Ok(Reply::Errno(Errno::ENOENT));
        }
        self.refuse_exec(call, &path, argv, None, "it is not in the view", false)?;
        Ok(Reply::Errno(Errno::EACCES))
    }

    pub(super) fn refuse_exec(
        &mut self,
        call: &Call,
        exe: &Path,
        argv: &[OsString],
        rule: Option<RuleId>,
        reason: &str,
        killed: bool,
    ) -> Result<(), Stop> {
        if !self.started {
            self.first_refusal = Some(Refusal::Policy(match rule {
                Some(_) => format!("refused by {}", self.access.label(rule, reason)),
                None => reason.to_owned(),
            }));
        }
        let mut target = quoted(argv).into_vec();
        let length = target.len();
        target.truncate(TARGET_BYTES);
        let mut event = Event::new(Kind::Deny, "exec")
            .path("target", OsStr::from_bytes(&target))
            .path("exe", exe)
            .arg("enforced", self.access.enforce || killed)
            .arg("pid", call.task.inner_tgid())
            .proc(call.task.lineage.clone())
            .rule(self.access.label(rule, reason));
        if length > target.len() {
            event = event.arg("target_bytes", length);
        }
        if killed {
            event = event.arg("killed", true);
        }
        self.deny(event, denials::exec(exe, argv), rule)
    }

    /// The host keeps us from looking: when that is so at the first start, there is none.
    pub(super) fn host_refused(&mut self, call: &'static str, source: std::io::Error) {
        if !self.started {
            self.first_refusal = Some(Refusal::Host(refused::Refused { call, source }));
        }
    }
}

type ExecError = (Errno, Option<(Spelled, Vec<OsString>)>);

impl Expected {
    pub(super) fn any(file: &Found, argv: Vec<OsString>) -> Self {
        Self {
            id: file.id(),
            path: file.path.clone(),
            argv,
            scripts: Vec::new(),
            loader: Loader::None,
            label: "--observe".to_owned(),
            follow_up: None,
            pins_arguments: false,
        }
    }
}

fn reason_of(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Deny { reason, .. } => reason.clone(),
        Verdict::Allow { .. } => String::new(),
    }
}
