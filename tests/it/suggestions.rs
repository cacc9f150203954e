//! What is proposed after a run is right the first time, and says what it opens.

use std::os::unix::fs::symlink;

use crate::support::{Ran, Sandbox, User, everyone};

/// The suggestion of the one kind that was refused.
fn proposed(ran: &Ran) -> &str {
    let lines: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("agentbox: denied ")).collect();
    assert_eq!(lines.len(), 1, "{ran}");
    let start = lines[0].find(" (").expect("a hint") + 2;
    lines[0][start..].strip_suffix(')').expect("a hint")
}

#[test]
fn names_that_are_made_removed_or_moved_propose_their_directory() {
    everyone(|sandbox| {
        sandbox.file("old", "x");
        for program in [
            "open('sedhX8UcS', 'w')",
            "open('lock', 'x')",
            "import tempfile; tempfile.mkdtemp(dir='.')",
            "import os; os.mkdir('target0mAJtI')",
            "import os; os.unlink('old')",
            "import os; os.rename('old', 'new')",
            "import os; os.symlink('old', 'new')",
            "import tempfile, contextlib\nfor _ in range(4):\n    with contextlib.suppress(OSError): tempfile.mkstemp(dir='.')\nopen('old', 'w')",
        ] {
            sandbox.policy("read: .");
            let ran = sandbox.python(program);
            assert_eq!(proposed(ran.exits(1)), "to allow it: write: .", "{program}\n{ran}");
            sandbox.policy(&format!("read: .\n{}", &proposed(&ran)["to allow it: ".len()..]));
            sandbox.python(program).exits(0).denied_nothing();
            sandbox.file("old", "x");
            for name in ["new", "lock", "target0mAJtI"] {
                let place = sandbox.path(name);
                let _ = std::fs::remove_file(&place).or_else(|_| std::fs::remove_dir(&place));
            }
        }
        sandbox.policy("read: .");
        // What has its name for good is granted by itself.
        assert_eq!(proposed(&sandbox.python("import os; os.mkdir('out')")), "to allow it: write: ./out");
        assert_eq!(proposed(&sandbox.python("open('old', 'w')")), "to allow it: write: ./old");
        // Never what holds the home.
        sandbox.policy("env: HOME");
        let ran = sandbox.python("import os; os.open(os.path.expanduser('~/lock'), os.O_CREAT | os.O_EXCL)");
        assert!(proposed(&ran).contains("work in a directory below it"), "{ran}");
    });
}

#[test]
fn git_needs_one_rule_for_its_directory() {
    everyone(|sandbox| {
        sandbox.file("a.txt", "a");
        let git = "git -c user.name=u -c user.email=u@x.test";
        sandbox.policy("write: .\nexec: git, sh\ninclude: profile/git");
        sandbox
            .run(&["sh", "-c", &format!("git init -q . && {git} commit -q --allow-empty -m one")])
            .exits(0);
        let commit = format!("git add a.txt && {git} commit -q -m two");
        sandbox.policy("read: .\nexec: git, sh");
        let ran = sandbox.run(&["sh", "-c", &commit]);
        let told = proposed(&ran);
        assert_eq!(told, "to allow it: write: ./.git; what is written there is run later, outside", "{ran}");
        sandbox.policy("read: .\nexec: git, sh\nwrite: ./.git");
        let ran = sandbox.run(&["sh", "-c", &commit]);
        ran.exits(0);
        assert!(ran.denials("write").is_empty(), "{ran}");
        // Others get no more than what they asked for.
        sandbox.policy("read: .");
        let ran = sandbox.python("open('.git/hooks/pre-commit', 'w')");
        let told = proposed(&ran);
        assert!(told.starts_with("to allow it: write: ./.git/hooks; what is written there is run"), "{ran}");
    });
}

#[test]
fn what_would_be_run_later_or_is_secret_is_told() {
    everyone(|sandbox| {
        sandbox.policy("env: HOME");
        for (path, rule) in [("/etc/cron.d/x", "/etc/cron.d"), ("/usr/local/bin/x", "/usr/local/bin")] {
            let ran = sandbox.python(&format!("open('{path}', 'w')"));
            let expected = format!("to allow it: write: {rule}; what is written there is run later, outside");
            assert_eq!(proposed(&ran), expected, "{ran}");
            assert!(ran.denials("write")[0]["args"]["caution"].is_string(), "{ran}");
        }
        sandbox.file(sandbox.beside("home/.bashrc"), "");
        let ran = sandbox.python("import os; open(os.path.expanduser('~/.bashrc'), 'w')");
        assert!(proposed(&ran).contains("write: ~/.bashrc; what is written there is run"), "{ran}");
        sandbox.file(sandbox.beside("home/.aws/credentials"), "x");
        let ran = sandbox.python("import os; open(os.path.expanduser('~/.aws/credentials'))");
        assert_eq!(proposed(&ran), "~/.aws is a place of secrets", "{ran}");
        assert!(ran.denials("read")[0]["args"].get("remedy").is_none(), "{ran}");
        let trace = sandbox.trace();
        let shown = sandbox.agentbox(&["show", "--denied", trace.to_str().expect("a name")]);
        assert!(shown.stdout.contains("~/.aws is a place of secrets"), "{shown}");
        // A link says where it leads.
        symlink("/etc/shadow", sandbox.path("link")).expect("a link");
        sandbox.policy("read: .");
        let ran = sandbox.python("open('link')");
        assert_eq!(proposed(&ran), "/etc/shadow is a place of secrets", "{ran}");
        ran.complains("read /etc/shadow (");
    });
}

#[test]
fn what_programs_do_without_crowds_nothing_out() {
    everyone(|sandbox| {
        sandbox.policy("");
        let program = "import contextlib, os, subprocess
for place in '/usr/lib', '/usr/share', '/usr/include', '/usr/local':
    with contextlib.suppress(OSError): os.mkdir(place + '/__pycache__')
for name in 'address_bits', 'cpu_byteorder':
    with contextlib.suppress(OSError): open('/sys/kernel/' + name)
subprocess.run(['ls'])";
        let ran = sandbox.python(program);
        let lines: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("agentbox: denied ")).collect();
        assert_eq!(lines, ["agentbox: denied 1x: exec /usr/bin/ls (to allow it: exec: ls)"], "{ran}");
        ran.exits(1).complains("and 2 more kinds: agentbox show --denied");
        let ran = sandbox.python(&program.replace("subprocess.run(['ls'])", "exit(3)"));
        ran.exits(3).complains("denied 4x: write __pycache__ (programs do without)");
        ran.complains("denied 2x: read 2 files below /sys (programs do without)");
    });
}

#[test]
fn keys_that_a_failed_command_did_not_get_are_named() {
    let sandbox = Sandbox::new(User::Caller);
    for name in ["A_API_KEY", "B_API_KEY", "C_API_KEY"] {
        sandbox.environment(name, "value-of-it");
    }
    sandbox.environment("D_API_KEY", "").environment("E_TOKEN", "x");
    sandbox.policy("env: B_API_KEY");
    let ran = sandbox.run(&["sh", "-c", "exit 3"]);
    ran.exits(3).complains("agentbox: not passed: A_API_KEY, C_API_KEY (env: NAME)\n");
    assert!(!ran.stderr.contains("value-of-it"), "{ran}");
    assert!(!sandbox.run(&["true"]).exits(0).stderr.contains("not passed"));
    sandbox.policy("env: *_API_KEY");
    assert!(!sandbox.run(&["sh", "-c", "exit 3"]).exits(3).stderr.contains("not passed"));
}

#[test]
fn what_a_rule_names_stays_and_the_refusal_is_recorded() {
    everyone(|sandbox| {
        let program = "import errno, os
open('/tmp/new', 'w').write('new')
for change in lambda: os.unlink('f'), lambda: os.rename('f', 'g'), lambda: os.rename('/tmp/new', 'f'):
    try: change()
    except OSError as error: print(errno.errorcode[error.errno])";
        sandbox.file("f", "old");
        sandbox.policy("read: .\nwrite: ./f");
        let ran = sandbox.python(program);
        ran.exits(0).prints("EBUSY\nEACCES\nEBUSY\n").denied("write", "f");
        assert_eq!(proposed(&ran), "to allow it: write: .", "{ran}");
        // Where the names around it may change already, that is not proposed.
        sandbox.policy("write: .\nexec: ./f");
        let ran = sandbox.python("import os\ntry: os.unlink('f')\nexcept OSError: pass");
        assert!(!ran.stderr.contains("to allow it"), "{ran}");
    });
}

#[test]
fn a_listing_of_nothing_is_told() {
    everyone(|sandbox| {
        sandbox.file("a.txt", "");
        sandbox.policy("");
        let told = "was listed, and shows only what rules name in it (to show all of it: read: .)";
        sandbox.run(&["ls"]).exits(0).prints("").complains(told);
        sandbox.policy("read: .");
        assert!(!sandbox.run(&["ls"]).exits(0).stderr.contains("was listed"));
    });
}

#[test]
fn show_names_what_was_misspelt_and_where_a_path_led() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.file("sub/config", "x");
    sandbox.policy("read: .");
    sandbox.python("import os; os.chdir('sub'); open('config')").exits(0);
    let trace = sandbox.trace();
    let show = |op| sandbox.agentbox(&["show", trace.to_str().expect("a name"), "--op", op]);
    assert!(show("fs.open_read").stdout.contains(" config (sub/config)"));
    show("fs.nonsense")
        .exits(0)
        .prints("")
        .complains("no operation is called `fs.nonsense`; there are fs.delete");
    assert!(
        show("fs.link").complains("no entry matches").stderr.lines().all(|line| !line.contains("called"))
    );
}

#[test]
fn init_can_be_quiet() {
    let sandbox = Sandbox::new(User::Caller);
    let said = sandbox.agentbox(&["init", "-q"]);
    assert_eq!(said.exits(0).prints("").stderr, "");
    assert!(sandbox.path("agentbox.policy").exists());
    assert_eq!(sandbox.agentbox(&["init", "-q"]).exits(2).stderr.lines().count(), 1);
}
