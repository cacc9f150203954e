//! Datagrams that a rule lets out: one session for each pair of client and destination, with a
//! socket of its own outside. Each datagram is recorded before it goes on, in either direction.

mod record;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::socket::{MsgFlags, recv};
use tokio::io::Interest;
use tokio::sync::mpsc;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep_until};

use self::record::Record;
use super::egress::Egress;
use super::error::NetproxyError;
use super::packet::Answers;
use super::resolve::{Datagrams, Wanted};
use super::segments::Way;

/// A session that has moved nothing for so long is over; what comes then begins another.
const IDLE: Duration = Duration::from_secs(60);

/// Sessions at once; a further one ends the one that was silent the longest.
const MAX_SESSIONS: usize = 256;

/// Datagrams that wait to be sent on, in each session; further ones are lost, as datagrams may be.
const WAITING: usize = 64;

/// The largest datagram of IP (RFC 768).
const LARGEST: usize = 65_535;

/// A datagram, or a refusal by ICMP, which makes the socket no more readable (man 7 udp).
const ARRIVED: Interest = Interest::READABLE.add(Interest::ERROR);

thread_local! {
    /// All sessions run on one thread.
    static SCRATCH: std::cell::RefCell<Box<[u8]>> = std::cell::RefCell::new(vec![0; LARGEST].into_boxed_slice());
}

/// The sessions of one run.
pub(crate) struct Sessions {
    open: Mutex<HashMap<Key, Handle>>,
    answers: Answers,
    opened: AtomicU64,
}

/// Who sent, and where to.
type Key = (SocketAddr, SocketAddr);

struct Handle {
    number: u64,
    sender: mpsc::Sender<Vec<u8>>,
    used: Instant,
}

impl Sessions {
    pub(crate) fn new(answers: Answers) -> Self {
        Self { open: Mutex::default(), answers, opened: AtomicU64::new(0) }
    }

    /// Takes one datagram of the program's.
    pub(crate) fn take(
        self: &Arc<Self>,
        egress: &Arc<Egress>,
        client: SocketAddr,
        destination: SocketAddr,
        bytes: Vec<u8>,
    ) {
        let key = (client, destination);
        if egress.check_datagram(destination, &bytes, || egress.sender(client, destination)).is_err() {
            self.answers.unreachable(destination, client);
            return;
        }
        let Some(bytes) = self.pass_on(key, bytes) else { return };
        match self.start(egress, key) {
            Ok(sender) => {
                // A fresh queue has room.
                let _ = sender.try_send(bytes);
            }
            // It is recorded, or the trace has failed: nothing is sent either way.
            Err(_) => {
                self.answers.unreachable(destination, client);
            }
        }
    }

    /// Hands a datagram to its session; gives it back when there is none.
    fn pass_on(&self, key: Key, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let mut open = self.lock();
        let Some(handle) = open.get_mut(&key) else { return Some(bytes) };
        handle.used = Instant::now();
        match handle.sender.try_send(bytes) {
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => None,
            Err(mpsc::error::TrySendError::Closed(bytes)) => {
                open.remove(&key);
                Some(bytes)
            }
        }
    }

    /// Judges, records and opens a session.
    fn start(
        self: &Arc<Self>,
        egress: &Arc<Egress>,
        key: Key,
    ) -> Result<mpsc::Sender<Vec<u8>>, NetproxyError> {
        let (client, destination) = key;
        let proc = egress.sender(client, destination);
        let grant = egress.judge_datagram(destination, proc.as_deref())?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let mut record = Record::begin(egress, &grant, number, proc.clone())?;
        let wanted = Wanted { destination: grant.destination, proc: proc.as_deref() };
        let far = egress.outside.datagrams(wanted).map_err(|source| {
            record.fail(&source);
            NetproxyError::Dial { address: destination, source }
        })?;
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut open = self.lock();
        if open.len() >= MAX_SESSIONS
            && let Some(oldest) = open.iter().min_by_key(|(_, handle)| handle.used).map(|(key, _)| *key)
        {
            // Its task ends when the queue does.
            open.remove(&oldest);
        }
        open.insert(key, Handle { number, sender: sender.clone(), used: Instant::now() });
        let session = Session { sessions: Arc::clone(self), key, number, far, record };
        tokio::spawn(session.carry(receiver));
        Ok(sender)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Handle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has come from outside.
enum Arrived {
    /// Something is there to be received.
    Ready(Interest),
    /// It is here.
    Played(io::Result<Vec<u8>>),
    Gone,
}

impl Datagrams {
    async fn arrived(&mut self) -> Arrived {
        match self {
            Self::Socket(socket) => match socket.ready(ARRIVED).await {
                Ok(ready) if ready.is_readable() => Arrived::Ready(Interest::READABLE),
                Ok(_) => Arrived::Ready(Interest::ERROR),
                Err(_) => Arrived::Gone,
            },
            Self::Recorded(played) => Arrived::Played(played.receive().await),
        }
    }
}

struct Session {
    sessions: Arc<Sessions>,
    key: Key,
    number: u64,
    far: Datagrams,
    record: Record,
}

impl Session {
    async fn carry(mut self, mut queue: mpsc::Receiver<Vec<u8>>) {
        let mut idle = Instant::now() + IDLE;
        // What cannot be recorded does not happen.
        while self.record.ready().await.is_ok() {
            // What is played makes entries where they were made before.
            let due = match &self.far {
                Datagrams::Socket(_) => self.record.due(),
                Datagrams::Recorded(_) => idle,
            };
            let moved = tokio::select! {
                bytes = queue.recv() => match bytes {
                    Some(bytes) => self.send(&bytes).await,
                    None => return,
                },
                arrived = self.far.arrived() => match arrived {
                    Arrived::Ready(interest) => self.receive(interest),
                    Arrived::Played(answer) => self.pass(answer),
                    Arrived::Gone => return,
                },
                () = sleep_until(due) => {
                    self.record.flush();
                    false
                }
                () = sleep_until(idle) => return,
            };
            if let Datagrams::Recorded(played) = &self.far
                && moved
                && played.ends_entry()
            {
                self.record.flush();
            }
            if moved {
                idle = Instant::now() + IDLE;
            }
            // Under a flood the other tasks get their turns too.
            consume_budget().await;
        }
    }

    /// From the program outwards.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        if self.record.add(Way::Up, bytes).is_err() {
            // The session ends before the next one.
            return false;
        }
        let sent = match &mut self.far {
            Datagrams::Socket(socket) => socket.send(bytes).await.map(|_| ()),
            Datagrams::Recorded(played) => played.send(bytes),
        };
        if let Err(error) = sent {
            self.failed(&error);
        }
        true
    }

    /// From a recording to the program.
    fn pass(&mut self, answer: io::Result<Vec<u8>>) -> bool {
        let (client, destination) = self.key;
        match answer {
            Ok(bytes) => {
                if self.record.add(Way::Down, &bytes).is_err() {
                    return false;
                }
                self.sessions.answers.datagram(destination, client, &bytes);
            }
            Err(error) => self.failed(&error),
        }
        true
    }

    /// From outside to the program; false when nothing was there after all.
    fn receive(&mut self, arrived: Interest) -> bool {
        let (client, destination) = self.key;
        SCRATCH.with_borrow_mut(|scratch| {
            let Datagrams::Socket(far) = &self.far else { return false };
            let socket = far.as_raw_fd();
            let take = || Ok(recv(socket, scratch, MsgFlags::MSG_DONTWAIT)?);
            match far.try_io(arrived, take) {
                Ok(length) => {
                    if self.record.add(Way::Down, &scratch[..length]).is_err() {
                        return false;
                    }
                    self.sessions.answers.datagram(destination, client, &scratch[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => self.failed(&error),
            }
            true
        })
    }

    /// Nobody takes datagrams there, or the network says no: the program learns it as it would outside.
    fn failed(&mut self, error: &io::Error) {
        let (client, destination) = self.key;
        self.record.fail(error);
        self.sessions.answers.unreachable(destination, client);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut open = self.sessions.lock();
        if open.get(&self.key).is_some_and(|handle| handle.number == self.number) {
            open.remove(&self.key);
        }
    }
}
