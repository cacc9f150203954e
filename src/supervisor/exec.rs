//! Program starts: judged before, on a copy of the arguments, and again at the exec event, on
//! what the kernel really took.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{AccessFlags, faccessat};
use serde::{Deserialize, Serialize};

use super::access::Decision;
use super::call::{Call, Reply};
use super::view::{Found, Spelled, View, found};
use super::{Stop, Supervisor, denials, environment};
use crate::policy::{ExecProgram, FileId, PathAccess, RuleBody, RuleId, Verdict, lossless};
use crate::sys::{memory, ptrace};
use crate::trace::{Event, Kind};

/// Longest argument list: the kernel's own limit is a quarter of the stack limit, at most 6 MiB.
const ARGUMENT_BYTES: usize = 6 << 20;
/// Most bytes of it that a refusal records: trying costs the agent nothing.
const TARGET_BYTES: usize = 64 << 10;
/// Interpreters that are themselves scripts (BINPRM: five rewrites).
const NESTING: usize = 4;
/// First line of a script that the kernel looks at (BINPRM_BUF_SIZE).
const FIRST_LINE: usize = 256;

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
    id: FileId,
    argv: Vec<OsString>,
    /// The script, when the image is only its interpreter.
    script: Option<PathBuf>,
    label: String,
    /// What `env` of a `#!/usr/bin/env NAME` line will start.
    follow_up: Option<Vec<OsString>>,
    pins_arguments: bool,
}

/// Why a start is refused, or what it will be.
enum Judgement {
    Allow(Expected),
    Deny { rule: Option<RuleId>, reason: String },
    Errno(Errno),
}

impl Supervisor {
    pub(super) fn exec(&mut self, call: &Call) -> Result<Reply, Stop> {
        let (file, argv) = match self.read_exec(call) {
            Ok(read) => read,
            Err((Errno::ENOENT | Errno::ENOTDIR, Some((spelled, argv)))) => {
                return self.exec_absent(call, &spelled.absolute, &argv);
            }
            Err((errno, _)) => return Ok(Reply::Errno(errno)),
        };
        let (spelled, file) = file;
        if let Err(errno) = can_run(&file) {
            return Ok(Reply::Errno(errno));
        }
        match self.judge_exec(call, &spelled, &file, &argv) {
            Judgement::Errno(errno) => Ok(Reply::Errno(errno)),
            Judgement::Deny { rule, reason } => {
                self.refuse_exec(call, &file.path, &argv, rule, &reason, false)?;
                if self.access.enforce {
                    Ok(Reply::Errno(Errno::EACCES))
                } else {
                    self.start(call, Expected::any(&file, argv))
                }
            }
            Judgement::Allow(expected) => self.start(call, expected),
        }
    }

    /// Lets the kernel go on, with the task caught at its exec event.
    fn start(&mut self, call: &Call, expected: Expected) -> Result<Reply, Stop> {
        let tid = call.task.tid;
        if !self.seized.contains(&tid) {
            if let Err(error) = ptrace::seize_at_exec(tid) {
                // Without the second look nothing is started (Yama scope 3 does this).
                let reason = format!("ptrace(PTRACE_SEIZE): {error}");
                self.refuse_exec(call, Path::new("?"), &expected.argv, None, &reason, false)?;
                return Ok(Reply::Errno(Errno::EACCES));
            }
            self.seized.insert(tid);
        }
        self.expected.insert(tid, expected);
        Ok(Reply::Continue)
    }

    fn judge_exec(&mut self, call: &Call, spelled: &Spelled, file: &Found, argv: &[OsString]) -> Judgement {
        let (interpreters, rest) = match self.interpreters(file, &spelled.typed, argv) {
            Ok(found) => found,
            Err(errno) => return Judgement::Errno(errno),
        };
        let started_by_env = self.follow_up_allows(call, spelled, file, argv);
        let called = super::view::lexical(&spelled.absolute);
        let verdict = match self.refusal(&called, file, argv) {
            Some(refusal) => Err(refusal),
            None if started_by_env => Ok(("#!".to_owned(), false)),
            None => self.judge_image(&called, file, argv),
        };
        let (label, pins_arguments) = match verdict {
            Ok(allowed) => allowed,
            Err((rule, reason)) => return Judgement::Deny { rule, reason },
        };
        if pins_arguments && let Some(variable) = environment::loads_code(&self.read_environment(call)) {
            let reason = format!("the rule pins arguments, and {variable} loads other code");
            return Judgement::Deny { rule: None, reason };
        }
        // A script starts its interpreter without a rule, but not against one.
        let refusal = interpreters.iter().find_map(|(image, argv)| self.refusal(&image.path, image, argv));
        if let Some((rule, reason)) = refusal {
            return Judgement::Deny { rule, reason };
        }
        let image = interpreters.last().map(|(image, _)| image);
        let script = image.is_some().then(|| file.path.clone());
        if script.is_some() && self.could_be_swapped(spelled, file) {
            let reason = "the script is named through a directory or link that the agent can change";
            return Judgement::Deny { rule: None, reason: reason.to_owned() };
        }
        let follow_up = image.and_then(|image| follow_up(image, &rest));
        let id = image.map_or(file.id(), Found::id);
        Judgement::Allow(Expected { id, argv: rest, script, label, follow_up, pins_arguments })
    }

    /// Why `file` may not run whatever allows it.
    fn refusal(
        &self,
        spelled: &Path,
        file: &Found,
        argv: &[OsString],
    ) -> Option<(Option<RuleId>, String)> {
        let refuse = |reason: &str| Some((None, reason.to_owned()));
        if file.status.st_nlink == 0 || file.path.as_os_str().as_bytes().starts_with(b"/memfd:") {
            return refuse("the file has no name");
        }
        if is_loader(&file.path) {
            return refuse("the dynamic loader runs any file");
        }
        if self.access.is_protected(&file.path, Some(file.id())) {
            return refuse("it belongs to the launcher");
        }
        match self.access.policy.decide_exec_of(spelled, &file.path, Some(file.id()), argv) {
            Verdict::Deny { rule: Some(rule), reason } => Some((Some(rule), reason)),
            Verdict::Deny { rule: None, .. } | Verdict::Allow { .. } => None,
        }
    }

    /// Judges the file that the kernel runs or that it reads a `#!` line from.
    fn judge_image(
        &self,
        spelled: &Path,
        file: &Found,
        argv: &[OsString],
    ) -> Result<(String, bool), (Option<RuleId>, String)> {
        let refuse = |reason: &str| Err((None, reason.to_owned()));
        if let Some(refusal) = self.refusal(spelled, file, argv) {
            return Err(refusal);
        }
        let verdict = self.access.policy.decide_exec_of(spelled, &file.path, Some(file.id()), argv);
        if self.command.own.iter().any(|own| own.id == file.id()) {
            return Ok(("the command".to_owned(), false));
        }
        let Verdict::Allow { rule } = verdict else {
            return refuse(&reason_of(&verdict));
        };
        let writable =
            matches!(self.access.decide(PathAccess::Write, &file.path, Some(file.id())), Decision::Allow(_));
        let rule_body = self.access.policy.rules.get(rule.0).map(|rule| &rule.body);
        let Some(RuleBody::Exec(exec)) = rule_body else { return refuse("no exec rule") };
        if writable && matches!(exec.program, ExecProgram::Word { .. }) {
            return refuse("the agent can write it, and no exec rule names it by its path");
        }
        Ok((self.access.label(Some(rule), ""), !exec.arguments.is_empty()))
    }

    /// The images that run `file` if it is a script, the last of which is none, each with its argv;
    /// and the argv that comes of it.
    fn interpreters(
        &self,
        file: &Found,
        typed: &[u8],
        argv: &[OsString],
    ) -> nix::Result<(Vec<(Found, Vec<OsString>)>, Vec<OsString>)> {
        let mut argv = argv.to_vec();
        let mut images: Vec<(Found, Vec<OsString>)> = Vec::new();
        let mut spelled = OsString::from_vec(typed.to_vec());
        for depth in 0..=NESTING {
            let head = head_of(images.last().map_or(file, |(image, _)| image))?;
            let Some((interpreter, argument)) = shebang(&head)? else {
                return Ok((images, argv));
            };
            if depth == NESTING {
                return Err(Errno::ELOOP);
            }
            let mut rewritten = vec![interpreter.clone()];
            rewritten.extend(argument);
            rewritten.push(spelled);
            rewritten.extend(argv.into_iter().skip(1));
            argv = rewritten;
            spelled = interpreter.clone();
            let image = self.view.find(interpreter.as_bytes(), true)?;
            can_run(&image)?;
            images.push((image, argv.clone()));
        }
        Err(Errno::ELOOP)
    }

    /// Whether this is what `env` was to start for a script: the words, and a program of that name
    /// among the system's own.
    fn follow_up_allows(&mut self, call: &Call, spelled: &Spelled, file: &Found, argv: &[OsString]) -> bool {
        let Some(expected) = self.follow_ups.remove(&call.task.tgid) else { return false };
        let name = Path::new(OsStr::from_bytes(&spelled.typed)).file_name();
        let wanted = argv.first().and_then(|word| Path::new(word).file_name());
        expected == argv && name == wanted && self.access.is_system(&file.path)
    }

    /// Whether the agent could make the spelled path mean another file before the interpreter
    /// opens it.
    fn could_be_swapped(&self, spelled: &Spelled, file: &Found) -> bool {
        let absolute = &spelled.absolute;
        let writable =
            |path: &Path| matches!(self.access.decide(PathAccess::Write, path, None), Decision::Allow(_));
        if spelled.typed.starts_with(b"/dev/fd/") || View::is_descriptor(absolute) {
            // A sibling can put another file behind the descriptor.
            return true;
        }
        // A directory above can be exchanged only where its parent can be changed, and then the
        // file itself is the agent's, which its exec rule accepts.
        if super::view::lexical(absolute) == file.path || writable(&file.path) {
            return false;
        }
        let is_private_root = |path: &Path| self.access.private.iter().any(|root| root == path);
        match self.view.crossed(absolute) {
            Ok(crossed) => crossed.iter().any(|path| writable(path) && !is_private_root(path)),
            Err(_) => true,
        }
    }

    fn read_exec(&self, call: &Call) -> Result<((Spelled, Found), Vec<OsString>), ExecError> {
        let [a, b, c, _, e, _] = call.arguments;
        let plain = |errno| (errno, None);
        let at = i64::from(call.number) == libc::SYS_execveat;
        let (directory, path, argv, flags) =
            if at { (call.int(a), b, c, call.int(e)) } else { (libc::AT_FDCWD, a, b, 0) };
        let argv = read_words(call.task.tid, argv).map_err(plain)?;
        let path = call.path(path).map_err(plain)?;
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
        let path = super::view::lexical(absolute);
        let shown = matches!(self.access.decide(PathAccess::Read, &path, None), Decision::Allow(_));
        if shown || path.symlink_metadata().is_err() {
            return Ok(Reply::Errno(Errno::ENOENT));
        }
        self.refuse_exec(call, &path, argv, None, "it is not in the view", false)?;
        Ok(Reply::Errno(Errno::EACCES))
    }

    fn refuse_exec(
        &mut self,
        call: &Call,
        exe: &Path,
        argv: &[OsString],
        rule: Option<RuleId>,
        reason: &str,
        killed: bool,
    ) -> Result<(), Stop> {
        let mut target = quoted(argv).into_vec();
        let length = target.len();
        target.truncate(TARGET_BYTES);
        let mut event = Event::new(Kind::Deny, "exec")
            .path("target", OsStr::from_bytes(&target))
            .path("exe", exe)
            .arg("enforced", self.access.enforce || killed)
            .arg("pid", call.task.inner_tgid)
            .proc(call.task.lineage.clone())
            .rule(self.access.label(rule, reason));
        if length > target.len() {
            event = event.arg("target_bytes", length);
        }
        if killed {
            event = event.arg("killed", true);
        }
        self.deny(event, denials::exec(exe, argv))
    }

    fn read_environment(&self, call: &Call) -> Vec<OsString> {
        let at = if i64::from(call.number) == libc::SYS_execveat { 3 } else { 2 };
        // Unreadable: the kernel will refuse the start as well, and the exec event looks again.
        read_words(call.task.tid, call.arguments[at]).unwrap_or_default()
    }

    /// The exec event of task `former` (now `pid`): the new image has not run yet.
    pub(super) fn executed(&mut self, pid: i32) -> Result<(), Stop> {
        let former = ptrace::event_message(pid).unwrap_or(pid);
        let expected = self.expected.remove(&former).or_else(|| self.expected.remove(&pid));
        self.seized.remove(&former);
        self.seized.remove(&pid);
        let Ok(task) = self.tasks.find(pid) else { return Ok(()) };
        let call = Call { number: 0, arguments: [0; 6], task };
        match self.verify(&call, expected) {
            Ok((file, argv, expected)) => {
                self.record_spawn(&call, &file, &argv, &expected)?;
                if let Some(follow_up) = expected.follow_up {
                    self.follow_ups.insert(pid, follow_up);
                }
                // Gone when it was killed meanwhile.
                let _ = ptrace::detach(pid, 0);
                Ok(())
            }
            Err((path, argv, rule, reason)) => {
                let killed = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
                self.refuse_exec(&call, &path, &argv, rule, &reason, killed.is_ok())
            }
        }
    }

    fn verify(
        &mut self,
        call: &Call,
        expected: Option<Expected>,
    ) -> Result<(Found, Vec<OsString>, Expected), Mismatch> {
        let unreadable = |errno: Errno| {
            (PathBuf::from("?"), Vec::new(), None, format!("its image cannot be read: {errno}"))
        };
        let file = call.task.executable().and_then(found).map_err(unreadable)?;
        let argv = split_words(&call.task.read("cmdline").map_err(unreadable)?);
        let refuse = |rule, reason| Err((file.path.clone(), argv.clone(), rule, reason));
        let as_judged = expected.filter(|expected| expected.id == file.id() && expected.argv == argv);
        let expected = match as_judged {
            Some(expected) => expected,
            // The arguments changed after they were judged: judge what really came.
            None if self.access.enforce => match self.judge_image(&file.path, &file, &argv) {
                Ok((label, pins_arguments)) => {
                    Expected { label, pins_arguments, ..Expected::any(&file, argv.clone()) }
                }
                Err((rule, reason)) => return refuse(rule, reason),
            },
            None => Expected::any(&file, argv.clone()),
        };
        if expected.pins_arguments && self.access.enforce {
            let environment = split_words(&call.task.read("environ").map_err(unreadable)?);
            if let Some(variable) = environment::loads_code(&environment) {
                return refuse(None, format!("the rule pins arguments, and {variable} loads other code"));
            }
        }
        Ok((file, argv, expected))
    }

    fn record_spawn(
        &mut self,
        call: &Call,
        file: &Found,
        argv: &[OsString],
        expected: &Expected,
    ) -> Result<(), Stop> {
        let mut event = Event::new(Kind::Observe, "proc.spawn").words("argv", argv).path("exe", &file.path);
        if let Some(script) = &expected.script {
            event = event.path("script", script);
        }
        let event = event.proc(call.task.lineage.clone()).rule(expected.label.clone());
        self.recorder.record(event)?;
        self.hasher.image(file, &self.recorder);
        Ok(())
    }
}

type ExecError = (Errno, Option<(Spelled, Vec<OsString>)>);
type Mismatch = (PathBuf, Vec<OsString>, Option<RuleId>, String);

impl Expected {
    fn any(file: &Found, argv: Vec<OsString>) -> Self {
        Self {
            id: file.id(),
            argv,
            script: None,
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

/// What the kernel itself would refuse: told to the task before it is seized.
fn can_run(file: &Found) -> nix::Result<()> {
    if file.kind() != SFlag::S_IFREG {
        return Err(Errno::EACCES);
    }
    let mount = fstatvfs(&file.file)?;
    if mount.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(Errno::EACCES);
    }
    faccessat(
        nix::fcntl::AT_FDCWD,
        file.own_path().as_str(),
        AccessFlags::X_OK,
        nix::fcntl::AtFlags::AT_EACCESS,
    )
}

/// The program interpreters of the usual C libraries.
fn is_loader(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let loader = name.starts_with(b"ld-linux")
        || name.starts_with(b"ld-musl")
        || name == b"ld.so"
        || name.starts_with(b"ld-2.");
    loader && (name.windows(3).any(|part| part == b".so"))
}

/// The beginning of a file; EACCES is what the kernel gives when it cannot be read either.
fn head_of(file: &Found) -> nix::Result<Vec<u8>> {
    let opened =
        nix::fcntl::open(file.own_path().as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    let Ok(opened) = opened else { return Ok(b"\x7fELF".to_vec()) };
    let mut head = vec![0; FIRST_LINE];
    let count = nix::sys::uio::pread(opened.as_fd(), &mut head, 0)?;
    head.truncate(count);
    Ok(head)
}

/// Parses a `#!` line as binfmt_script does; ENOEXEC for what is neither script nor program.
fn shebang(head: &[u8]) -> nix::Result<Option<(OsString, Option<OsString>)>> {
    if head.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    let line = head.strip_prefix(b"#!").ok_or(Errno::ENOEXEC)?;
    let line = line.split(|&byte| byte == b'\n' || byte == 0).next().unwrap_or_default();
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let line = line.trim_ascii_start();
    let end = line.iter().position(blank).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return Err(Errno::ENOEXEC);
    }
    let argument = rest.trim_ascii();
    let argument = (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned());
    Ok(Some((OsStr::from_bytes(name).to_owned(), argument)))
}

/// What `env` will start for a `#!/usr/bin/env NAME` line.
fn follow_up(image: &Found, argv: &[OsString]) -> Option<Vec<OsString>> {
    if image.path.file_name()? != "env" {
        return None;
    }
    let mut rest = argv.iter().skip(1).peekable();
    let split: Vec<OsString> = match rest.peek()?.as_bytes() {
        option if option.starts_with(b"-S") => {
            let words = option.get(2..)?.to_vec();
            rest.next();
            words
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty())
                .map(|word| OsStr::from_bytes(word).to_owned())
                .collect()
        }
        option if option.starts_with(b"-") => return None,
        _ => Vec::new(),
    };
    Some(split.into_iter().chain(rest.cloned()).collect())
}

/// Reads a null-terminated array of strings.
fn read_words(pid: i32, address: u64) -> nix::Result<Vec<OsString>> {
    let fault = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EFAULT));
    let mut words = Vec::new();
    let mut bytes = 0;
    let mut at = address;
    if address == 0 {
        return Ok(words);
    }
    loop {
        let mut pointer = [0; 8];
        memory::read_exact(pid, at, &mut pointer).map_err(fault)?;
        let pointer = u64::from_ne_bytes(pointer);
        if pointer == 0 {
            return Ok(words);
        }
        let word = memory::read_string(pid, pointer, ARGUMENT_BYTES).map_err(fault)?;
        bytes += word.len() + 9;
        if bytes > ARGUMENT_BYTES {
            return Err(Errno::E2BIG);
        }
        words.push(OsString::from_vec(word));
        at = at.wrapping_add(8);
    }
}

/// Splits what /proc/PID/cmdline and environ give.
fn split_words(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|&byte| byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// An argv as one line that a shell would split the same way.
fn quoted(argv: &[OsString]) -> OsString {
    let mut line = Vec::new();
    for word in argv {
        if !line.is_empty() {
            line.push(b' ');
        }
        let bytes = word.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(byte);
        if !bytes.is_empty() && bytes.iter().all(plain) {
            line.extend_from_slice(bytes);
            continue;
        }
        line.push(b'\'');
        for &byte in bytes {
            if byte == b'\'' { line.extend_from_slice(b"'\"'\"'") } else { line.push(byte) }
        }
        line.push(b'\'');
    }
    OsString::from_vec(line)
}
