//! Which trees become visible, and which never do.

use super::*;

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
    assert_eq!(roots(&command), [tree.at("opt/python"), tree.at("work/.venv")]);
    assert!(command.own_interpreter.contains(&spelled) && command.own_interpreter.contains(&real));
    assert!(command.links.is_empty(), "{:?}", command.links);

    // A console script of the virtualenv.
    let text = format!("#!{}\n", spelled.display());
    let tool = tree.script("work/.venv/bin/tool", &text);
    let command = tree.ok(".venv/bin/tool");
    assert_eq!(command.script, Some(tool));
    assert_eq!(roots(&command), [tree.at("opt/python"), tree.at("work/.venv")]);
}

/// Whoever can write in it says what its `home` is and where its links lead.
#[test]
fn a_virtualenv_leads_to_no_tree_that_is_no_runtime() {
    let tree = Tree::new();
    tree.elf("work/.venv/bin/python3");
    tree.file("home/.keys/key", b"", 0o600);
    tree.link("work/Cellar", tree.at("home/.keys").to_str().expect("text"));
    for place in ["home/.keys", "home/.keys/Cellar/x", "home/.keys/Cellar", "work/Cellar/x/bin"] {
        let home = format!("home = {}\n", tree.at(place).display());
        tree.file("work/.venv/pyvenv.cfg", home.as_bytes(), 0o644);
        let command = tree.ok(".venv/bin/python3");
        assert_eq!(roots(&command), [tree.at("work/.venv")], "{place}");
    }
    let tree = Tree::new();
    tree.elf("work/bin/python3");
    tree.file("work/pyvenv.cfg", format!("home = {}\n", tree.at("work/bin").display()).as_bytes(), 0o644);
    tree.file("home/.keys/key", b"", 0o600);
    for link in ["lib", "lib-python", "conda-meta"] {
        tree.link(&format!("work/{link}"), tree.at("home/.keys").to_str().expect("text"));
    }
    let command = tree.ok("bin/python3");
    assert_eq!(roots(&command), [tree.at("work/bin"), tree.at("work/pyvenv.cfg")]);
}

#[test]
fn a_homebrew_tree_is_shown_as_a_whole() {
    let tree = Tree::new();
    let real = tree.elf("brew/Cellar/tool/1/bin/tool");
    tree.link("brew/bin/tool", real.to_str().expect("text"));
    let command = tree.ok(tree.at("brew/bin/tool").to_str().expect("text"));
    assert_eq!(roots(&command), [tree.at("brew")]);
}

#[test]
fn what_a_virtualenv_names_shows_what_is_pythons_alone() {
    let tree = Tree::new();
    tree.elf("work/.venv/bin/python");
    for file in
        ["opt/lib/python3.12/os.py", "opt/lib/python3.12/site.py", "opt/share/keys", "opt/bin/python3"]
    {
        tree.file(file, b"", 0o644);
    }
    tree.file("go/pkg/tool/link", b"", 0o755);
    for (home, shown) in [("opt/bin", &["opt/bin", "opt/lib"][..]), ("go/bin", &[])] {
        tree.file("work/.venv/pyvenv.cfg", format!("home = {}\n", tree.at(home).display()).as_bytes(), 0o644);
        let command = tree.ok(".venv/bin/python agent.py");
        let mut expected: Vec<_> = shown.iter().map(|name| tree.at(name)).collect();
        expected.push(tree.at("work/.venv"));
        assert_eq!(roots(&command), expected, "{home}");
    }
}

#[test]
fn no_root_holds_the_directory_of_work() {
    let tree = Tree::new();
    tree.elf("work/bin/python3");
    tree.file("work/pyvenv.cfg", b"home = /usr/bin\n", 0o644);
    fs::create_dir_all(tree.at("work/lib/python3.11")).expect("a directory");
    fs::write(tree.at("work/private"), "").expect("a file");
    let command = tree.ok("bin/python3");
    assert_eq!(roots(&command), [tree.at("work/bin"), tree.at("work/lib"), tree.at("work/pyvenv.cfg")]);
    assert_eq!(command.notes.len(), 1);

    let tree = Tree::new();
    tree.elf("home/bin/python3");
    tree.file("home/lib/python3.11/os.py", b"", 0o644);
    let command = tree.ok(tree.at("home/bin/python3").to_str().expect("text"));
    assert_eq!(roots(&command), [tree.at("home/bin/python3"), tree.at("home/lib/python3.11")]);
}

#[test]
fn node_programs_bring_their_packages() {
    let mut tree = Tree::new();
    let node = tree.elf("home/.nvm/versions/node/v20/bin/node");
    let main = tree.script("home/.nvm/versions/node/v20/lib/node_modules/t/cli.js", "#!/usr/bin/env node\n");
    tree.link("home/.nvm/versions/node/v20/bin/t", "../lib/node_modules/t/cli.js");
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
fn a_script_named_by_a_rule_is_readable() {
    let tree = Tree::new();
    let script = tree.script("bin/tool", "#!/bin/sh\n");
    let paths: Vec<_> = runtime_of(&script, &[], Path::new("/")).into_iter().map(|root| root.path).collect();
    assert_eq!(paths, [script]);
    assert!(runtime_of(&tree.at("bin/absent"), &[], Path::new("/")).is_empty());
}
