//! The name under which OpenSSL looks for a certificate in a directory: a hash of its subject.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The hash of the subject of a certificate (PEM): the begin of the SHA-1 of its canonical form, see
/// x509_name_canon in OpenSSL's crypto/x509/x_name.c. Ours has that form already: UTF-8 strings
/// in lower case with single spaces. `None` if there is no certificate.
pub(super) fn hash(pem: &str) -> Option<u32> {
    let text: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let certificate = STANDARD.decode(text).ok()?;
    let subject = subject(&certificate)?;
    let digest = Sha1::digest(subject);
    Some(u32::from_le_bytes(digest.get(..4)?.try_into().ok()?))
}

/// The content of the field `subject` (RFC 5280 section 4.1).
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // The number, the algorithm, the issuer, the validity.
    for expected in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        let (tag, _, after) = element(rest)?;
        rest = (tag == expected).then_some(after)?;
    }
    let (tag, subject, _) = element(rest)?;
    (tag == SEQUENCE).then_some(subject)
}

/// Splits the first element of `der` off: its tag, its content, what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use std::time::SystemTime;

    use crate::netproxy::ca::RunAuthority;

    #[test]
    fn openssl_has_the_same() {
        let authority = RunAuthority::generate(SystemTime::now()).expect("an authority");
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
        let hash = super::hash(authority.certificate_pem()).expect("a certificate");
        assert_eq!(String::from_utf8_lossy(&said).trim(), format!("{hash:08x}"));
    }

    #[test]
    fn what_is_no_certificate_has_none() {
        for text in ["", "-----BEGIN CERTIFICATE-----\nMAEC\n-----END CERTIFICATE-----\n", "MIT/"] {
            assert_eq!(super::hash(text), None);
        }
    }
}
