//! Names of headers, query parameters and members of bodies whose values are secret.

use super::super::event::unhex;

/// Headers whose values are secret.
pub(super) const SECRET_HEADERS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
    "x-xsrf-token",
    "x-amz-security-token",
    "x-vault-token",
    "x-github-token",
    "x-gitlab-token",
    "private-token",
    "job-token",
    "deploy-token",
    "ocp-apim-subscription-key",
];

/// Headers whose values hold URLs.
pub(super) const URL_HEADERS: &[&str] = &["location", "content-location", "referer", "refresh", "link"];

/// Query parameters whose values are secret; `-` and `_` are taken as the same.
pub(super) const SECRET_PARAMETERS: &[&str] = &[
    "access_key",
    "access_token",
    "api_key",
    "apikey",
    "assertion",
    "auth",
    "auth_token",
    "authorization",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "credential",
    "device_code",
    "id_token",
    "jwt",
    "key",
    "pass",
    "passwd",
    "password",
    "private_token",
    "refresh_token",
    "secret",
    "session",
    "sid",
    "sig",
    "signature",
    "subscription_key",
    "token",
    "x_amz_credential",
    "x_amz_security_token",
    "x_amz_signature",
    "x_goog_credential",
    "x_goog_signature",
];

/// Members of JSON bodies whose values are secret: what OAuth and sign-in forms carry.
pub(super) const SECRET_MEMBERS: &[&str] = &[
    "access_token",
    "api_key",
    "apikey",
    "assertion",
    "auth_token",
    "client_assertion",
    "client_secret",
    "code_verifier",
    "device_code",
    "id_token",
    "jwt",
    "passwd",
    "password",
    "private_key",
    "private_token",
    "refresh_token",
    "secret",
    "session_token",
    "token",
];

/// Whether the values of this header are secret.
pub(super) fn is_secret_header(name: &str) -> bool {
    SECRET_HEADERS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

/// Whether the values of this query parameter are secret. A name with percent signs is judged by what they stand for.
pub(super) fn is_secret_parameter(name: &str) -> bool {
    let name = percent_decoded(name).to_ascii_lowercase().replace('-', "_");
    SECRET_PARAMETERS.contains(&name.as_str())
}

pub(super) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped =
            after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(unhex) {
            Some(decoded) => {
                bytes.extend_from_slice(&decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether the value of this member of a JSON body is secret: `accessToken` is taken as `access_token`.
pub(super) fn is_secret_member(name: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '_'], "");
    let name = plain(name);
    SECRET_MEMBERS.iter().any(|secret| plain(secret) == name)
}
