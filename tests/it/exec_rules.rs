//! Programs: what an exec rule allows is the file and the arguments that the kernel takes.

use crate::support::{Ran, Sandbox, everyone, has, skip};

/// Starts programs and prints what came of them.
const START: &str = "import errno, os, subprocess, sys
def start(*words, **options):
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **options)
        print(done.returncode, done.stdout.decode().strip())
    except OSError as error: print(errno.errorcode[error.errno])
";

fn python(sandbox: &Sandbox, program: &str) -> Ran {
    sandbox.python(&format!("{START}{program}"))
}

#[test]
fn only_named_programs_start_and_each_start_is_recorded() {
    everyone(|sandbox| {
        sandbox.policy("exec: echo");
        let ran = python(
            sandbox,
            "start('echo', 'a'); start('/bin/echo', 'b'); start('id'); start('none'); start('/no/where')",
        );
        ran.exits(0).prints("0 a\n0 b\nEACCES\nENOENT\nENOENT\n").denied("exec", "id");
        let spawned = ran.of("proc.spawn");
        assert_eq!(spawned.len(), 3, "{ran}");
        assert_eq!(spawned[1]["args"]["argv"], serde_json::json!(["echo", "a"]), "{ran}");
        assert!(spawned[1]["args"]["exe"].as_str().is_some_and(|exe| exe.ends_with("/echo")), "{ran}");
        assert!(spawned[1]["rule"].as_str().is_some_and(|rule| rule.ends_with(":1")), "{ran}");
    });
}

#[test]
fn arguments_must_begin_as_the_rule_says() {
    everyone(|sandbox| {
        sandbox.policy("exec: echo one 'two three'\nexec: printf");
        let ran = python(
            sandbox,
            "start('echo', 'one', 'two three', 'four'); start('echo', 'one', 'two three'); start('echo', 'one')
start('echo', 'one', 'two', 'three'); start('echo'); start('printf', 'x')
start('sh', 'one', 'two three', executable='/bin/echo')",
        );
        ran.exits(0).prints("0 one two three four\n0 one two three\nEACCES\nEACCES\nEACCES\n0 x\nEACCES\n");
    });
}

#[test]
fn another_name_in_argv_changes_nothing() {
    everyone(|sandbox| {
        sandbox.policy("exec: echo");
        let ran = python(
            sandbox,
            "start('echo', '-c', 'echo leak', executable='/bin/sh')
for function in (os.posix_spawn,):
    try: print(os.waitpid(function('/bin/sh', ['echo', '-c', 'echo leak'], {}), 0)[1])
    except OSError as error: print(errno.errorcode[error.errno])
child = os.fork()
if child == 0:
    try: os.execv('/bin/sh', ['echo', '-c', 'echo leak'])
    except OSError as error: os._exit(error.errno)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(os.system('echo hi'))",
        );
        ran.exits(0);
        assert!(!ran.stdout.contains("leak") && !ran.stdout.contains("hi"), "{ran}");
        assert!(ran.stdout.starts_with("EACCES\nEACCES\n13\n"), "{ran}");
        for entry in ran.denials("exec") {
            let exe = entry["args"]["exe"].as_str().unwrap_or_default();
            assert!(exe.ends_with("sh"), "{ran}");
            // The rule that is named is one for the program that was refused.
            assert_ne!(entry["args"]["remedy"], "exec: echo", "{ran}");
        }
        let trace = sandbox.trace();
        let shown = sandbox.agentbox(&["show", "--denied", trace.to_str().expect("a name")]);
        assert!(shown.stdout.contains("sh as echo -c 'echo leak'"), "{shown}");
        let ran = python(sandbox, "start('nosuchprogram', executable='/usr/bin/echo')");
        ran.exits(0).prints("EACCES\n");
        assert!(ran.denials("exec").iter().all(|entry| entry["args"].get("remedy").is_none()), "{ran}");
        assert!(!ran.stderr.contains("exec: nosuchprogram"), "{ran}");
        sandbox.policy("exec: sh");
        let ran = python(sandbox, "start('true', '-c', 'echo leak', executable='/bin/sh')");
        ran.exits(0).prints("EACCES\n");
        assert!(
            ran.denials("exec")[0]["rule"].as_str().is_some_and(|rule| rule.contains("under a name")),
            "{ran}"
        );
    });
}

#[test]
fn a_child_has_the_same_rules_for_files() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        sandbox.file("in.txt", "in");
        sandbox.policy("read: ./in.txt\nexec: cat\nexec: sh\nexec: env\nexec: timeout");
        let ran = python(
            sandbox,
            "start('cat', 'in.txt'); start('cat', 'secret.txt'); start('sh', '-c', 'cat secret.txt; echo x >made')
start('env', '-i', '/bin/cat', 'secret.txt'); start('timeout', '5', 'cat', 'secret.txt'); start('env', 'id')
start(sys.executable, '-S', '-E', '-c', 'print(open(\"secret.txt\").read())', env={})",
        );
        ran.exits(0);
        assert!(ran.stdout.starts_with("0 in\n1"), "{ran}");
        assert!(!ran.stdout.contains("hidden"), "{ran}");
        assert!(!sandbox.path("made").exists());
        ran.denied("read", "secret.txt").denied("exec", "id").denied("write", "made");
    });
}

#[test]
fn copies_links_and_memory_files_of_a_program_are_no_named_program() {
    everyone(|sandbox| {
        sandbox.directory("out");
        crate::support::copy_program("/bin/echo", sandbox.path("out/id"));
        sandbox.policy("exec: echo\nwrite: ./out\nread: /bin/id");
        let ran = python(
            sandbox,
            "import shutil
shutil.copy('/bin/echo', 'out/echo'); os.chmod('out/echo', 0o755)
start('out/echo', 'x'); start('echo', 'x', executable='out/echo'); start('out/id', 'x')
start('echo', 'x', env={'PATH': os.path.abspath('out')})
os.symlink('/usr/bin/id', 'out/ident'); start('out/ident')
os.symlink('/bin/echo', 'out/e'); start('out/e', 'x')
memory = os.memfd_create('m', 0); os.write(memory, open('/bin/echo', 'rb').read())
start('echo', 'x', executable='/proc/self/fd/%d' % memory, pass_fds=[memory])
child = os.fork()
if child == 0:
    try: os.execve(memory, ['echo', 'x'], {})
    except OSError as error: os._exit(error.errno)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
        );
        ran.exits(0);
        let lines: Vec<_> = ran.stdout.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let fine = line.starts_with('E') || *line == "13" || at == 3 && *line == "0 x";
            assert!(fine, "line {at}: {line}\n{ran}");
        }
        assert_eq!(lines.len(), 8, "{ran}");
    });
}

#[test]
fn the_loader_is_no_way_around() {
    everyone(|sandbox| {
        sandbox.policy("exec: echo\nexec: /lib64/ld-linux-x86-64.so.2");
        let loader = "/lib64/ld-linux-x86-64.so.2";
        if !std::path::Path::new(loader).exists() {
            return skip("the loader", "it has another name here");
        }
        let ran = python(
            sandbox,
            &format!("start('{loader}', '/usr/bin/id'); start('{loader}', '/bin/echo', 'x')"),
        );
        ran.exits(0);
        assert!(!ran.stdout.contains("uid="), "{ran}");
        sandbox.policy("exec: echo");
        let ran = python(
            sandbox,
            &format!("start('{loader}', '/usr/bin/id'); start('{loader}', '/bin/echo', 'x')"),
        );
        ran.exits(0).prints("EACCES\nEACCES\n");
        let ran = sandbox.run(&[loader, "/usr/bin/id"]);
        assert!(!ran.stdout.contains("uid="), "{ran}");
        // It only tells its version, which takes a rule like any other program.
        let ask = format!("start('{loader}', '--version'); start('{loader}', '--version', '/usr/bin/id')");
        let ran = python(sandbox, &ask);
        ran.exits(0).prints("EACCES\nEACCES\n");
        sandbox.policy(&format!("exec: {loader}"));
        let ran = python(sandbox, &ask);
        ran.exits(0);
        assert!(ran.stdout.starts_with("0 ld.so ") && ran.stdout.ends_with("\nEACCES\n"), "{ran}");
    });
}

#[test]
fn scripts_count_as_themselves() {
    everyone(|sandbox| {
        sandbox.script("tools/a.sh", "#!/bin/sh\necho a $1\n");
        sandbox.script("tools/b.sh", "#!/usr/bin/env sh\necho b\n");
        sandbox.script("tools/c.sh", "#!/bin/sh -u\necho c\n");
        sandbox.script("tools/d.sh", "#!/bin/sh\nid\n");
        sandbox.policy("exec: ./tools/a.sh\nexec: ./tools/b.sh\nexec: ./tools/d.sh");
        let ran = python(
            sandbox,
            "start('tools/a.sh', '1'); start('./tools/b.sh'); start('tools/c.sh'); start('tools/d.sh'); start('sh', '-c', 'echo x')
start('sh', 'tools/c.sh')",
        );
        ran.exits(0);
        let lines: Vec<_> = ran.stdout.lines().collect();
        assert_eq!(lines[..3], ["0 a 1", "0 b", "EACCES"], "{ran}");
        assert!(lines[3].starts_with("126") || lines[3].starts_with("127"), "{ran}");
        assert_eq!(lines[4..], ["EACCES", "EACCES"], "{ran}");
    });
}

#[test]
fn an_interpreter_without_a_leading_slash_is_the_one_below_the_working_directory() {
    everyone(|sandbox| {
        sandbox.script("tools/run", "#!/bin/sh\necho run $1\n");
        sandbox.script("tools/a", "#!tools/run\n");
        // What is called so at the root is another file.
        sandbox.script("tools/b", "#!bin/true\n");
        sandbox.policy("read: .\nexec: ./tools/");
        let ran = python(
            sandbox,
            "start('tools/a'); start('./tools/a', 'x'); start('tools/b')
import os; os.chdir('tools'); start('./a')",
        );
        ran.exits(0).prints("0 run tools/a\n0 run ./tools/a\nENOENT\nENOENT\n");
    });
}

#[test]
fn the_command_may_be_a_script_and_start_its_interpreter_again() {
    everyone(|sandbox| {
        sandbox.script("agent.py", "#!/usr/bin/env python3\nimport subprocess, sys\nprint('agent', flush=True)\nsubprocess.run([sys.executable, '-c', 'print(1 + 1)'], check=True)\n");
        sandbox.run(&["./agent.py"]).exits(0).prints("agent\n2\n");
        sandbox.run(&["python3", "agent.py"]).exits(0).prints("agent\n2\n");
        sandbox.script("agent.sh", "#!/bin/sh\necho shell $1\n");
        sandbox.run(&["./agent.sh", "x"]).exits(0).prints("shell x\n");
        // As npm leads to programs of packages.
        sandbox.directory("bin");
        std::os::unix::fs::symlink("../agent.py", sandbox.path("bin/agent")).expect("a link");
        sandbox.run(&["python3", "bin/agent"]).exits(0).prints("agent\n2\n");
        sandbox.run(&["./bin/agent"]).exits(0).prints("agent\n2\n");
    });
}

#[test]
fn a_write_root_is_not_executable_unless_a_rule_names_it() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out\nexec: sh");
        let program = "open('out/tool', 'w').write('#!/bin/sh\\necho made\\n'); os.chmod('out/tool', 0o755)
start('out/tool'); start('./out/tool')";
        python(sandbox, program).exits(0).prints("EACCES\nEACCES\n").denied("exec", "out/tool");
        sandbox.policy("write: ./out\nexec: sh\nexec: ./out/tool");
        python(sandbox, program).exits(0).prints("0 made\n0 made\n");
        sandbox.policy("write: ./out\nexec: sh\nexec: ./out/*");
        python(sandbox, program).exits(0).prints("0 made\n0 made\n");
    });
}

#[test]
fn a_program_starts_in_a_place_that_was_not_there_at_the_start() {
    everyone(|sandbox| {
        let program = "os.makedirs('w/c/bin'); open('w/c/bin/tool', 'w').write('#!/bin/sh\\necho made\\n')
os.chmod('w/c/bin/tool', 0o755); start('w/c/bin/tool')
import shutil; shutil.copy('/bin/true', 'w/c/bin/other'); start('w/c/bin/other')";
        for around in ["", "read: ./w\n", "read: .\n"] {
            sandbox.directory("w");
            sandbox.policy(&format!("{around}write: ./w/c\nexec: sh\nexec: ./w/c/bin/tool"));
            let ran = python(sandbox, program);
            ran.exits(0).prints("0 made\nEACCES\n").denied("exec", "w/c/bin/other");
            std::fs::remove_dir_all(sandbox.path("w")).expect("removed");
        }
        // Beside what no program starts from it cannot: the reason is told, and no rule that is there already.
        sandbox.directory("w/data");
        sandbox.policy("read: ./w/data\nwrite: ./w/c\nexec: sh\nexec: ./w/c/bin/tool");
        let ran = python(sandbox, &format!("{program}; sys.exit(3)"));
        ran.exits(3).prints("EACCES\nEACCES\n").complains("before the next run)");
        assert!(!ran.stderr.contains("to allow it: exec: ./w/c/bin/tool"), "{ran}");
    });
}

#[test]
fn a_denied_program_does_not_start_by_any_name() {
    everyone(|sandbox| {
        sandbox.directory("bin");
        sandbox.link("/usr/bin/id", "bin/who");
        sandbox.policy("exec: /usr/bin/*\nexec: /bin/*\ndeny: exec id\nread: ./bin");
        let ran = python(
            sandbox,
            "start('echo', 'x'); start('id'); start('/bin/id'); start('bin/who'); start('sh', '-c', 'exec id'); start('env', 'id')",
        );
        ran.exits(0);
        assert!(ran.stdout.starts_with("0 x\nEACCES\nEACCES\nEACCES\n"), "{ran}");
        assert!(!ran.stdout.contains("uid="), "{ran}");
    });
}

#[test]
fn variables_that_load_code_do_not_pass_with_pinned_arguments() {
    everyone(|sandbox| {
        sandbox.policy("exec: sh -c 'echo fixed'\nexec: env");
        let ran = python(
            sandbox,
            "start('sh', '-c', 'echo fixed'); start('sh', '-c', 'echo fixed', env={'LD_PRELOAD': 'x.so'})
start('sh', '-c', 'echo fixed', env={'ENV': '/tmp/x'}); start('env', env={'LD_PRELOAD': '/tmp/none.so'})",
        );
        ran.exits(0);
        let lines: Vec<_> = ran.stdout.lines().collect();
        assert_eq!(lines[..3], ["0 fixed", "EACCES", "EACCES"], "{ran}");
        assert!(lines[3].starts_with("0 "), "{ran}");
    });
}

#[test]
fn static_programs_and_pipelines_work() {
    everyone(|sandbox| {
        if !has("busybox") {
            return skip("a static program", "there is no busybox");
        }
        sandbox.file("in.txt", "b\na\n");
        sandbox.policy("read: ./in.txt\nexec: busybox\nexec: sort\nexec: tr");
        let ran = sandbox.run(&["sh", "-c", "sort in.txt | busybox cat | tr a-z A-Z; busybox cat in.txt"]);
        ran.exits(0).prints("A\nB\nb\na\n").denied_nothing();
        let many =
            "i=0; while [ $i -lt 60 ]; do echo $i | sort | tr 0-9 a-j >/dev/null || exit 1; i=$((i+1)); done";
        sandbox.run(&["sh", "-c", many]).exits(0).denied_nothing();
    });
}

/// An ELF file names the libraries that it wants, by any path.
#[test]
fn what_a_program_of_the_agents_asks_for_is_not_shown() {
    if !has("gcc") {
        return skip("gcc", "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.directory("tools");
        let secret = sandbox.file("apart/secret", "secret\n");
        sandbox.file("main.c", "int main(void) { return 0; }\n");
        let gcc = |words: &[&str]| {
            let built = std::process::Command::new("gcc").args(words).current_dir(sandbox.path("")).status();
            assert!(built.expect("gcc").success(), "{words:?}");
        };
        let name = format!("-Wl,-soname,{}", secret.display());
        gcc(&["-shared", "-fPIC", "-x", "c", "/dev/null", "-o", "apart/lib.so", &name]);
        gcc(&["main.c", "-o", "out/tool", "-Wl,--no-as-needed", "apart/lib.so"]);
        std::fs::copy(sandbox.path("out/tool"), sandbox.path("tools/tool")).expect("a copy");
        let secret = secret.to_str().expect("a name");
        // The user's own program is believed, one that the agent can have made is not.
        sandbox.policy("exec: ./tools/tool");
        sandbox.run(&["cat", secret]).exits(0).prints("secret\n");
        sandbox.policy("write: ./out\nexec: ./out/tool");
        sandbox.run(&["cat", secret]).exits(1).complains("Permission denied");
        sandbox.policy("write: ./out");
        let ran = sandbox.agentbox(&[
            "policy",
            "show",
            "-p",
            sandbox.beside("agentbox.policy").to_str().expect("a name"),
            "--",
            "out/tool",
        ]);
        assert!(!ran.stdout.contains("apart/secret"), "{ran}");
    });
}

#[test]
fn a_link_that_an_earlier_run_left_on_the_path_is_no_program_of_a_word() {
    everyone(|sandbox| {
        let path = std::env::var("PATH").unwrap_or_default();
        sandbox.environment("PATH", format!("{}:{path}", sandbox.path("bin").display()));
        sandbox.directory("bin");
        sandbox.link("/usr/bin/id", "bin/check");
        sandbox.link("/usr/bin/true", "bin/true");
        let program = "start('check'); start('/usr/bin/id'); start('bin/true'); start('true')";
        sandbox.policy("write: ./bin\nexec: check, true");
        let ran = python(sandbox, program);
        ran.exits(0).prints("EACCES\nEACCES\n0 \n0 \n").denied("exec", "/usr/bin/id");
        ran.complains("`check` does not stand for /usr/bin/id: the link ").complains("bin/check leads there");
        assert_eq!(ran.stderr.matches("does not stand for").count(), 1, "{ran}");
        // A rule may keep the command from what lies in its own directory.
        sandbox.script("kept/tool", "#!/bin/sh\necho kept\n");
        sandbox.link("../kept/tool", "bin/tool");
        sandbox.policy("write: .\ndeny: write ./kept\nexec: tool, sh");
        python(sandbox, "start('tool')").exits(0).prints("EACCES\n").complains("`tool` does not stand for ");
        // Where it cannot have been the command.
        sandbox.policy("read: ./bin\nexec: check");
        let ran = python(sandbox, "start('check'); start('/usr/bin/id', '-u')");
        assert!(ran.stdout.starts_with("0 uid=") && !ran.stderr.contains("stand for"), "{ran}");
    });
}
