//! An origin that remembers every request line that it got.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server on the loopback; it ends with the tests.
pub(super) struct Origin {
    pub(super) port: u16,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// Answers each request with its own line; what ends in `jump` leads to `/secret`.
    pub(super) fn start() -> Self {
        Self::serving(|line| match line.split(' ').nth(1) {
            Some(target) if target.ends_with("jump") => {
                b"HTTP/1.1 302 Found\r\nLocation: /secret\r\nContent-Length: 0\r\n\r\n".to_vec()
            }
            _ if line.starts_with("HEAD ") => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec(),
            _ => found("text/plain", line.as_bytes()),
        })
    }

    /// Answers each request line as told.
    pub(super) fn serving(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (lines, answer) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(answer));
        let seen = Arc::clone(&lines);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Self { port, lines }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("the lines").clone()
    }

    pub(super) fn saw(&self, part: &str) -> bool {
        self.lines().iter().any(|line| line.contains(part))
    }
}

/// An answer with a body of this kind.
pub(super) fn found(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<String>>, answer: &dyn Fn(&str) -> Vec<u8>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
    let Ok(mut out) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Some(line) = read_request(&mut reader) {
        // The opening of HTTP/2, which is spoken no further here.
        if line == "PRI * HTTP/2.0" {
            return;
        }
        seen.lock().expect("the lines").push(line.clone());
        if out.write_all(&answer(&line)).is_err() {
            return;
        }
    }
}

/// The request line; the fields and the body are read and forgotten.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let line = read_line(reader)?;
    let (mut length, mut chunked) = (0, false);
    loop {
        let field = read_line(reader)?.to_ascii_lowercase();
        match field.split_once(": ") {
            None => break,
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("transfer-encoding", value)) => chunked = value == "chunked",
            Some(_) => {}
        }
    }
    if chunked {
        while u64::from_str_radix(&read_line(reader)?, 16).ok().filter(|size| *size > 0).is_some_and(|size| {
            reader.read_exact(&mut vec![0; usize::try_from(size).unwrap_or(0) + 2]).is_ok()
        }) {}
        while !read_line(reader)?.is_empty() {}
    } else {
        reader.read_exact(&mut vec![0; length]).ok()?;
    }
    Some(line)
}

fn read_line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok().filter(|length| *length > 0)?;
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
}
