//! Host Unix sockets: bytes alone pass. Descriptors that a peer sends are dropped by the kernel,
//! since nothing here ever asks for them, and that is recorded (man 7 unix, SCM_RIGHTS).

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::socket::{MsgFlags, recvmsg};
use nix::sys::stat::{SFlag, fstat};
use serde_json::Map;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

use super::decide::Refusal;
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::{Door, Flow};
use super::idle::IdleClock;
use super::recorded::Carries;
use super::relay::relay;
use super::secret::{Lookout, Watching};
use crate::policy::{PathAccess, Policy, Verdict};
use crate::trace::path_value;

/// A socket of the host that a rule names.
#[derive(Debug)]
pub(crate) struct HostSocket {
    path: PathBuf,
    /// Where the agent can write, it could put another socket of the host or a link in the place
    /// of this one: there the socket that was there before the agent started is meant, and none
    /// else.
    pinned: Option<nix::Result<OwnedFd>>,
}

impl HostSocket {
    /// Must be called before the agent starts.
    pub(crate) fn new(path: PathBuf, policy: &Policy) -> Self {
        let exposed = path.ancestors().any(|above| policy.decide_path(PathAccess::Write, above).is_allow());
        let pinned = exposed.then(|| open(&path));
        Self { path, pinned }
    }

    /// An O_PATH descriptor of the socket.
    fn open(&self) -> io::Result<OwnedFd> {
        match &self.pinned {
            Some(Ok(socket)) => socket.try_clone(),
            Some(Err(errno)) => Err((*errno).into()),
            None => Ok(open(&self.path)?),
        }
    }
}

/// Rules hold the path with links followed, so a link in it is one that was put there later.
fn open(path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let socket = openat2(AT_FDCWD, path, how)?;
    let kind = SFlag::from_bits_truncate(fstat(&socket)?.st_mode) & SFlag::S_IFMT;
    if kind == SFlag::S_IFSOCK { Ok(socket) } else { Err(Errno::ECONNREFUSED) }
}

/// Carries one stream between a listener inside and the host's socket.
pub(crate) async fn carry(
    egress: Arc<Egress>,
    host: Arc<HostSocket>,
    client: UnixStream,
    idle: IdleClock,
    _place: OwnedSemaphorePermit,
) {
    let path = &host.path;
    let rule = match egress.judge.unix(path) {
        Verdict::Allow { rule } => egress.judge.label(rule),
        Verdict::Deny { rule, reason } => {
            let rule = rule.map(|rule| egress.judge.label(rule));
            if egress.refuse(&refusal(path, reason, rule), None).is_err() || egress.enforce {
                return;
            }
            "--observe".to_owned()
        }
    };
    let mut args = Map::new();
    args.extend(path_value("path", path.as_os_str().as_encoded_bytes()));
    let Ok(flow) = Flow::begin(&egress, args, &rule, Door::Unix, None, &idle) else { return };
    let watch = |from| {
        let (egress, path) = (Arc::clone(&egress), path.clone());
        move || {
            let reason = format!("descriptors do not pass; {from} sent some, and they were dropped");
            egress.refuse_always(&refusal(&path, reason, None), None)
        }
    };
    let client = BytesOnly::new(client, watch("the agent"));
    let connected = match egress.played() {
        Some(recording) => match recording.connect_unix(path, None).await {
            Ok(mut playback) => {
                // Its first reader is told.
                let _ = flow.settle(&mut playback, Carries::Bytes);
                if let Some(played) = playback.played() {
                    flow.set_played(played);
                }
                return join(&egress, &flow, path, client, playback).await;
            }
            Err(error) => Err(error),
        },
        None => connect(&host).await,
    };
    match connected {
        Ok(upstream) => {
            let upstream = BytesOnly::new(upstream, watch("the host's program"));
            join(&egress, &flow, path, client, upstream).await;
        }
        Err(error) => {
            flow.fail_to_connect(&error);
        }
    }
}

/// Relays between the two ends.
async fn join<C, U>(egress: &Arc<Egress>, flow: &Arc<Flow>, path: &Path, mut client: C, upstream: U)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let transcript = flow.transcribe();
    let mut client = Watching::new(&mut client, Lookout::to(egress, refusal(path, String::new(), None)));
    let end = relay(&mut client, &mut flow.meter(upstream), &transcript).await;
    flow.set_relayed(&end);
}

async fn connect(host: &HostSocket) -> io::Result<UnixStream> {
    let socket = host.open()?;
    // Through the descriptor, so that it is this very socket (proc_pid_fd(5)).
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
}

fn refusal(path: &Path, reason: String, rule: Option<String>) -> Refusal {
    Refusal {
        target: format!("unix:{}", path.display()),
        name: None,
        address: None,
        port: None,
        reason,
        rule,
        remedy: None,
    }
}

/// A stream that tells when descriptors came with the bytes.
struct BytesOnly<F> {
    stream: UnixStream,
    dropped: F,
}

impl<F> BytesOnly<F> {
    fn new(stream: UnixStream, dropped: F) -> Self {
        Self { stream, dropped }
    }
}

impl<F> AsyncRead for BytesOnly<F>
where
    F: Fn() -> Result<(), NetproxyError> + Unpin,
{
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let room = buffer.initialize_unfilled();
            let received = self.stream.try_io(Interest::READABLE, || {
                let mut parts = [IoSliceMut::new(room)];
                let flags = MsgFlags::MSG_DONTWAIT;
                let message = recvmsg::<()>(self.stream.as_raw_fd(), &mut parts, None, flags)?;
                // No room for them was given: set when there were any, which are gone then.
                Ok((message.bytes, message.flags.contains(MsgFlags::MSG_CTRUNC)))
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok((length, dropped)) => {
                    if dropped {
                        (self.dropped)().map_err(io::Error::other)?;
                    }
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<F: Unpin> AsyncWrite for BytesOnly<F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
