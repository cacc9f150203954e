//! Which addresses were given for which name in this run.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::policy::canonical_address;

/// A run's budget of (name, address) pairs: a program that looks up names without end must not
/// eat the supervisor's memory.
const MAX_PINS: usize = 65_536;

/// The (name, address) pairs of one run. An address once given stays valid for its name, so that a
/// program that caches answers keeps working; later answers add to it.
#[derive(Debug, Default)]
pub struct Pins {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    names: HashMap<IpAddr, Vec<String>>,
    addresses: HashMap<String, Vec<IpAddr>>,
    pairs: usize,
}

impl Pins {
    /// The names whose resolution gave `address` in this run, in the order in which they came.
    #[must_use]
    pub fn names_for(&self, address: IpAddr) -> Vec<String> {
        let table = self.table();
        table.names.get(&canonical_address(address)).cloned().unwrap_or_default()
    }

    /// The addresses that were given for `name` in this run.
    #[must_use]
    pub fn addresses_of(&self, name: &str) -> Vec<IpAddr> {
        self.table().addresses.get(name).cloned().unwrap_or_default()
    }

    /// Whether `address` was given for `name`.
    #[must_use]
    pub fn holds(&self, name: &str, address: IpAddr) -> bool {
        let table = self.table();
        table.addresses.get(name).is_some_and(|list| list.contains(&canonical_address(address)))
    }

    /// How many pairs there are. Where that is what it was, nothing was added.
    pub(crate) fn count(&self) -> usize {
        self.table().pairs
    }

    /// Keeps a pair. False when the run's budget is used up and the address must not be given.
    pub(crate) fn pin(&self, name: &str, address: IpAddr) -> bool {
        let address = canonical_address(address);
        let mut table = self.table();
        let known = table.addresses.get(name).is_some_and(|list| list.contains(&address));
        if known {
            return true;
        }
        if table.pairs >= MAX_PINS {
            return false;
        }
        table.pairs += 1;
        table.addresses.entry(name.to_owned()).or_default().push(address);
        table.names.entry(address).or_default().push(name.to_owned());
        true
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_add_up_and_stay() {
        let pins = Pins::default();
        let first: IpAddr = "203.0.113.1".parse().unwrap();
        let second: IpAddr = "203.0.113.2".parse().unwrap();
        assert!(pins.pin("a.test", first));
        assert!(pins.pin("a.test", second));
        assert!(pins.pin("b.test", first));
        assert!(pins.pin("b.test", first));
        assert_eq!(pins.names_for(first), ["a.test", "b.test"]);
        assert_eq!(pins.addresses_of("a.test"), [first, second]);
        assert!(pins.holds("b.test", "::ffff:203.0.113.1".parse().unwrap()));
        assert!(!pins.holds("b.test", second));
    }

    #[test]
    fn the_budget_ends() {
        let pins = Pins::default();
        for n in 0..u32::try_from(MAX_PINS).unwrap() {
            assert!(pins.pin("a.test", IpAddr::V4(n.into())));
        }
        assert!(!pins.pin("a.test", "2001:db8::1".parse().unwrap()));
        assert!(pins.pin("a.test", "0.0.0.7".parse().unwrap()));
    }
}
