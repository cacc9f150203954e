//! What a method of Java is: the program's own, or one that waits.
//!
//! Locks, queues, pools and clients of the JDK read CLOCK_MONOTONIC where they wait until a time, as often as they
//! happen to be woken: the clock at real rate is theirs, by which they wait. Generators of random numbers read it for
//! their seed: that is as recorded.

use super::super::super::call::low_half;
use super::super::Clock;
use super::structs::Structs;
use crate::sys::memory;
use crate::sys::vdso::{BASE, CONTROL, METHODS};

/// As in `image.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Own = 1,
    Waits = 2,
    Reads = 3,
}

const CLASS_SHIFT: u32 = 56;
const NEAR: usize = 16;
/// The class whose functions read the clock.
const READS: &str = "java/lang/System";
/// Packages of the JDK.
const JDK: [&str; 5] = ["java/", "javax/", "jdk/", "sun/", "com/sun/"];
/// Collections have an order that they make of the clock.
const COLLECTIONS: &str = "java/util/";

impl Class {
    fn of(name: &str) -> Self {
        if name == READS {
            return Self::Reads;
        }
        let is_collection = name.strip_prefix(COLLECTIONS).is_some_and(|rest| !rest.contains('/'));
        let is_jdk = JDK.iter().any(|package| name.starts_with(package));
        if is_jdk && !is_collection && !name.contains("Random") { Self::Waits } else { Self::Own }
    }
}

/// The methods of a program that are known.
#[derive(Debug, Default)]
pub(in crate::supervisor::clock) struct Methods {
    structs: Option<Structs>,
    table: Vec<u64>,
}

impl Clock {
    /// What the method at this address of `process` is, as the image has it.
    pub(in crate::supervisor::clock) fn class_of(&mut self, process: i32, method: u64) -> i64 {
        if let Some(is_own) = self.is_own_place(process, method) {
            let class = if is_own { Class::Own } else { Class::Waits };
            if let Some(program) = self.programs.get_mut(&process) {
                program.methods.note(process, method, class);
            }
            return class as i64;
        }
        let program = self.programs.get_mut(&process).filter(|program| program.has_readers);
        program.map_or(Class::Own, |program| program.methods.class_of(process, method)) as i64
    }
}

impl Methods {
    fn class_of(&mut self, process: i32, method: u64) -> Class {
        let structs = self.structs.get_or_insert_with(|| Structs::of(process));
        // What is no method has no such name.
        let class = structs.class_name(process, method).map_or(Class::Own, |name| Class::of(&name));
        self.note(process, method, class);
        class
    }

    /// Puts it where the image looks for it.
    fn note(&mut self, process: i32, method: u64, class: Class) {
        let (at, count) = METHODS;
        if method == 0 || method >> CLASS_SHIFT != 0 {
            return;
        }
        self.table.resize(count, 0);
        let first = low_half(method >> 3).wrapping_mul(2_654_435_761) >> 24;
        let near = (0..NEAR).map(|step| (first as usize + step) % count);
        let table = &mut self.table;
        let Some(place) = near.into_iter().find(|place| table[*place] == 0) else { return };
        table[place] = method | (class as u64) << CLASS_SHIFT;
        // Killed meanwhile: nobody reads it.
        let _ = memory::write(process, BASE + CONTROL + (at + place * 8) as u64, &table[place].to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::Class;

    #[test]
    fn what_waits_is_not_what_makes_numbers() {
        let class = |names: &[&str]| names.iter().map(|name| Class::of(name)).collect::<Vec<_>>();
        let waits = [
            "java/util/concurrent/FutureTask",
            "java/util/concurrent/locks/AbstractQueuedSynchronizer$ConditionObject",
            "java/lang/Thread",
            "sun/nio/ch/SocketChannelImpl",
            "jdk/internal/net/http/HttpClientImpl",
        ];
        assert_eq!(class(&waits), [Class::Waits; 5]);
        let own = [
            "java/util/Random",
            "java/util/ImmutableCollections",
            "java/util/concurrent/ThreadLocalRandom",
            "jdk/internal/util/random/RandomSupport",
            "Main",
            "org/example/javax/Main",
        ];
        assert_eq!(class(&own), [Class::Own; 6]);
        assert_eq!(Class::of("java/lang/System"), Class::Reads);
    }
}
