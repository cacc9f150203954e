//! A server on the host's loopback that counts who came, and ends when it is dropped.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Serves each connection in a thread of its own.
pub(crate) struct Server {
    pub(crate) port: u16,
    /// Connections so far, and [`END`] more when it is to end.
    accepted: Arc<AtomicUsize>,
    /// It answers no more.
    is_silent: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What tells a server to end.
const END: usize = 1 << 32;

impl Server {
    /// `serve` gets each connection, and how many there were before; port 0 is any free one.
    pub(crate) fn start(port: u16, serve: impl Fn(TcpStream, usize) + Send + Clone + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let is_silent = Arc::new(AtomicBool::new(false));
        let (counter, silent) = (Arc::clone(&accepted), Arc::clone(&is_silent));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = counter.fetch_add(1, Ordering::Relaxed);
                if count >= END {
                    return;
                }
                if silent.load(Ordering::Relaxed) {
                    continue;
                }
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream, count));
            }
        });
        Self { port, accepted, is_silent, thread: Some(thread) }
    }

    /// Answers each request with `answer`, which may be changed, and its path.
    pub(crate) fn paths(answer: &Arc<Mutex<&'static str>>) -> Self {
        let answer = Arc::clone(answer);
        Self::start(0, move |mut stream, _| {
            let mut head = [0; 4096];
            let count = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..count]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let body = format!("{} {path}", answer.lock().expect("no panic"));
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}", body.len());
            let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
        })
    }

    /// At the same port, which nobody else gets meanwhile, and nobody may come.
    pub(crate) fn canary(self) -> Self {
        self.is_silent.store(true, Ordering::Relaxed);
        self.forget();
        self
    }

    /// How many connections there were since the start, or since [`Server::forget`].
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Counts from here on.
    pub(crate) fn forget(&self) {
        self.accepted.store(0, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepted.fetch_add(END, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
