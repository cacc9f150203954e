//! The last decisions about destinations: all requests of a connection ask for the same, and the answer is another
//! only where a name was resolved meanwhile.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use super::claim::Claim;

/// Decisions that are kept.
const MOST: usize = 16;

/// Grants that were given, for as long as nothing was learned that they depend on. Refusals are made anew.
#[derive(Debug)]
pub(crate) struct Judged<Grant>(Mutex<Table<Grant>>);

#[derive(Debug)]
struct Table<Grant> {
    /// How many names and addresses were known then.
    known: usize,
    grants: Vec<(Asked, Grant)>,
}

#[derive(Debug)]
struct Asked {
    destination: SocketAddr,
    claim: Claimed,
}

#[derive(Debug)]
enum Claimed {
    Silent,
    Name(String),
    Literal,
}

impl<Grant> Default for Judged<Grant> {
    fn default() -> Self {
        Self(Mutex::new(Table { known: 0, grants: Vec::new() }))
    }
}

impl<Grant: Clone> Judged<Grant> {
    /// What was decided, with so much known.
    pub(crate) fn find(&self, destination: SocketAddr, claim: Claim<'_>, known: usize) -> Option<Grant> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.known != known {
            return None;
        }
        let is_asked = |asked: &Asked| asked.destination == destination && asked.claim.is(claim);
        table.grants.iter().find(|(asked, _)| is_asked(asked)).map(|(_, grant)| grant.clone())
    }

    /// Keeps what was decided when so much was known.
    pub(crate) fn keep(&self, destination: SocketAddr, claim: Claim<'_>, known: usize, grant: &Grant) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.known != known || table.grants.len() >= MOST {
            table.grants.clear();
            table.known = known;
        }
        let claim = match claim {
            Claim::Silent => Claimed::Silent,
            Claim::Name(name) => Claimed::Name(name.to_owned()),
            Claim::Literal => Claimed::Literal,
        };
        table.grants.push((Asked { destination, claim }, grant.clone()));
    }
}

impl Claimed {
    fn is(&self, claim: Claim<'_>) -> bool {
        match (self, claim) {
            (Self::Silent, Claim::Silent) | (Self::Literal, Claim::Literal) => true,
            (Self::Name(known), Claim::Name(name)) => known == name,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_same_is_found() {
        let judged = Judged::default();
        let (here, there) = ("203.0.113.1:80".parse().unwrap(), "203.0.113.1:81".parse().unwrap());
        let grant = "a.policy:1".to_owned();
        judged.keep(here, Claim::Name("a.test"), 3, &grant);
        let found = |destination, claim, known| judged.find(destination, claim, known).is_some();
        assert!(found(here, Claim::Name("a.test"), 3));
        assert!(!found(here, Claim::Name("b.test"), 3));
        assert!(!found(here, Claim::Silent, 3) && !found(here, Claim::Literal, 3));
        assert!(!found(there, Claim::Name("a.test"), 3));
        assert!(!found(here, Claim::Name("a.test"), 4), "a name was resolved since");
        judged.keep(here, Claim::Silent, 4, &grant);
        assert!(!found(here, Claim::Name("a.test"), 4) && found(here, Claim::Silent, 4));
    }

    #[test]
    fn few_are_kept() {
        let judged = Judged::default();
        for port in 0..100 {
            let destination = SocketAddr::from(([203, 0, 113, 1], port));
            judged.keep(destination, Claim::Literal, 0, &port);
            assert_eq!(judged.find(destination, Claim::Literal, 0), Some(port));
            assert!(judged.0.lock().unwrap().grants.len() <= MOST);
        }
    }
}
