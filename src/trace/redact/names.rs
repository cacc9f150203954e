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

/// How names of headers end whose values are secret, whoever has made them up: `X-Shopify-Access-Token`,
/// `CF-Access-Client-Secret`, `X-Auth-Key`.
const SECRET_ENDS: &[&str] = &[
    "access-key",
    "api-key",
    "apikey",
    "auth",
    "auth-key",
    "authentication",
    "authorization",
    "functions-key",
    "jwt",
    "password",
    "secret",
    "secret-key",
    "subscription-key",
    "token",
];

/// Headers whose values hold URLs.
pub(super) const URL_HEADERS: &[&str] = &["location", "content-location", "referer", "refresh", "link"];

/// Query parameters whose values are secret.
pub(super) const SECRET_PARAMETERS: &[&str] = &[
    "access_key",
    "access_token",
    "actor_token",
    "api_key",
    "apikey",
    "assertion",
    "auth",
    "auth_token",
    "authorization",
    "bearer_token",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "credential",
    "device_code",
    "id_token",
    "id_token_hint",
    "jwt",
    "key",
    "logout_token",
    "pass",
    "passwd",
    "password",
    "private_key",
    "private_token",
    "pwd",
    "refresh_token",
    "saml_response",
    "secret",
    "secret_access_key",
    "secret_key",
    "session",
    "session_id",
    "session_token",
    "sid",
    "sig",
    "signature",
    "subject_token",
    "subscription_key",
    "ticket",
    "token",
    "user_code",
    "x_amz_credential",
    "x_amz_security_token",
    "x_amz_signature",
    "x_goog_credential",
    "x_goog_signature",
];

/// Members of JSON bodies whose values are secret: what OAuth and sign-in forms carry.
pub(super) const SECRET_MEMBERS: &[&str] = &[
    "access_token",
    "actor_token",
    "api_key",
    "apikey",
    "assertion",
    "auth_token",
    "bearer_token",
    "client_assertion",
    "client_secret",
    "code_verifier",
    "device_code",
    "id_token",
    "id_token_hint",
    "jwt",
    "logout_token",
    "passwd",
    "password",
    "private_key",
    "private_token",
    "refresh_token",
    "secret",
    "secret_access_key",
    "secret_key",
    "session_token",
    "subject_token",
    "token",
    "user_code",
];

/// Whether the values of this header are secret.
pub(super) fn is_secret_header(name: &str) -> bool {
    SECRET_HEADERS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
        || SECRET_ENDS.iter().any(|end| ends_in_word(name.as_bytes(), end.as_bytes()))
}

fn ends_in_word(name: &[u8], end: &[u8]) -> bool {
    name.len().checked_sub(end.len()).is_some_and(|at| {
        name[at..].eq_ignore_ascii_case(end) && (at == 0 || matches!(name[at - 1], b'-' | b'_'))
    })
}

/// Whether the values of this query parameter are secret: `accessToken` is taken as `access_token`. A name with percent
/// signs is judged by what they stand for.
pub(super) fn is_secret_parameter(name: &str) -> bool {
    is_among(SECRET_PARAMETERS, &percent_decoded(name))
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
    is_among(SECRET_MEMBERS, name)
}

/// Whether a name is one of `names`, however its words are joined.
fn is_among(names: &[&str], name: &str) -> bool {
    let letters = |text: &str| -> Vec<u8> {
        let letters = text.bytes().filter(|byte| !matches!(byte, b'-' | b'_'));
        letters.map(|byte| byte.to_ascii_lowercase()).collect()
    };
    let name = letters(name);
    names.iter().any(|known| known.bytes().filter(|byte| *byte != b'_').eq(name.iter().copied()))
}
