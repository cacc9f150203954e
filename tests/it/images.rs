//! All that the kernel opens to start a program is judged: the image, its interpreters, its loader.

use std::path::Path;
use std::process::Command;

use crate::fs::sha256;
use crate::support::{Ran, Sandbox, copy_program, everyone};

/// A loader (PT_INTERP) that ends the process with this code, and loads nothing.
pub(crate) fn loader(code: u8) -> String {
    format!("-shared -Wl,-e,_start -DCODE={code}")
}

/// A program with the loader of that name.
pub(crate) fn program(loader: &str) -> String {
    format!("-pie -Wl,--dynamic-linker={loader} -DCODE=3")
}

/// Builds such a file.
pub(crate) fn build(directory: &Path, name: &str, words: &str) {
    let source = directory.join("start.S");
    let code = ".globl _start\n_start: mov $60, %eax\nmov $CODE, %edi\nsyscall\n.section .note.GNU-stack\n";
    std::fs::write(&source, code).expect("a file");
    let mut gcc = Command::new("gcc");
    gcc.args(["-nostdlib", "-o", name]).args(words.split(' ')).arg(&source).current_dir(directory);
    assert!(gcc.status().expect("gcc").success(), "{name}");
    std::fs::remove_file(&source).expect("is there");
}

/// Starts programs and prints what came of them.
fn start(sandbox: &Sandbox, program: &str) -> Ran {
    sandbox.python(&format!(
        "import errno, os, subprocess
def start(*words, **options):
    try: print(subprocess.run(words, stderr=subprocess.DEVNULL, **options).returncode, flush=True)
    except OSError as error: print(errno.errorcode[error.errno], flush=True)
{program}"
    ))
}

#[test]
fn what_may_not_be_read_is_not_started() {
    everyone(|sandbox| {
        sandbox.directory("bin");
        for name in ["bin/true", "bin/true.env"] {
            copy_program("/bin/true", sandbox.path(name));
        }
        sandbox.script("bin/a", "#!bin/true\n");
        sandbox.script("bin/b", "#!bin/true.env\n");
        sandbox.script("bin/c.env", "#!/bin/sh\n");
        sandbox.policy("read: ./bin\nexec: /**\ndeny: read **/*.env");
        let ran = start(sandbox, "for name in ('true', 'true.env', 'a', 'b', 'c.env'): start('bin/' + name)");
        ran.exits(0).prints("0\nEACCES\n0\nEACCES\nEACCES\n");
        assert_eq!(ran.denials("exec").len(), 3, "{ran}");
        assert!(
            ran.denials("exec")
                .iter()
                .all(|entry| entry["rule"].as_str().is_some_and(|rule| rule.contains("agentbox.policy:3"))),
            "{ran}"
        );
    });
}

#[test]
fn a_loader_is_judged_and_recorded_as_an_interpreter_is() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.directory("bin");
        let root = sandbox.path("");
        for (name, words) in [
            ("bin/seven", loader(7)),
            ("bin/secret.env", loader(8)),
            ("bin/plain", loader(9)),
            ("out/a", program("bin/seven")),
            ("out/b", program("bin/secret.env")),
            ("out/c", program(&sandbox.path("bin/plain").display().to_string())),
            ("out/d", program("/proc/self/fd/9")),
            ("out/e", program("bin/none")),
            ("out/f", program("out/link")),
        ] {
            build(&root, name, &words);
            sandbox.give(name);
        }
        sandbox.link("../bin/secret.env", "out/link");
        sandbox.policy(
            "read: ./bin\nwrite: ./out\nexec: ./out/*, ./bin/*\ndeny: read **/*.env\ndeny: exec ./bin/plain",
        );
        let ran = start(
            sandbox,
            "for name in 'abcef': start('out/' + name)
memory = os.memfd_create('m', 0); os.write(memory, open('bin/seven', 'rb').read()); os.dup2(memory, 9)
start('out/d', pass_fds=[9])",
        );
        ran.exits(0).prints("7\nEACCES\nEACCES\nENOENT\nEACCES\nEACCES\n");
        let spawned = ran.of("proc.spawn");
        assert_eq!(spawned.len(), 2, "{ran}");
        assert!(spawned[0]["args"].get("loader").is_none(), "{ran}");
        let seven = sandbox.path("bin/seven").display().to_string();
        assert_eq!(spawned[1]["args"]["loader"], seven.as_str(), "{ran}");
        assert!(ran.of("proc.image").iter().any(|entry| entry["args"]["path"] == seven.as_str()), "{ran}");
        assert_eq!(ran.denials("exec").len(), 4, "{ran}");
    });
}

#[test]
fn what_no_rule_names_runs_nothing_else() {
    everyone(|sandbox| {
        sandbox.directory("src");
        sandbox.directory("out");
        let root = sandbox.path("");
        for (name, words) in [
            ("src/unread", loader(7)),
            ("src/started", loader(8)),
            ("src/read.so", loader(9)),
            ("out/a", program("src/unread")),
            ("out/b", program("src/started")),
            ("out/c", program("src/read.so")),
        ] {
            build(&root, name, &words);
            sandbox.give(name);
        }
        copy_program("/bin/true", sandbox.path("src/true"));
        copy_program("/bin/true", sandbox.path("src/true.so"));
        sandbox.script("out/d", "#!src/true\n");
        sandbox.script("out/e", "#!src/true.so\n");
        sandbox.script("out/f", "#!/bin/true\n");
        sandbox.policy("read: ./src/**/*.so\nwrite: ./out\nexec: ./src/started, ./out/*");
        let ran = start(sandbox, "for name in 'abcdef': start('out/' + name)");
        ran.exits(0).prints("EACCES\n8\n9\nEACCES\n0\n0\n");
        ran.denied("exec", "out/a").denied("exec", "out/d");
    });
}

/// Whether it is a program, and of what kind, is told of none that may not start.
#[test]
fn what_kind_of_file_is_refused_is_not_told() {
    everyone(|sandbox| {
        for (name, content) in
            [("bin/text.env", "secret"), ("bin/script.env", "#!/none\n"), ("bin/free", "x")]
        {
            sandbox.script(name, content);
        }
        sandbox.policy("read: ./bin\nexec: /**\ndeny: read **/*.env");
        let ran = start(sandbox, "for name in ('text.env', 'script.env', 'free'): start('bin/' + name)");
        ran.exits(0).prints("EACCES\nEACCES\nENOEXEC\n");
        ran.denied("exec", "bin/text.env").denied("exec", "bin/script.env");
    });
}

#[test]
fn a_rule_against_the_systems_loader_is_one_against_starting_it() {
    everyone(|sandbox| {
        sandbox.directory("bin");
        copy_program("/bin/true", sandbox.path("bin/true"));
        sandbox.policy("read: ./bin\nexec: /**\ndeny: exec /lib64/ld-linux-x86-64.so.2");
        start(sandbox, "start('true'); start('bin/true'); start('/lib64/ld-linux-x86-64.so.2', '--version')")
            .exits(0)
            .prints("0\n0\nEACCES\n");
    });
}

#[test]
fn a_script_is_not_named_by_a_link_that_follows_a_process() {
    everyone(|sandbox| {
        sandbox.script("tools/a.sh", "#!/bin/sh\nexit 5\n");
        sandbox.policy("read: ./tools\nexec: ./tools/a.sh");
        let ran = start(
            sandbox,
            "name = os.path.abspath('tools/a.sh')
start('tools/a.sh'); start('tools/../tools/a.sh'); start(name); start('./a.sh', cwd='tools')
start('/proc/self/cwd/tools/a.sh'); start('/proc/%d/cwd/tools/a.sh' % os.getpid()); start('/proc/self/root' + name)
start('cwd/tools/a.sh', cwd='/proc/%d' % os.getpid())",
        );
        ran.exits(0).prints("5\n5\n5\n5\nEACCES\nEACCES\nEACCES\nEACCES\n");
    });
}

#[test]
fn a_script_is_not_named_through_a_directory_that_the_agent_can_move() {
    everyone(|sandbox| {
        sandbox.script("tools/a.sh", "#!/bin/sh\nexit 5\n");
        sandbox.directory("out");
        sandbox.policy("read: ./tools\nwrite: ./out\nexec: ./tools/a.sh");
        let ran = start(
            sandbox,
            "os.makedirs('out/sub'); os.makedirs('/tmp/sub/sub')
start('../tools/a.sh', cwd='out'); start('../../tools/a.sh', cwd='out/sub'); start('out/sub/../../tools/a.sh')
start(os.path.relpath('tools/a.sh', '/tmp/sub/sub'), cwd='/tmp/sub/sub'); start('../tools/a.sh', cwd='tools')",
        );
        ran.exits(0).prints("5\nEACCES\nEACCES\nEACCES\n5\n");
    });
}

/// The digests of a program file, in the order of their entries.
fn digests(ran: &Ran, path: &str) -> Vec<String> {
    let images = ran.of("proc.image");
    let of = images.iter().filter(|entry| entry["args"]["path"] == path);
    of.map(|entry| entry["args"]["sha256"].as_str().unwrap_or("none").to_owned()).collect()
}

#[test]
fn each_content_of_a_program_is_recorded_as_it_runs() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nwrite: ./w\nexec: /**");
        sandbox.directory("w");
        let script = "set -e
for tool in /tmp/tool w/tool; do
    cp /usr/bin/true $tool; $tool; $tool
    cat /usr/bin/uname > $tool; $tool -s
    # Overwritten as soon as it has ended.
    cat /usr/bin/env > $tool; $tool true; cat /usr/bin/false > $tool
done";
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(0).prints("Linux\nLinux\n");
        let run = ["/usr/bin/true", "/usr/bin/uname", "/usr/bin/env"]
            .map(|path| sha256(std::fs::read(path).expect("reads")));
        let work = sandbox.path("w/tool").display().to_string();
        for tool in ["/tmp/tool", &work] {
            assert_eq!(digests(&ran, tool), run, "{tool}: {ran}");
        }
    });
}

/// Stores into shared memory change no time in /tmp.
#[test]
fn a_program_that_changes_without_a_trace_in_its_times_is_recorded_again() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: /**");
        let ran = sandbox.python(
            "import mmap, os, shutil, subprocess, time
shutil.copy('/usr/bin/true', '/tmp/tool')
os.utime('/tmp/tool', (1, 1))
while time.time() - os.stat('/tmp/tool').st_ctime < 4: time.sleep(0.2)
subprocess.run(['/tmp/tool'], check=True)
with open('/tmp/tool', 'r+b') as file:
    memory = mmap.mmap(file.fileno(), 0); memory[-1:] = b'!'; memory.close()
subprocess.run(['/tmp/tool'], check=True)",
        );
        ran.exits(0);
        let mut content = std::fs::read("/usr/bin/true").expect("reads");
        let first = sha256(&content);
        *content.last_mut().expect("has bytes") = b'!';
        assert_eq!(digests(&ran, "/tmp/tool"), [first, sha256(&content)], "{ran}");
    });
}
