//! The name server over TCP: the queries of one connection are looked up side by side, and each reply
//! is sent as soon as it is there (RFC 7766 section 6.2.1.1).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::Client;
use super::dns::{self, Carrier};
use super::egress::Egress;

/// How long an idle connection is kept (RFC 7766 section 6.2.3).
const IDLE: Duration = Duration::from_secs(30);

/// How long a client may take nothing of what is sent to it.
const STALLED: Duration = Duration::from_secs(30);

/// Queries of one connection that are under way at once; further ones wait to be read.
const MAX_QUERIES: usize = 16;

/// A message behind its length; none where the connection must end.
type Reply = Option<Vec<u8>>;

/// Serves one connection until either side ends it.
pub(crate) async fn serve(egress: Arc<Egress>, client: Client) {
    let proc = client.proc.clone();
    client.heads().stop();
    let (reader, writer) = split(client);
    let (replies, queue) = mpsc::channel(MAX_QUERIES);
    // Dropped last, and what is looked up for a client that has gone away with it.
    let mut lookups = JoinSet::new();
    let reading = read(&egress, reader, proc.as_deref(), replies, &mut lookups);
    let writing = write(writer, queue);
    tokio::pin!(reading, writing);
    tokio::select! {
        // Nothing more can be told.
        _ = &mut writing => {}
        // Half closed: what was asked is still answered.
        () = &mut reading => { let _ = writing.await; }
    }
}

/// Reads queries until the end of the stream.
async fn read(
    egress: &Arc<Egress>,
    mut client: impl AsyncRead + Unpin,
    proc: Option<&str>,
    replies: mpsc::Sender<Reply>,
    lookups: &mut JoinSet<()>,
) {
    loop {
        // Each query has a place for its reply, so no lookup waits for a slow reader.
        let Ok(place) = replies.clone().reserve_owned().await else { return };
        let Ok(Ok(packet)) = timeout(IDLE, read_message(&mut client)).await else { return };
        let Ok(permit) = Arc::clone(&egress.lookups).acquire_owned().await else { return };
        let (egress, proc) = (Arc::clone(egress), proc.map(str::to_owned));
        lookups.spawn(async move {
            let reply = dns::answer(&egress, &packet, Carrier::Tcp, proc.as_deref()).await;
            place.send(reply.ok().flatten().and_then(framed));
            drop(permit);
        });
        // Only those under way are kept.
        while lookups.try_join_next().is_some() {}
    }
}

async fn read_message(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = client.read_u16().await?;
    let mut packet = vec![0; usize::from(length)];
    client.read_exact(&mut packet).await?;
    Ok(packet)
}

/// Sends replies as they come, until there can be no more.
async fn write(mut client: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Reply>) -> io::Result<()> {
    while let Some(Some(reply)) = queue.recv().await {
        timeout(STALLED, client.write_all(&reply)).await??;
    }
    Ok(())
}

fn framed(message: Vec<u8>) -> Reply {
    let length = u16::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes(), &message[..]].concat())
}
