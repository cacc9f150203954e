//! vDSOs (vdso(7)): the kernel's own, and the image that stands in for it in replayable runs.
//!
//! The image is compiled by the build script from `image.c`, which says what it does. The constants here
//! are its layout.

use super::memory;

/// The image, an ELF shared object that is mapped as it is.
pub const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.vdso"));

/// Where it lies in every program: where no loader and no runtime puts anything of its own.
pub const BASE: u64 = 0x7000_0000;
/// Where the image reads the machine's clock by a call, where the kernel's vDSO does not: the instruction
/// pointer that the filter sees. The layout puts it there.
pub const REAL_CLOCK: u64 = BASE + 0x507;
/// Where a new program makes the call that stands in its registers, on the way to the address in the head of its
/// control page.
pub const WAY_IN: u64 = BASE + 0x510;
/// From [`BASE`] to the control page.
pub const CONTROL: u64 = 0x2000;
/// From [`BASE`] to the tape.
pub const TAPE: u64 = 0x4000;
/// Lanes of the tape.
pub const LANES: u32 = 1024;
/// Bytes of a lane.
pub const LANE: u64 = 0x4000;
/// Bytes of a lane before its points.
pub const LANE_HEAD: usize = 200;
/// Points of a lane.
pub const POINTS: usize = 2023;
/// Threads in the table of the control page.
pub const THREADS: usize = 256;
/// From [`CONTROL`] to that table.
pub const TABLE: usize = 152;
/// From [`CONTROL`] to the table of methods of Java, and how many it has.
pub const METHODS: (usize, usize) = (TABLE + THREADS * 16, 256);
/// Kinds of reads: clocks by their numbers, reads of CLOCK_MONOTONIC by interpreters, and of a time of day by who asks.
pub const KINDS: usize = 64;
/// Kinds of reads of CLOCK_MONOTONIC by interpreters: from within what a program has called, and from where it calls.
pub const OF_INTERPRETER: [u8; 2] = [8, 9];
/// The kind of reads of CLOCK_MONOTONIC by programs that an event loop runs, the loop's own aside.
pub const BESIDE_LOOP: u8 = 10;
/// The first kind of reads of CLOCK_REALTIME by who asks, and that of CLOCK_REALTIME_COARSE.
pub const BY_CALLER: [u8; 2] = [16, 32];
/// The kind of reads of CLOCK_MONOTONIC by Java code; those behind it are of CLOCK_REALTIME.
pub const OF_JAVA: u8 = 48;
/// The upper half of the third argument of a read that the image asks for; the lower half is its kind.
pub const KIND_IS: u64 = 0x7469_6d65;
/// The same of a question what the method in the fourth argument is.
pub const METHOD_IS: u64 = 0x6d65_7468;
/// Bytes of everything.
pub const LENGTH: u64 = TAPE + LANES as u64 * LANE;

const _: () = assert!(IMAGE.len() <= 0x2000);
const _: () = assert!(LANE_HEAD + POINTS * 8 == 0x4000);
const _: () = assert!(METHODS.0 + METHODS.1 * 8 <= 0x2000);

/// Where functions lie in a vDSO, from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Functions {
    /// `clock_gettime`
    pub gettime: Option<u64>,
    /// `clock_getres`
    pub getres: Option<u64>,
    /// `getcpu`
    pub getcpu: Option<u64>,
}

/// Bytes of a vDSO that are looked through; the kernel's has two pages.
const LOOKED_AT: usize = 4 * memory::PAGE;

/// Looks at the kernel's own vDSO, which is the same in all 64-bit programs; no functions where there is
/// none, or where it would ask the kernel at each read.
#[must_use]
pub fn of_kernel() -> Functions {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    // Not from /proc/self/auxv: a process that is not dumpable may not open that.
    // SAFETY: takes an integer, and reads the vector that the kernel gave to this process.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    if base == 0 {
        return Functions::default();
    }
    let mut image = vec![0; LOOKED_AT];
    let own = std::process::id().cast_signed();
    // Page by page: what follows it may not be there.
    let mut length = 0;
    for (page, address) in image.chunks_mut(memory::PAGE).zip((base..).step_by(memory::PAGE)) {
        match memory::read(own, address, page) {
            Ok(count) if count == memory::PAGE => length += count,
            _ => break,
        }
    }
    image.truncate(length);
    let mut functions = functions_of(&image);
    // Other sources of time cannot be read without the kernel.
    let readable = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];
    if !source.is_ok_and(|source| readable.contains(&source.trim())) {
        functions.gettime = None;
    }
    functions
}

/// Whether programs may read the base of FS by an instruction (HWCAP2_FSGSBASE).
#[must_use]
pub fn has_fs_base() -> bool {
    const FSGSBASE: libc::c_ulong = 2;
    // SAFETY: takes an integer, and reads the vector that the kernel gave to this process.
    let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    capabilities & FSGSBASE != 0
}

/// The functions that a vDSO offers.
#[must_use]
pub fn functions_of(image: &[u8]) -> Functions {
    let find = |name: &str| symbol(image, name);
    Functions {
        gettime: find("__vdso_clock_gettime"),
        getres: find("__vdso_clock_getres"),
        getcpu: find("__vdso_getcpu"),
    }
}

/// The value of a dynamic symbol (elf(5)).
fn symbol(image: &[u8], name: &str) -> Option<u64> {
    const PT_DYNAMIC: u64 = 2;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const SYMBOL: usize = 24;
    let word = |at: usize, size: usize| {
        let bytes = image.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |value: u64, byte| value << 8 | u64::from(*byte)))
    };
    let index = |value: u64| usize::try_from(value).ok();
    let headers = index(word(32, 8)?)?;
    let count = index(word(56, 2)?)?;
    let dynamic =
        (0..count).map(|number| headers + number * 56).find(|&at| word(at, 4) == Some(PT_DYNAMIC))?;
    let (at, length) = (index(word(dynamic + 8, 8)?)?, index(word(dynamic + 32, 8)?)?);
    let entry = |tag: u64| {
        let at = (at..at.checked_add(length)?).step_by(16).find(|&at| word(at, 8) == Some(tag))?;
        index(word(at + 8, 8)?)
    };
    let (symbols, strings) = (entry(DT_SYMTAB)?, entry(DT_STRTAB)?);
    // In every vDSO the strings follow the symbols, which saves a look at either hash table.
    (symbols..strings).step_by(SYMBOL).find_map(|at| {
        let start = strings.checked_add(index(word(at, 4)?)?)?;
        let text = image.get(start..)?;
        let found = text.strip_prefix(name.as_bytes())?.first() == Some(&0);
        found.then(|| word(at + 8, 8))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From [`CONTROL`] to the address of the program's first instruction.
    const ENTRY: usize = 112;

    #[test]
    fn the_image_offers_what_programs_look_for() {
        let functions = functions_of(IMAGE);
        assert!(functions.gettime.is_some() && functions.getres.is_some() && functions.getcpu.is_some());
        assert!(symbol(IMAGE, "__vdso_time").is_some() && symbol(IMAGE, "__vdso_gettimeofday").is_some());
        assert_eq!(symbol(IMAGE, "__vdso_getrandom"), None);
        let end = usize::try_from(REAL_CLOCK - BASE).expect("is small");
        assert_eq!(IMAGE[end - 7..=end], [0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0xc3], "mov, syscall, ret");
        let way_in = usize::try_from(WAY_IN - BASE).expect("is small");
        let rest = way_in + 2 + 5 + 5 + 5 + 6;
        assert_eq!(IMAGE[way_in..way_in + 3], [0x0f, 0x05, 0xb8], "syscall, mov");
        assert_eq!(IMAGE[rest..rest + 2], [0xff, 0x25], "jmp");
        let place = IMAGE[rest + 2..].first_chunk().map(|word| i32::from_le_bytes(*word)).expect("a word");
        let place = usize::try_from(place).expect("lies behind") + rest + 6;
        assert_eq!(place, usize::try_from(CONTROL).expect("is small") + ENTRY, "its address");
    }

    #[test]
    fn the_kernel_has_one_or_none() {
        let functions = of_kernel();
        assert_eq!(functions.getres.is_some(), functions.getcpu.is_some());
    }

    #[test]
    fn what_is_no_image_has_no_functions() {
        assert_eq!(functions_of(&[]), Functions::default());
        for length in 0..IMAGE.len() {
            let _ = functions_of(&IMAGE[..length]);
        }
        let mut noise: Vec<u8> = (0..=255).cycle().take(4096).collect();
        noise[..64].copy_from_slice(&IMAGE[..64]);
        assert_eq!(functions_of(&noise), Functions::default());
    }
}
