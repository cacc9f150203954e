//! Languages, each with waits of its own, and what its programs tell of the time.

use std::io::Write as _;
use std::time::{Duration, Instant};

use super::{POLICY, is_skipped, left_out, recorded, replay, seconds};
use crate::support::{Ran, Running, Sandbox, User, everyone, has, skip};

const PYTHON: &str = "\
import asyncio, os, queue, select, signal, subprocess, threading, time
begun = time.monotonic()
def lap(name): print(name, time.monotonic() - begun, time.time())
time.sleep(1); lap('sleep')
async def several():
    await asyncio.gather(asyncio.sleep(0.5), asyncio.sleep(0.7))
    try: await asyncio.wait_for(asyncio.sleep(60), 0.3)
    except asyncio.TimeoutError: lap('timeout')
asyncio.run(several())
try: queue.Queue().get(timeout=0.5)
except queue.Empty: lap('queue')
subprocess.run(['sleep', '0.5']); lap('subprocess')
try: subprocess.run(['sleep', '60'], timeout=0.5)
except subprocess.TimeoutExpired: lap('expired')
read, write = os.pipe()
print(select.select([read], [], [], 0.5)); lap('select')
poll = select.poll(); poll.register(read); print(poll.poll(300)); lap('poll')
print(threading.Event().wait(0.4)); lap('event')
signal.signal(signal.SIGALRM, lambda *_: lap('alarm'))
signal.alarm(3); time.sleep(1); print('left', signal.alarm(2)); signal.pause()
signal.setitimer(signal.ITIMER_REAL, 0.5, 0.25); signal.pause(); signal.pause()
print(signal.setitimer(signal.ITIMER_REAL, 0)[1]); lap('interval')
print(signal.sigtimedwait([signal.SIGUSR1], 0.5)); lap('sigtimedwait')
";

const NODE: &str = "\
const begun = Date.now(); let count = 0;
setTimeout(() => console.log('one', Date.now() - begun), 1000);
const interval = setInterval(() => {
  console.log('interval', Date.now() - begun);
  if (++count == 4) clearInterval(interval);
}, 400);
setTimeout(() => console.log('last', Date.now() - begun, new Date().toISOString()), 3000);
";

const GO: &str = "\
package main
import (\"fmt\"; \"sync\"; \"time\")
func main() {
	begun := time.Now()
	lap := func(name string) { fmt.Println(name); println(name, time.Since(begun).Nanoseconds()) }
	time.Sleep(time.Second); lap(\"sleep\")
	select { case <-make(chan int): case <-time.After(time.Second): lap(\"after\") }
	var all sync.WaitGroup
	for i := 3; i > 0; i-- {
		all.Add(1)
		go func(i int) { defer all.Done(); time.Sleep(time.Duration(i) * time.Second); fmt.Println(i) }(i)
	}
	all.Wait(); lap(\"goroutines\")
}
";

const JAVA: &str = "\
import java.util.concurrent.*;
public class Waits {
  static long begun = System.nanoTime();
  static void lap(String name) { System.out.println(name); System.err.println(name + \" \" + (System.nanoTime() - begun)); }
  public static void main(String[] words) throws Exception {
    Thread.sleep(2000); lap(\"sleep\");
    new LinkedBlockingQueue<String>().poll(2000, TimeUnit.MILLISECONDS); lap(\"poll\");
    ScheduledExecutorService pool = Executors.newScheduledThreadPool(2);
    pool.schedule(() -> lap(\"scheduled\"), 2, TimeUnit.SECONDS).get();
    pool.shutdown();
  }
}
";

const BESIDE: &str = "\
public class Beside {
  public static void main(String[] words) throws Exception {
    Thread other = new Thread(() -> { try { Thread.sleep(5250); } catch (InterruptedException error) {} });
    other.start();
    int times = 0;
    while (other.isAlive()) { Thread.sleep(1500); times++; }
    System.out.println(times);
  }
}
";

#[test]
fn python_tells_the_same_times() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        sandbox.file("waits.py", PYTHON);
        let ran = is_skipped(sandbox, seconds(8.0), &["python3", "waits.py"]);
        assert!(ran.stdout.contains("left 2\n"), "{ran}");
    });
}

#[test]
fn node_tells_the_same_times() {
    if !has("node") {
        return skip("node", "there is no node");
    }
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    sandbox.file("waits.js", NODE);
    is_skipped(&sandbox, seconds(3.0), &["node", "waits.js"]);
}

#[test]
fn go_tells_about_the_same_times() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    sandbox.file("waits.go", GO);
    let mut build = std::process::Command::new("go");
    build.args(["build", "-o", "waits", "waits.go"]).current_dir(sandbox.path(""));
    build
        .env("GOCACHE", sandbox.beside("cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("HOME", sandbox.beside("home"));
    if !build.status().is_ok_and(|status| status.success()) {
        return skip("Go", "there is no go");
    }
    let ran = recorded(&sandbox, seconds(5.0), &["./waits"]);
    ran.prints("sleep\nafter\n1\n2\n3\ngoroutines\n");
    let left_out =
        tells_about_the_same(&sandbox, &ran, &[("sleep", 1.0), ("after", 2.0), ("goroutines", 5.0)]);
    assert!(left_out > seconds(2.5), "{left_out:?} was left out\n{ran}");
}

/// Replays a program whose clock goes at real rate. How long something took is the wait, which is left out, and what
/// the machine takes for all else: never less than the one, never more than both. Its order is as recorded.
#[track_caller]
fn tells_about_the_same(sandbox: &Sandbox, ran: &Ran, laps: &[(&str, f32)]) -> Duration {
    let begun = Instant::now();
    let again = replay(sandbox, &["--lenient", "output-changed"]);
    let took = begun.elapsed();
    assert_eq!(again.stdout, ran.stdout, "{again}");
    again.exits(0);
    for (name, waited) in laps {
        let waited = seconds(*waited);
        let of = |ran: &Ran| {
            let number = ran.stderr.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            Duration::from_nanos(number.unwrap_or_else(|| panic!("no {name}: {ran}")))
        };
        assert!(of(ran) >= waited, "{name} {ran}");
        let lasted = of(&again);
        assert!(lasted >= waited && lasted <= waited + took, "{name}: {lasted:?} in {took:?}\n{again}");
    }
    left_out(&again)
}

#[test]
fn java_tells_about_the_same_times() {
    if !has("javac") {
        return skip("Java", "there is no javac");
    }
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    let source = sandbox.file("Waits.java", JAVA);
    let built = std::process::Command::new("javac").arg(source).status().expect("javac");
    assert!(built.success());
    // Fewer threads of the virtual machine that wake by themselves. On a busy machine one of them is at work again
    // and again, and time passes for all: less is left out there.
    let words =
        ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+UseSerialGC", "Waits"];
    let ran = recorded(&sandbox, seconds(6.0), &words);
    ran.prints("sleep\npoll\nscheduled\n");
    let left_out = tells_about_the_same(&sandbox, &ran, &[("sleep", 2.0), ("poll", 4.0), ("scheduled", 6.0)]);
    assert!(left_out > seconds(3.0), "{left_out:?} was left out\n{ran}");
}

/// The program begins seconds sooner than it did, for its input is there at once: its clock is ahead of the kernel's
/// from then on, and it asks the kernel to wake it at times of its own.
#[test]
fn java_that_begins_sooner_waits_as_long_as_it_says() {
    if !has("javac") {
        return skip("Java", "there is no javac");
    }
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    let source = sandbox.file("Beside.java", BESIDE);
    let built = std::process::Command::new("javac").arg(source).status().expect("javac");
    assert!(built.success());
    let words =
        ["sh", "-c", "read word; exec java -Xshare:auto -XX:TieredStopAtLevel=1 -XX:-UsePerfData Beside"];
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut command = sandbox.run_command(&[], &words);
    command.stdin(reader);
    let running = Running::start(command);
    std::thread::sleep(seconds(3.0));
    writer.write_all(b"word\n").expect("writes");
    drop(writer);
    let ran = running.finish();
    ran.prints("4\n");
    let again = replay(&sandbox, &[]);
    again.prints("4\n").complains("replay ok");
}
