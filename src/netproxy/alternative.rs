//! Alternative services (RFC 7838): offers of other protocols, hosts and ports for an origin.
//!
//! A client that follows one leaves TCP (QUIC cannot leave at all) or the name and port that its
//! rule is for, and would then fail. So none is passed on, and all stay where they are.

use hyper::header::{ALT_SVC, HeaderMap};

/// Takes the offers away; whether there were any. `clear` takes earlier ones back and stays.
pub(crate) fn withhold(headers: &mut HeaderMap) -> bool {
    let offers = headers.get_all(ALT_SVC).iter().any(|value| value.as_bytes().trim_ascii() != b"clear");
    if offers {
        headers.remove(ALT_SVC);
    }
    offers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_withheld_and_clear_is_not() {
        for (value, withheld) in
            [("h3=\":443\"; ma=86400", true), ("h2=\"b.test:443\"", true), ("clear", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(ALT_SVC, value.parse().unwrap());
            assert_eq!(withhold(&mut headers), withheld, "{value}");
            assert_eq!(headers.contains_key(ALT_SVC), !withheld, "{value}");
        }
    }
}
