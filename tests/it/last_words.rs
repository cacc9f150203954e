//! The last lines of a run: what was refused, and what would change that.

use crate::support::everyone;

#[test]
fn the_last_words_count_and_name_the_rules_that_would_allow() {
    everyone(|sandbox| {
        for name in ["a.txt", "b.txt", "c.txt", "d.txt", ".env"] {
            sandbox.file(name, name);
        }
        let ran = sandbox.python(
            "for name, times in [('d.txt', 1), ('a.txt', 4), ('b.txt', 3), ('c.txt', 2)]:
                for _ in range(times):
                    try: open(name)
                    except PermissionError: pass",
        );
        ran.exits(0);
        let lines: Vec<_> = ran.stderr.lines().collect();
        assert_eq!(lines.len(), 6, "{ran}");
        assert_eq!(lines[4], "agentbox: and 1 more kind: agentbox show --denied", "{ran}");
        // What the first one was, and the rule that mends it, is the last thing on the screen.
        assert!(lines[5].starts_with("agentbox: denied first: read "), "{ran}");
        assert!(lines[5].ends_with("/d.txt (to allow it: read: ./d.txt)"), "{ran}");
        let place = sandbox.trace();
        assert!(lines[0].starts_with("agentbox: recorded 0 effects, "), "{ran}");
        assert!(lines[0].ends_with(&format!(" observations, 10 denials -> {}", place.display())), "{ran}");
        for (line, (times, name)) in lines[1..].iter().zip([(4, "a.txt"), (3, "b.txt"), (2, "c.txt")]) {
            assert!(line.starts_with(&format!("agentbox: denied {times}x: read ")), "{ran}");
            assert!(line.contains(&format!("(to allow it: read: ./{name})")), "{ran}");
        }
        let counted: u64 = ran.denials("read").iter().map(|entry| entry["count"].as_u64().unwrap_or(1)).sum();
        assert_eq!(counted, 10, "{ran}");
        // No rule helps against a `deny:`; a word that names no program is told of.
        sandbox.policy("read: .\ndeny: read **/.env\nexec: nosuchprogram");
        let ran =
            sandbox.python("import contextlib\nwith contextlib.suppress(PermissionError): open('.env')");
        ran.exits(0).complains("/.env (denied by ").complains("agentbox.policy:2 `deny: read **/.env`)");
        assert!(!ran.stderr.contains("to allow it"), "{ran}");
        ran.complains("no such program along PATH, so the rule allows nothing: `nosuchprogram` (");
    });
}

#[test]
fn a_command_that_fails_is_told_what_it_could_not_see() {
    everyone(|sandbox| {
        sandbox.policy("read: ./data");
        sandbox.file("data/in.txt", "in");
        sandbox.file("helpers.py", "");
        sandbox.file("main.py", "import helpers");
        let told = "was listed, and shows only what rules name in it (to show all of it: read: .)";
        sandbox.run(&["python3", "main.py"]).exits(1).complains("ModuleNotFoundError").complains(told);
        let ran = sandbox.python("import os; os.listdir('.'); os.listdir('/'); os.listdir('/etc')");
        assert!(!ran.exits(0).stderr.contains("was listed"), "{ran}");
        let ran =
            sandbox.python("import os; os.listdir('/'); os.listdir('/etc'); os.listdir('data'); exit(1)");
        assert!(!ran.exits(1).stderr.contains("was listed"), "{ran}");
        let told = "~/.npmrc was looked for (to show it: env: HOME and read: ~/.npmrc)";
        sandbox.run(&["sh", "-c", "read line <~/.npmrc || exit 4"]).exits(4).complains(told);
        let ran = sandbox.run(&["sh", "-c", "[ -e ~/.npmrc ] || read line <~/.npmrc || exit 0"]);
        assert!(!ran.exits(0).stderr.contains("HOME was private"), "{ran}");
    });
}

#[test]
fn refused_files_of_home_are_told_in_one_line() {
    everyone(|sandbox| {
        for name in [".npmrc", ".gitconfig", ".config/tool"] {
            sandbox.file(sandbox.beside("home").join(name), "x");
        }
        sandbox.policy("env: HOME");
        let script = "import os\nfor name in ['.npmrc', '.npmrc', '.gitconfig', '.config/tool']:\n    try: \
                      open(os.path.expanduser('~/' + name))\n    except PermissionError: pass";
        let ran = sandbox.python(script);
        let told = "denied 4x: read files of HOME: ~/.npmrc, ~/.config/tool, ~/.gitconfig (to allow it: read: ~/.npmrc, \
                    ~/.config/tool, ~/.gitconfig)";
        ran.exits(0).complains(told);
        assert_eq!(ran.stderr.matches("denied ").count(), 1, "{ran}");
    });
}

#[test]
fn the_last_words_are_few_and_the_cause_comes_first() {
    everyone(|sandbox| {
        let dots: Vec<_> = (0..40).map(|number| format!(".dot{number:02}")).collect();
        for name in &dots {
            sandbox.file(sandbox.beside("home").join(name), "x");
        }
        for name in ["data/a", "data/b", "data/c", "other/a", "other/b"] {
            sandbox.file(name, "x");
        }
        sandbox.policy("env: HOME");
        let program = format!(
            "import os, socket, subprocess
def read(name, times):
    for _ in range(times):
        try: open(os.path.expanduser(name))
        except PermissionError: pass
for number in range(40): read('~/.dot%02d' % number, 1)
for name in 'data/a', 'data/b', 'data/c': read(name, 3)
read('other/a', 2); read('other/b', 1)
try: subprocess.run(['/usr/bin/id'])
except PermissionError: pass
for host in '127.0.0.1', '::1':
    try: socket.create_connection((host, {port}))
    except OSError: pass",
            port = 9
        );
        let ran = sandbox.python(&program);
        let lines: Vec<_> =
            ran.exits(0).stderr.lines().filter(|line| line.starts_with("agentbox: denied ")).collect();
        let place = sandbox.path("").canonicalize().expect("there").display().to_string();
        assert!(lines[0].starts_with("agentbox: denied 1x: exec /usr/bin/id (to allow it: exec: "), "{ran}");
        let folded = format!("agentbox: denied 9x: read 3 files of {place}/data (to allow it: read: ./data)");
        assert_eq!(lines[1], folded, "{ran}");
        assert!(lines[2].starts_with("agentbox: denied 2x: "), "{ran}");
        ran.complains("and 3 more kinds");
        assert_eq!(ran.stderr.matches("~/.dot").count(), 0, "what programs do without comes last\n{ran}");
        let dots = "for number in range(40): read('~/.dot%02d' % number, 1)";
        let ran = sandbox.python(&(program.split(dots).next().expect("a head").to_owned() + dots));
        ran.exits(0).complains(
            "denied 40x: read files of HOME: ~/.dot00, ~/.dot01, ~/.dot02 and 37 more (to allow it: read: ~/.dot00, \
             ~/.dot01, ~/.dot02)",
        );
        let tail = program.split("for host").nth(1).expect("a tail");
        let ran = sandbox.python(&format!("import socket\nfor host{tail}"));
        ran.exits(0).complains("denied 2x: net localhost:9 (to allow it: net: localhost:9)");
        assert_eq!(ran.stderr.matches("denied ").count(), 1, "{ran}");
    });
}
