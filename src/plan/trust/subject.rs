//! The name under which OpenSSL looks for a certificate in a directory: a hash of its subject.

use sha1::{Digest as _, Sha1};

use crate::netproxy::ca::ORGANIZATION;

/// Tags of DER (X.690).
const UTF8_STRING: u8 = 0x0c;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The attributes of a name (RFC 5280 appendix A.1), as DER has them.
const ORGANIZATION_NAME: &[u8] = &[0x06, 3, 0x55, 4, 10];
const COMMON_NAME: &[u8] = &[0x06, 3, 0x55, 4, 3];

/// The hash of the subject of an authority with this common name: the begin of the SHA-1 of its
/// canonical form, see x509_name_canon in OpenSSL's crypto/x509/x_name.c. Ours has that form already:
/// UTF-8 strings in lower case with single spaces. `None` if there is no authority.
pub(super) fn hash(common_name: &str) -> Option<u32> {
    if common_name.is_empty() {
        return None;
    }
    let mut digest = Sha1::new();
    for (attribute, value) in [(ORGANIZATION_NAME, ORGANIZATION), (COMMON_NAME, common_name)] {
        let value = element(UTF8_STRING, value.as_bytes())?;
        digest.update(element(SET, &element(SEQUENCE, &[attribute, &value].concat())?)?);
    }
    Some(u32::from_le_bytes(digest.finalize().get(..4)?.try_into().ok()?))
}

/// An element whose length is one byte.
fn element(tag: u8, content: &[u8]) -> Option<Vec<u8>> {
    let length = u8::try_from(content.len()).ok().filter(|length| *length < 0x80)?;
    Some([&[tag, length], content].concat())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use std::time::SystemTime;

    use crate::netproxy::ca::{AuthorityName, RunAuthority};

    #[test]
    fn openssl_has_the_same() {
        let name = AuthorityName::make().expect("a name");
        let authority = RunAuthority::generate(name.clone(), SystemTime::now()).expect("an authority");
        let mut openssl = Command::new("openssl")
            .args(["x509", "-noout", "-subject_hash"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("openssl starts");
        let mut input = openssl.stdin.take().expect("a pipe");
        input.write_all(authority.certificate_pem().as_bytes()).expect("it reads");
        drop(input);
        let said = openssl.wait_with_output().expect("it ends").stdout;
        let hash = super::hash(name.common_name()).expect("a name");
        assert_eq!(String::from_utf8_lossy(&said).trim(), format!("{hash:08x}"));
    }

    #[test]
    fn without_an_authority_there_is_none() {
        assert_eq!(super::hash(""), None);
        assert_eq!(super::hash(&"a".repeat(200)), None);
    }
}
