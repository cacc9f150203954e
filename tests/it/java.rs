//! What Java code reads of the clock is in a replay as it was, whatever the JVM reads for itself.

use crate::support::{Ran, Sandbox, everyone, has, skip};

/// Records `class` of `source`, and replays it twice.
fn as_recorded(class: &str, source: &str, words: &[&str], check: impl Fn(&Ran)) {
    if !has("javac") {
        return skip("all of it", "there is no javac");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: java\nexec: /usr/lib/**\nexec: echo\n");
        let source = sandbox.file(format!("{class}.java"), source);
        let built = std::process::Command::new("javac").arg(source).status().expect("javac");
        assert!(built.success());
        let ran = run(sandbox, class, words);
        check(&ran);
        for _ in 0..2 {
            let again = sandbox.agentbox(&["replay", "-t", "../trace.jsonl"]);
            assert_eq!(again.stdout, ran.stdout, "{again}");
            again.exits(0).complains("replay ok");
        }
    });
}

fn run(sandbox: &Sandbox, class: &str, words: &[&str]) -> Ran {
    let command = [&["java"], words, &[class]].concat();
    let ran = sandbox.run(&command);
    ran.exits(0);
    ran
}

fn number(ran: &Ran, name: &str) -> f64 {
    let found = ran.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name}: {ran}"))
}

/// Four threads, among which garbage is collected again and again.
const THREADS: &str = r#"
import java.time.Instant;
import java.util.*;
import java.util.concurrent.ThreadLocalRandom;

class Threads {
    static void garbage() {
        byte[][] all = new byte[64][];
        for (int each = 0; each < 300; each++) all[each % 64] = new byte[100_000];
    }

    public static void main(String[] words) throws Exception {
        System.out.println(new Random().nextLong() + " " + Math.random() + " " + new SplittableRandom().nextInt());
        System.out.println(ThreadLocalRandom.current().nextInt() + " " + Set.of(1, 2, 3, 4, 5) + Map.of("a", 1, "b", 2, "c", 3));
        var map = new HashMap<Object, Integer>();
        for (int each = 0; each < 20; each++) map.put(new Object(), each);
        System.out.println(map.values() + " " + UUID.randomUUID());
        var lines = new String[4];
        var threads = new Thread[4];
        for (int thread = 0; thread < 4; thread++) {
            int number = thread;
            threads[thread] = new Thread(() -> {
                var line = new StringBuilder();
                for (int turn = 0; turn < 50; turn++) {
                    line.append(System.nanoTime()).append(' ').append(Instant.now()).append(' ');
                    line.append(System.currentTimeMillis()).append(' ');
                    line.append(new Random(System.nanoTime()).nextLong()).append(' ');
                    garbage();
                }
                lines[number] = line.toString();
            });
            threads[thread].start();
        }
        for (var thread : threads) thread.join();
        System.out.println(String.join("\n", lines));
        int turns = 0;
        for (long end = System.nanoTime() + 20_000_000; System.nanoTime() < end; turns++);
        System.out.println(turns + " " + System.nanoTime());
    }
}
"#;

#[test]
fn threads_see_the_recorded_times() {
    as_recorded("Threads", THREADS, &["-Xmx64m"], |ran| {
        let tapes = ran.of("clock.tape");
        let is_of_thread = |proc: &str| proc.starts_with("0#");
        let own = tapes.iter().filter(|entry| entry["proc"].as_str().is_some_and(is_of_thread));
        assert!(own.count() >= 5, "{ran}");
    });
}

/// Waits of the JDK, of which none knows how often they are woken.
const WAITS: &str = r#"
import java.util.*;
import java.util.concurrent.*;

class Waits {
    static long last = System.nanoTime();

    static void lap(String name) {
        long now = System.nanoTime();
        System.out.println(name + " " + (now - last));
        last = now;
    }

    public static void main(String[] words) throws Exception {
        Thread.sleep(1000);
        lap("slept");
        var pool = Executors.newFixedThreadPool(4);
        var all = new ArrayList<Future<Integer>>();
        for (int each = 0; each < 40; each++) {
            int number = each;
            all.add(pool.submit(() -> { Thread.sleep(2); return number; }));
        }
        int sum = 0;
        for (var one : all) sum += one.get(5, TimeUnit.SECONDS);
        pool.shutdown();
        System.out.println(sum + " " + pool.awaitTermination(5, TimeUnit.SECONDS));
        lap("pooled");
        System.out.println(new LinkedBlockingQueue<String>().poll(700, TimeUnit.MILLISECONDS));
        lap("polled");
        System.out.println(CompletableFuture.supplyAsync(System::nanoTime).get(3, TimeUnit.SECONDS) > 0);
        System.out.println(new CompletableFuture<String>().completeOnTimeout("late", 600, TimeUnit.MILLISECONDS).get());
        lap("completed");
        var thread = new Thread(() -> { try { Thread.sleep(60000); } catch (InterruptedException end) { } });
        thread.start();
        thread.join(500);
        thread.interrupt();
        thread.join();
        lap("joined");
        var child = new ProcessBuilder("echo", "child").inheritIO().start();
        System.out.println(child.waitFor(5, TimeUnit.SECONDS) + " " + new Random().nextInt());
        lap("waited");
    }
}
"#;

#[test]
fn waits_last_as_long_as_they_did() {
    as_recorded("Waits", WAITS, &[], |ran| {
        for (name, least) in [("slept", 1.0), ("polled", 0.7), ("completed", 0.6), ("joined", 0.5)] {
            let took = number(ran, name) / 1e9;
            assert!((least..least + 5.0).contains(&took), "{name}: {took}\n{ran}");
        }
    });
}
