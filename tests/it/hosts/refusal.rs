//! A host that refuses one system call: nothing is run, and one line says which call, its errno and
//! what would allow it.

use nix::libc;

use super::{MARK, behind, finish, prepare, ran_nothing, refusing, wrapped};
use crate::support::{User, everyone, has, skip};

/// The call `number` gives `errno`.
fn call(number: libc::c_long, errno: i32) -> String {
    format!("{number}={errno}")
}

/// The same where argument `at` is `value`.
fn only(number: libc::c_long, at: u32, value: u64, errno: i32) -> String {
    format!("{number}:{at}:{value}={errno}")
}

const RECEIVE: u64 = 0xc050_2100;
const ANSWER: u64 = 0xc018_2101;
const NEW_USER: u64 = libc::CLONE_NEWUSER as u64;
const NEW_NET: u64 = libc::CLONE_NEWNET as u64;
const FILTER_FLAGS: u64 =
    libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;

/// What is refused, and what must be said.
type Refused = (Vec<String>, &'static [&'static str]);

fn namespaces() -> Vec<Refused> {
    let no_clone3 = call(libc::SYS_clone3, libc::ENOSYS);
    vec![
        (
            vec![call(libc::SYS_clone3, libc::EPERM)],
            &["clone3(CLONE_NEWUSER", "EPERM", "unprivileged_userns"],
        ),
        (
            vec![call(libc::SYS_clone3, libc::ENOSPC)],
            &["clone3(CLONE_NEWUSER", "ENOSPC", "max_user_namespaces"],
        ),
        (vec![call(libc::SYS_clone3, libc::EAGAIN)], &["clone3(CLONE_NEWUSER", "EAGAIN", "ulimit -u"]),
        (
            vec![no_clone3, format!("{}:0&{NEW_USER}={}", libc::SYS_clone, libc::EPERM)],
            &["clone(CLONE_NEWUSER", "EPERM", "seccomp profile"],
        ),
        (
            vec![format!("{}:0&{NEW_NET}={}", libc::SYS_unshare, libc::EPERM)],
            &["unshare(CLONE_NEWNS|CLONE_NEWNET", "EPERM", "apparmor"],
        ),
        (
            vec![format!("{}:0&{NEW_NET}={}", libc::SYS_unshare, libc::ENOSPC)],
            &["unshare(CLONE_NEWNS|CLONE_NEWNET", "ENOSPC", "max_net_namespaces"],
        ),
        (vec![call(libc::SYS_pidfd_open, libc::ENOSYS)], &["pidfd_open", "ENOSYS", "Linux 5.19"]),
        (vec![call(libc::SYS_signalfd4, libc::ENOSYS)], &["signalfd", "ENOSYS"]),
        (vec![call(libc::SYS_socketpair, libc::EMFILE)], &["socketpair", "EMFILE", "ulimit -n"]),
        (vec![call(libc::SYS_pipe2, libc::EMFILE)], &["pipe2", "EMFILE", "ulimit -n"]),
        (
            vec![call(libc::SYS_sethostname, libc::EPERM)],
            &["sethostname", "EPERM", "seccomp profile", "apparmor"],
        ),
    ]
}

fn network() -> Vec<Refused> {
    let netlink = u64::try_from(libc::AF_NETLINK).expect("a number");
    vec![
        (vec![only(libc::SYS_socket, 0, netlink, libc::EPERM)], &["socket(AF_NETLINK)", "EPERM", "apparmor"]),
        (vec![only(libc::SYS_socket, 2, 0, libc::EPERM)], &["socket", "EPERM"]),
        (vec![call(libc::SYS_sendto, libc::EPERM)], &["RTM_NEWLINK", "EPERM", "apparmor"]),
        (vec![call(libc::SYS_bind, libc::EACCES)], &["bind", "EACCES"]),
        (vec![call(libc::SYS_listen, libc::EPERM)], &["listen", "EPERM"]),
    ]
}

fn view() -> Vec<Refused> {
    let enosys = |number| vec![call(number, libc::ENOSYS)];
    let eperm = |number| vec![call(number, libc::EPERM)];
    vec![
        (enosys(libc::SYS_open_tree), &["open_tree(", "ENOSYS", "Linux 5.19"]),
        (enosys(libc::SYS_move_mount), &["move_mount(", "ENOSYS", "Linux 5.19"]),
        (enosys(libc::SYS_mount_setattr), &["mount_setattr(", "ENOSYS", "Linux 5.19"]),
        (enosys(libc::SYS_fsopen), &["fsopen(tmpfs)", "ENOSYS", "Linux 5.19"]),
        (eperm(libc::SYS_fsconfig), &["fsconfig(tmpfs)", "EPERM", "/proc unmasked"]),
        (eperm(libc::SYS_fsmount), &["fsmount(tmpfs)", "EPERM", "allow mount"]),
        (enosys(libc::SYS_openat2), &["openat2(/)", "ENOSYS", "seccomp profile"]),
        (eperm(libc::SYS_pivot_root), &["pivot_root(/)", "EPERM", "allow mount"]),
        (eperm(libc::SYS_umount2), &["umount2(/)", "EPERM", "allow mount"]),
        (vec![call(libc::SYS_open_tree, libc::ENOSPC)], &["open_tree(", "ENOSPC", "fs.mount-max"]),
    ]
}

fn confinement() -> Vec<Refused> {
    let eperm = |number| vec![call(number, libc::EPERM)];
    let prctl = |option: i32| vec![only(libc::SYS_prctl, 0, u64::from(option.cast_unsigned()), libc::EPERM)];
    // That it is set: what it is may be asked for.
    let limit = |limit: u32| vec![format!("{}:1:{limit},2={}", libc::SYS_prlimit64, libc::EPERM)];
    vec![
        (prctl(libc::PR_SET_PDEATHSIG), &["prctl(PR_SET_PDEATHSIG)", "EPERM"]),
        (prctl(libc::PR_SET_DUMPABLE), &["prctl(PR_SET_DUMPABLE)", "EPERM"]),
        (prctl(libc::PR_CAPBSET_DROP), &["prctl(PR_CAPBSET_DROP)", "EPERM"]),
        (vec![call(libc::SYS_personality, libc::ENOSYS)], &["ADDR_NO_RANDOMIZE", "ENOSYS", "--no-replay"]),
        (vec![call(libc::SYS_close_range, libc::ENOSYS)], &["close_range", "ENOSYS", "Linux 5.19"]),
        (limit(libc::RLIMIT_CORE), &["setrlimit(RLIMIT_CORE)", "EPERM"]),
        (limit(libc::RLIMIT_NOFILE), &["setrlimit(RLIMIT_NOFILE)", "EPERM"]),
        (eperm(libc::SYS_landlock_add_rule), &["landlock_add_rule", "EPERM"]),
        (eperm(libc::SYS_landlock_restrict_self), &["landlock_restrict_self", "EPERM"]),
        (vec![call(libc::SYS_seccomp, libc::ENOSYS)], &["seccomp(", "ENOSYS", "Linux 5.19"]),
        (vec![call(libc::SYS_seccomp, libc::EBUSY)], &["seccomp(", "EBUSY", "outer filter"]),
        (
            vec![only(libc::SYS_seccomp, 1, FILTER_FLAGS, libc::EINVAL)],
            &["WAIT_KILLABLE_RECV", "EINVAL", "Linux 5.19"],
        ),
    ]
}

fn supervision() -> Vec<Refused> {
    let eperm = |number| vec![call(number, libc::EPERM)];
    vec![
        (
            vec![only(libc::SYS_unshare, 0, libc::CLONE_FS as u64, libc::EPERM)],
            &["unshare(CLONE_FS)", "EPERM"],
        ),
        (vec![call(libc::SYS_epoll_create1, libc::EMFILE)], &["epoll_create1", "EMFILE", "ulimit -n"]),
        (vec![call(libc::SYS_eventfd2, libc::EMFILE)], &["eventfd2", "EMFILE", "ulimit -n"]),
        (
            vec![call(libc::SYS_inotify_init1, libc::EMFILE)],
            &["inotify_init1", "EMFILE", "max_user_instances"],
        ),
        (eperm(libc::SYS_ptrace), &["not started", "ptrace(PTRACE_SEIZE)", "EPERM", "ptrace_scope"]),
        (eperm(libc::SYS_process_vm_readv), &["process_vm_readv", "EPERM", "ptrace_scope"]),
        (vec![call(libc::SYS_process_vm_readv, libc::ENOSYS)], &["process_vm_readv", "ENOSYS"]),
        (eperm(libc::SYS_pidfd_getfd), &["pidfd_getfd", "EPERM", "seccomp profile"]),
        (vec![call(libc::SYS_pidfd_getfd, libc::ENOSYS)], &["pidfd_getfd", "ENOSYS", "Linux 5.19"]),
        (vec![call(libc::SYS_flock, libc::ENOLCK)], &["cannot lock", "flock", "ENOLCK"]),
        (vec![call(libc::SYS_fallocate, libc::ENOSPC)], &["fallocate", "ENOSPC", "free some space"]),
        (vec![call(libc::SYS_fallocate, libc::EIO)], &["fallocate", "EIO"]),
        (vec![call(libc::SYS_fallocate, libc::EDQUOT)], &["fallocate", "EDQUOT", "quota"]),
    ]
}

fn each(refused: &[Refused]) {
    everyone(|sandbox| {
        for (rules, said) in refused {
            prepare(sandbox);
            let ran = finish(sandbox, behind(sandbox, &refusing(sandbox, rules)));
            ran_nothing(sandbox, &ran, said);
        }
    });
}

#[test]
fn namespaces_that_are_refused_stop_the_launch() {
    each(&namespaces());
}

#[test]
fn a_network_that_is_refused_stops_the_launch() {
    each(&network());
}

#[test]
fn a_view_that_is_refused_stops_the_launch() {
    each(&view());
}

#[test]
fn confinement_that_is_refused_stops_the_launch() {
    each(&confinement());
}

#[test]
fn supervision_that_is_refused_stops_the_launch() {
    each(&supervision());
}

/// As before Linux 6.6.
#[test]
fn a_replay_without_overlays_is_none() {
    everyone(|sandbox| {
        prepare(sandbox);
        sandbox.run(&MARK).exits(0);
        std::fs::remove_file(sandbox.path("out/ran")).expect("the mark");
        let rules = [call(libc::SYS_setxattr, libc::EOPNOTSUPP)];
        let (policy, trace) = (sandbox.beside("agentbox.policy"), sandbox.trace());
        let words = ["replay".as_ref(), "-p".as_ref(), policy.as_os_str(), "-t".as_ref(), trace.as_os_str()];
        let command = wrapped(sandbox, &refusing(sandbox, &rules), &sandbox.command(&words));
        let ran = crate::support::Running::start(command).finish();
        ran.exits(125).prints("").complains("EOPNOTSUPP").complains("Linux 6.6");
        assert!(!sandbox.path("out/ran").exists(), "it ran\n{ran}");
    });
}

#[test]
fn capabilities_that_cannot_be_dropped_stop_the_launch() {
    everyone(|sandbox| {
        if sandbox.user == User::Caller {
            prepare(sandbox);
            let rules = [call(libc::SYS_capset, libc::EPERM)];
            let ran = finish(sandbox, behind(sandbox, &refusing(sandbox, &rules)));
            ran_nothing(sandbox, &ran, &["dropping privileges", "capset", "EPERM"]);
        }
    });
}

/// As in a container that drops all capabilities and runs as root.
#[test]
fn root_without_capabilities_is_told_which_one_it_needs() {
    if !nix::unistd::geteuid().is_root() || !has("setpriv") {
        return skip("as root without capabilities", "the test is not root's, or there is no setpriv");
    }
    let sandbox = crate::support::Sandbox::new(User::Caller);
    prepare(&sandbox);
    let ran = finish(&sandbox, behind(&sandbox, &["setpriv", "--inh-caps=-all", "--bounding-set=-all"]));
    ran_nothing(&sandbox, &ran, &["uid_map", "EPERM", "CAP_SETFCAP", "another user"]);
}

#[test]
fn notifications_that_cannot_be_taken_or_answered_stop_the_run_before_its_first_instruction() {
    everyone(|sandbox| {
        for (request, name) in [(RECEIVE, "NOTIF_RECV"), (ANSWER, "NOTIF_SEND")] {
            prepare(sandbox);
            let rules = [only(libc::SYS_ioctl, 1, request, libc::EPERM)];
            let command = behind(sandbox, &refusing(sandbox, &rules));
            let ran = crate::support::Running::start(command).finish();
            ran.exits(125).prints("").complains(name).complains("EPERM");
            assert!(!sandbox.path("out/ran").exists(), "it ran\n{ran}");
            super::no_rest(sandbox);
        }
    });
}

#[test]
fn a_refusal_in_the_middle_of_a_run_stops_it() {
    // SECCOMP_IOCTL_NOTIF_ADDFD: without it no open can be answered.
    let inject = only(libc::SYS_ioctl, 1, 0x4018_2103, libc::EINVAL);
    let watch = call(libc::SYS_inotify_add_watch, libc::ENOSPC);
    everyone(|sandbox| {
        for (rule, parts) in
            [(&inject, ["NOTIF_ADDFD", "EINVAL"]), (&watch, ["inotify_add_watch", "max_user_watches"])]
        {
            prepare(sandbox);
            let words = ["/bin/sh", "-c", "echo RAN; echo x >out/a; echo AFTER; echo y >out/b"];
            let command = sandbox.run_command(&[], &words);
            let command = wrapped(sandbox, &refusing(sandbox, std::slice::from_ref(rule)), &command);
            let ran = crate::support::Running::start(command).finish();
            ran.exits(125).prints("RAN\n").complains(parts[0]).complains(parts[1]);
            assert!(!sandbox.path("out/b").exists(), "it went on\n{ran}");
            super::no_rest(sandbox);
        }
    });
}

#[test]
fn a_limit_of_namespaces_stops_the_launch() {
    everyone(|sandbox| {
        prepare(sandbox);
        let shut = "echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"";
        let prefix = ["unshare", "-U", "-r", "sh", "-c", shut, "sh"];
        let ran = finish(sandbox, behind(sandbox, &prefix));
        ran_nothing(sandbox, &ran, &["CLONE_NEWUSER", "ENOSPC", "user.max_user_namespaces"]);
    });
}

#[test]
fn a_masked_proc_stops_the_launch() {
    everyone(|sandbox| {
        prepare(sandbox);
        let mask = "mount --bind /dev/null /proc/cpuinfo; exec \"$@\"";
        let prefix = ["unshare", "-U", "-r", "-m", "-p", "-f", "--mount-proc", "sh", "-c", mask, "sh"];
        let ran = finish(sandbox, behind(sandbox, &prefix));
        ran_nothing(sandbox, &ran, &["fsmount(proc)", "EPERM", "leave /proc unmasked"]);
    });
}

#[test]
fn the_proc_of_another_pid_namespace_stops_the_launch() {
    everyone(|sandbox| {
        prepare(sandbox);
        let prefix = ["unshare", "-U", "-r", "-p", "-f"];
        let ran = finish(sandbox, behind(sandbox, &prefix));
        ran_nothing(sandbox, &ran, &["/proc/self", "another pid namespace", "--mount-proc"]);
        prepare(sandbox);
        let hide = "mount -t tmpfs none /proc; exec \"$@\"";
        let ran = finish(sandbox, behind(sandbox, &["unshare", "-U", "-r", "-m", "sh", "-c", hide, "sh"]));
        ran_nothing(sandbox, &ran, &["/proc", "ENOENT", "mount -t proc"]);
    });
}

#[test]
fn a_tracer_around_the_launcher_stops_the_launch() {
    if !has("strace") {
        return skip("strace", "it is not installed");
    }
    everyone(|sandbox| {
        prepare(sandbox);
        let ran = finish(sandbox, behind(sandbox, &["strace", "-f", "-o", "/dev/null"]));
        ran_nothing(sandbox, &ran, &["not started", "PTRACE_SEIZE", "EPERM", "strace"]);
    });
}

#[test]
fn a_command_that_is_refused_by_us_says_why() {
    everyone(|sandbox| {
        prepare(sandbox);
        let loader = "/lib64/ld-linux-x86-64.so.2";
        if !std::path::Path::new(loader).exists() {
            return skip(loader, "it is not there");
        }
        let ran = sandbox.run(&[loader, "/bin/sh", "-c", MARK[2]]);
        ran.exits(126).prints("").complains("EACCES").complains("the dynamic loader runs any file");
        assert!(!sandbox.path("out/ran").exists(), "it ran\n{ran}");
    });
}

#[test]
fn a_launcher_in_its_own_sandbox_runs_nothing() {
    everyone(|sandbox| {
        prepare(sandbox);
        let launcher = match sandbox.user {
            User::Caller => env!("CARGO_BIN_EXE_agentbox").to_owned(),
            User::Ordinary => sandbox.beside("agentbox").to_string_lossy().into_owned(),
        };
        let own = sandbox.path("agentbox");
        std::fs::copy(launcher, &own).expect("a copy");
        sandbox.policy("read: .\nwrite: ./out\nexec: ./agentbox");
        sandbox.file("inner.policy", "write: ./out");
        let words = ["./agentbox", "run", "-p", "inner.policy", "-t", "out/t.jsonl", "--", "/bin/sh", "-c"];
        let ran = sandbox.run(&[&words[..], &["echo RAN"]].concat());
        ran.exits(125).prints("").complains("CLONE_NEWUSER").complains("EPERM");
    });
}
