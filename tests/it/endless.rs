//! Replays that would not end by themselves, or not begin: each ends, and says why.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::support::{Ran, Running, Sandbox, everyone, has, skip, until};

const POLICY: &str =
    "read: .\nwrite: .\nexec: sh, bash, python3, sleep, cat, true, mkfifo, chmod, mkdir, mv, rm\n";

fn replayed(sandbox: &Sandbox, options: &[&str]) -> Ran {
    let trace = sandbox.trace();
    let words = ["replay", "-t", trace.to_str().expect("text")];
    sandbox.agentbox(&[&words[..], options].concat())
}

/// The process of the host that is called so, and waits.
fn process_called(words: &[&str]) -> Option<Pid> {
    let wanted = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect::<Vec<_>>();
    let all = fs::read_dir("/proc")
        .expect("is there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_it = |pid: &String| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == wanted)
            && fs::read_to_string(format!("/proc/{pid}/status"))
                .is_ok_and(|text| text.contains("\nState:\tS"))
    };
    all.filter(|name| name.parse::<i32>().is_ok())
        .find(is_it)
        .map(|pid| Pid::from_raw(pid.parse().expect("a number")))
}

/// So that no other test has a process of that name.
fn long_sleep(seconds: u32) -> String {
    format!("{seconds}.{}", std::process::id())
}

#[test]
fn what_never_comes_is_not_waited_for() {
    if !has("python3") || !has("bash") {
        return skip("replays that wait", "python3 or bash is not installed");
    }
    const AT_REST: &str = "agentbox: the replay was ended: all of it waited for what was not recorded\n";
    const ENDLESS: &str =
        "agentbox: the replay was ended: it went on for much longer than the recorded run\n";
    const THREADS: &str = "import queue, threading\nq = queue.Queue()\n\
        def work(i): q.put(i)\n\
        threads = [threading.Thread(target=work, args=(i,)) for i in range(COUNT)]\n\
        for thread in threads: thread.start()\nprint([q.get() for _ in range(3)] and 3)\n";
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        for (program, recorded, live, told) in [
            ("python3", THREADS.replace("COUNT", "3"), THREADS.replace("COUNT", "2"), AT_REST),
            ("sh", "mkfifo f; (echo x > f) & cat f; wait".into(), "mkfifo f; cat f".into(), AT_REST),
            ("sh", "true & wait; echo".into(), "sleep 1000000 & sleep infinity; echo".into(), ENDLESS),
            ("sh", "true & wait; echo".into(), "(while :; do sleep 1; done) & wait; echo".into(), ENDLESS),
            ("sh", "true & wait; echo".into(), "while :; do cat script; done".into(), ENDLESS),
        ] {
            let _ = fs::remove_file(sandbox.path("f"));
            sandbox.file("script", recorded);
            sandbox.run(&[program, "script"]).exits(0);
            sandbox.file("script", &live);
            let again = replayed(sandbox, &["--force", "--lenient", "input-changed"]);
            again.exits(1);
            assert!(again.stderr.contains(told), "{live}: {again}");
            assert!(
                again.stderr.lines().last().is_some_and(|line| line.contains("replay diverged")),
                "{again}"
            );
        }
    });
}

#[test]
fn what_is_stopped_is_not_waited_for() {
    if !has("bash") {
        return skip("replays of what stops", "bash is not installed");
    }
    let sandbox = Sandbox::new(crate::support::User::Caller);
    sandbox.policy(POLICY);
    sandbox.file("script", "true & wait");
    sandbox.run(&["bash", "script"]).exits(0);
    sandbox.file("script", "(kill -STOP $BASHPID) & wait");
    replayed(&sandbox, &["--force"]).exits(1).complains("all of it waited for what was not recorded");
}

#[test]
fn who_was_killed_from_outside_ends_so_again() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        for (script, code) in [("sleep TIME; echo $?", 0), ("exec sleep TIME", 128 + 9)] {
            let time = long_sleep(80_000);
            let script = script.replace("TIME", &time);
            let running = Running::start(sandbox.run_command(&["--force"], &["sh", "-c", &script]));
            let mut asleep = None;
            until("it sleeps", || {
                asleep = process_called(&["sleep", &time]);
                asleep.is_some()
            });
            kill(asleep.expect("a process"), Signal::SIGKILL).expect("killed");
            running.finish().exits(code);
            let again = replayed(sandbox, &[]);
            again.exits(0);
            assert!(again.stderr.contains("replay ok"), "{again}");
        }
    });
}

#[test]
fn a_signal_ends_a_replay_with_one_line() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        let time = format!("3.{}", std::process::id());
        sandbox.run(&["sh", "-c", &format!("true; sleep {time}; cat agentbox.policy; echo done")]);
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let trace = sandbox.trace();
            let words = ["replay", "--paced", "-t", trace.to_str().expect("text")];
            let running = Running::start(sandbox.command(&words));
            until("it sleeps", || process_called(&["sleep", &time]).is_some());
            running.signal(signal);
            let ran = running.finish();
            ran.exits(128 + signal as i32).prints("");
            let told = format!("agentbox: replay interrupted by {signal} at step ");
            assert!(ran.stderr.starts_with(&told) && ran.stderr.lines().count() == 1, "{ran}");
            let left = fs::read_dir(sandbox.beside("state/agentbox/replays")).expect("a directory").count();
            assert_eq!((left, process_called(&["sleep", &time])), (0, None), "{ran}");
        }
    });
}

#[test]
fn a_fifo_of_the_host_is_not_opened_again() {
    everyone(|sandbox| {
        // In a directory that is only read a replay sees the host's own.
        for (place, policy) in [("w", POLICY), ("r", "read: ./r\nexec: sh, cat\n")] {
            sandbox.policy(policy);
            let fifo = sandbox.directory(place).join("fifo");
            mkfifo(&fifo, Mode::S_IRWXU).expect("a FIFO");
            sandbox.give(format!("{place}/fifo"));
            let name = fifo.clone();
            let writer = std::thread::spawn(move || fs::write(name, "from outside\n"));
            let script = format!("cat {place}/fifo");
            sandbox.run(&["sh", "-c", &script]).exits(0).prints("from outside\n");
            writer.join().expect("ends").expect("written");
            let told = replayed(sandbox, &[]);
            told.exits(1).prints("").complains("the host's, and was read by the run alone");
            // Whoever writes there meanwhile speaks to nobody.
            let name = fifo.clone();
            let writer = std::thread::spawn(move || fs::write(name, "today\n"));
            let forced = replayed(sandbox, &["--force"]);
            forced.exits(1).prints("").complains("replay diverged");
            assert!(!writer.is_finished(), "{forced}");
            assert_eq!(fs::read_to_string(&fifo).expect("read"), "today\n");
            writer.join().expect("ends").expect("written");
        }
    });
}

#[test]
fn a_fifo_of_the_run_s_own_is_opened_again() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        mkfifo(&sandbox.path("there"), Mode::S_IRWXU).expect("a FIFO");
        sandbox.give("there");
        let script = "mkfifo made; (echo one > made) & cat made; (echo two > there) & cat there; wait";
        sandbox.run(&["sh", "-c", script]).exits(0).prints("one\ntwo\n");
        replayed(sandbox, &[]).exits(0).prints("one\ntwo\n");
    });
}

#[test]
fn a_directory_that_its_mode_closes_is_put_back() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        for (script, by_host) in [
            ("echo n > k/new; mkdir k/m; echo z > k/m/z; chmod 0 k/m; chmod 0 k", false),
            ("echo n > k/e/f; mv k l; chmod 0 l", false),
            ("chmod 500 k/e; mv k l; chmod 0 l", false),
            ("chmod 700 k/closed; echo n > k/closed/new; cat k/closed/new", false),
            ("echo z > k/g; echo y > k/e/f; rm k/h", true),
            ("echo n > k/new; chmod 700 k/e", true),
            ("rm -r k", false),
        ] {
            for name in ["k/g", "k/h", "k/e/f", "k/closed/f"] {
                sandbox.file(name, name);
            }
            let chmod =
                |name: &str, mode| fs::set_permissions(sandbox.path(name), Permissions::from_mode(mode));
            chmod("k/closed", 0).expect("chmod");
            let ran = sandbox.run(&["sh", "-c", script]);
            if by_host {
                chmod("k", 0).expect("chmod");
            }
            let again = replayed(sandbox, &[]);
            again.exits(0).prints(&ran.stdout);
            for name in ["k", "l", "k/m", "k/closed", "k/e", "l/closed", "l/e"] {
                // Some are not there.
                let _ = chmod(name, 0o755);
            }
            for name in ["k", "l"] {
                let _ = fs::remove_dir_all(sandbox.path(name));
            }
        }
    });
}

#[test]
fn arguments_that_are_too_long_for_an_entry_stand_in_a_body() {
    if !has("python3") {
        return skip("long arguments", "python3 is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        sandbox.file(
            "long.py",
            "import resource, subprocess, sys\n\
             hard = resource.getrlimit(resource.RLIMIT_STACK)[1]\n\
             resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))\n\
             words = [b'true'] + [b'\\xff\\x01' * 50000] * 50\n\
             words[-1] = open('last', 'rb').read()\n\
             print(subprocess.run(words).returncode)\n",
        );
        sandbox.file("last", "a");
        let ran = sandbox.run(&["python3", "long.py"]);
        ran.exits(0).prints("0\n");
        let spawn = ran.recorded("proc.spawn", "exe", "/true");
        assert_eq!(
            spawn["args"]["argv"].as_array().map(Vec::len),
            Some(11),
            "{}",
            spawn["args"]["argv_whole"]
        );
        assert_eq!(spawn["args"]["argv_whole"]["size"], 5 + 49 * 100_001 + 2);
        replayed(sandbox, &[]).exits(0).prints("0\n");
        sandbox.file("last", "b");
        replayed(sandbox, &["--force", "--lenient", "input-changed"]).exits(1).complains("argv_whole");
    });
}
