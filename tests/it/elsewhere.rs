//! A replay as another user, from another place, under other limits: the run is as it was recorded, or what cannot be
//! is told in one line.

use std::os::unix::fs::chown;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;

use crate::support::{Ran, Running, Sandbox, User, everyone, has, skip};

/// Prints what a command can ask of what it inherited, and of who it is.
const ASK: &str = "id; ulimit -a; ulimit -Ha; umask; nice; nproc; hostname; pwd; echo $HOME $LANG; cat /etc/passwd; \
                   grep -E '^(Sig(Ign|Blk)|Cpus_allowed_list|Uid|Gid)' /proc/self/status; touch new; chown $(id -u) new; \
                   stat -c '%a %U %G %u %y' new .; ls -l; ps -o pid,ni,args -e; grep -c . /proc/1/cmdline";

const POLICY: &str = "write: .\nexec: bash\nexec: sh\nexec: id\nexec: nice\nexec: nproc\nexec: hostname\nexec: cat\n\
                      exec: grep\nexec: touch\nexec: chown\nexec: stat\nexec: ls\nexec: ps\n";

fn prepare(sandbox: &Sandbox) {
    sandbox.policy(POLICY);
    sandbox.file("old", "old\n");
}

/// Runs agentbox from words of another program.
fn through(sandbox: &Sandbox, before: &[&str], words: &[&str]) -> Ran {
    let own = sandbox.command::<&str>(&[]);
    let mut command = Command::new(before[0]);
    command.args(&before[1..]).arg(own.get_program()).args(own.get_args()).args(words);
    command.env_clear().envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(own.get_current_dir().expect("a place"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command).finish()
}

fn replay<'a>(sandbox: &'a Sandbox, trace: &'a std::path::Path) -> [&'a str; 3] {
    let _ = sandbox;
    ["replay", "-t", trace.to_str().expect("text")]
}

#[test]
fn limits_and_the_like_are_those_of_the_recorded_run() {
    if !has("taskset") || !has("prlimit") || !has("ps") {
        return skip("all of it", "there is no taskset, prlimit or ps");
    }
    everyone(|sandbox| {
        prepare(sandbox);
        let ran = sandbox.run(&["bash", "-c", ASK]);
        ran.exits(0);
        let trace = sandbox.trace();
        let words = replay(sandbox, &trace);
        let shells = [
            "umask 077; ulimit -Sn 200; ulimit -Ss 4096; ulimit -Sv 90000000; exec \"$@\"",
            "trap '' INT USR1 HUP; exec \"$@\"",
            "cd /; exec \"$@\"",
        ];
        let shells = shells.map(|shell| vec!["bash", "-c", shell, "-"]);
        let others = [vec!["taskset", "1"], vec!["env", "TERM=vt100", "COLUMNS=33"], vec!["setsid", "-w"]];
        for before in shells.into_iter().chain(others) {
            let again = through(sandbox, &before, &words);
            again.exits(0).prints(&ran.stdout).complains("replay ok");
        }
        for (before, said) in [
            ("ulimit -n 300; exec \"$@\"", "lower limits than recorded (prlimit): nofile 300 instead of"),
            ("exec nice -n 5 \"$@\"", "recorded at niceness 0, here it is 5"),
        ] {
            through(sandbox, &["bash", "-c", before, "-"], &words).exits(1).complains(said);
        }
    });
}

#[test]
fn what_was_recorded_under_limits_is_replayed_under_them() {
    everyone(|sandbox| {
        prepare(sandbox);
        let trace = sandbox.trace();
        let shell =
            "ulimit -n 222; ulimit -s 5000; trap '' INT HUP; umask 027; exec nice -n 7 taskset 2 \"$@\"";
        let policy = sandbox.beside("agentbox.policy");
        let own = ["-p", policy.to_str().expect("text"), "-t", trace.to_str().expect("text")];
        let words = [&["run"], &own[..], &["--", "bash", "-c", ASK]].concat();
        let ran = through(sandbox, &["bash", "-c", shell, "-"], &words);
        ran.exits(0);
        assert!(ran.stdout.contains("0003\nCpus_allowed_list:\t1\n"), "{ran}");
        sandbox.agentbox(&replay(sandbox, &trace)).exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

/// Records as one, packs, and replays as the other what was packed.
fn as_another(recorder: User, player: User) {
    let (ours, theirs) = (Sandbox::new(recorder), Sandbox::new(player));
    ours.policy(POLICY);
    let ran = ours.run_with(&["--capture"], &["bash", "-c", ASK]);
    ran.exits(0);
    let packed = ours.beside("run.pack");
    let words = ["pack", "-t", "../trace.jsonl", "-o", "../run.pack"];
    ours.agentbox(&words).exits(0);
    let other = theirs.beside("run.pack");
    std::fs::copy(&packed, &other).expect("copied");
    let owner = if player == User::Ordinary { 65534 } else { 0 };
    chown(&other, Some(owner), Some(owner)).expect("chown");
    theirs.policy(&POLICY.replace("write: .", &format!("write: {}", ours.path("").display())));
    let again = theirs.agentbox(&["replay", "-p", "../agentbox.policy", "-t", "../run.pack"]);
    again.exits(0).prints(&ran.stdout).complains("replay ok").complains("it sees itself as user");
}

#[test]
fn another_user_replays_the_run_as_who_recorded_it() {
    if !geteuid().is_root() {
        return skip("all of it", "the caller is not root");
    }
    as_another(User::Caller, User::Ordinary);
    as_another(User::Ordinary, User::Caller);
}
