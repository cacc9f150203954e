//! What pid 1 of the run says.

use super::{Stop, Supervisor};

impl Supervisor {
    /// Waits for the next of it.
    pub(super) fn hear(&self) -> Result<Vec<u8>, Stop> {
        let mut bytes = vec![0; 4096];
        let received = crate::sys::scm::receive(&self.channel, &mut bytes);
        match received {
            Ok((length, _)) => {
                bytes.truncate(length);
                Ok(bytes)
            }
            // Pid 1 was killed: its end of the channel is gone without a word.
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => Ok(Vec::new()),
            Err(source) => Err(Stop::Receive { call: "recvmsg", source }),
        }
    }

    /// Takes in what pid 1 said by itself: the first of it is why or how the command ended.
    pub(super) fn heed(&mut self, words: Vec<u8>) {
        self.ended |= (self.words.is_end)(&words);
        self.silent |= self.ended || words.is_empty();
        self.last_words.get_or_insert(words);
    }
}
