//! Variables that the command would get otherwise today than when its run was recorded. It gets the recorded ones.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::Difference;
use crate::run::Private;
use crate::trace::display_bytes;

/// Variables that say where programs are, or what this session is: they are others in each terminal and each
/// directory, and nobody holds them constant.
const SESSION: &[&str] = &[
    "_",
    "COLORTERM",
    "COLUMNS",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GPG_TTY",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LINES",
    "OLDPWD",
    "PATH",
    "PWD",
    "SHLVL",
    "STY",
    "TERM",
    "WAYLAND_DISPLAY",
    "WINDOW",
    "WINDOWID",
];
/// The same, by how their names begin.
const SESSIONS: &[&str] = &["SSH_", "TERM_", "TMUX", "XDG_SESSION_", "VTE_", "KONSOLE_"];

fn is_of_session(name: &OsStr) -> bool {
    let begins = |start: &&str| name.as_encoded_bytes().starts_with(start.as_bytes());
    SESSION.iter().any(|known| name == *known) || SESSIONS.iter().any(begins)
}

/// Those that choose a language: a machine may set its own, wherever it is.
fn is_of_locale(name: &OsStr) -> bool {
    name == "LANG" || name == "LANGUAGE" || name.as_encoded_bytes().starts_with(b"LC_")
}

/// Those that are not as they were, by digests that say nothing of their values; `recorded` and `now` are what the
/// command gets, or would get.
#[must_use]
pub fn differences(
    recorded: Vec<(OsString, OsString)>,
    now: Vec<(OsString, OsString)>,
    private: &Private,
) -> Vec<Difference> {
    let mut both: BTreeMap<OsString, [Option<OsString>; 2]> = BTreeMap::new();
    for (at, variables) in [recorded, now].into_iter().enumerate() {
        for (name, value) in variables {
            both.entry(name).or_default()[at] = Some(value);
        }
    }
    let differs =
        |(name, [ours, theirs]): &(OsString, [Option<OsString>; 2])| ours != theirs && !is_of_session(name);
    let digest = |value: &Option<OsString>| match value {
        Some(value) => private.digest(value.as_encoded_bytes()),
        None => "not set".to_owned(),
    };
    let told = both.into_iter().filter(differs);
    told.map(|(name, [ours, theirs])| Difference {
        what: "variable",
        // One that is only missing where the replay runs says nothing against it.
        is_note: theirs.is_none() || (ours.is_none() && is_of_locale(&name)),
        name: display_bytes(name.as_encoded_bytes()),
        recorded: digest(&ours),
        now: digest(&theirs),
        details: Vec::new(),
    })
    .collect()
}
