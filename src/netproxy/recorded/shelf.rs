//! What was recorded, to be taken in order: by the process that had it first, then by any.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Things that are each taken once.
pub(super) struct Shelf<T> {
    all: Vec<Slot<T>>,
    /// By the first of their keys, taken or not.
    by_first: HashMap<String, Vec<usize>>,
    by_key: HashMap<String, Row>,
    /// By where they lie in memory.
    by_item: HashMap<usize, usize>,
}

struct Slot<T> {
    keys: Vec<String>,
    proc: Option<String>,
    item: Arc<T>,
    is_taken: bool,
}

/// The places of those that are left under a key: however many there are, the next one is found at once.
#[derive(Default)]
struct Row {
    all: BTreeSet<usize>,
    by_proc: HashMap<Option<String>, BTreeSet<usize>>,
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
        let (by_first, by_key, by_item) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { all: Vec::new(), by_first, by_key, by_item }
    }
}

impl Row {
    fn left(&self, taker: Taker<'_>) -> Option<&BTreeSet<usize>> {
        match taker {
            Taker::Same(proc) => self.by_proc.get(&proc.map(str::to_owned)),
            Taker::Any => Some(&self.all),
        }
    }
}

impl<T> Shelf<T> {
    /// Puts one behind all others; its place.
    pub(super) fn put(
        &mut self,
        keys: impl IntoIterator<Item = String>,
        proc: Option<String>,
        item: Arc<T>,
    ) -> usize {
        let place = self.all.len();
        self.by_item.insert(Arc::as_ptr(&item).addr(), place);
        self.all.push(Slot { keys: Vec::new(), proc, item, is_taken: false });
        keys.into_iter().for_each(|key| self.add_key(place, key));
        if let Some(first) = self.all[place].keys.first() {
            self.by_first.entry(first.clone()).or_default().push(place);
        }
        place
    }

    /// It can be taken under this key as well.
    pub(super) fn add_key(&mut self, place: usize, key: String) {
        let slot = &mut self.all[place];
        if !slot.is_taken {
            let row = self.by_key.entry(key.clone()).or_default();
            row.all.insert(place);
            row.by_proc.entry(slot.proc.clone()).or_default().insert(place);
        }
        slot.keys.push(key);
    }

    /// The one in a place, and whether it is taken.
    pub(super) fn at(&self, place: usize) -> (&Arc<T>, Option<&str>, bool) {
        let slot = &self.all[place];
        (&slot.item, slot.proc.as_deref(), slot.is_taken)
    }

    /// The place of the first that is left under `key`.
    pub(super) fn first(&self, key: &str) -> Option<usize> {
        self.by_key.get(key)?.all.first().copied()
    }

    /// Takes the first under `key` that fits.
    pub(super) fn take(
        &mut self,
        key: &str,
        taker: Taker<'_>,
        mut fits: impl FnMut(&T) -> bool,
    ) -> Option<Arc<T>> {
        let left = self.by_key.get(key)?.left(taker)?;
        let found = left.iter().copied().find(|&place| fits(&self.all[place].item))?;
        self.set_taken(found, true);
        Some(Arc::clone(&self.all[found].item))
    }

    fn set_taken(&mut self, place: usize, is_taken: bool) {
        let slot = &mut self.all[place];
        slot.is_taken = is_taken;
        for key in &slot.keys {
            let row = self.by_key.entry(key.clone()).or_default();
            let own = row.by_proc.entry(slot.proc.clone()).or_default();
            if is_taken {
                row.all.remove(&place);
                own.remove(&place);
            } else {
                row.all.insert(place);
                own.insert(place);
            }
        }
    }

    /// The same by the process that had it, else by any; whether it was the first.
    pub(super) fn take_by(&mut self, key: &str, proc: Option<&str>) -> Option<(Arc<T>, bool)> {
        let same = self.take(key, Taker::Same(proc), |_| true).map(|item| (item, true));
        same.or_else(|| self.take(key, Taker::Any, |_| true).map(|item| (item, false)))
    }

    /// Puts one back that was taken, where it was.
    pub(super) fn give_back(&mut self, item: &Arc<T>) {
        if let Some(&place) = self.by_item.get(&Arc::as_ptr(item).addr()) {
            self.set_taken(place, false);
        }
    }

    /// Whether `proc` has one left under `key`.
    pub(super) fn has(&self, key: &str, proc: Option<&str>) -> bool {
        let left = self.by_key.get(key).and_then(|row| row.left(Taker::Same(proc)));
        left.is_some_and(|left| !left.is_empty())
    }

    /// Those of which `key` is the first key, taken or not.
    pub(super) fn of(&self, key: &str) -> impl Iterator<Item = &T> {
        let places = self.by_first.get(key).map(Vec::as_slice).unwrap_or_default();
        places.iter().map(|&place| &*self.all[place].item)
    }

    /// All, and for each the process that it was recorded of and whether it is taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<T>, Option<&str>, bool)> {
        (0..self.all.len()).map(|place| self.at(place))
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
        shelf.give_back(&second);
        assert_eq!(shelf.take_by("k", Some("0")).map(|(item, same)| (*item, same)), Some((2, false)));
    }

    #[test]
    fn the_next_is_found_without_looking_at_those_that_are_taken() {
        let mut shelf = Shelf::default();
        for number in 0..1000 {
            let keys = ["k".to_owned(), format!("k{number}")];
            shelf.put(keys, Some("0".to_owned()), Arc::new(number));
        }
        // Taken under another key.
        assert!((0..1000).step_by(2).all(|number| shelf.take_by(&format!("k{number}"), None).is_some()));
        let mut looked = 0;
        for number in (1..1000).step_by(2) {
            let fits = |_: &i32| {
                looked += 1;
                true
            };
            assert_eq!(shelf.take("k", Taker::Same(Some("0")), fits).as_deref(), Some(&number));
        }
        assert_eq!((looked, shelf.first("k")), (500, None));
    }
}
