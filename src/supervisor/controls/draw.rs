//! Random bytes of a run: from its seed, by who asks and how often it has asked before.
//!
//! Each draw is a ChaCha20 stream of its own (RFC 8439), so that one that asks for more bytes than in
//! another run does not shift those that come after it.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};

use super::Seed;
use super::kin::Strand;

/// Version of what is drawn from a seed.
const DOMAIN: &[u8] = b"agentbox randomness 1";

/// What the bytes are for: no two purposes share any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::supervisor) enum Purpose {
    /// getrandom(2)
    Call,
    /// AT_RANDOM (getauxval(3))
    Start,
    /// /dev/random and /dev/urandom
    Device,
    /// /proc/sys/kernel/random/uuid
    Uuid,
    /// /proc/sys/kernel/random/boot_id
    Boot,
    /// Ports of sockets that are bound to port 0
    Port,
}

impl Purpose {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Call => b"getrandom",
            Self::Start => b"AT_RANDOM",
            Self::Device => b"/dev/random",
            Self::Uuid => b"uuid",
            Self::Boot => b"boot_id",
            Self::Port => b"port",
        }
    }
}

/// The bytes of one draw, without end.
pub(in crate::supervisor) struct Draw(ChaCha20Rng);

impl Draw {
    /// Draw `number` of `strand`; of the run itself where that is `None`.
    pub(in crate::supervisor) fn new(
        seed: &Seed,
        purpose: Purpose,
        strand: Option<&Strand>,
        number: u64,
    ) -> Self {
        let strand = strand.map(ToString::to_string).unwrap_or_default();
        let mut key = Sha256::new();
        for part in [DOMAIN, seed.bytes(), purpose.name(), strand.as_bytes()] {
            key.update((part.len() as u64).to_le_bytes());
            key.update(part);
        }
        let mut stream = ChaCha20Rng::from_seed(key.finalize().into());
        stream.set_stream(number);
        Self(stream)
    }

    /// Takes the next bytes.
    pub(in crate::supervisor) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Takes the next 16 bytes as a random UUID (RFC 9562, section 5.4).
    pub(in crate::supervisor) fn uuid(&mut self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = String::with_capacity(36);
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }
}

impl std::fmt::Debug for Draw {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Draw(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn strand(thread: &str) -> Strand {
        Strand { process: "0.1".to_owned(), program: 2, thread: thread.to_owned() }
    }

    fn drawn(seed: u8, purpose: Purpose, thread: u32, number: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        Draw::new(&Seed::new([seed; 32]), purpose, Some(&strand(&thread.to_string())), number)
            .fill(&mut bytes);
        bytes
    }

    #[test]
    fn whatever_differs_the_bytes_differ() {
        let mut seen = HashSet::new();
        for purpose in
            [Purpose::Call, Purpose::Start, Purpose::Device, Purpose::Uuid, Purpose::Boot, Purpose::Port]
        {
            for (seed, thread, number) in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)] {
                assert!(seen.insert(drawn(seed, purpose, thread, number, 16)));
            }
        }
    }

    #[test]
    fn a_longer_draw_begins_as_the_shorter_one() {
        let long = drawn(1, Purpose::Call, 0, 7, 1000);
        assert_eq!(drawn(1, Purpose::Call, 0, 7, 33), long[..33]);
    }

    #[test]
    fn what_was_drawn_once_is_drawn_again_by_every_later_version() {
        let hex: String =
            drawn(9, Purpose::Call, 3, 4, 16).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "a9737f84a63b05862c274fa3dc9db9ef");
    }

    #[test]
    fn a_uuid_says_that_it_is_random() {
        let text = Draw::new(&Seed::new([0; 32]), Purpose::Uuid, None, 0).uuid();
        let parts: Vec<&str> = text.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{text}");
    }
}
