//! getrandom(2) and AT_RANDOM: bytes that are written into the memory of a task.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::sys::stat::FileStat;

use super::super::Supervisor;
use super::super::beginning::{Beginning, Stack, Told};
use super::super::call::{Call, Reply, low_half};
use super::super::receiver::Receiver;
use super::super::view::own_path;
use super::draw::{Draw, Purpose};
use super::runtime::Runtime;
use crate::sys::memory;

/// Bytes that are written at once.
const PIECE: u64 = 64 << 10;
/// The kernel gives no more at once (MAX_RW_COUNT).
const MOST: u64 = 0x7fff_f000;

impl Supervisor {
    /// The next draw of a task; `None` where nothing is controlled.
    pub(in crate::supervisor) fn draw(&mut self, task: i32, purpose: Purpose) -> Option<Draw> {
        let following = self.following.as_ref()?;
        let (strand, number) = self.tasks.kin()?.draw(task)?;
        Some(Draw::new(&following.seed, purpose, Some(&strand), number))
    }

    /// getrandom(2)
    pub(in crate::supervisor) fn get_random(&mut self, call: &Call) -> Reply {
        let [address, length, flags, ..] = call.arguments;
        let flags = low_half(flags);
        let both = libc::GRND_RANDOM | libc::GRND_INSECURE;
        if flags & !(both | libc::GRND_NONBLOCK) != 0 || flags & both == both {
            return Reply::Errno(Errno::EINVAL);
        }
        let Some(draw) = self.draw(call.task.tid, Purpose::Call) else { return Reply::Errno(Errno::ENOSYS) };
        let receiver = match self.receiver(call) {
            Ok(receiver) => receiver,
            Err(errno) => return Reply::Errno(errno),
        };
        let length = length.min(MOST);
        if length > PIECE {
            return Reply::Later(Box::new(move || pour(&receiver, address, length, draw)));
        }
        pour(&receiver, address, length, draw)
    }

    /// The image of a task is there and has not run: gives it its AT_RANDOM.
    pub(in crate::supervisor) fn control_image(
        &mut self,
        call: &Call,
        image: &FileStat,
        stack: io::Result<Stack>,
    ) -> nix::Result<Option<(Beginning, Runtime)>> {
        let Some(following) = &mut self.following else { return Ok(None) };
        let Some(kin) = self.tasks.kin() else { return Ok(None) };
        // It stands still: that is the same file.
        let open = || File::open(own_path(call.task.executable().ok()?.as_fd())).ok();
        let runtime = following.runtimes.of(image, open);
        kin.share_draws(call.task.tgid, runtime.is_go);
        let Some(strand) = kin.strand(call.task.tgid) else { return Err(Errno::ESRCH) };
        let stack = stack.map_err(|error| errno(&error))?;
        match &stack.told {
            Ok(Told { random: Some(address), .. }) => {
                let mut bytes = [0; 16];
                Draw::new(&following.seed, Purpose::Start, Some(&strand), 0).fill(&mut bytes);
                memory::write(call.task.tid, *address, &bytes).map_err(|error| errno(&error))?;
            }
            Ok(Told { random: None, .. }) => {}
            // Of another width: it does not come beyond its first call.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            Err(error) => return Err(errno(error)),
        }
        Ok(Some((call.task.beginning(stack), runtime)))
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Writes so many bytes; what comes before memory that is not there counts (random(4)).
fn pour(receiver: &Receiver, address: u64, length: u64, mut draw: Draw) -> Reply {
    let mut piece = vec![0; usize::try_from(length.min(PIECE)).unwrap_or(0)];
    let mut done = 0;
    while done < length {
        let wanted = usize::try_from(length - done).unwrap_or(usize::MAX).min(piece.len());
        draw.fill(&mut piece[..wanted]);
        let at = address.checked_add(done);
        let written = at.map_or(0, |at| receiver.write(at, &piece[..wanted]).unwrap_or(0));
        done += written as u64;
        if written < wanted {
            break;
        }
    }
    match i64::try_from(done) {
        Ok(done) if done > 0 || length == 0 => Reply::Value(done),
        _ => Reply::Errno(Errno::EFAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::super::seed::Seed;
    use super::*;

    #[test]
    fn memory_that_is_not_there_stops_it() {
        let own = Receiver::own();
        let draw = || Draw::new(&Seed::new([1; 32]), Purpose::Call, None, 0);
        let buffer = vec![0_u8; 100_000];
        let reply = pour(&own, buffer.as_ptr() as u64, 100_000, draw());
        assert!(matches!(reply, Reply::Value(100_000)));
        assert!(std::hint::black_box(&buffer).iter().rev().take(64).any(|&byte| byte != 0));
        for address in [0, u64::MAX - 3] {
            assert!(matches!(pour(&own, address, 16, draw()), Reply::Errno(Errno::EFAULT)));
        }
        assert!(matches!(pour(&own, 0, 0, draw()), Reply::Value(0)));
    }
}
