//! Recorded answers of name servers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hickory_proto::rr::{RData, RecordType};
use hickory_proto::serialize::binary::{BinDecoder, Restrict};
use serde_json::Value;

use super::super::resolve::{Family, Found};
use super::entry::Entry;
use super::shelf::Shelf;
use crate::trace::unhex;

/// How long an answer holds of which that was not recorded, in seconds.
const TTL: u32 = 60;

/// What a name server said.
#[derive(Debug)]
pub(super) struct Lookup {
    code: String,
    addresses: Vec<IpAddr>,
    /// Records in their wire form, in hex.
    wire: Vec<String>,
    error: Option<String>,
    ttl: u32,
}

/// Those that are left, and the last one of each name and type that was given.
#[derive(Default)]
struct Answers {
    left: Shelf<Lookup>,
    last: HashMap<String, Arc<Lookup>>,
}

/// All of a recording.
#[derive(Default)]
pub(super) struct Lookups {
    answers: Mutex<Answers>,
    /// Addresses that the policy kept back, for each name and type.
    withheld: HashMap<String, Vec<IpAddr>>,
}

impl Lookup {
    /// Of a `dns.lookup`. None when it is none.
    pub(super) fn of(entry: &Entry<'_>) -> Option<Self> {
        let result = entry.result;
        let list =
            |key: &str| result.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let ttl = result.get("ttl").and_then(Value::as_u64).and_then(|ttl| u32::try_from(ttl).ok());
        Some(Self {
            code: result.get("code")?.as_str()?.to_owned(),
            addresses: addresses(list("answers")),
            wire: list("wire").iter().filter_map(|record| record.as_str().map(str::to_owned)).collect(),
            error: result.get("error").and_then(Value::as_str).map(str::to_owned),
            ttl: ttl.unwrap_or(TTL),
        })
    }

    fn found(&self, withheld: &[IpAddr]) -> Result<Found, String> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let addresses: Vec<IpAddr> = withheld.iter().chain(&self.addresses).copied().collect();
        Ok(match self.code.as_str() {
            _ if !addresses.is_empty() => Found::Addresses { addresses, ttl: self.ttl },
            "NXDOMAIN" => Found::NoName,
            "NOERROR" => Found::NoData,
            code => return Err(code.to_owned()),
        })
    }

    fn records(&self, kind: RecordType) -> Result<Found, String> {
        let records: Vec<RData> = self.wire.iter().filter_map(|record| read(record, kind)).collect();
        if records.is_empty() { self.found(&[]) } else { Ok(Found::Records { records, ttl: self.ttl }) }
    }
}

impl Lookups {
    pub(super) fn put(&mut self, entry: &Entry<'_>, lookup: Lookup) {
        let Some(key) = key_of(entry) else { return };
        let answers = self.answers.get_mut().unwrap_or_else(PoisonError::into_inner);
        answers.left.put([key], entry.proc.map(str::to_owned), Arc::new(lookup));
    }

    /// Of a `dns.withheld`.
    pub(super) fn put_withheld(&mut self, entry: &Entry<'_>) {
        let (Some(key), Some(list)) = (key_of(entry), entry.args.get("addresses").and_then(Value::as_array))
        else {
            return;
        };
        let all = self.withheld.entry(key).or_default();
        for address in addresses(list) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }

    /// The next answer; the last one again where there are no more.
    pub(super) fn addresses(&self, name: &str, family: Family, proc: Option<&str>) -> Result<Found, String> {
        let key = key(name, family.record_type());
        let withheld = self.withheld.get(&key).map(Vec::as_slice).unwrap_or_default();
        match self.next(&key, proc) {
            Some(lookup) => lookup.found(withheld),
            None if withheld.is_empty() => Ok(Found::NotRecorded),
            None => Ok(Found::Addresses { addresses: withheld.to_vec(), ttl: TTL }),
        }
    }

    /// The same for other records.
    pub(super) fn records(&self, name: &str, kind: RecordType, proc: Option<&str>) -> Result<Found, String> {
        match self.next(&key(name, &kind.to_string()), proc) {
            Some(lookup) => lookup.records(kind),
            None => Ok(Found::NotRecorded),
        }
    }

    fn next(&self, key: &str, proc: Option<&str>) -> Option<Arc<Lookup>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Answers { left, last } = &mut *answers;
        match left.take_by(key, proc) {
            Some((lookup, _)) => {
                last.insert(key.to_owned(), Arc::clone(&lookup));
                Some(lookup)
            }
            None => last.get(key).map(Arc::clone),
        }
    }
}

fn key(name: &str, record_type: &str) -> String {
    format!("{name} {record_type}")
}

fn key_of(entry: &Entry<'_>) -> Option<String> {
    Some(key(entry.text("name")?, entry.text("type")?))
}

fn addresses(list: &[Value]) -> Vec<IpAddr> {
    list.iter().filter_map(|address| address.as_str()?.parse().ok()).collect()
}

/// A record's data in hex, as it stands in a message (RFC 1035 section 3.2.1).
fn read(hex: &str, kind: RecordType) -> Option<RData> {
    let bytes = unhex(hex)?;
    let length = u16::try_from(bytes.len()).ok()?;
    RData::read(&mut BinDecoder::new(&bytes), kind, Restrict::new(length)).ok()
}
