//! Shims of version managers.

use super::*;

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
        tree.file(&format!("home/.pyenv/versions/{version}/lib/python{minor}/os.py"), b"", 0o644);
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
    assert!(path == system || path.starts_with("/usr/bin") || path.starts_with("/bin"), "{path:?}");
}

#[test]
fn a_shebang_that_leads_to_a_shim() {
    let mut tree = Tree::new();
    let shim = tree.script("home/.pyenv/shims/python3", "#!/bin/bash\nexec pyenv exec\n");
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
    assert_eq!(command.program, python.clone());
    assert_eq!(command.script, Some(script.clone()));
    let words = [python.as_os_str(), "-u".as_ref(), script.as_os_str(), "x".as_ref()];
    assert_eq!(command.argv, words);
}

#[test]
fn rustup_picks_a_toolchain() {
    let mut tree = Tree::new();
    tree.elf("home/.cargo/bin/rustup");
    tree.link("home/.cargo/bin/cargo", "rustup");
    fs::hard_link(tree.at("home/.cargo/bin/rustup"), tree.at("home/.cargo/bin/rustc")).expect("a hard link");
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    for name in [format!("stable-{host}"), format!("1.80-{host}"), "mine".to_owned()] {
        for program in ["cargo", "rustc"] {
            tree.elf(&format!("home/.rustup/toolchains/{name}/bin/{program}"));
        }
        fs::create_dir_all(tree.at(&format!("home/.rustup/toolchains/{name}/lib/rustlib"))).expect("lib");
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
    assert_eq!(tree.ok("rustc").program, chain(&format!("stable-{host}/bin/rustc")));
    let command = tree.ok("cargo +mine build");
    assert_eq!((command.program, command.argv[1].to_str()), (chain("mine/bin/cargo"), Some("build")));

    tree.file("work/rust-toolchain.toml", b"[toolchain]\nchannel = \"1.80\"\n", 0o644);
    assert_eq!(tree.ok("cargo").program, chain(&format!("1.80-{host}/bin/cargo")));
    // Such a file may be a stranger's, or left by an earlier run: a name, never a path.
    tree.elf("work/mine/bin/cargo");
    tree.file("work/rust-toolchain.toml", b"[toolchain]\npath = \"mine\"\n", 0o644);
    let (code, message) = tree.fails("cargo");
    assert_eq!(code, 127);
    assert!(message.contains("RUSTUP_TOOLCHAIN=") && message.contains("work/mine"), "{message}");
    tree.set("RUSTUP_TOOLCHAIN", "./mine");
    assert_eq!(tree.ok("cargo").program, tree.at("work/mine/bin/cargo"));
    tree.set("RUSTUP_TOOLCHAIN", "mine");
    assert_eq!(tree.ok("cargo").program, chain("mine/bin/cargo"));
    tree.set("RUSTUP_TOOLCHAIN", "1.2.3");
    assert_eq!(tree.fails("cargo").0, 127);
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
    let shim = tree.script("home/.pyenv/shims/python3", "#!/bin/bash\nexec pyenv exec\n");
    let python = tree.elf("home/.pyenv/versions/3.9.2/bin/python3");
    tree.file("home/.pyenv/version", b"3.9.2", 0o644);
    let path = tree.at("home/.pyenv/shims").display().to_string();
    tree.set("PATH", &path);
    assert_eq!(programs("python3".as_ref(), &tree.env, &tree.at("work")), [shim, python]);
}
