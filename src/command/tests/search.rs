//! PATH, `#!` lines and links.

use super::*;

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
    assert_eq!(resolve(&[], &tree.env, &tree.at("work")).expect_err("no word").exit_code(), 2);

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
fn a_script_and_its_interpreter() {
    let tree = Tree::new();
    let script = tree.script("work/run.sh", "#!/bin/sh -e\n");
    let command = tree.ok("./run.sh x");
    assert_eq!(command.script.as_deref(), Some(script.as_path()));
    assert_eq!(command.interpreter.as_deref(), Some(Path::new("/bin/sh")));
    assert_eq!(command.images.len(), 2);
    assert!(command.own_interpreter.contains(&PathBuf::from("/bin/sh")));
    assert!(command.own_interpreter.contains(&fs::canonicalize("/bin/sh").expect("a shell")));
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
        tree.script(&format!("bin/{name}"), &format!("#!{}\n", tree.at("bin").join(next).display()));
    }
    assert_eq!(tree.ok("4").images.len(), 5);
    assert_eq!(tree.fails("5").0, 126);
    tree.script("bin/loop", "#!/usr/bin/env loop\n");
    assert_eq!(tree.fails("loop").0, 126);
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
fn programs_of_this_machine() {
    let env: Vec<_> = std::env::vars_os().collect();
    let around = Surroundings { env: &env, cwd: Path::new("/") };
    for word in ["python3", "node", "cargo", "npm", "java", "go", "git", "perl", "sh"] {
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
            assert!(root.path.is_absolute() && !root.path.starts_with("/usr"), "{word}: {root:?}");
            assert!(around.home().is_none_or(|home| !home.starts_with(&root.path)), "{word}: {root:?}");
        }
        assert_eq!(runtime_of(&command.program, &env, Path::new("/var")), command.runtime, "{word}");
    }
}

#[test]
fn a_shell_line_that_hands_on_to_python() {
    let tree = Tree::new();
    let python = tree.elf("home/a b/bin/python");
    tree.file("home/a b/pyvenv.cfg", b"home = /usr/bin\n", 0o644);
    let words = "\"$0\" \"$@\"";
    let text = format!("#!/bin/sh\n'''exec' \"{}\" {words}\n' '''\n", python.display());
    let tool = tree.script("home/a b/bin/tool", &text);
    let argv = [tool.clone().into_os_string()];
    let command = resolve(&argv, &tree.env, &tree.at("work")).expect("a command");
    assert_eq!(command.interpreter, Some(python));
    assert_eq!(command.script, Some(tool));
    assert_eq!(roots(&command), [tree.at("home/a b")]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
    #[test]
    fn odd_words_never_panic(
        program in "(python3|node|bash|java|perl|php|lua|ruby|deno)",
        words in proptest::collection::vec("[-+=a-z./]{0,6}|\\PC{0,4}", 0..6),
        start in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
    ) {
        let argv: Vec<OsString> = [program].into_iter().chain(words).map(OsString::from).collect();
        let around = Surroundings { env: &[], cwd: Path::new("/nowhere") };
        interpreter::named_script(&Path::new("/x").join(&argv[0]), &argv, &around, &mut Vec::new());
        let _ = crate::sys::shebang::parse(&[b"#!".as_slice(), &start].concat());
        let _ = env_words::program(&surroundings::os_string(&start));
    }
}
