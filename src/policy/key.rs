//! The words that may stand before a colon, and the nearest of them to a misspelt one.

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Allow,
    Deny,
    Read,
    Write,
    Net,
    Exec,
    Env,
    Runtime,
    Include,
    ReadOnce,
    Secret,
    Limit,
    Listen,
}

impl Key {
    /// The key of this name, in any case of its letters.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        KEYS.iter().find(|(_, name)| name.eq_ignore_ascii_case(word)).map(|(key, _)| *key)
    }

    /// Its name as it is written in a policy.
    pub(super) fn name(self) -> &'static str {
        KEYS.iter().find(|(key, _)| *key == self).map_or("", |(_, name)| name)
    }

    /// Whether `allow:` and `deny:` may take it as their verb.
    pub(super) fn is_verb(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Net | Self::Exec | Self::Env)
    }
}

/// The name of a key that a misspelt word most probably means.
pub(super) fn nearest(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    if word.chars().count() > LONGEST_WORD {
        return None;
    }
    let most = if word.chars().count() <= 3 { 1 } else { 2 };
    KEYS.iter()
        .map(|(_, name)| (distance(&word, name), *name))
        .filter(|(far, _)| *far <= most)
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
        .or_else(|| SYNONYMS.iter().find(|(other, _)| *other == word).map(|(_, name)| *name))
}

/// The key that a word means which is one slip away from it.
pub(super) fn misspelt(word: &str) -> Option<Key> {
    let word = word.to_lowercase();
    let is_word = word.len() > 2 && word.len() <= LONGEST_WORD && word.chars().all(char::is_alphabetic);
    KEYS.iter().find(|(_, name)| is_word && distance(&word, name) == 1).map(|(key, _)| *key)
}

/// Edits (insert, delete, replace, swap of neighbours) that make `b` of `a`: optimal string alignment.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

/// A longer word is no misspelt key; comparing it would cost more than it helps.
const LONGEST_WORD: usize = 24;

const KEYS: [(Key, &str); 13] = [
    (Key::Allow, "allow"),
    (Key::Deny, "deny"),
    (Key::Read, "read"),
    (Key::Write, "write"),
    (Key::Net, "net"),
    (Key::Exec, "exec"),
    (Key::Env, "env"),
    (Key::Runtime, "runtime"),
    (Key::Include, "include"),
    (Key::ReadOnce, "read-once"),
    (Key::Secret, "secret"),
    (Key::Limit, "limit"),
    (Key::Listen, "listen"),
];

/// Words of other tools.
const SYNONYMS: [(&str, &str); 10] = [
    ("network", "net"),
    ("connect", "net"),
    ("host", "net"),
    ("run", "exec"),
    ("command", "exec"),
    ("environment", "env"),
    ("forbid", "deny"),
    ("block", "deny"),
    ("import", "include"),
    ("readonly", "read"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_find_their_neighbour() {
        assert_eq!(nearest("raed"), Some("read"));
        assert_eq!(nearest("wirte"), Some("write"));
        assert_eq!(nearest("network"), Some("net"));
        assert_eq!(nearest("foo"), None);
        assert_eq!(distance("raed", "read"), 1);
    }
}
