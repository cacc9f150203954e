//! The way out: everything that the confined program sends to a network passes here.
//!
//! The launcher gives the program a network of its own, in which every address is local and every
//! connect ends at a listener that was handed to this module. It runs in the host's network, on
//! one thread, and dials what the policy grants. No client needs any setting.
//!
//! ```text
//!  query ──▶ dns ───▶ names ──── judge name ─▶ resolve ─▶ judge each address ─▶ pins ─▶ answer
//!                                    │ no: NXDOMAIN at once, deny entry
//!  connect ─▶ listen ─▶ stream ─ judge address ─▶ net.connect ─▶ hear ─▶ dial ─▶ sniff
//!                                    │ no: reset, deny entry        │               │
//!                  ┌────────────────────────────────────────────────┴───────┬───────┘
//!          HTTP    ▼                  TLS ▼                                 ▼ else, or server first
//!     http ─ judge each request     tls ─ judge the server name           relay
//!       │ no: 403, deny entry         │ no: reset, deny entry               │
//!       │                             ├─ tunnel ─▶ relay ───────────────────┤
//!       │   ◀─── HTTP within ──── intercept ─ the origin proves who it is,   │
//!       ▼                             ▲       then the client is answered   │
//!     forward ─▶ exchange ─▶ plain, link ─ pool                             │
//!       │ bodies                                                            │ transcript
//!       ├── 101 ─▶ relay                                                    │
//!       ▼           ▼ transcript                                            ▼
//!     scribe ─ stores what passed ─▶ http.exchange at its end, net.stream at its end
//!
//!  proxy port:  absolute form ─▶ http (judge by name)     CONNECT ─▶ connect ─▶ as a connect above
//!               SOCKS 4, 4A, 5 ─▶ socks ─▶ the same
//! ```
//!
//!  datagram ─▶ datagram ─▶ sessions ─ judge address ─▶ net.connect ─▶ send ─▶ net.datagram
//!                                │ no: port unreachable, deny entry
//!
//! What could still be refused for what it says is heard before anything is dialled for it.
//!
//! One function decides for all ways in: `Judge::destination`. What cannot be recorded does not
//! happen: once the recorder has failed, nothing is resolved, dialled or forwarded.

mod ahead;
mod alternative;
mod attempts;
pub mod authority;
mod body;
pub mod ca;
mod claim;
mod client;
mod connect;
mod datagram;
mod decide;
pub mod delays;
mod disguise;
pub mod dns;
mod dns_stream;
mod door;
mod doubt;
mod drain;
mod egress;
mod error;
mod exchange;
mod failure;
mod fields;
mod flow;
mod forward;
pub mod framing;
mod gathered;
mod head_clock;
mod head_tap;
mod hear;
mod http;
mod http2;
mod idle;
mod informational;
mod intercept;
mod judged;
mod lent;
mod link;
mod listen;
mod malformed;
mod metered;
pub mod moments;
mod multiplexed;
mod named;
mod names;
mod origin;
mod outgoing;
mod packet;
mod pins;
mod places;
mod plain;
mod pool;
mod publish;
mod rates;
mod reached;
mod reader;
mod received;
pub mod recorded;
mod records;
mod relay;
mod repeat;
mod request_line;
mod requests;
mod resolve;
mod scribe;
pub mod secret;
mod segments;
mod sending;
mod sessions;
mod sighted;
pub mod sniff;
pub mod socks;
mod spare;
mod spec;
mod spelling;
pub mod standstill;
mod stream;
mod tapped;
mod target;
pub mod tls;
mod trailers;
mod transcript;
mod turning;
mod unix;
mod unread;
mod unresolved;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};

pub use self::decide::Refusal;
pub use self::error::{Blame, NetproxyError};
pub use self::names::Answer;
pub use self::packet::Answers;
pub use self::pins::Pins;
pub use self::publish::{Inside, Published};
pub use self::resolve::{Family, Found, HostNetwork, Outside, Pending};
pub use self::spec::{HasLeft, Listeners, ProxySpec, StreamOptions, Unread, Upstream, WhoAsked};

use self::decide::Judge;
use self::egress::Egress;
use self::listen::Bound;
use self::recorded::Recording;
use self::scribe::Scribe;
use self::tls::Tls;
use self::turning::Turning;
use crate::sys::image;

/// A run that takes longer than this lasts: what only its beginning needed of the program is let go of.
const BEGUN: Duration = Duration::from_millis(250);

/// How long the threads wait before they close what they hold, when nothing is left to be done.
const LINGER: Duration = Duration::from_millis(5);

/// How long streams that still move bytes may take once the run is over.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// A stream that moves nothing for so long, once the run is over, is cut.
const SILENCE: Duration = Duration::from_millis(50);

/// How long stopping may take in all.
const STOP: Duration = Duration::from_secs(2);

/// A running proxy.
pub struct Proxy {
    pins: Arc<Pins>,
    egress: Arc<Egress>,
    stop: Option<oneshot::Sender<()>>,
    stopped: mpsc::Receiver<Left>,
    thread: JoinHandle<()>,
    scribe: JoinHandle<()>,
}

/// Starts the proxy on a thread of its own.
///
/// # Errors
/// When a socket cannot be used, or the machine gives no thread or event loop.
pub fn start(spec: ProxySpec) -> Result<Proxy, NetproxyError> {
    let outside: Arc<dyn Outside> = match &spec.upstream {
        Upstream::Live => Arc::new(HostNetwork::default()),
        Upstream::Recorded(recording) => Arc::clone(recording) as Arc<dyn Outside>,
        Upstream::Turning(recording, turn) => Arc::new(Turning::new(Arc::clone(recording), Arc::clone(turn))),
    };
    start_with(spec, outside)
}

/// The same with another outside than the host's network.
///
/// # Errors
/// As [`start`].
pub fn start_with(spec: ProxySpec, outside: Arc<dyn Outside>) -> Result<Proxy, NetproxyError> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| NetproxyError::Runtime { source })?;
    let bound = {
        let _inside = runtime.enter();
        Bound::new(spec.listeners, &spec.policy)?
    };
    let (recording, turn) = match spec.upstream {
        Upstream::Live => (None, None),
        Upstream::Recorded(recording) => (Some(recording), None),
        Upstream::Turning(recording, turn) => (Some(recording), Some(turn)),
    };
    let leaves = recording.as_ref().map(|recording| recording.leaves()).unwrap_or_default();
    let tls = spec.tls.map(|tls| Arc::new(Tls::new(tls, leaves)));
    let pins = Arc::new(Pins::default());
    let (scribe, scribe_thread) = Scribe::start(spec.recorder.clone())?;
    let own_name = spec.host_name.as_deref().and_then(authority::normalize);
    let egress = Arc::new(Egress {
        judge: Judge::new(spec.policy, Arc::clone(&pins), own_name),
        pins: Arc::clone(&pins),
        recorder: spec.recorder,
        scribe,
        redactor: spec.redactor,
        who: spec.who,
        unread: spec.unread,
        has_left: spec.has_left,
        tls,
        pool: Arc::default(),
        secrets: spec.secrets,
        idle_timeout: spec.idle_timeout,
        outside,
        recording,
        turn,
        replayable: spec.replayable,
        places: Arc::default(),
        lookups: Arc::new(Semaphore::new(dns::MAX_LOOKUPS)),
        enforce: spec.enforce,
        ending: AtomicBool::new(false),
        open: AtomicUsize::new(0),
        moved: AtomicU64::new(0),
    });
    let (stop, stopping) = oneshot::channel();
    let (report, stopped) = mpsc::channel();
    let shared = Arc::clone(&egress);
    let thread = std::thread::Builder::new()
        .name("netproxy".to_owned())
        .spawn(move || serve(runtime, bound, &shared, stopping, &report))
        .map_err(|source| NetproxyError::Thread { source })?;
    Ok(Proxy { pins, egress, stop: Some(stop), stopped, thread, scribe: scribe_thread })
}

impl Proxy {
    /// The names and addresses of this run.
    #[must_use]
    pub fn pins(&self) -> Arc<Pins> {
        Arc::clone(&self.pins)
    }

    /// The decision about a connection that has said nothing yet, for whoever sees it first: the rule that
    /// allows it.
    pub fn judge(&self) -> impl Fn(SocketAddr) -> Result<String, Refusal> + use<> {
        let egress = Arc::clone(&self.egress);
        move |destination| match destination.port() {
            // Whatever name server is meant, ours answers.
            dns::PORT => Ok("the name server inside".to_owned()),
            _ => {
                let grant = egress.judge.destination(destination, decide::Claim::Silent);
                grant.map(|grant| grant.rule().to_owned())
            }
        }
    }

    /// Tells what is played in place of the outside, while something is.
    pub fn played(&self) -> impl Fn() -> Option<Arc<Recording>> + use<> {
        let egress = Arc::clone(&self.egress);
        move || egress.played().cloned()
    }

    /// Lets the proxy begin to end, as [`stop`](Self::stop) does; it goes on by itself.
    pub fn begin_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread ends by itself only when it has failed.
            let _ = stop.send(());
        }
    }

    /// Ends the proxy once the program has ended: bytes under way are delivered, everything still
    /// open is recorded as ended, and its threads are joined. Where nothing is open or waits to be
    /// stored, they close what they hold by themselves.
    ///
    /// # Errors
    /// When the event loop does not end within 2 s; it is left behind then.
    pub fn stop(mut self) -> Result<(), NetproxyError> {
        self.begin_to_stop();
        match self.stopped.recv_timeout(STOP) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(NetproxyError::Stop { seconds: STOP.as_secs() });
            }
            Ok(Left::Nothing) => {
                self.egress.recorder.give_up_ballast();
                return Ok(());
            }
            Ok(Left::Something) | Err(mpsc::RecvTimeoutError::Disconnected) => {}
        }
        // What passed is stored, however long the disk takes for it.
        self.egress.scribe.close();
        let ended = self.thread.join().and_then(|()| self.scribe.join());
        ended.map_err(|_| NetproxyError::Thread { source: std::io::Error::other("it panicked") })
    }

    /// The number of streams that are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.egress.open.load(Ordering::Relaxed)
    }
}

/// What was under way when the event loop ended.
#[derive(Clone, Copy)]
enum Left {
    Nothing,
    Something,
}

fn serve(
    runtime: Runtime,
    bound: Bound,
    egress: &Arc<Egress>,
    mut stopping: oneshot::Receiver<()>,
    report: &mpsc::Sender<Left>,
) {
    let tasks = runtime.metrics();
    let listening = runtime.block_on(async {
        bound.spawn(egress);
        let listening = tasks.num_alive_tasks();
        // An error means that the handle was dropped: the run is over as well.
        if timeout(BEGUN, &mut stopping).await.is_err() {
            image::let_go();
            let _ = stopping.await;
        }
        last_bytes(egress).await;
        egress.pool.clear();
        // The tasks of what was closed end.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        listening
    });
    egress.ending.store(true, Ordering::Relaxed);
    // No task runs on this thread any more, and where there are none but those that listen, none has
    // anything to record: nobody has to wait for their end.
    let idle = tasks.num_alive_tasks() == listening
        && egress.open.load(Ordering::Relaxed) == 0
        && egress.scribe.is_idle();
    // The receiver may have given up waiting.
    let tell = |left| _ = report.send(left);
    if idle {
        tell(Left::Nothing);
        // Whoever heard that needs this processor, and the whole process may end before.
        std::thread::sleep(LINGER);
        egress.scribe.close();
    }
    // Dropping the tasks records what is still open.
    drop(runtime);
    if !idle {
        tell(Left::Something);
    }
}

/// Waits for streams that still deliver what the program sent before it ended.
async fn last_bytes(egress: &Egress) {
    // Connections that wait to be accepted count as well.
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let deadline = Instant::now() + LAST_BYTES;
    let mut moved = egress.moved.load(Ordering::Relaxed);
    let mut silent_since = Instant::now();
    while egress.open.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
        sleep(Duration::from_millis(1)).await;
        let now_moved = egress.moved.load(Ordering::Relaxed);
        if now_moved != moved {
            moved = now_moved;
            silent_since = Instant::now();
        } else if silent_since.elapsed() > SILENCE {
            return;
        }
    }
}
