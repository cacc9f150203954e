//! A request's body as its receiver reads it: with its content coding taken off, to be searched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::HeaderMap;

use super::coding::Decoder;
use super::watch::Watch;

/// What a body may grow to at least.
const ALWAYS: u64 = 8 << 20;

/// How many times as long as it came it may be beyond that: no coding packs what people write so well.
const TIMES: u64 = 100;

/// Bodies that are unpacked at once, of both directions: each may hold a window of 16 MiB (RFC 7932 section 9.1).
const MOST: usize = 32;

/// Counts those of one run.
#[derive(Clone, Default)]
pub(super) struct Count(Arc<AtomicUsize>);

/// One of them.
pub(crate) struct Opened(Count);

impl Count {
    /// None where there are too many.
    pub(super) fn open(&self) -> Option<Opened> {
        let add = |open: usize| (open < MOST).then_some(open + 1);
        let counted = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        counted.ok().map(|_| Opened(self.clone()))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// There are so many of them already.
#[derive(Debug)]
pub(super) struct TooMany;

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
    _opened: Opened,
}

impl Unpacked {
    /// None where nothing is to be taken off, or nothing here does.
    pub(super) fn of(headers: &HeaderMap, watch: &Watch, count: &Count) -> Result<Option<Self>, TooMany> {
        let Some(decoder) = Decoder::of(headers).ok().filter(|decoder| !decoder.is_identity()) else {
            return Ok(None);
        };
        let opened = count.open().ok_or(TooMany)?;
        let watch = watch.again();
        Ok(Some(Self { decoder, watch, coded: 0, plain: 0, is_garbled: false, _opened: opened }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_unpacked_and_no_more() {
        let secrets = super::super::Secrets::default();
        let decoder = |coding: &'static str| {
            let coded = http::header::HeaderValue::from_static(coding);
            Decoder::of(&HeaderMap::from_iter([(http::header::CONTENT_ENCODING, coded)])).unwrap()
        };
        let mut open: Vec<_> =
            (0..MOST).map(|_| secrets.unpacks(&decoder("br")).ok().flatten().unwrap()).collect();
        assert!(secrets.unpacks(&decoder("zstd")).is_err() && secrets.unpacked.open().is_none());
        assert!(secrets.unpacks(&decoder("gzip")).is_ok_and(|opened| opened.is_none()));
        open.pop();
        assert!(secrets.unpacks(&decoder("zstd")).is_ok_and(|opened| opened.is_some()));
    }
}
