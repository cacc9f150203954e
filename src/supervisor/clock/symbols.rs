//! Finds what a program exports by its name, through the hash table of its file (elf(5), DT_GNU_HASH).

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Bytes of a symbol.
const SYMBOL: u64 = 24;
/// Symbols of one bucket that are looked at.
const NEAR: u64 = 256;
/// Bytes of the longest name that is looked for.
const LONGEST: usize = 64;

/// The symbols that a program exports.
pub(super) struct Symbols<'a> {
    file: &'a File,
    names: u64,
    symbols: u64,
    /// Of the hash table, where the buckets are and how many.
    buckets: (u64, u64),
    /// And where the hashes of the symbols from `first` on are.
    hashes: u64,
    first: u64,
}

impl<'a> Symbols<'a> {
    /// Those of a file that has its names, its symbols and their hash table there.
    pub(super) fn of(file: &'a File, [names, symbols, table]: [u64; 3]) -> Option<Self> {
        let [count, first, filters] =
            [0, 4, 8].map(|at| table.checked_add(at).and_then(|at| word(file, at)).map(u64::from));
        let count = count?;
        let buckets = table.checked_add(16 + filters? * 8)?;
        let hashes = buckets.checked_add(count * 4)?;
        (count > 0).then_some(Self { file, names, symbols, buckets: (buckets, count), hashes, first: first? })
    }

    /// The value of the symbol of this name, which ends with a zero.
    pub(super) fn value(&self, name: &[u8]) -> Option<u64> {
        let hash = hash_of(name);
        let (buckets, count) = self.buckets;
        let start = u64::from(word(self.file, buckets.checked_add(u64::from(hash) % count * 4)?)?);
        for symbol in start..start + NEAR {
            let own = self.hashes.checked_add(symbol.checked_sub(self.first)? * 4)?;
            let found = word(self.file, own)?;
            if found | 1 == hash | 1 {
                let symbol = self.symbols.checked_add(symbol * SYMBOL)?;
                let text = self.names.checked_add(word(self.file, symbol)?.into())?;
                let mut bytes = [0; LONGEST];
                let bytes = bytes.get_mut(..name.len())?;
                if self.file.read_exact_at(bytes, text).is_ok() && bytes == name {
                    let mut value = [0; 8];
                    self.file.read_exact_at(&mut value, symbol.checked_add(8)?).ok()?;
                    return Some(u64::from_le_bytes(value));
                }
            }
            // The last of its bucket.
            if found & 1 != 0 {
                return None;
            }
        }
        None
    }
}

/// The word that lies there.
fn word(file: &File, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(u32::from_le_bytes(bytes))
}

/// The hash of a name, which ends with a zero.
fn hash_of(name: &[u8]) -> u32 {
    let letters = name.iter().take_while(|byte| **byte != 0);
    letters.fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_hashes_that_linkers_give_them() {
        assert_eq!([&b"\0"[..], b"printf\0", b"exit\0"].map(hash_of), [0x1505, 0x156b_2bb8, 0x7c96_7e3f]);
    }
}
