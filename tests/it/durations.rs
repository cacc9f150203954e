//! How long answers take, in programs that measure time by a clock at real rate: as long as they took, in a replay that
//! does not wait for them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Ran, Sandbox, Server, User, has, skip};

/// Answers after 1 s, and in pieces 1.5 s apart; before the first line of a stream, and after each, 1 s pass.
fn slow(mut stream: TcpStream, _: usize) {
    let mut said = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut said) {
        sleep(Duration::from_secs(1));
        let answer = if said[..length].starts_with(b"GET /pieces") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n");
            sleep(Duration::from_millis(1500));
            "1\r\n2\r\n0\r\n\r\n"
        } else if said.starts_with(b"GET ") {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        } else {
            "line\n"
        };
        let _ = stream.write_all(answer.as_bytes());
    }
}

const GO: &str = r#"
package main

import ("bufio"; "fmt"; "io"; "net"; "net/http"; "os"; "sync"; "time")

func lap(name string, begun time.Time) { fmt.Fprintln(os.Stderr, name, int64(time.Since(begun))) }

func get(path string) {
	begun := time.Now()
	answer, err := http.Get("http://" + os.Args[1] + path)
	if err != nil { panic(err) }
	lap(path + ".head", begun)
	body, _ := io.ReadAll(answer.Body)
	lap(path, begun)
	fmt.Println(path, string(body))
}

func main() {
	get("/one")
	get("/pieces")
	// Which of their threads reads a time of day first, and how often, is chance.
	begun := time.Now()
	var all sync.WaitGroup
	for range [3]int{} {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := http.Get("http://" + os.Args[1] + "/many"); err != nil { panic(err) }
		}()
	}
	all.Wait()
	lap("many", begun)
	begun = time.Now()
	stream, err := net.Dial("tcp", os.Args[2])
	if err != nil { panic(err) }
	lines := bufio.NewReader(stream)
	for range [2]int{} {
		fmt.Fprintln(stream, "hello")
		line, _ := lines.ReadString('\n')
		fmt.Print(line)
	}
	lap("stream", begun)
	client := http.Client{Timeout: 300 * time.Millisecond}
	begun = time.Now()
	_, err = client.Get("http://" + os.Args[1] + "/late")
	lap("timeout", begun)
	fmt.Println(err != nil)
}
"#;

const JAVA: &str = r#"
import java.net.URI;
import java.net.http.*;

class Laps {
    public static void main(String[] words) throws Exception {
        var client = HttpClient.newHttpClient();
        for (var path : new String[] {"/one", "/pieces"}) {
            long begun = System.nanoTime();
            var request = HttpRequest.newBuilder(URI.create("http://" + words[0] + path)).build();
            System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
            System.err.println(path + " " + (System.nanoTime() - begun));
        }
    }
}
"#;

/// What a lap took.
fn lap(ran: &Ran, name: &str) -> f64 {
    let number = ran.stderr.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    number.map_or_else(|| panic!("no {name}: {ran}"), |nanoseconds: f64| nanoseconds / 1e9)
}

/// Records, stops the server, and replays: what each lap takes is what it took, but for what the machine takes.
fn are_as_recorded<const COUNT: usize>(
    sandbox: &Sandbox,
    servers: [Server; COUNT],
    words: &[&str],
    laps: &[(&str, f64)],
    waited: f64,
) {
    let ran = sandbox.run(words);
    ran.exits(0);
    drop(servers);
    let begun = Instant::now();
    let again = sandbox.agentbox(&["replay", "-t", "../trace.jsonl", "--lenient", "output-changed"]);
    let took = begun.elapsed().as_secs_f64();
    assert_eq!(again.stdout, ran.stdout, "{again}");
    again.exits(0);
    for (name, least) in laps {
        let (recorded, replayed) = (lap(&ran, name), lap(&again, name));
        assert!(recorded >= *least, "{name}: {recorded}");
        assert!(replayed >= *least - 0.02, "{name}: {replayed}, not {recorded}\n{again}");
        assert!((replayed - recorded).abs() < 0.6, "{name}: {replayed}, not {recorded}\n{again}");
    }
    let left_out =
        again.stderr.lines().find_map(|line| line.strip_prefix("agentbox: waits of ")?.split(' ').next());
    let left_out: f64 = left_out.and_then(|number| number.parse().ok()).unwrap_or(0.0);
    assert!(left_out > waited * 0.7, "{left_out} s were left out in {took} s\n{again}");
}

#[test]
fn answers_take_as_long_in_go() {
    if !has("go") {
        return skip("all of it", "there is no go");
    }
    let (sandbox, server, lines) =
        (Sandbox::new(User::Caller), Server::start(0, slow), Server::start(0, slow));
    let [at, other] = [&server, &lines].map(|server| format!("localhost:{}", server.port));
    sandbox.policy(&format!("read: .\nnet: {at}\nnet: {other}\nexec: ./laps\n"));
    sandbox.file("laps.go", GO);
    let mut build = Command::new("go");
    build.args(["build", "-o", "laps", "laps.go"]).current_dir(sandbox.path("")).env("CGO_ENABLED", "0");
    assert!(build.status().expect("go").success());
    let laps = [
        ("/one", 1.0),
        ("/pieces.head", 1.0),
        ("/pieces", 2.5),
        ("many", 1.0),
        ("stream", 2.0),
        ("timeout", 0.3),
    ];
    are_as_recorded(&sandbox, [server, lines], &["./laps", &at, &other], &laps, 6.8);
}

#[test]
fn answers_take_as_long_in_java() {
    if !has("javac") {
        return skip("all of it", "there is no javac");
    }
    let (sandbox, server) = (Sandbox::new(User::Caller), Server::start(0, slow));
    let at = format!("localhost:{}", server.port);
    sandbox.policy(&format!("read: .\nnet: {at}\nexec: java\n"));
    let source = sandbox.file("Laps.java", JAVA);
    assert!(Command::new("javac").arg(source).status().expect("javac").success());
    are_as_recorded(&sandbox, [server], &["java", "Laps", &at], &[("/one", 1.0), ("/pieces", 2.5)], 0.0);
}
