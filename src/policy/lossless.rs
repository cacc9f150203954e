//! Paths and words of the kernel as JSON: text where they are UTF-8, hexadecimal in an object otherwise.
//!
//! A launch directory may hold any bytes but NUL; serde's own encoding of a path refuses those.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Encoded {
    Text(String),
    Hex { hex: String },
}

impl Encoded {
    fn of(path: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => {
                Self::Hex { hex: path.as_os_str().as_bytes().iter().map(|b| format!("{b:02x}")).collect() }
            }
        }
    }

    fn into_path(self) -> Result<PathBuf, &'static str> {
        let hex = match self {
            Self::Text(text) => return Ok(PathBuf::from(text)),
            Self::Hex { hex } => hex,
        };
        if hex.len() % 2 != 0 || !hex.is_ascii() {
            return Err("a path in hexadecimal needs two digits a byte");
        }
        let bytes: Result<Vec<u8>, _> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect();
        match bytes {
            Ok(bytes) => Ok(PathBuf::from(OsString::from_vec(bytes))),
            Err(_) => Err("a path in hexadecimal holds another character"),
        }
    }
}

/// `#[serde(with = "lossless::path")]`
pub(super) mod path {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        Encoded::of(path).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Encoded::deserialize(from)?.into_path().map_err(serde::de::Error::custom)
    }
}

/// `#[serde(with = "lossless::optional_path")]`
pub(super) mod optional_path {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Encoded::of).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Option::<Encoded>::deserialize(from)?
            .map(|encoded| encoded.into_path().map_err(serde::de::Error::custom))
            .transpose()
    }
}
