//! A run of the proxy, and the same again from what was recorded of it.

use std::io::{Cursor, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::recorded::{Blobs, Recording};
use super::world::{Bench, Plan, until};
use crate::trace::{Event, Kind, Recorder};

/// What was recorded.
pub(super) struct Recorded {
    pub(super) entries: Vec<Value>,
    recorder: Recorder,
}

impl Recorded {
    /// All of a proxy that has ended.
    pub(super) fn of(mut bench: Bench) -> Self {
        let egress = Arc::clone(&bench.proxy.as_ref().unwrap().egress);
        bench.stop().unwrap();
        let recorder = bench.recorder.clone();
        // What ends with the proxy is stored when its threads have let go of it.
        until("the proxy has ended", || {
            Arc::strong_count(&egress) == 1 && Arc::strong_count(&egress.scribe) == 1
        });
        assert!(recorder.events().iter().any(|event| event.kind == Kind::Effect), "nothing was recorded");
        let entries =
            recorder.events().iter().enumerate().map(|(number, event)| line(number, event)).collect();
        Self { entries, recorder }
    }

    pub(super) fn recording(&self) -> Arc<Recording> {
        self.recording_of(self.entries.clone())
    }

    pub(super) fn recording_of(&self, entries: Vec<Value>) -> Arc<Recording> {
        self.damaged(entries, Some)
    }

    /// One of whose blobs less is left; none of some.
    pub(super) fn damaged(
        &self,
        entries: Vec<Value>,
        left: impl Fn(Vec<u8>) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Arc<Recording> {
        let recorder = self.recorder.clone();
        let blobs: Blobs = Arc::new(move |name: &str| {
            let content = recorder.blob_content(name).and_then(&left).ok_or(std::io::ErrorKind::NotFound)?;
            Ok(Box::new(Cursor::new(content)) as Box<dyn Read + Send>)
        });
        let recording = Recording::of(entries, blobs, false);
        assert_eq!(recording.refusal(), None);
        Arc::new(recording)
    }

    /// Entries of one operation, without what is never compared.
    pub(super) fn compared(&self, op: &str) -> Vec<Value> {
        self.entries.iter().filter(|entry| entry["op"] == op).map(compared).collect()
    }
}

fn line(number: usize, event: &Event) -> Value {
    let mut line = json!({
        "i": number, "ts": 0.0, "op": event.op, "args": event.args, "proc": event.proc, "rule": event.rule,
    });
    if let Some(result) = &event.result {
        line["result"] = result.clone();
    }
    line
}

/// Without numbers, times, addresses and what tells of the replay itself.
fn compared(entry: &Value) -> Value {
    let mut entry = entry.clone();
    entry["i"] = Value::Null;
    if let Some(result) = entry.get_mut("result").and_then(Value::as_object_mut) {
        for volatile in
            ["timing", "segments", "seconds", "opened", "waited", "replayed", "transcript", "address", "wire"]
        {
            result.remove(volatile);
        }
        if result.get("protocol").is_some_and(|protocol| protocol == "tls") {
            // TLS that was relayed: who closes first is a race.
            result.remove("end");
        }
        if let Some(upgraded) = result.get_mut("upgraded").and_then(Value::as_object_mut) {
            upgraded.remove("transcript");
        }
    }
    entry
}

/// Does the same with the outside and without it, and demands that both be recorded alike.
pub(super) fn twice<T>(plan: &Plan<'_>, act: impl Fn(&Bench) -> T) -> (Recorded, Recorded)
where
    T: PartialEq + std::fmt::Debug,
{
    let bench = Bench::start(plan);
    let before = act(&bench);
    let recorded = Recorded::of(bench);
    let replayed = again(plan, &recorded.recording(), |bench| assert_eq!(act(bench), before));
    for op in ["dns.lookup", "net.connect", "net.stream", "http.exchange", "net"] {
        let (one, other) = (recorded.compared(op), replayed.compared(op));
        assert_eq!(one, other, "{op}");
    }
    (recorded, replayed)
}

/// Acts on a replay alone.
pub(super) fn again(plan: &Plan<'_>, recording: &Arc<Recording>, act: impl Fn(&Bench)) -> Recorded {
    // Where something leads outside is not told: it would be of no use.
    let routes: Vec<(&str, Option<SocketAddr>)> =
        plan.routes.iter().map(|(destination, _)| (*destination, None)).collect();
    let plan = Plan {
        policy: plan.policy,
        routes: &routes,
        loopback: plan.loopback,
        observe: plan.observe,
        secrets: plan.secrets,
        tls: plan.tls,
        authority: plan.authority,
        names: &[],
        replays: Some(recording),
    };
    let bench = Bench::start(&plan);
    act(&bench);
    assert!(bench.world.asked.lock().unwrap().is_empty(), "a name server was asked");
    Recorded::of(bench)
}

/// Reads until the other side ends.
pub(super) fn rest(stream: &mut TcpStream) -> Result<String, (std::io::ErrorKind, String)> {
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    let text = String::from_utf8_lossy(&rest).into_owned();
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err((error.kind(), text)),
    }
}

/// A replay has no [`HostNetwork`](super::super::HostNetwork): who else went out would go out in a replay too.
#[test]
fn the_outside_is_reached_in_one_place() {
    let mut found = Vec::new();
    let mut waiting = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/netproxy")];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                waiting.push(path.clone());
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            let ways = [
                "TcpStream::connect(",
                "UnixStream::connect(",
                "UdpSocket::bind(",
                "TcpSocket::",
                "TokioResolver",
            ];
            if ways.iter().any(|way| product.contains(way)) {
                found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    // `publish` connects to servers inside; `unix` asks the recording before it connects.
    assert_eq!(found, ["publish.rs", "resolve.rs", "unix.rs"]);
}
