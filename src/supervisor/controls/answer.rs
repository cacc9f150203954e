//! getrandom(2) and AT_RANDOM: bytes that are written into the memory of a task.

use std::fs::File;
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::sys::uio::pwrite;

use super::super::Supervisor;
use super::super::call::{Call, Reply, low_half};
use super::super::receiver::Receiver;
use super::draw::{Draw, Purpose};
use super::runtime::Runtime;

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
    pub(in crate::supervisor) fn control_image(&mut self, call: &Call) -> nix::Result<()> {
        let Some(following) = &mut self.following else { return Ok(()) };
        let Some(kin) = self.tasks.kin() else { return Ok(()) };
        let image = call.task.executable()?;
        let status = nix::sys::stat::fstat(&image)?;
        let open = || File::open(super::super::view::own_path(image.as_fd())).ok();
        let runtime = following.runtimes.of(&status, open);
        kin.share_draws(call.task.tgid, runtime == Runtime::Go);
        let Some(strand) = kin.strand(call.task.tgid) else { return Err(Errno::ESRCH) };
        let mut bytes = [0; 16];
        Draw::new(&following.seed, Purpose::Start, Some(&strand), 0).fill(&mut bytes);
        // What the kernel has written to the stack, from its own copy.
        let vector = call.task.read("auxv")?;
        let Some(address) = auxiliary(&vector, libc::AT_RANDOM) else { return Ok(()) };
        let offset = i64::try_from(address).map_err(|_| Errno::EFAULT)?;
        match pwrite(call.task.memory()?, &bytes, offset)? {
            16 => Ok(()),
            _ => Err(Errno::EFAULT),
        }
    }
}

/// The value of an entry of an auxiliary vector.
fn auxiliary(vector: &[u8], kind: u64) -> Option<u64> {
    let (words, _) = vector.as_chunks::<8>();
    let (entries, _) = words.as_chunks::<2>();
    let found = entries.iter().find(|[key, _]| u64::from_ne_bytes(*key) == kind)?;
    Some(u64::from_ne_bytes(found[1]))
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
    fn an_entry_is_found_or_not() {
        let vector: Vec<u8> = [16, 7, libc::AT_RANDOM, 99, 0, 0].map(u64::to_ne_bytes).concat();
        assert_eq!(auxiliary(&vector, libc::AT_RANDOM), Some(99));
        assert_eq!(auxiliary(&vector, 31), None);
        assert_eq!(auxiliary(&vector[..20], libc::AT_RANDOM), None);
    }

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
