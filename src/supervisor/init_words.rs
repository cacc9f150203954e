//! What pid 1 of the run says, and what it is asked for.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::SockType;

use super::{Stop, Supervisor};
use crate::sys::scm;

impl Supervisor {
    /// Waits for the next of it.
    pub(super) fn hear(&self) -> Result<Vec<u8>, Stop> {
        self.hear_all().map(|(bytes, _)| bytes)
    }

    fn hear_all(&self) -> Result<(Vec<u8>, Vec<OwnedFd>), Stop> {
        let mut bytes = vec![0; 4096];
        match scm::receive(&self.channel, &mut bytes) {
            Ok((length, descriptors)) => {
                bytes.truncate(length);
                Ok((bytes, descriptors))
            }
            // Pid 1 was killed: its end of the channel is gone without a word.
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => Ok(Default::default()),
            Err(source) => Err(Stop::Receive { call: "recvmsg", source }),
        }
    }

    /// Takes in what pid 1 said by itself: the first of it is why or how the command ended.
    pub(super) fn heed(&mut self, words: Vec<u8>) {
        self.ended |= (self.words.is_end)(&words);
        self.silent |= self.ended || words.is_empty();
        self.last_words.get_or_insert(words);
    }

    /// Has pid 1 do something inside.
    pub(super) fn ask_init(
        &mut self,
        request: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<nix::Result<()>, Stop> {
        Ok(self.ask_init_for(request, descriptors)?.map(drop))
    }

    /// A pair of connected Unix sockets of the run's own network: one of the host's would show, and
    /// take up, what is there (netdevice(7), abstract names).
    pub(super) fn pair_inside(&mut self, kind: SockType) -> Result<nix::Result<(OwnedFd, OwnedFd)>, Stop> {
        let made = self.ask_init_for(&(self.words.pair)(kind), &[])?;
        Ok(made.and_then(|made| {
            let [one, other] = <[OwnedFd; 2]>::try_from(made).map_err(|_| Errno::EMFILE)?;
            Ok((one, other))
        }))
    }

    /// Has pid 1 bind `socket` to `address` where no path leads: the file (O_PATH) that it is bound to.
    pub(super) fn bind_elsewhere(
        &mut self,
        socket: BorrowedFd<'_>,
        address: &[u8],
    ) -> Result<nix::Result<OwnedFd>, Stop> {
        let made = self.ask_init_for(&(self.words.bind_apart)(address), &[socket])?;
        Ok(made.and_then(|made| made.into_iter().next().ok_or(Errno::EMFILE)))
    }

    fn ask_init_for(
        &mut self,
        request: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<nix::Result<Vec<OwnedFd>>, Stop> {
        let failed = |call: &'static str| move |source| Stop::Receive { call, source };
        if self.last_words.is_some() {
            return Ok(Err(Errno::ESRCH));
        }
        match scm::send(self.channel.as_fd(), request, descriptors) {
            // Pid 1 was killed before it was asked: its last words, if any, are still to be heard.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            sent => drop(sent.map_err(failed("sendmsg"))?),
        }
        let (words, given) = self.hear_all()?;
        Ok(match (self.words.answer)(request, &words) {
            Some(0) => Ok(given),
            Some(errno) => Err(Errno::from_raw(errno)),
            None => {
                // The command ended meanwhile; nobody needs an answer any more.
                self.heed(words);
                Err(Errno::ESRCH)
            }
        })
    }
}
