//! What was recorded, to be taken in order: by the process that had it first, then by any.

use std::collections::HashMap;
use std::sync::Arc;

/// Things that are each taken once.
pub(super) struct Shelf<T> {
    all: Vec<Slot<T>>,
    by_key: HashMap<String, Vec<usize>>,
}

struct Slot<T> {
    /// The first of its keys.
    key: String,
    proc: Option<String>,
    item: Arc<T>,
    is_taken: bool,
}

/// Who may take a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker<'a> {
    /// The process that it was recorded of.
    Same(Option<&'a str>),
    Any,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { all: Vec::new(), by_key: HashMap::new() }
    }
}

impl<T> Shelf<T> {
    /// Puts one behind all others.
    pub(super) fn put(&mut self, keys: impl IntoIterator<Item = String>, proc: Option<String>, item: Arc<T>) {
        let mut first = None;
        for key in keys {
            first.get_or_insert_with(|| key.clone());
            self.by_key.entry(key).or_default().push(self.all.len());
        }
        self.all.push(Slot { key: first.unwrap_or_default(), proc, item, is_taken: false });
    }

    /// Takes the first under `key` that fits.
    pub(super) fn take(
        &mut self,
        key: &str,
        taker: Taker<'_>,
        mut fits: impl FnMut(&T) -> bool,
    ) -> Option<Arc<T>> {
        let places = self.by_key.get_mut(key)?;
        let all = &mut self.all;
        places.retain(|&place| !all[place].is_taken);
        let may = |slot: &Slot<T>| match taker {
            Taker::Same(proc) => slot.proc.as_deref() == proc,
            Taker::Any => true,
        };
        let found = places.iter().copied().find(|&place| may(&all[place]) && fits(&all[place].item))?;
        all[found].is_taken = true;
        Some(Arc::clone(&all[found].item))
    }

    /// The same by the process that had it, else by any; whether it was the first.
    pub(super) fn take_by(&mut self, key: &str, proc: Option<&str>) -> Option<(Arc<T>, bool)> {
        let same = self.take(key, Taker::Same(proc), |_| true).map(|item| (item, true));
        same.or_else(|| self.take(key, Taker::Any, |_| true).map(|item| (item, false)))
    }

    /// Puts one back that was taken under `key`, where it was.
    pub(super) fn give_back(&mut self, key: &str, item: &Arc<T>) {
        let Some(place) = self.all.iter().position(|slot| Arc::ptr_eq(&slot.item, item)) else { return };
        self.all[place].is_taken = false;
        let places = self.by_key.entry(key.to_owned()).or_default();
        // Its place is forgotten once others are taken.
        if let Err(at) = places.binary_search(&place) {
            places.insert(at, place);
        }
    }

    /// Whether `proc` has one left under `key`.
    pub(super) fn has(&self, key: &str, proc: Option<&str>) -> bool {
        let places = self.by_key.get(key).map(Vec::as_slice).unwrap_or_default();
        places
            .iter()
            .map(|&place| &self.all[place])
            .any(|slot| !slot.is_taken && slot.proc.as_deref() == proc)
    }

    /// Those of which `key` is the first key, taken or not.
    pub(super) fn of(&self, key: &str) -> impl Iterator<Item = &T> {
        self.all.iter().filter(move |slot| slot.key == key).map(|slot| &*slot.item)
    }

    /// All, and for each the process that it was recorded of and whether it is taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<T>, Option<&str>, bool)> {
        self.all.iter().map(|slot| (&slot.item, slot.proc.as_deref(), slot.is_taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_once_and_first_by_its_own_process() {
        let mut shelf = Shelf::default();
        for (proc, item) in [("0", 1), ("0.1", 2), ("0", 3)] {
            shelf.put(["k".to_owned()], Some(proc.to_owned()), Arc::new(item));
        }
        assert!(shelf.has("k", Some("0.1")));
        assert_eq!(shelf.take_by("k", Some("0.1")).map(|(item, same)| (*item, same)), Some((2, true)));
        assert_eq!(shelf.take_by("k", Some("0.1")).map(|(item, same)| (*item, same)), Some((1, false)));
        assert!(!shelf.has("k", Some("0.1")));
        assert_eq!(shelf.take("k", Taker::Any, |item| *item == 4), None);
        assert_eq!(shelf.take_by("k", None).map(|(item, _)| *item), Some(3));
        assert_eq!(shelf.take_by("k", None), None);
        assert_eq!(shelf.take_by("other", None), None);
        let second = Arc::clone(shelf.iter().nth(1).expect("there").0);
        shelf.give_back("k", &second);
        assert_eq!(shelf.take_by("k", Some("0")).map(|(item, same)| (*item, same)), Some((2, false)));
    }
}
