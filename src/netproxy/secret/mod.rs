//! Secrets: the confined program holds placeholders, and requests get the values on their way out.
//!
//! A placeholder is swapped in the header fields of a request to a host that a `secret:` rule names,
//! over TLS that was verified, and nowhere else: anywhere else it is a denial. What that host answers
//! is searched for the value on its way in, and holds the placeholder then.

mod admit;
mod body;
mod coding;
mod escaped;
mod escapes;
mod fragments;
pub mod frames;
mod mask;
mod messages;
mod needle;
mod opaque;
mod place;
mod placeholder;
mod unpacked;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use http::HeaderMap;

use crate::policy::Policy;

pub(crate) use self::admit::{Treatment, admit};
pub(crate) use self::body::Passing;
pub(crate) use self::coding::Decoder;
pub(crate) use self::opaque::{Lookout, Masking, Watching};
pub(crate) use self::place::Place;

use self::placeholder::Placeholder;
use self::unpacked::Opened;
use self::watch::{Marks, Watch, find};
use super::authority::Host;
use super::error::NetproxyError;

/// A shorter value is met by chance in what a host answers.
const SHORTEST: usize = 8;

/// Random bytes that stand for a value in a replay.
const NO_VALUE: usize = 32;

/// The secrets of one run.
#[derive(Default)]
pub struct Secrets {
    all: Vec<Secret>,
    places: Vec<Arc<Place>>,
    marks: Marks,
    /// Bodies that are unpacked now.
    unpacked: unpacked::Count,
}

/// One of them.
struct Secret {
    /// The variable.
    name: String,
    value: Value,
    placeholder: Placeholder,
    /// The hosts that get it, for messages.
    hosts: String,
    /// The rule that speaks of it first.
    rule: String,
}

/// A value that no message shows, and that is overwritten when it is dropped.
#[derive(Clone)]
struct Value(Vec<u8>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fill(0);
        // So that the compiler does not leave it out as a write that nobody reads.
        std::hint::black_box(&self.0);
    }
}

/// Whether a run can have had this in the place of a secret: the name of a variable, and a placeholder.
#[must_use]
pub fn is_placeholder((name, text): &(String, String)) -> bool {
    let is_name = !name.is_empty() && !name.contains(['=', '\0']);
    is_name && Placeholder::restored(text).is_one()
}

impl Secrets {
    /// Takes the values that `policy` speaks of out of the launcher's environment, and makes a placeholder for each.
    /// A variable that is not set, or empty, is none.
    ///
    /// # Errors
    /// A value that cannot be kept secret, or no randomness.
    pub fn gather<'a>(
        policy: &Policy,
        variable: impl Fn(&str) -> Option<&'a OsStr>,
    ) -> Result<Self, NetproxyError> {
        Self::all(policy, |name| {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
            let value = Value(value.as_bytes().to_vec());
            check(&value.0)?;
            let placeholder = Placeholder::random(&value.0).map_err(|error| error.to_string())?;
            Ok(Some((value, placeholder)))
        })
    }

    /// Those of a run that was recorded, by what it had in their place, with the values of today: something of it
    /// goes out.
    ///
    /// # Errors
    /// A value that is not there, or cannot be kept secret.
    pub fn renew(
        policy: &Policy,
        placeholders: &[(String, String)],
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, NetproxyError> {
        Self::all(policy, |name| {
            let Some((_, text)) = placeholders.iter().find(|(known, _)| known == name) else {
                return Ok(None);
            };
            let value = variable(name).filter(|value| !value.is_empty());
            let value = value.ok_or("it is not set, and what goes on for real needs it")?;
            check(value.as_bytes())?;
            Ok(Some((Value(value.into_encoded_bytes()), Placeholder::restored(text))))
        })
    }

    /// Those of a run that was recorded, by what it had in their place. There are no values: nothing goes out.
    ///
    /// # Errors
    /// No randomness.
    pub fn restore(policy: &Policy, placeholders: &[(String, String)]) -> Result<Self, NetproxyError> {
        Self::all(policy, |name| {
            let Some((_, text)) = placeholders.iter().find(|(known, _)| known == name) else {
                return Ok(None);
            };
            let mut value = vec![0; NO_VALUE];
            getrandom::fill(&mut value).map_err(|error| error.to_string())?;
            Ok(Some((Value(value), Placeholder::restored(text))))
        })
    }

    fn all(
        policy: &Policy,
        mut known: impl FnMut(&str) -> Result<Option<(Value, Placeholder)>, String>,
    ) -> Result<Self, NetproxyError> {
        let mut all: Vec<Secret> = Vec::new();
        for (id, rule) in policy.secrets() {
            let host = format!("{}:{}", rule.host, rule.port);
            if let Some(known) = all.iter_mut().find(|secret| secret.name == rule.name) {
                known.hosts = format!("{}, {host}", known.hosts);
                continue;
            }
            let known = known(&rule.name);
            let known = known.map_err(|reason| NetproxyError::Secret { name: rule.name.clone(), reason })?;
            let Some((value, placeholder)) = known else { continue };
            let rule_label = policy.rule_label(id);
            all.push(Secret { name: rule.name.clone(), value, placeholder, hosts: host, rule: rule_label });
        }
        let places = place::all(policy, &all);
        let core = |(number, secret): (usize, &Secret)| {
            let forms = needle::forms(secret.placeholder.core().as_bytes(), b"x");
            forms.into_iter().map(move |form| (number, form))
        };
        let marks = all.iter().enumerate().flat_map(core).collect();
        Ok(Self { all, places, marks, unpacked: unpacked::Count::default() })
    }

    /// A place among the bodies that are unpacked now, for what `decoder` holds.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn unpacks(&self, decoder: &Decoder) -> Result<Option<Opened>, NetproxyError> {
        if !decoder.has_window() {
            return Ok(None);
        }
        let reason = || "so many packed bodies are searched for values already".to_owned();
        let opened = self.unpacked.open();
        opened.map(Some).ok_or_else(|| NetproxyError::Unsearchable { reason: reason() })
    }

    /// What the command gets: names of variables, and placeholders.
    pub fn placeholders(&self) -> Vec<(String, String)> {
        self.all.iter().map(|secret| (secret.name.clone(), secret.placeholder.text.clone())).collect()
    }

    /// Whether there is one.
    pub(super) fn any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Takes away what would let a client pack what its WebSocket carries: it is searched.
    pub(super) fn keep_legible(&self, headers: &mut HeaderMap) {
        if self.any() {
            headers.remove(place::EXTENSIONS);
        }
    }

    /// The variable whose value stands in `text`, if any does.
    #[must_use]
    pub fn shown_in(&self, text: &[u8]) -> Option<&str> {
        let shows = |secret: &&Secret| memchr::memmem::find(text, &secret.value.0).is_some();
        self.all.iter().find(shows).map(|secret| secret.name.as_str())
    }

    /// The same for a name of a host, in which the case of letters is lost.
    fn in_name(&self, name: &str) -> Option<usize> {
        if self.all.is_empty() {
            return None;
        }
        let plain = name.replace('.', "").to_ascii_lowercase();
        let is_there = |secret: &Secret| plain.contains(&secret.placeholder.core().to_ascii_lowercase());
        self.all.iter().position(is_there)
    }

    fn find(&self, bytes: &[u8]) -> Option<usize> {
        find(&self.marks, bytes, |_| true)
    }

    /// Who gets values there, where the origin has proved to be `host`.
    pub(super) fn place_of(&self, host: &Host, port: u16) -> Option<&Arc<Place>> {
        match host {
            Host::Name(name) => self.place(name, port),
            Host::Address(_) => None,
        }
    }

    fn place(&self, host: &str, port: u16) -> Option<&Arc<Place>> {
        self.places.iter().find(|place| place.host == host && place.port == port)
    }

    /// Whether some host knows a secret at that port.
    fn is_known_at(&self, port: u16) -> bool {
        self.places.iter().any(|place| place.port == port)
    }

    /// What those of these hosts know that get values there, together.
    fn place_of_any(&self, hosts: &[&str], port: u16) -> Option<Arc<Place>> {
        let known = self.places.iter().filter(|place| place.port == port && hosts.contains(&&*place.host));
        let mut known = known.map(Arc::clone);
        let first = known.next()?;
        Some(known.fold(first, |one, other| Arc::new(one.joined(&other))))
    }

    /// Looks for all placeholders but those of `free`; none where there is nothing to look for.
    fn watch(&self, free: Vec<usize>) -> Option<Watch> {
        Watch::new(Arc::clone(&self.marks), free)
    }

    /// Why `what` is refused.
    fn reason(&self, secret: usize, what: &str) -> String {
        let Secret { name, hosts, .. } = &self.all[secret];
        format!(
            "{what} holds the placeholder of the secret {name}, whose value goes to {hosts} alone, in header fields"
        )
    }
}

fn check(value: &[u8]) -> Result<(), &'static str> {
    if value.len() < SHORTEST {
        return Err("its value is shorter than 8 bytes, and could not be told from other text in answers");
    }
    if value.iter().any(u8::is_ascii_control) {
        return Err("its value holds a control character, such as a newline, which no header field can hold");
    }
    if value.starts_with(b" ") || value.ends_with(b" ") {
        return Err("its value begins or ends with a blank, which a header field loses");
    }
    Ok(())
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|secret| &secret.name)).finish()
    }
}
