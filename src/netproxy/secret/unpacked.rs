//! A request's body as its receiver reads it: with its content coding taken off, to be searched.

use bytes::Bytes;
use http::HeaderMap;

use super::coding::Decoder;
use super::watch::Watch;

/// What a body may grow to at least.
const ALWAYS: u64 = 8 << 20;

/// How many times as long as it came it may be beyond that: no coding packs what people write so well.
const TIMES: u64 = 100;

/// What is found in a body, or why it cannot be searched.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Placeholder(usize),
    /// It grows so much that looking for anything would take for ever.
    Bomb,
}

/// A body whose coding is one that we undo.
pub(super) struct Unpacked {
    decoder: Decoder,
    watch: Watch,
    coded: u64,
    plain: u64,
    /// It is not what its head says: whoever gets it cannot read it either.
    is_garbled: bool,
}

impl Unpacked {
    /// None where nothing is to be taken off, or nothing here does.
    pub(super) fn of(headers: &HeaderMap, watch: &Watch) -> Option<Self> {
        let decoder = Decoder::of(headers).ok().filter(|decoder| !decoder.is_identity())?;
        Some(Self { decoder, watch: watch.again(), coded: 0, plain: 0, is_garbled: false })
    }

    /// Looks at what passes.
    pub(super) fn see(&mut self, bytes: &Bytes) -> Found {
        if self.is_garbled {
            return Found::Nothing;
        }
        self.coded += bytes.len() as u64;
        self.decoder.take(bytes.clone());
        loop {
            let plain = match self.decoder.step() {
                Ok(Some(plain)) => plain,
                Ok(None) => return Found::Nothing,
                Err(_) => {
                    self.is_garbled = true;
                    return Found::Nothing;
                }
            };
            self.plain += plain.len() as u64;
            if let Some(secret) = self.watch.see(&plain) {
                return Found::Placeholder(secret);
            }
            if self.plain > ALWAYS + TIMES * self.coded {
                return Found::Bomb;
            }
        }
    }
}
