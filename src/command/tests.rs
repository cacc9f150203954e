//! Command lines against small trees made for the purpose, and against this machine's own programs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

/// A directory tree with a `PATH` and a home of its own.
struct Tree {
    dir: TempDir,
    env: Vec<(OsString, OsString)>,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut tree = Self {
            dir,
            env: Vec::new(),
        };
        for name in ["home", "work", "bin"] {
            fs::create_dir(tree.at(name)).expect("a directory");
        }
        let home = tree.at("home");
        tree.set("HOME", home.to_str().expect("text"));
        let path = format!("{}:/usr/bin:/bin", tree.at("bin").display());
        tree.set("PATH", &path);
        tree
    }

    fn at(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.dir.path())
            .expect("the tree")
            .join(name)
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.into(), value.into()));
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        path
    }

    /// A program that the kernel would load; never started here.
    fn elf(&self, name: &str) -> PathBuf {
        self.file(name, b"\x7fELF\x02\x01\x01", 0o755)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        self.file(name, text.as_bytes(), 0o755)
    }

    fn link(&self, name: &str, target: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        symlink(target, &path).expect("a link");
        path
    }

    fn run(&self, line: &str) -> Result<Command, CommandError> {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        resolve(&argv, &self.env, &self.at("work"))
    }

    fn ok(&self, line: &str) -> Command {
        self.run(line)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Exit code and message of a line that must fail.
    fn fails(&self, line: &str) -> (u8, String) {
        let error = self.run(line).expect_err(line);
        assert!(!error.to_string().contains('\n'), "{error}");
        (error.exit_code(), error.to_string())
    }
}

fn roots(command: &Command) -> Vec<&Path> {
    command
        .runtime
        .iter()
        .map(|root| root.path.as_path())
        .collect()
}

#[test]
fn path_search_is_a_shells() {
    let mut tree = Tree::new();
    let tool = tree.elf("bin/tool");
    assert_eq!(tree.ok("tool a").program, tool);
    assert_eq!(tree.ok("tool a").argv[0], "tool");
    tree.file("bin/plain", b"\x7fELF", 0o644);
    tree.file("bin/text", b"hello\n", 0o755);
    assert_eq!(tree.fails("absent").0, 127);
    assert_eq!(tree.fails("./absent").0, 127);
    assert_eq!(tree.fails("plain").0, 126);
    assert_eq!(tree.fails(".").0, 127);
    assert_eq!(tree.fails("./").0, 126);
    assert_eq!(tree.fails("text").0, 126);
    assert_eq!(tree.fails("").0, 127);
    let control = tree.fails("a\nb\x1b[m");
    assert!(control.1.starts_with("a\\nb\\u{1b}[m: "), "{control:?}");
    assert_eq!(
        resolve(&[], &tree.env, &tree.at("work"))
            .expect_err("no word")
            .exit_code(),
        2
    );

    // An empty element is the current directory; a relative one starts there.
    let local = tree.elf("work/local");
    let deep = tree.elf("work/sub/deep");
    assert_eq!(tree.fails("local").0, 127);
    tree.set("PATH", ":sub");
    assert_eq!(tree.ok("local").program, local);
    assert_eq!(tree.ok("deep").program, deep);
    assert_eq!(tree.ok("./sub/deep").program, deep);
}

#[test]
fn a_later_executable_beats_an_earlier_file() {
    let mut tree = Tree::new();
    tree.file("bin/tool", b"\x7fELF", 0o644);
    let second = tree.elf("bin2/tool");
    let path = format!("{}:{}", tree.at("bin").display(), tree.at("bin2").display());
    tree.set("PATH", &path);
    assert_eq!(tree.ok("tool").program, second);
}

#[test]
fn a_plain_program_is_its_own_root_alone() {
    let tree = Tree::new();
    let tool = tree.elf("home/.local/bin/tool");
    fs::create_dir_all(tree.at("home/.local/lib/python3.11")).expect("a directory");
    let command = tree.ok(tool.to_str().expect("text"));
    assert_eq!(roots(&command), [tool.as_path()]);
    assert_eq!((command.interpreter, command.script), (None, None));
    assert!(command.own_interpreter.is_empty());
}

#[test]
fn a_script_and_its_interpreter() {
    let tree = Tree::new();
    let script = tree.script("work/run.sh", "#!/bin/sh -e\n");
    let command = tree.ok("./run.sh x");
    assert_eq!(command.script.as_deref(), Some(script.as_path()));
    assert_eq!(command.interpreter.as_deref(), Some(Path::new("/bin/sh")));
    assert_eq!(command.images.len(), 2);
    assert!(command.own_interpreter.contains(&PathBuf::from("/bin/sh")));
    assert!(
        command
            .own_interpreter
            .contains(&fs::canonicalize("/bin/sh").expect("a shell"))
    );
    assert!(roots(&command).is_empty(), "{:?}", command.runtime);
}

#[test]
fn broken_interpreter_lines() {
    let tree = Tree::new();
    tree.script("bin/gone", "#!/nowhere/sh\n");
    tree.script("bin/dos", "#!/bin/sh\r\n");
    tree.script("bin/envdos", "#!/usr/bin/env sh\r\n");
    tree.script("bin/two", "#!/usr/bin/env sh -e\n");
    tree.script("bin/unknown", "#!/usr/bin/env no-such-program\n");
    assert_eq!(tree.fails("gone").0, 126);
    assert!(tree.fails("dos").1.contains("carriage return"));
    assert!(tree.fails("envdos").1.contains("carriage return"));
    assert!(tree.fails("two").1.contains("env -S"));
    assert_eq!(tree.fails("unknown").0, 127);
}

#[test]
fn scripts_run_by_scripts() {
    let tree = Tree::new();
    tree.elf("bin/0");
    for (name, next) in [("1", "0"), ("2", "1"), ("3", "2"), ("4", "3"), ("5", "4")] {
        tree.script(
            &format!("bin/{name}"),
            &format!("#!{}\n", tree.at("bin").join(next).display()),
        );
    }
    assert_eq!(tree.ok("4").images.len(), 5);
    assert_eq!(tree.fails("5").0, 126);
    tree.script("bin/loop", "#!/usr/bin/env loop\n");
    assert_eq!(tree.fails("loop").0, 126);
}

#[test]
fn pyenv_picks_as_pyenv_does() {
    let mut tree = Tree::new();
    let shim = "#!/usr/bin/env bash\nexec \"/x/libexec/pyenv\" exec \"$program\" \"$@\"\n";
    for name in ["python3", "python2", "tool"] {
        tree.script(&format!("home/.pyenv/shims/{name}"), shim);
    }
    for version in ["3.9.2", "3.11.7", "3.11.10"] {
        let python = format!("home/.pyenv/versions/{version}/bin/python3");
        tree.elf(&python);
        let minor = &version[..version.rfind('.').expect("a dot")];
        tree.file(
            &format!("home/.pyenv/versions/{version}/lib/python{minor}/os.py"),
            b"",
            0o644,
        );
    }
    tree.elf("home/.pyenv/versions/3.9.2/bin/tool");
    tree.file("home/.pyenv/version", b"3.11.7\n", 0o644);
    let path = format!("{}:/usr/bin:/bin", tree.at("home/.pyenv/shims").display());
    tree.set("PATH", &path);
    let versions = tree.at("home/.pyenv/versions");
    let version = |name: &str| versions.join(name);

    let command = tree.ok("python3 agent.py");
    assert_eq!(command.program, version("3.11.7/bin/python3"));
    assert_eq!(command.argv[0], "python3");
    assert_eq!(command.script, Some(tree.at("work/agent.py")));
    assert_eq!(roots(&command), [version("3.11.7")]);
    assert_eq!(command.path_prefix, [version("3.11.7/bin")]);
    let expected = format!("{}:{path}", version("3.11.7/bin").display());
    assert_eq!(command.env, [("PATH".to_owned(), expected)]);

    // The nearest version file wins over the global one, a short version means the newest.
    tree.file("work/.python-version", b"# local\n3.11\n", 0o644);
    assert_eq!(tree.ok("python3").program, version("3.11.10/bin/python3"));
    tree.set("PYENV_VERSION", "3.11.7:3.9.2");
    assert_eq!(tree.ok("tool").program, version("3.9.2/bin/tool"));
    let (code, message) = tree.fails("python2");
    assert_eq!(code, 127);
    assert!(message.contains("3.11.7, 3.9.2"), "{message}");
    tree.set("PYENV_VERSION", "../../../../bin");
    assert_eq!(tree.fails("python3").0, 127);

    let system = tree.elf("bin/python3");
    let path = format!("{path}:{}", tree.at("bin").display());
    tree.set("PATH", &path);
    tree.set("PYENV_VERSION", "system");
    let path = tree.ok("python3").program;
    assert!(
        path == system || path.starts_with("/usr/bin") || path.starts_with("/bin"),
        "{path:?}"
    );
}

#[test]
fn a_shebang_that_leads_to_a_shim() {
    let mut tree = Tree::new();
    let shim = tree.script(
        "home/.pyenv/shims/python3",
        "#!/bin/bash\nexec pyenv exec\n",
    );
    let python = tree.elf("home/.pyenv/versions/3.9.2/bin/python3");
    tree.file("home/.pyenv/version", b"3.9.2", 0o644);
    let path = format!("{}:/usr/bin", tree.at("home/.pyenv/shims").display());
    tree.set("PATH", &path);
    tree.script("work/by-env", "#!/usr/bin/env python3\n");
    let command = tree.ok("./by-env");
    assert_eq!(command.interpreter, Some(python.clone()));
    assert_eq!(command.program, tree.at("work/by-env"));
    assert_eq!(command.path_prefix, [python.parent().expect("bin")]);

    // The kernel would start the shim that the line names, so the line is carried out here.
    let script = tree.script("work/direct", &format!("#!{} -u\n", shim.display()));
    let command = tree.ok("./direct x");
    assert_eq!(command.program, python);
    assert_eq!(command.script, Some(script.clone()));
    let words = [
        shim.as_os_str(),
        "-u".as_ref(),
        script.as_os_str(),
        "x".as_ref(),
    ];
    assert_eq!(command.argv, words);
}

#[test]
fn rustup_picks_a_toolchain() {
    let mut tree = Tree::new();
    tree.elf("home/.cargo/bin/rustup");
    tree.link("home/.cargo/bin/cargo", "rustup");
    fs::hard_link(
        tree.at("home/.cargo/bin/rustup"),
        tree.at("home/.cargo/bin/rustc"),
    )
    .expect("a hard link");
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    for name in [
        format!("stable-{host}"),
        format!("1.80-{host}"),
        "mine".to_owned(),
    ] {
        for program in ["cargo", "rustc"] {
            tree.elf(&format!("home/.rustup/toolchains/{name}/bin/{program}"));
        }
        fs::create_dir_all(tree.at(&format!("home/.rustup/toolchains/{name}/lib/rustlib")))
            .expect("lib");
    }
    let settings = format!("default_toolchain = \"stable-{host}\"\n[overrides]\n");
    tree.file("home/.rustup/settings.toml", settings.as_bytes(), 0o644);
    let path = format!("{}:/usr/bin", tree.at("home/.cargo/bin").display());
    tree.set("PATH", &path);
    let toolchains = tree.at("home/.rustup/toolchains");
    let chain = |name: &str| toolchains.join(name);

    let command = tree.ok("cargo build");
    assert_eq!(command.program, chain(&format!("stable-{host}/bin/cargo")));
    assert_eq!(roots(&command), [chain(&format!("stable-{host}"))]);
    assert!(command.env.iter().any(|(name, _)| name == "RUSTUP_HOME"));
    assert_eq!(
        tree.ok("rustc").program,
        chain(&format!("stable-{host}/bin/rustc"))
    );
    let command = tree.ok("cargo +mine build");
    assert_eq!(
        (command.program, command.argv[1].to_str()),
        (chain("mine/bin/cargo"), Some("build"))
    );

    tree.file(
        "work/rust-toolchain.toml",
        b"[toolchain]\nchannel = \"1.80\"\n",
        0o644,
    );
    assert_eq!(
        tree.ok("cargo").program,
        chain(&format!("1.80-{host}/bin/cargo"))
    );
    tree.set("RUSTUP_TOOLCHAIN", "mine");
    assert_eq!(tree.ok("cargo").program, chain("mine/bin/cargo"));
    tree.set("RUSTUP_TOOLCHAIN", "1.2.3");
    assert_eq!(tree.fails("cargo").0, 127);
}

#[test]
fn virtualenv_keeps_its_spelling_and_shows_its_base() {
    let tree = Tree::new();
    let real = tree.elf("opt/python/bin/python3.12");
    tree.file("opt/python/lib/python3.12/os.py", b"", 0o644);
    tree.link("opt/python/bin/python3", "python3.12");
    let spelled = tree.link("work/.venv/bin/python", real.to_str().expect("text"));
    let home = format!("home = {}\n", tree.at("opt/python/bin").display());
    tree.file("work/.venv/pyvenv.cfg", home.as_bytes(), 0o644);
    let command = tree.ok(".venv/bin/python agent.py");
    assert_eq!(command.program, spelled);
    assert_eq!(command.resolved, real);
    assert_eq!(
        roots(&command),
        [tree.at("opt/python"), tree.at("work/.venv")]
    );
    assert!(command.own_interpreter.contains(&spelled) && command.own_interpreter.contains(&real));
    assert!(command.links.is_empty(), "{:?}", command.links);

    // A console script of the virtualenv.
    let text = format!("#!{}\n", spelled.display());
    let tool = tree.script("work/.venv/bin/tool", &text);
    let command = tree.ok(".venv/bin/tool");
    assert_eq!(command.script, Some(tool));
    assert_eq!(
        roots(&command),
        [tree.at("opt/python"), tree.at("work/.venv")]
    );
}

#[test]
fn no_root_holds_the_directory_of_work() {
    let tree = Tree::new();
    tree.elf("work/bin/python3");
    tree.file("work/pyvenv.cfg", b"home = /usr/bin\n", 0o644);
    fs::create_dir_all(tree.at("work/lib/python3.11")).expect("a directory");
    fs::write(tree.at("work/private"), "").expect("a file");
    let command = tree.ok("bin/python3");
    assert_eq!(
        roots(&command),
        [
            tree.at("work/bin"),
            tree.at("work/lib"),
            tree.at("work/pyvenv.cfg")
        ]
    );
    assert_eq!(command.notes.len(), 1);

    let tree = Tree::new();
    tree.elf("home/bin/python3");
    tree.file("home/lib/python3.11/os.py", b"", 0o644);
    let command = tree.ok(tree.at("home/bin/python3").to_str().expect("text"));
    assert_eq!(
        roots(&command),
        [tree.at("home/bin/python3"), tree.at("home/lib/python3.11")]
    );
}

#[test]
fn node_programs_bring_their_packages() {
    let mut tree = Tree::new();
    let node = tree.elf("home/.nvm/versions/node/v20/bin/node");
    let main = tree.script(
        "home/.nvm/versions/node/v20/lib/node_modules/t/cli.js",
        "#!/usr/bin/env node\n",
    );
    tree.link(
        "home/.nvm/versions/node/v20/bin/t",
        "../lib/node_modules/t/cli.js",
    );
    let path = format!("{}:/usr/bin", node.parent().expect("bin").display());
    tree.set("PATH", &path);
    let command = tree.ok("t x");
    assert_eq!(command.interpreter, Some(node));
    assert_eq!(roots(&command), [tree.at("home/.nvm/versions/node/v20")]);
    assert!(command.path_prefix.is_empty());

    // A project's own tool: its node_modules, and nothing else of the project.
    tree.link("work/node_modules/.bin/u", "../u/cli.js");
    tree.script("work/node_modules/u/cli.js", "#!/usr/bin/env node\n");
    let command = tree.ok("./node_modules/.bin/u");
    assert!(roots(&command).contains(&tree.at("work/node_modules").as_path()));
    assert!(fs::canonicalize(main).is_ok());
}

#[test]
fn links_on_the_way_are_named() {
    let tree = Tree::new();
    let tool = tree.elf("home/tools/7/tool");
    tree.link("home/tools/current", "7");
    let spelled = tree.link("bin/tool", "../home/tools/current/tool");
    let command = tree.ok("tool");
    assert_eq!((&command.program, &command.resolved), (&spelled, &tool));
    let paths: Vec<_> = command.links.iter().map(|link| link.path.clone()).collect();
    assert_eq!(paths, [spelled, tree.at("home/tools/current")]);
    assert_eq!(roots(&command), [tool.as_path()]);
}

#[test]
fn snaps_are_refused_by_name() {
    let tree = Tree::new();
    tree.elf("x/volta-shim");
    tree.link("bin/npm", "../x/volta-shim");
    let (code, message) = tree.fails("npm");
    assert_eq!(code, 126);
    assert!(message.contains("volta which npm"), "{message}");
}

#[test]
fn asdf_and_mise_pins() {
    let mut tree = Tree::new();
    tree.script(
        "home/.asdf/shims/ruby",
        "#!/usr/bin/env bash\n# asdf-plugin: ruby 3.2.0\nexec asdf exec \"ruby\"\n",
    );
    let ruby = tree.elf("home/.asdf/installs/ruby/3.2.0/bin/ruby");
    let path = tree.at("home/.asdf/shims").display().to_string();
    tree.set("PATH", &path);
    assert_eq!(tree.fails("ruby").0, 127);
    tree.file("work/.tool-versions", b"ruby 3.2.0\n", 0o644);
    assert_eq!(tree.ok("ruby a.rb").program, ruby);
}

#[test]
fn programs_of_a_word_include_what_shims_start() {
    let mut tree = Tree::new();
    let shim = tree.script(
        "home/.pyenv/shims/python3",
        "#!/bin/bash\nexec pyenv exec\n",
    );
    let python = tree.elf("home/.pyenv/versions/3.9.2/bin/python3");
    tree.file("home/.pyenv/version", b"3.9.2", 0o644);
    let path = tree.at("home/.pyenv/shims").display().to_string();
    tree.set("PATH", &path);
    assert_eq!(
        programs("python3".as_ref(), &tree.env, &tree.at("work")),
        [shim, python]
    );
}

#[test]
fn programs_of_this_machine() {
    let env: Vec<_> = std::env::vars_os().collect();
    let around = Surroundings {
        env: &env,
        cwd: Path::new("/"),
    };
    for word in [
        "python3", "node", "cargo", "npm", "java", "go", "git", "perl", "sh",
    ] {
        if lookup::find(word.as_ref(), &around).is_err() {
            continue;
        }
        let command = resolve(&[word.into()], &env, Path::new("/var")).expect(word);
        assert!(
            matches!(
                shebang::look_at(&command.images.last().expect("an image").resolved),
                Ok(shebang::Image::Elf | shebang::Image::Unreadable)
            ),
            "{word}"
        );
        for root in &command.runtime {
            assert!(
                root.path.is_absolute() && !root.path.starts_with("/usr"),
                "{word}: {root:?}"
            );
            assert!(
                around
                    .home()
                    .is_none_or(|home| !home.starts_with(&root.path)),
                "{word}: {root:?}"
            );
        }
        assert_eq!(runtime_of(&command.program), command.runtime, "{word}");
    }
}
