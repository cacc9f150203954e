//! The recording as the outside: names and dials end here.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::rr::RecordType;
use serde_json::Value;

use super::super::moments;
use super::super::origin::OriginStream;
use super::super::resolve::{Datagrams, Family, Found, Outside, Pending, Question, Wanted};
use super::Recording;
use super::playback::{Ending, Playback};
use super::streams::Dialled;

/// A dial that took so long was not the only one: the next address was tried beside it.
const LONG: Duration = Duration::from_millis(250);

/// What is waited for in place of such a dial.
const LONG_ENOUGH: Duration = Duration::from_millis(300);

impl Outside for Recording {
    fn lookup<'a>(&'a self, asked: Question<'a>, family: Family) -> Pending<'a, Result<Found, String>> {
        Box::pin(async move { self.lookups.addresses(asked.name, family, asked.proc) })
    }

    fn records<'a>(&'a self, asked: Question<'a>, kind: RecordType) -> Pending<'a, Result<Found, String>> {
        Box::pin(async move { self.lookups.records(asked.name, kind, asked.proc) })
    }

    fn connect<'a>(&'a self, wanted: Wanted<'a>) -> Pending<'a, io::Result<OriginStream>> {
        Box::pin(async move {
            let playback = self.dial(&wanted.destination.to_string(), wanted.proc).await?;
            Ok(OriginStream::Recorded(Box::new(playback)))
        })
    }

    fn datagrams(&self, wanted: Wanted<'_>) -> io::Result<Datagrams> {
        let session = self.session(&wanted.destination.to_string(), wanted.proc)?;
        Ok(Datagrams::Recorded(Box::new(session)))
    }
}

impl Recording {
    /// In place of a connection to the host's Unix socket at `path`.
    pub(crate) async fn connect_unix(&self, path: &Path, proc: Option<&str>) -> io::Result<Playback> {
        let shown = crate::trace::display_bytes(path.as_os_str().as_encoded_bytes());
        self.dial(&format!("unix:{shown}"), proc).await
    }

    async fn dial(&self, key: &str, proc: Option<&str>) -> io::Result<Playback> {
        let played = self.streams.take(key, proc)?;
        let (dialled, waited) = played.dialled();
        if waited > LONG {
            moments::pass(LONG_ENOUGH).await;
        }
        match dialled {
            Dialled::Failed(error) => return Err(error),
            Dialled::GivenUp => std::future::pending().await,
            Dialled::Accepted => {}
        }
        let (transcripts, ending) = (played.transcripts(), played.ending());
        Playback::new(self, Some(played), transcripts, ending)
    }

    /// What an exchange had become, of its result.
    pub(super) async fn upgraded(self: Arc<Self>, result: Value) -> Option<Playback> {
        let upgraded = result.get("upgraded")?;
        let transcript = upgraded.get("transcript")?.get("blob")?.as_str()?.to_owned();
        Playback::new(&self, None, vec![transcript], Ending::of(upgraded)?).ok()
    }
}
