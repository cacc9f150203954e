//! Policy files: what is accepted decides alike in any order and after serialisation, and what is
//! suggested reads back as what was denied.
//!
//! A byte 0xff parts the policy from the file that it may include, and that from what is asked.
#![no_main]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use agentbox::policy::{
    Asked, Denied, ExecProgram, FileId, Host, PathAccess, Policy, RuleBody, Transport, load, normal_path, parse,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(3, |byte| *byte == 0xff);
    let [main, included, asked] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let machine = Machine::new(main, included);
    let questions = Questions::new(asked, main);
    if !asked.is_empty() {
        suggestions(&questions);
    }
    match load(Path::new("agent.policy"), &machine) {
        Ok(policy) => accepted(&policy, &machine, &questions),
        Err(report) => {
            assert!(!report.diagnostics.is_empty());
            let _ = (report.render(true), report.render(false));
        }
    }
});

fn accepted(policy: &Policy, machine: &Machine, questions: &Questions) {
    for remark in policy.warnings.iter().chain(&policy.notes) {
        let _ = remark.render(true);
    }
    let places = [questions.paths.clone(), named(policy)].concat();
    let answers = questions.answers(policy, &places);
    let json = serde_json::to_string(policy).expect("it serialises");
    let read: Policy = serde_json::from_str(&json).expect("it deserialises");
    assert_eq!(&read, policy);
    assert_eq!(read.digest(), policy.digest());
    assert_eq!(questions.verdicts(&read), questions.verdicts(policy));
    let _ = (policy.assigned_env(), policy.full_mediation());

    // The rules one by one, each as it is shown, from the last to the first.
    if policy.included.is_empty() {
        let lines: String = policy.rules.iter().rev().map(|rule| format!("{}\n", rule.text)).collect();
        let reversed = parse(&lines, "agent.policy", machine)
            .unwrap_or_else(|report| panic!("{lines:?} is not what was read: {report}"));
        assert_eq!(questions.answers(&reversed, &places), answers, "{lines:?}");
        assert_eq!(reversed.digest(), policy.digest(), "{lines:?}");
    }
}

fn suggestions(questions: &Questions) {
    let mut empty = Machine::new(b"", b"");
    // A program that was denied is there.
    let programs = questions.paths.iter().filter(|path| path.starts_with("/usr/bin") && !empty.is_dir(path));
    let programs: Vec<_> = programs.map(|path| (path.clone(), Vec::new())).collect();
    empty.files.extend(programs);
    let policy = parse("", "agent.policy", &empty).expect("an empty policy");
    for denied in questions.denied() {
        let line = policy.suggestion(&denied);
        assert!(!line.contains(['\n', '\r']), "{line:?}");
        if line.starts_with('#') {
            continue;
        }
        let read = parse(&line, "agent.policy", &empty)
            .unwrap_or_else(|report| panic!("{denied:?} gives {line:?}: {report}"));
        assert_eq!(read.rules.len(), 1, "{line:?}");
        let verdict = match &denied {
            Denied::Path { access, path } => read.decide_path(*access, path),
            Denied::Entry { path, .. } => read.decide_path(PathAccess::Write, path),
            Denied::Exec { exe, argv } => read.decide_exec(exe, None, argv),
            Denied::Name(name) => read.decide_name(&agentbox::policy::canonical_name(name).expect("a name")),
            Denied::Connect { names, address, port, transport } => {
                let names: Vec<_> =
                    names.iter().filter_map(|name| agentbox::policy::canonical_name(name)).collect();
                read.decide_connect(&names, *address, *port, *transport)
            }
            Denied::Request { names, address, port, method, path } => {
                let names: Vec<_> =
                    names.iter().filter_map(|name| agentbox::policy::canonical_name(name)).collect();
                let upgrade = method == "UPGRADE";
                let method = if upgrade { "GET" } else { method };
                read.decide_request(&names, *address, *port, &Asked { method, path, upgrade })
            }
            Denied::Unix(path) => read.decide_unix(path),
            Denied::Env(name) => read.decide_env(name),
        };
        assert!(verdict.is_allow(), "{denied:?} gives {line:?}: {verdict:?}");
    }
}

/// What is asked of a policy.
struct Questions {
    paths: Vec<PathBuf>,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    port: u16,
    words: Vec<OsString>,
}

impl Questions {
    fn new(asked: &[u8], text: &[u8]) -> Self {
        let mut words: Vec<&[u8]> = asked.split(|byte| *byte == b' ' || *byte == b'\n').take(4).collect();
        words.push(text.split(|byte| *byte == b':' || *byte == b'\n').nth(1).unwrap_or_default());
        let paths =
            words.iter().map(|word| plain(&Path::new("/r").join(OsStr::from_bytes(word.trim_ascii()))));
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| !path.as_os_str().as_bytes().contains(&0)).collect();
        paths.extend(["/", "/r", "/r/a", "/home/u/.ssh/id", "/usr/bin/git"].map(PathBuf::from));
        let mut names: Vec<String> = words
            .iter()
            .filter_map(|word| std::str::from_utf8(word.trim_ascii()).ok())
            .map(str::to_owned)
            .collect();
        names.extend(["x.org", "a.x.org", "localhost"].map(str::to_owned));
        let mut number = [0; 16];
        asked.iter().zip(&mut number).for_each(|(byte, slot)| *slot = *byte);
        let v4 = IpAddr::from([number[0], number[1], number[2], number[3]]);
        let addresses =
            vec![v4, Ipv6Addr::from(number).into(), [10, 0, 0, 1].into(), [203, 0, 113, 7].into()];
        let port = u16::from_be_bytes([number[4], number[5]]);
        let words = words.into_iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
        Self { paths, names, addresses, port, words }
    }

    fn denied(&self) -> Vec<Denied> {
        let mut all = Vec::new();
        for path in &self.paths {
            for access in [PathAccess::Read, PathAccess::Write] {
                all.push(Denied::Path { access, path: path.clone() });
            }
            if let Some(directory) = path.parent() {
                all.push(Denied::Entry { path: path.clone(), directory: directory.to_owned() });
            }
            all.push(Denied::Unix(path.clone()));
            if path != Path::new("/") {
                all.push(Denied::Exec { exe: path.clone(), argv: vec![path.clone().into_os_string()] });
            }
        }
        for name in &self.names {
            all.extend([Denied::Name(name.clone()), Denied::Env(name.clone())]);
            for address in &self.addresses {
                let (address, port) = (*address, self.port);
                let names = vec![name.clone()];
                all.push(Denied::Connect { names: names.clone(), address, port, transport: Transport::Tcp });
                all.extend(self.requests().map(|(method, path)| Denied::Request {
                    names: names.clone(),
                    address,
                    port,
                    method: method.to_owned(),
                    path,
                }));
            }
        }
        for address in &self.addresses {
            let (address, port) = (*address, self.port);
            all.push(Denied::Connect { names: Vec::new(), address, port, transport: Transport::Udp });
        }
        all
    }

    /// Methods and paths in normal form.
    fn requests(&self) -> impl Iterator<Item = (&'static str, String)> {
        let words = self.words.iter().filter_map(|word| word.to_str());
        let paths = words.map(|word| format!("/{word}")).chain(["/repos/a".to_owned(), "*".to_owned()]);
        let normal = paths.filter_map(|path| {
            let normal = normal_path(&path).ok()?;
            assert_eq!(normal_path(&normal).as_ref(), Ok(&normal), "{path:?}");
            Some(normal)
        });
        normal.flat_map(|path| ["GET", "DELETE", "UPGRADE"].map(|method| (method, path.clone())))
    }

    /// Every answer in full.
    fn verdicts(&self, policy: &Policy) -> Vec<agentbox::policy::Verdict> {
        let mut all = Vec::new();
        for path in self.paths.iter().chain(&named(policy)) {
            all.push(policy.decide_path(PathAccess::Read, path));
            all.push(policy.decide_path(PathAccess::Write, path));
            all.push(policy.decide_unix(path));
            let argv = [&[path.clone().into_os_string()][..], &self.words].concat();
            all.push(policy.decide_exec(path, None, &argv));
            all.push(policy.decide_exec(path, Some(FileId { dev: 1, ino: 0 }), &argv));
        }
        for name in &self.names {
            all.extend([policy.decide_name(name), policy.decide_env(name)]);
            for address in &self.addresses {
                for port in [self.port, 80, 443] {
                    all.push(policy.decide_connect(
                        std::slice::from_ref(name),
                        *address,
                        port,
                        Transport::Tcp,
                    ));
                    all.push(policy.decide_connect(&[], *address, port, Transport::Udp));
                    for (method, path) in self.requests() {
                        all.push(self.request(policy, name, *address, port, method, &path));
                    }
                }
            }
        }
        all
    }

    /// A request is only allowed where a connection is.
    fn request(
        &self,
        policy: &Policy,
        name: &String,
        address: IpAddr,
        port: u16,
        method: &str,
        path: &str,
    ) -> agentbox::policy::Verdict {
        let names = std::slice::from_ref(name);
        let verdict = policy.decide_request(names, address, port, &Asked { method, path, upgrade: false });
        let connect = policy.decide_connect(names, address, port, Transport::Tcp);
        assert!(connect.is_allow() || !verdict.is_allow(), "{method} {path:?} of {name:?}: {verdict:?}");
        if !policy.must_read(names, address, port) {
            assert_eq!(connect.is_allow(), verdict.is_allow(), "{method} {path:?} of {name:?}");
        }
        verdict
    }

    /// Whether each is allowed.
    fn answers(&self, policy: &Policy, paths: &[PathBuf]) -> Vec<bool> {
        paths
            .iter()
            .flat_map(|path| {
                [
                    policy.decide_path(PathAccess::Read, path).is_allow(),
                    policy.decide_path(PathAccess::Write, path).is_allow(),
                    policy.decide_unix(path).is_allow(),
                    policy.covers_below(path),
                ]
            })
            .chain(self.names.iter().map(|name| policy.decide_name(name).is_allow()))
            .chain(self.names.iter().map(|name| policy.decide_env(name).is_allow()))
            .collect()
    }
}

/// The places that the rules themselves name.
fn named(policy: &Policy) -> Vec<PathBuf> {
    let place = |rule: &agentbox::policy::Rule| match &rule.body {
        RuleBody::Path { pattern, .. }
        | RuleBody::Runtime { path: pattern }
        | RuleBody::UnixSocket(pattern) => match pattern {
            agentbox::policy::PathPattern::Literal { resolved, .. } => Some(resolved.clone()),
            agentbox::policy::PathPattern::Glob { base, .. } => Some(base.join("x")),
        },
        RuleBody::Exec(exec) => match &exec.program {
            ExecProgram::Word { .. } => None,
            _ => Some(plain(&Path::new("/r").join(&rule.value))),
        },
        RuleBody::Net(_) | RuleBody::Env(_) | RuleBody::Listen(_) | RuleBody::Secret(_) => None,
    };
    policy.rules.iter().filter_map(place).take(8).collect()
}

/// A machine of a few files; links are followed by their beginning.
struct Machine {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Machine {
    fn new(main: &[u8], included: &[u8]) -> Self {
        let files = [
            ("/r/agent.policy", main),
            ("/r/more.policy", included),
            ("/usr/bin/git", b""),
            ("/usr/bin/a", b""),
            ("/r/a", b""),
        ];
        Self { files: files.into_iter().map(|(path, bytes)| (path.into(), bytes.to_vec())).collect() }
    }
}

impl Host for Machine {
    fn cwd(&self) -> &Path {
        Path::new("/r")
    }

    fn home(&self) -> Option<&Path> {
        Some(Path::new("/home/u"))
    }

    fn user_home(&self, name: &str) -> Option<PathBuf> {
        (name == "other").then(|| "/home/other".into())
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        let path = plain(path);
        match path.strip_prefix("/bin") {
            Ok(rest) if rest.as_os_str().is_empty() => "/usr/bin".into(),
            Ok(rest) => Path::new("/usr/bin").join(rest),
            Err(_) => path,
        }
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        (path == Path::new("/bin")).then(|| "/usr/bin".into())
    }

    fn exists(&self, path: &Path) -> bool {
        self.identity(path).is_some() || self.is_dir(path)
    }

    fn is_dir(&self, path: &Path) -> bool {
        ["/", "/r", "/r/d", "/home/u", "/usr/bin"].iter().any(|known| self.resolve(path) == Path::new(known))
    }

    fn identity(&self, path: &Path) -> Option<FileId> {
        let path = self.resolve(path);
        let ino = self.files.keys().position(|file| *file == path)?;
        Some(FileId { dev: 1, ino: ino as u64 })
    }

    fn find_program(&self, word: &str) -> Vec<PathBuf> {
        let path = Path::new("/usr/bin").join(word);
        if self.files.contains_key(&path) { vec![path] } else { Vec::new() }
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(&self.resolve(path)).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![("PATH".into(), "/usr/bin".into()), ("TOKEN".into(), "x".into())]
    }

    fn profile(&self, name: &str) -> Option<&'static str> {
        (name == "git").then_some("exec: git\nread: ~/.gitconfig\nread: ./.git\n")
    }
}

fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::from("/"), |mut path, component| {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            _ => {}
        }
        path
    })
}
