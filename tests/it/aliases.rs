//! Other ways to files that are closed: by a descriptor whose name is gone, by another mount, by a link on the way.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{Ran, Running, Sandbox, User, everyone, has, skip, until};

/// Does each act and prints what came of it.
const ACT: &str = "import errno, os
def act(function, *words):
    try: print(function(*words) or 'done', end=' ')
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
";

#[test]
fn a_closed_file_stays_closed_when_its_name_goes_and_another_stays() {
    everyone(|sandbox| {
        for name in ["w/db.env", "w/tool.env"] {
            let file = sandbox.script(name, "#!/bin/sh\necho secret\n");
            fs::hard_link(&file, sandbox.path(name.replace("w/", "kept-"))).expect("another name");
        }
        sandbox.file("w/so.env (deleted)", "its name");
        sandbox.policy("write: ./w\ndeny: read **/db.env, **/*.never\ndeny: exec ./w/tool.env\nexec: /**");
        let program = format!(
            "{ACT}
import subprocess, time
closed, tool, called = [os.open(name, os.O_PATH) for name in ('w/db.env', 'w/tool.env', 'w/so.env (deleted)')]
open('w/ready', 'w').close()
while not os.readlink('/proc/self/fd/%d' % tool).endswith(' (deleted)'): time.sleep(0.02)
def read(file): return open('/proc/self/fd/%d' % file).read()
act(read, closed); act(read, called)
act(lambda: subprocess.run(['x'], executable='/proc/self/fd/%d' % tool, pass_fds=[tool]))"
        );
        let running = Running::start(sandbox.run_command(&[], &["python3", "-c", &program]));
        until("it holds them", || sandbox.path("w/ready").exists());
        for name in ["w/db.env", "w/tool.env"] {
            let new = sandbox.file("new", "new");
            fs::rename(new, sandbox.path(name)).expect("replaced");
        }
        let mut ran = running.finish();
        ran.read_trace(&sandbox.trace());
        ran.exits(0).prints("EACCES its name EACCES ");
    });
}

/// Runs a command with a directory mounted at another place, too.
fn with_bind(command: &Command, binds: &[[&str; 2]]) -> Ran {
    let mount = |[from, to]: &[&str; 2]| format!("mount --bind '../{from}' '../{to}'");
    with_mounts(command, &binds.iter().map(mount).collect::<Vec<_>>().join(" && "))
}

/// Runs a command where these words of a shell have mounted something.
fn with_mounts(command: &Command, script: &str) -> Ran {
    let script = format!("{script} || exit 9; exec \"$@\"");
    let mut outer = Command::new("unshare");
    outer.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]);
    outer.arg(command.get_program()).args(command.get_args()).env_clear();
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.current_dir(command.get_current_dir().expect("a place"));
    outer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(outer).finish()
}

#[test]
fn what_is_the_launchers_is_closed_under_other_mounts_too() {
    if !nix::unistd::geteuid().is_root() || !has("unshare") {
        return skip("mounts", "they take root and unshare");
    }
    let sandbox = Sandbox::new(User::Caller);
    for name in ["runs", "../alias", "../st ate"] {
        sandbox.directory(name);
    }
    sandbox.file("conf/agentbox.policy", "write: ../alias\nread: ../st ate\nexec: /**\n");
    let program = format!(
        "{ACT}
alias = '../alias/'
def read(name): return open(name).read()
def add(name): return open(name, 'a').write('x')
act(read, alias + 'conf/agentbox.policy'); act(add, alias + 'conf/agentbox.policy')
act(os.rename, alias + 'conf', alias + 'old'); act(os.rename, alias + 'runs', alias + 'old')
act(add, alias + 'runs/t.jsonl'); act(os.mkdir, alias + 'runs/t.jsonl.blobs'); act(add, alias + 'runs/t.jsonl.7')
act(read, alias + 'runs/t.jsonl.1'); act(os.unlink, alias + 'runs/t.jsonl.1')
act(os.listdir, '../st ate/agentbox'); act(os.listdir, '../st ate/agentbox/pending')
act(os.rename, '../st ate/agentbox', '../alias/taken')
act(add, alias + 'other'); print()"
    );
    sandbox.agentbox(&["run", "-p", "conf/agentbox.policy", "-t", "runs/t.jsonl", "--", "true"]).exits(0);
    let run = |options: &[&str], command: &[&str]| {
        let words = [&["run", "-p", "conf/agentbox.policy", "-t", "runs/t.jsonl"], options, &["--"], command]
            .concat();
        with_bind(&sandbox.command(&words), &[["work", "alias"], ["state", "st ate"]])
    };
    for options in [&[][..], &["--observe"]] {
        let closed = "EACCES ".repeat(12);
        run(options, &["python3", "-c", &program]).exits(0).prints(&format!("{closed}1 \n"));
    }
    run(&[], &["ls", "../alias/runs"]).exits(0).prints("");
}

/// Of two mounts around a file, the one with the shorter name is the later one, and hides the other.
#[test]
fn what_is_the_launchers_is_closed_where_a_hidden_mount_is_around_it() {
    if !nix::unistd::geteuid().is_root() || !has("unshare") {
        return skip("mounts", "they take root and unshare");
    }
    let sandbox = Sandbox::new(User::Caller);
    for name in ["../over", "../alias"] {
        sandbox.directory(name);
    }
    let alias = sandbox.beside("alias").display().to_string();
    sandbox.policy(&format!("write: {alias}"));
    let mounts = "cd .. && mount -t tmpfs A over && mkdir over/b && mount -t tmpfs B over/b && mount -t tmpfs C over \
                  && mkdir -p over/b/sub && mount --bind over/b alias && cp agentbox.policy over/b/sub && cd over/b/sub";
    let program = format!(
        "{ACT}
def read(name): return open(name).read()
sub = '{alias}/sub'
act(read, sub + '/agentbox.policy'); act(open, sub + '/trace.jsonl', 'a'); act(os.rename, sub, sub + '.old')
print(os.listdir(sub))"
    );
    let command = sandbox.command(&["run", "--no-replay", "-q", "--", "python3", "-c", &program]);
    with_mounts(&command, mounts).exits(0).prints("EACCES EACCES EACCES ['agentbox.policy']\n");
}

#[test]
fn a_link_on_the_way_to_the_trace_stays_as_it_is() {
    everyone(|sandbox| {
        sandbox.directory("../traces");
        sandbox.directory("chosen");
        sandbox.link("../traces", "runs");
        sandbox.policy("write: .");
        let policy = sandbox.beside("agentbox.policy").display().to_string();
        let program = format!(
            "{ACT}act(os.rename, 'runs', 'x'); act(os.unlink, 'runs'); os.symlink('chosen', 'y')
act(os.rename, 'y', 'runs'); print()"
        );
        let words = ["run", "-p", &policy, "-t", "runs/t.jsonl", "--", "python3", "-c", &program];
        sandbox.agentbox(&words).exits(0).prints("EACCES EACCES EACCES \n");
        let trace = ["replay", "-t", "runs/t.jsonl"];
        sandbox.agentbox(&trace).exits(0).prints("EACCES EACCES EACCES \n");
    });
}

/// Where a rule names a place that is absent, the agent leads the way to it elsewhere before the host makes it.
#[test]
fn a_link_on_the_way_to_a_place_that_appears_leads_nowhere_else() {
    everyone(|sandbox| {
        let name = format!("/tmp/agentbox-way-{}-{:?}", std::process::id(), sandbox.user);
        sandbox.directory("w/t/x");
        sandbox.policy(&format!(
            "write: ./w, {name}/x\ndeny: read {name}/x/secret\ndeny: write {name}/x/kept\nexec: sleep"
        ));
        let program = format!(
            "{ACT}
import socket, time
name, t = '{name}', os.path.realpath('w/t')
act(os.symlink, t, name); act(os.mkfifo, name); act(socket.socket(socket.AF_UNIX).bind, name)
os.symlink(t, '/tmp/link'); act(os.link, '/tmp/link', name); act(os.rename, '/tmp/link', name)
open('w/ready', 'w').close()
while not os.path.exists('w/go'): time.sleep(0.02)
def read(name): return open(name).read()
def write(name): return open(name, 'w').write('changed')
act(read, name + '/x/secret'); act(write, name + '/x/kept')
act(read, 'w/t/x/secret'); act(write, 'w/t/x/kept'); act(os.listdir, 'w/t/x'); print()"
        );
        let running = Running::start(sandbox.run_command(&[], &["python3", "-c", &program]));
        until("it has made what it can", || sandbox.path("w/ready").exists());
        fs::create_dir_all(format!("{name}/x")).expect("the place");
        for file in ["secret", "kept"] {
            fs::write(format!("{name}/x/{file}"), file).expect("a file");
        }
        sandbox.file("w/go", "");
        let mut ran = running.finish();
        ran.read_trace(&sandbox.trace());
        let kept = fs::read_to_string(format!("{name}/x/kept")).expect("the file");
        fs::remove_dir_all(&name).expect("removed");
        ran.exits(0).prints("EPERM EPERM EPERM done EBUSY ENOENT 7 ENOENT 7 ['kept'] \n");
        assert_eq!(kept, "kept", "{ran}");
    });
}
