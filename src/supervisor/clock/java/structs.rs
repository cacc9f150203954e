//! Where the JVM has the name of a method's class, as it says itself: in the table `gHotSpotVMStructs`, which is there
//! for debuggers.
//!
//! Whatever stands there belongs to the program: each step is a read of its memory that may fail, and what comes of
//! it is a name and nothing else.

use crate::sys::memory;

/// The table's symbol.
const TABLE: &[u8] = b"gHotSpotVMStructs";
/// Bytes of an entry: names of the type, the field and its type, whether it is static, its offset, its address.
const ENTRY: usize = 48;
/// Most entries, symbols and bytes of their names that are looked at.
const ENTRIES: usize = 4096;
const SYMBOLS: u64 = 1 << 14;
const NAMES: u64 = 1 << 20;
/// Most bytes of a name.
const NAME: usize = 128;
/// The way from a method to the name of its class, then how long that is, and its bytes.
const FIELDS: [(&[u8], &[u8]); 6] = [
    (b"Method", b"_constMethod"),
    (b"ConstMethod", b"_constants"),
    (b"ConstantPool", b"_pool_holder"),
    (b"Klass", b"_name"),
    (b"Symbol", b"_length"),
    (b"Symbol", b"_body"),
];

/// Offsets of these fields; none where the JVM does not say.
#[derive(Debug)]
pub(super) struct Structs(Option<[u64; FIELDS.len()]>);

impl Structs {
    /// Those of the JVM in a process.
    pub(super) fn of(process: i32) -> Self {
        let memory = Memory(process);
        Self(memory.symbol(TABLE).and_then(|table| memory.offsets(memory.word(table)?)))
    }

    /// The name of the class of a method, if it is one.
    pub(super) fn class_name(&self, process: i32, method: u64) -> Option<String> {
        let memory = Memory(process);
        let [way @ .., length, body] = self.0?;
        let name = way.iter().try_fold(method, |at, offset| memory.word(at.checked_add(*offset)?))?;
        let length = u16::from_le_bytes(memory.bytes::<2>(name.checked_add(length)?)?);
        let mut text = vec![0; usize::from(length).min(NAME)];
        memory::read_exact(process, name.checked_add(body)?, &mut text).ok()?;
        String::from_utf8(text).ok()
    }
}

struct Memory(i32);

impl Memory {
    fn bytes<const SIZE: usize>(&self, at: u64) -> Option<[u8; SIZE]> {
        let mut bytes = [0; SIZE];
        memory::read_exact(self.0, at, &mut bytes).ok()?;
        Some(bytes)
    }

    fn word(&self, at: u64) -> Option<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    fn block(&self, at: u64, size: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        let count = memory::read(self.0, at, &mut bytes).ok()?;
        bytes.truncate(count);
        Some(bytes)
    }

    fn string(&self, at: u64) -> Option<Vec<u8>> {
        memory::read_string(self.0, at, NAME).ok()
    }

    /// The address of a dynamic symbol of the JVM (elf(5)).
    fn symbol(&self, wanted: &[u8]) -> Option<u64> {
        const PT_DYNAMIC: u32 = 2;
        const DT_STRTAB: u64 = 5;
        const DT_SYMTAB: u64 = 6;
        let base = self.base()?;
        let head = self.bytes::<64>(base)?;
        let headers = base.checked_add(word(&head, 32)?)?;
        let count = u64::from(u16::from_le_bytes(*head.get(56..)?.first_chunk()?));
        let table = self.block(headers, count * 56)?;
        let (table, _) = table.as_chunks::<56>();
        let kind = |header: &&[u8; 56]| header.first_chunk().map(|kind| u32::from_le_bytes(*kind));
        let dynamic = table.iter().find(|header| kind(header) == Some(PT_DYNAMIC))?;
        let dynamic = self.block(base.checked_add(word(dynamic, 16)?)?, word(dynamic, 40)?.min(1 << 14))?;
        let (dynamic, _) = dynamic.as_chunks::<16>();
        let entry = |tag| {
            let entry = dynamic.iter().find(|entry| word(*entry, 0) == Some(tag))?;
            // Some loaders put addresses there.
            word(entry, 8).map(|at| if at < base { at.wrapping_add(base) } else { at })
        };
        let (symbols, strings) = (entry(DT_SYMTAB)?, entry(DT_STRTAB)?);
        // The strings follow the symbols.
        let table = self.block(symbols, strings.checked_sub(symbols)?.min(SYMBOLS * 24))?;
        let names = self.block(strings, NAMES)?;
        let (table, _) = table.as_chunks::<24>();
        let is_wanted = |symbol: &&[u8; 24]| {
            let name = symbol.first_chunk().map(|name| u32::from_le_bytes(*name) as usize);
            let rest = name.and_then(|name| names.get(name..)?.strip_prefix(wanted));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        };
        base.checked_add(word(table.iter().find(is_wanted)?, 8)?)
    }

    /// Where the JVM begins (proc_pid_maps(5)).
    fn base(&self) -> Option<u64> {
        let maps = super::maps_of(self.0).ok()?;
        let line = maps.split(|byte| *byte == b'\n').find(|line| line.ends_with(super::JVM))?;
        let start = line.split(|byte| *byte == b'-').next()?;
        u64::from_str_radix(std::str::from_utf8(start).ok()?, 16).ok()
    }

    /// The offsets of the fields that a table tells of.
    fn offsets(&self, table: u64) -> Option<[u64; FIELDS.len()]> {
        let table = self.block(table, (ENTRIES * ENTRY) as u64)?;
        let (entries, _) = table.as_chunks::<ENTRY>();
        let mut found = [None; FIELDS.len()];
        for entry in entries {
            let (kind, field) = (word(entry, 0)?, word(entry, 8)?);
            if kind == 0 || found.iter().all(Option::is_some) {
                break;
            }
            let (Some(kind), Some(field)) = (self.string(kind), self.string(field)) else { continue };
            if let Some(place) = FIELDS.iter().position(|known| *known == (&kind, &field)) {
                found[place] = word(entry, 32);
            }
        }
        let [a, b, c, d, e, f] = found;
        Some([a?, b?, c?, d?, e?, f?])
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}
