//! Small bodies of text stand in their entries; all others, and those with credentials, are blobs.

use super::*;

/// Says back what was sent.
fn echo() -> u16 {
    serve(|client| {
        let mut stream = std::io::BufReader::new(client);
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                if !matches!(std::io::BufRead::read_line(&mut stream, &mut line), Ok(1..)) {
                    return;
                }
                if line == "\r\n" {
                    break;
                }
                let (name, value) = line.split_once(':').unwrap_or_default();
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().expect("a length");
                }
            }
            let mut body = vec![0; length];
            if stream.read_exact(&mut body).is_err() {
                return;
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.get_mut().write_all(&[head.as_bytes(), &body].concat());
        }
    })
}

#[test]
fn text_stands_in_the_entry_and_nothing_else_does() {
    let port = echo();
    everyone(|sandbox| {
        let program = r#"
import http.client
c = http.client.HTTPConnection("127.0.0.1", {port}, timeout=20)
bodies = [b"hello", "é \"quoted\" \\ \t\r\n".encode(), b"x" * 4096, b"x" * 4097, b"\x00\x01", b"\xff\xfe", b"\x1b[2J",
          b'{"access_token": "hunter2"}', b"grant_type=password&password=hunter2", b'{"a": "b"}']
for body in bodies:
    c.request("POST", "/", body, {"Content-Type": "text/plain"})
    assert c.getresponse().read() == body
"#;
        sandbox.policy(&format!("{LITERAL}net: 127.0.0.1:{port}\n"));
        let program = program.replace("{port}", &port.to_string());
        // Without the blobs of a replay.
        let ran = sandbox.run_with(&["--no-replay"], &["python3", "-c", &program]);
        let exchanges = ran.exits(0).of("http.exchange");
        let sent: Vec<&Value> = exchanges.iter().map(|entry| &entry["args"]["body"]).collect();
        let stands: Vec<bool> = sent.iter().map(|body| body.get("text").is_some()).collect();
        assert_eq!(stands, [true, true, true, false, false, false, false, false, false, true], "{ran}");
        assert_eq!(sent[0]["text"], "hello");
        for (sent, entry) in sent.iter().zip(&exchanges) {
            assert_eq!(*sent, &entry["result"]["body"]);
            assert_eq!(
                blob(sandbox, sent).len(),
                usize::try_from(sent["size"].as_u64().expect("a size")).expect("small")
            );
        }
        let trace = std::fs::read_to_string(sandbox.trace()).expect("a trace");
        assert!(
            !trace.lines().any(|line| line.contains("\"http.exchange\"") && line.contains("hunter2")),
            "{ran}"
        );
        let files = std::fs::read_dir(sandbox.beside("trace.jsonl.blobs")).expect("blobs").count();
        assert_eq!(files, 6, "{ran}");
        let shown = sandbox.agentbox(&["show".as_ref(), "-t".as_ref(), sandbox.trace().as_os_str()]);
        assert!(shown.exits(0).stdout.contains("200, 5 B"), "{shown}");
    });
}

#[test]
fn names_that_the_user_gives_are_redacted_wherever_they_stand() {
    let port = echo();
    everyone(|sandbox| {
        let program = format!(
            r#"
import http.client
c = http.client.HTTPConnection("127.0.0.1", {port}, timeout=20)
for body, kind in ((b'{{"staffPin": "hunter2"}}', "application/json"), (b"staff_pin=hunter2&a=b", "text/plain")):
    c.request("POST", "/?staff-pin=hunter2&b=c", body, {{"Content-Type": kind, "X-Inside-Ticket": "hunter2"}})
    assert c.getresponse().read() == body
"#
        );
        sandbox.policy(&format!("net: 127.0.0.1:{port}"));
        let options = ["--redact", "x-inside-*", "--redact", "staff_pin"];
        let ran = sandbox.run_with(&options, &["python3", "-c", &program]);
        assert_eq!(ran.exits(0).of("run.start")[0]["args"]["redact"], json!(["x-inside-*", "staff_pin"]));
        let exchanges = ran.of("http.exchange");
        assert_eq!(exchanges.len(), 2, "{ran}");
        for entry in exchanges {
            assert!(!entry.to_string().contains("hunter2"), "{entry}");
            assert!(entry["args"]["url"].as_str().expect("a URL").ends_with("&b=c"), "{entry}");
        }
        let refused = sandbox.run_with(&["--redact", "pin=hunter2"], &["true"]);
        refused.exits(2).complains("name of a field");
    });
}
