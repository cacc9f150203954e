//! The control page of a program, as `image.c` lays it out.

use std::io;
use std::ops::Range;

use super::super::call::low_half;
use super::Offsets;
use crate::sys::memory;
use crate::sys::vdso::{BASE, CONTROL, Functions, TABLE, THREADS};

/// What the image does when the program reads a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each read is put on the tape.
    Record = 1,
    /// Each read is taken from the tape.
    Replay = 2,
    /// The kernel's clock, and something to add; times of day are taken from a tape.
    Shift = 3,
    /// The kernel's clock; times of day are put on a tape.
    RecordShift = 4,
}

impl Mode {
    /// All threads share a clock at real rate.
    pub(super) fn is_at_real_rate(self) -> bool {
        matches!(self, Self::Shift | Self::RecordShift)
    }
}

/// A thread in the table whose entries the image looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Entry {
    fs_base: u64,
    lane: u32,
}

/// No lane: the supervisor is asked at each read.
const NO_LANE: u32 = u32::MAX;

/// What the supervisor has written to the control page.
#[derive(Debug, Clone)]
pub(super) struct Control {
    pub(super) mode: Mode,
    pub(super) lane: Option<u32>,
    pub(super) threaded: bool,
    /// Its program's own reads of CLOCK_MONOTONIC are told apart from those for its locks.
    pub(super) is_interpreter: bool,
    /// Its program's reads of that clock are told apart from those of libuv's event loop, if that runs it.
    pub(super) has_loop: bool,
    /// Addresses in the program.
    pub(super) kernel: Functions,
    pub(super) shift: u64,
    pub(super) offsets: Offsets,
    /// The code of the program itself, by whose places times of day are told apart; none where they are not.
    pub(super) text: Range<u64>,
    /// Functions by which such a program, and V8 in it, read the clock; or 0.
    pub(super) clocks: [u64; 2],
    /// The first instruction of the program.
    pub(super) entry: u64,
    table: Vec<Entry>,
}

/// The processor reads the base of FS, and programs may ask for it (AT_HWCAP2, HWCAP2_FSGSBASE).
fn has_fs_base() -> bool {
    crate::sys::vdso::has_fs_base()
}

impl Control {
    pub(super) fn new(mode: Mode, kernel: Functions, offsets: Offsets) -> Self {
        Self {
            mode,
            lane: None,
            threaded: false,
            is_interpreter: false,
            has_loop: false,
            kernel,
            shift: 0,
            offsets,
            text: 0..0,
            clocks: [0; 2],
            entry: 0,
            table: Vec::new(),
        }
    }

    /// All before the table.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let Functions { gettime, getres, getcpu } = self.kernel;
        let mut words = vec![
            pair(self.mode as u32, self.lane.unwrap_or(NO_LANE)),
            pair(self.threaded.into(), u32::from(has_fs_base()) | u32::from(self.is_interpreter) << 16),
        ];
        words.extend([gettime, getres, getcpu].map(Option::unwrap_or_default));
        words.push(self.shift);
        words.extend(self.offsets.all());
        words.extend([self.entry, self.text.start, self.text.end.saturating_sub(self.text.start)]);
        words.extend(self.clocks);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Writes all before the table into the memory of `task`.
    pub(super) fn write(&self, task: i32) -> io::Result<()> {
        memory::write(task, BASE + CONTROL, &self.bytes())
    }

    /// A child of one thread has a copy of the page: it is told its own lane.
    pub(super) fn alone(&self, lane: Option<u32>) -> Self {
        Self { lane, threaded: false, table: Vec::new(), ..self.clone() }
    }

    /// Empties the table in the memory of `task` as well.
    pub(super) fn clear_table(&self, task: i32) -> io::Result<()> {
        memory::write(task, BASE + CONTROL + TABLE as u64, &[0; THREADS * 16])
    }

    /// Tells the image that the thread with this base of FS has this lane. A thread that has ended leaves its
    /// base to another (its stack is used again), and where the table is full its place as well.
    pub(super) fn assign(
        &mut self,
        task: i32,
        fs_base: u64,
        lane: u32,
        lives: impl Fn(u32) -> bool,
    ) -> io::Result<()> {
        if fs_base == 0 {
            return Ok(());
        }
        self.table.resize(THREADS, Entry::default());
        let hash = (low_half(fs_base >> 6).wrapping_mul(2_654_435_761) >> 24) as usize;
        let chain = || (0..THREADS).map(|step| (hash + step) % THREADS);
        let table = &self.table;
        let own = chain().take_while(|&at| table[at].fs_base != 0).find(|&at| table[at].fs_base == fs_base);
        let dead = || chain().find(|&at| table[at].fs_base == 0 || !lives(table[at].lane));
        // A full table: each read of this thread is answered by the supervisor.
        let Some(place) = own.or_else(dead) else { return Ok(()) };
        self.table[place] = Entry { fs_base, lane };
        let words = [fs_base, u64::from(lane)].map(u64::to_le_bytes);
        memory::write(task, BASE + CONTROL + TABLE as u64 + place as u64 * 16, words.as_flattened())
    }
}
