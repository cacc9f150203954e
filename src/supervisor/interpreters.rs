//! Who runs a file for the kernel: the interpreters of a script, each of which reads a file by its name, and the loader
//! that a program names (PT_INTERP of elf(5)).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::Supervisor;
use super::access::Decision;
use super::call::Call;
use super::image::{is_loader, shebang};
use super::spelling::{MagicLink, lexical};
use super::view::{Found, Spelled, View};
use crate::policy::{FileId, PathAccess, RuleBody, RuleId, Verdict};
use crate::sys::shebang::Shebang;

/// Interpreters that are themselves scripts (BINPRM: five rewrites).
const NESTING: usize = 4;

/// A file that runs another, and the arguments that it gets.
pub(super) type Image = (Found, Vec<OsString>);

/// The rule that refuses something, if one does, and why it is refused.
pub(super) type Refused = (Option<RuleId>, String);

/// All that the kernel opens to start a file.
#[derive(Debug)]
pub(super) struct Chain {
    /// The images that run it if it is a script, the last of which is none, each with its argv.
    pub(super) images: Vec<Image>,
    /// The argv that comes of it.
    pub(super) argv: Vec<OsString>,
    /// The scripts among it.
    pub(super) scripts: Vec<Script>,
    /// What it is loaded by.
    pub(super) loader: Loader,
}

/// A script, which its interpreter will open by its name.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) spelled: Spelled,
    /// Where it was when it was judged.
    pub(super) path: PathBuf,
    pub(super) id: FileId,
}

/// The loader of an image.
#[derive(Debug, Clone)]
pub(super) enum Loader {
    /// It is the system's own, or there is none, and nobody inside can change the image or the way to it.
    Fixed,
    /// The image is static.
    None,
    /// This file.
    At {
        /// Where it was when it was judged.
        path: PathBuf,
        id: FileId,
    },
}

impl Supervisor {
    /// What runs `file`, which was named as `spelled`.
    pub(super) fn chain(
        &mut self,
        call: &Call,
        file: &Found,
        spelled: &Spelled,
        argv: &[OsString],
    ) -> nix::Result<Result<Chain, Refused>> {
        let mut argv = argv.to_vec();
        let mut images: Vec<Image> = Vec::new();
        let (mut scripts, mut spelled) = (Vec::new(), spelled.clone());
        for depth in 0..=NESTING {
            let image = images.last().map_or(file, |(image, _)| image);
            let start = self.heads.of(&self.view, image)?;
            let Some(Shebang { interpreter, argument }) = shebang(&start.bytes)? else {
                let loader = self.loader(call, image, start.loader.as_deref(), &argv)?;
                return Ok(loader.map(|loader| Chain { images, argv, scripts, loader }));
            };
            if depth == NESTING {
                return Err(Errno::ELOOP);
            }
            scripts.push(Script { spelled: spelled.clone(), path: image.path.clone(), id: image.id() });
            let interpreter = interpreter.into_os_string();
            let mut rewritten = vec![interpreter.clone()];
            rewritten.extend(argument);
            rewritten.push(OsString::from_vec(spelled.typed));
            rewritten.extend(argv.into_iter().skip(1));
            argv = rewritten;
            // Without a slash at its start it lies below the working directory.
            spelled = View::absolute(&call.task, libc::AT_FDCWD, interpreter.as_bytes())?;
            images.push((self.find_program(&spelled)?, argv.clone()));
        }
        Err(Errno::ELOOP)
    }

    /// What the kernel opens by itself to start a program.
    fn find_program(&mut self, spelled: &Spelled) -> nix::Result<Found> {
        let image = self.view.find(&spelled.absolute, true)?;
        if self.heads.can_run(&image)? { Ok(image) } else { Err(Errno::EACCES) }
    }

    /// The loader of `image`, which names it as `named`, unless that is refused.
    pub(super) fn loader(
        &mut self,
        call: &Call,
        image: &Found,
        named: Option<&Path>,
        argv: &[OsString],
    ) -> nix::Result<Result<Loader, Refused>> {
        if self.heads.is_fixed(image) {
            return Ok(Ok(Loader::Fixed));
        }
        let is_fixed = self.is_fixed(image);
        let Some(named) = named else {
            if is_fixed {
                self.heads.note_fixed(image);
            }
            return Ok(Ok(if is_fixed { Loader::Fixed } else { Loader::None }));
        };
        let spelled = View::absolute(&call.task, libc::AT_FDCWD, named.as_os_str().as_bytes())?;
        // What the kernel does not find either, or nobody asks for: programs of other machines have another one.
        let Ok(loader) = self.find_program(&spelled) else { return Ok(Ok(Loader::None)) };
        let is_usual = self.is_fixed(&loader) && is_loader(&loader.path);
        if let Some(refused) = self.refuse_loader(&loader, is_usual, argv) {
            return Ok(Err(refused));
        }
        if is_fixed && is_usual && named.is_absolute() && self.stays_system(&spelled.absolute) {
            self.heads.note_fixed(image);
            return Ok(Ok(Loader::Fixed));
        }
        Ok(Ok(Loader::At { id: loader.id(), path: loader.path }))
    }

    /// Whether it is one of the system's own files, which nobody inside can change.
    pub(super) fn is_fixed(&self, file: &Found) -> bool {
        // A runtime below a write root is the agent's to change.
        let writable = self.access.decide(PathAccess::Write, &file.path, Some(self.view.id_of(file)));
        self.access.is_system(&file.path) && !matches!(writable, Decision::Allow(_))
    }

    /// Why `interpreter` may not run a script: it needs no rule of its own, but does not start against one.
    pub(super) fn refuse_interpreter(&self, interpreter: &Found, argv: &[OsString]) -> Option<Refused> {
        match self.decide_image(&interpreter.path, interpreter, argv) {
            Ok(decided) => self.refuse_unread(interpreter, &decided),
            Err(refused) => Some(refused),
        }
    }

    /// Why the kernel may not open `file` to start another: nothing lets it be read or started.
    fn refuse_unread(&self, file: &Found, (id, verdict): &(FileId, Verdict)) -> Option<Refused> {
        if verdict.is_allow() || self.command.own.iter().any(|own| own.id == *id) {
            return None;
        }
        match self.access.decide(PathAccess::Read, &file.path, Some(*id)) {
            Decision::Allow(_) => None,
            _ => Some((
                None,
                format!("no rule allows reading or starting {}, which runs it", file.path.display()),
            )),
        }
    }

    /// Why `loader` may not load a program that gets `argv`.
    fn refuse_loader(&self, loader: &Found, is_usual: bool, argv: &[OsString]) -> Option<Refused> {
        let name = loader.path.clone().into_os_string();
        let argv: Vec<OsString> = std::iter::once(name).chain(argv.iter().skip(1).cloned()).collect();
        let refused = match self.decide_opened(&loader.path, loader, &argv) {
            Ok(decided) => return self.refuse_unread(loader, &decided),
            Err(refused) => refused,
        };
        let rule = refused.0.and_then(|rule| self.access.policy.rules.get(rule.0));
        // What denies the system's own as a program does not deny every other program.
        let is_as_program = rule.is_some_and(|rule| matches!(rule.body, RuleBody::Exec(_)));
        (!(is_usual && is_as_program)).then_some(refused)
    }

    /// Whether the agent could make the name of a script mean another file before the interpreter
    /// opens it.
    pub(super) fn could_be_swapped(&self, script: &Script) -> bool {
        let Script { spelled: Spelled { typed, absolute }, path, .. } = script;
        let writable =
            |path: &Path| matches!(self.access.decide(PathAccess::Write, path, None), Decision::Allow(_));
        // A sibling can put another file behind a descriptor, and another directory behind `cwd`.
        if typed.starts_with(b"/dev/fd/") || MagicLink::parse(absolute).is_some() {
            return true;
        }
        // A directory above can be exchanged only where its parent can be changed, and then the
        // file itself is the agent's, which its exec rule accepts.
        let (is_direct, parent) = (lexical(absolute) == *path, &b".."[..]);
        if writable(path) || (is_direct && !absolute.split(|&byte| byte == b'/').any(|name| name == parent)) {
            return false;
        }
        let Ok((crossed, parted)) = self.view.crossed(absolute) else { return true };
        // Out of a directory that is moved, `..` leads elsewhere.
        if parted.iter().filter_map(|directory| directory.parent()).any(writable) {
            return true;
        }
        let is_private_root = |path: &Path| self.access.private.iter().any(|root| root == path);
        !is_direct && crossed.iter().any(|path| writable(path) && !is_private_root(path))
    }

    /// Why the interpreters of these scripts, which have started, would read others: the working directory is theirs
    /// alone by now, as threads are gone and no other process may share it (CLONE_FS).
    pub(super) fn refuse_scripts(&self, call: &Call, scripts: &[Script]) -> Option<String> {
        scripts.iter().find_map(|script| {
            let there = View::absolute(&call.task, libc::AT_FDCWD, &script.spelled.typed)
                .and_then(|spelled| self.view.find(&spelled.absolute, true));
            match there {
                Ok(file) if file.id() == script.id => None,
                // What its exec rule accepts, made anew.
                Ok(file) if file.path == script.path && self.is_writable(&file) => None,
                Ok(file) => {
                    let name = OsStr::from_bytes(&script.spelled.typed).display();
                    Some(format!("{name} is {} by now", file.path.display()))
                }
                Err(errno) => Some(format!("its script cannot be found: {errno}")),
            }
        })
    }

    fn is_writable(&self, file: &Found) -> bool {
        let decision = self.access.decide(PathAccess::Write, &file.path, Some(self.view.id_of(file)));
        matches!(decision, Decision::Allow(_))
    }

    /// Why the files that are mapped into a new program are not those that were judged.
    pub(super) fn refuse_mapped(&mut self, call: &Call, image: FileId, loader: &Loader) -> Option<String> {
        let loader = match loader {
            Loader::Fixed => return None,
            Loader::None => None,
            Loader::At { path, id } => Some((path.as_path(), *id)),
        };
        let unreadable = |error: std::io::Error| format!("what it was loaded with cannot be seen: {error}");
        let maps = match call.task.read("maps") {
            Ok(maps) => maps,
            Err(errno) => return Some(unreadable(errno.into())),
        };
        let files = match crate::sys::mapping::files(&maps) {
            Ok(files) => files,
            Err(error) => return Some(unreadable(error)),
        };
        let judged = |file: &(u64, u64)| {
            let id = FileId { dev: file.0, ino: file.1 };
            id == image || loader.is_some_and(|(_, loader)| loader == id)
        };
        if files.iter().all(judged) {
            return None;
        }
        let program = call.task.executable().and_then(super::view::found).map_err(Into::into);
        let program = program.and_then(|program| self.heads.mapped(&self.view, &program));
        let loader = loader.map(|(path, id)| {
            let file = self.view.find(path.as_os_str().as_bytes(), true)?;
            let same = if file.id() == id { Ok(file) } else { Err(Errno::ESTALE) };
            self.heads.mapped(&self.view, &same?)
        });
        match (program, loader.transpose()) {
            (Ok(program), Ok(loader)) => {
                let others = files.iter().any(|file| *file != program && Some(*file) != loader);
                others.then(|| "it was loaded with another file than was judged".to_owned())
            }
            (Err(error), _) | (_, Err(error)) => Some(unreadable(error)),
        }
    }
}
