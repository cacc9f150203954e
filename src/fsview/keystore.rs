//! Keystores for Java in the format JKS, which every Java reads under the name `cacerts`, whatever
//! its default format is.
//!
//! The format is that of the JDK's `sun.security.provider.JavaKeyStore`: a head, one entry for
//! each trusted certificate, and a digest that is keyed with the store's password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
/// An entry with a certificate that is trusted.
const TRUSTED: u32 = 2;
/// Magic, version, number of entries.
const HEAD: usize = 12;
const DIGEST: usize = 20;
/// The password that every Java has for its trusted certificates.
const PASSWORD: &str = "changeit";
/// What the JDK mixes into the digest.
const WHITENER: &[u8] = b"Mighty Aphrodite";

/// The certificates of a PEM text, in DER.
pub(super) fn certificates(text: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut block: Option<Vec<u8>> = None;
    for line in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        if line.starts_with(b"-----BEGIN ") {
            // The attributes after a trusted certificate are no part of it.
            block = line.ends_with(b"BEGIN CERTIFICATE-----").then(Vec::new);
        } else if line.starts_with(b"-----END ") {
            found.extend(block.take().and_then(|text| STANDARD.decode(text).ok()));
        } else if let Some(block) = &mut block {
            block.extend_from_slice(line);
        }
    }
    found
}

/// A keystore of these certificates.
pub(super) fn new(certificates: &[Vec<u8>]) -> Vec<u8> {
    let mut store = head(0);
    add(&mut store, 0, certificates);
    store
}

/// `store` with these certificates besides; `None` if it is of another format.
pub(super) fn with(store: &[u8], certificates: &[Vec<u8>]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u32::from_be_bytes(store.get(at..at + 4)?.try_into().ok()?));
    let body_end = store.len().checked_sub(DIGEST).filter(|end| *end >= HEAD)?;
    if word(0)? != MAGIC || word(4)? != VERSION {
        return None;
    }
    let count = word(8)?;
    count.checked_add(u32::try_from(certificates.len()).ok()?)?;
    let mut whole = Vec::with_capacity(store.len() + 4096);
    whole.extend_from_slice(&store[..body_end]);
    add(&mut whole, count, certificates);
    Some(whole)
}

fn head(count: u32) -> Vec<u8> {
    [MAGIC, VERSION, count].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Adds entries to a store that has `count` of them and no digest yet.
fn add(store: &mut Vec<u8>, count: u32, certificates: &[Vec<u8>]) {
    let mut total = count;
    for certificate in certificates {
        let Ok(length) = u32::try_from(certificate.len()) else { continue };
        store.extend_from_slice(&TRUSTED.to_be_bytes());
        // No name of the host's own store.
        text(store, &format!("agentbox-{total}"));
        // When it was made, which nobody asks for.
        store.extend_from_slice(&0_u64.to_be_bytes());
        text(store, "X.509");
        store.extend_from_slice(&length.to_be_bytes());
        store.extend_from_slice(certificate);
        total += 1;
    }
    store[8..HEAD].copy_from_slice(&total.to_be_bytes());
    let mut digest = Sha1::new();
    digest.update(PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>());
    digest.update(WHITENER);
    digest.update(&store);
    store.extend_from_slice(&digest.finalize());
}

/// As java.io.DataOutput.writeUTF, for ASCII.
fn text(store: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    store.extend_from_slice(&length.to_be_bytes());
    store.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_added_to_a_store_that_is_there() {
        let (one, two) = (vec![0x30, 1], vec![0x30, 2, 3]);
        let both = new(&[one.clone(), two.clone()]);
        assert_eq!(with(&new(std::slice::from_ref(&one)), std::slice::from_ref(&two)), Some(both));
        assert_eq!(with(&new(&[]), &[one.clone(), two]), with(&new(&[one]), &[vec![0x30, 2, 3]]));
    }

    #[test]
    fn other_formats_are_left_alone() {
        for other in [
            &b""[..],
            &[0xfe; 40],
            &[&new(&[])[..8], &[0xff; 24]].concat(),
            b"\x30\x82\x01\x00\x02\x01\x03",
            &new(&[])[..31],
        ] {
            assert_eq!(with(other, &[vec![0x30]]), None);
        }
    }

    #[test]
    fn certificates_are_read_from_text() {
        let text = "x\n-----BEGIN CERTIFICATE-----\nMAEC\nMAED\n-----END CERTIFICATE-----\n\
            -----BEGIN TRUSTED CERTIFICATE-----\nMAEC\n-----END TRUSTED CERTIFICATE-----\n";
        assert_eq!(certificates(text.as_bytes()), [[0x30, 1, 2, 0x30, 1, 3]]);
    }
}
