//! Traces that no run has recorded: entries changed, and the chain made anew (docs/trace.md).

use std::fs;
use std::path::{Path, PathBuf};

use agentbox::trace::canonical;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A trace that is being made from another one.
#[derive(Debug)]
pub(crate) struct Forged {
    path: PathBuf,
    pub(crate) entries: Vec<Value>,
}

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    agentbox::trace::hex(&Sha256::digest(bytes))
}

impl Forged {
    /// Begins with a copy of the trace `from`, at `path`.
    pub(crate) fn of(from: &Path, path: &Path) -> Self {
        let blobs = |path: &Path| PathBuf::from(format!("{}.blobs", path.display()));
        let _ = fs::remove_dir_all(blobs(path));
        fs::create_dir(blobs(path)).expect("a directory");
        for blob in fs::read_dir(blobs(from)).expect("a directory") {
            let blob = blob.expect("an entry").path();
            fs::copy(&blob, blobs(path).join(blob.file_name().expect("a name"))).expect("copies");
        }
        let text = fs::read_to_string(from).expect("reads");
        let entries = text.lines().map(|line| serde_json::from_str(line).expect("an entry")).collect();
        Self { path: path.to_owned(), entries }
    }

    /// Where the blob of a digest lies.
    pub(crate) fn blob_path(&self, sha256: &str) -> PathBuf {
        PathBuf::from(format!("{}.blobs/{sha256}.zst", self.path.display()))
    }

    /// Stores a body; gives the reference.
    pub(crate) fn blob(&self, content: &[u8]) -> Value {
        let name = sha256(content);
        let packed = zstd::encode_all(content, 1).expect("zstd");
        fs::write(self.blob_path(&name), packed).expect("writes");
        json!({"blob": name, "private": true, "size": content.len()})
    }

    /// The body of a reference.
    pub(crate) fn content(&self, reference: &Value) -> Vec<u8> {
        let name = reference["blob"].as_str().expect("a reference");
        zstd::decode_all(&fs::read(self.blob_path(name)).expect("a blob")[..]).expect("zstd")
    }

    /// The first entry of an operation.
    pub(crate) fn first(&mut self, op: &str) -> &mut Value {
        self.entries.iter_mut().find(|entry| entry["op"] == op).unwrap_or_else(|| panic!("no {op}"))
    }

    /// Puts an observation of the command behind the beginning.
    pub(crate) fn insert(&mut self, op: &str, args: &Value) {
        let entry =
            json!({"args": args, "kind": "observe", "op": op, "proc": "0", "ts": self.entries[4]["ts"]});
        self.entries.insert(5, entry);
    }

    /// Changes what is in the private part of the run.
    pub(crate) fn private(&mut self, change: impl FnOnce(&mut Value)) {
        let reference = self.first("run.replay")["args"]["private"].clone();
        let mut private = serde_json::from_slice(&self.content(&reference)).expect("JSON");
        change(&mut private);
        let reference = self.blob(private.to_string().as_bytes());
        self.first("run.replay")["args"]["private"] = reference;
    }

    /// Writes it: what `verify` finds intact and sealed.
    pub(crate) fn write(&mut self) {
        let (mut previous, mut root) = ("0".repeat(64), "0".repeat(64));
        let mut text = String::new();
        for (at, entry) in self.entries.iter_mut().enumerate() {
            entry.as_object_mut().expect("an object").remove("sha");
            (entry["i"], entry["prev"]) = (at.into(), previous.clone().into());
            if entry["op"] == "run.seal" {
                entry["args"] = json!({"blobs": root, "entries": at, "head": previous});
            }
            previous = sha256(previous + &canonical::to_string(entry));
            entry["sha"] = previous.clone().into();
            let line = canonical::to_string(entry);
            for (from, _) in line.match_indices("\"blob\":\"") {
                let name = line[from + 8..].split('"').next().unwrap_or_default();
                let is_digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
                root = if is_digest { sha256(root + name) } else { root };
            }
            text += &line;
            text.push('\n');
        }
        fs::write(&self.path, text).expect("writes");
    }
}
