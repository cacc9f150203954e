//! rustup: `cargo` is rustup under another name and starts `toolchains/NAME/bin/cargo`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::Start;
use crate::command::surroundings::{Surroundings, read_setting};
use crate::command::{CommandError, lookup};
use crate::policy::looks;

/// What was asked for: a toolchain by name, or a directory that holds one.
enum Toolchain {
    Name(String),
    Directory(PathBuf),
    /// A directory that a file beside the work names: whoever wrote that would choose the program.
    Elsewhere(PathBuf),
}

/// The program that a rustup proxy would start; none if `program`, which is `real`, is no proxy.
pub(super) fn behind(
    program: &Path,
    real: Option<&Path>,
    argument: Option<&OsString>,
    around: &Surroundings<'_>,
) -> Result<Option<Start>, CommandError> {
    if !is_proxy(program, real) {
        return Ok(None);
    }
    let Some(name) = program.file_name() else {
        return Ok(None);
    };
    let Some(home) = around.dir("RUSTUP_HOME", ".rustup") else {
        return Err(missing(program, "HOME and RUSTUP_HOME are unset".to_owned()));
    };
    let settings = read_setting(&home.join("settings.toml")).unwrap_or_default();
    let word = argument.and_then(|word| word.to_str()).and_then(|word| word.strip_prefix('+'));
    let took_argument = word.is_some();
    let asked = word.map(|word| Toolchain::Name(word.to_owned()));
    let Some(toolchain) = asked.or_else(|| chosen(&settings, around)) else {
        return Err(missing(program, "no default toolchain is set (rustup default stable)".to_owned()));
    };
    let (dir, label) = match toolchain {
        Toolchain::Directory(dir) => (dir.clone(), dir.display().to_string()),
        Toolchain::Elsewhere(dir) => {
            let dir = dir.display();
            let reason = format!(
                "a file beside the work names {dir} as the toolchain; if that is meant, set RUSTUP_TOOLCHAIN={dir}"
            );
            return Err(missing(program, reason));
        }
        Toolchain::Name(label) => match installed(&home, &settings, &label) {
            Some(dir) => (dir, label),
            None => {
                let reason =
                    format!("the toolchain `{label}` is not installed (rustup toolchain install {label})");
                return Err(missing(program, reason));
            }
        },
    };
    let candidate = dir.join("bin").join(name);
    if !lookup::is_executable(&candidate) {
        let reason = format!("the toolchain `{label}` lacks it (rustup component add)");
        return Err(missing(program, reason));
    }
    let mut start = Start::behind(candidate);
    start.took_argument = took_argument;
    start.env.extend(home.to_str().map(|home| ("RUSTUP_HOME".to_owned(), home.to_owned())));
    Ok(Some(start))
}

fn missing(program: &Path, reason: String) -> CommandError {
    CommandError::ShimTargetMissing { shim: program.to_owned(), manager: "rustup", reason }
}

/// A proxy is a symbolic or hard link to `rustup` under another name.
fn is_proxy(program: &Path, real: Option<&Path>) -> bool {
    let name = program.file_name();
    if name == Some(OsStr::new("rustup")) || name == Some(OsStr::new("rustup-init")) {
        return false;
    }
    if real.is_some_and(|real| real.file_name() == Some(OsStr::new("rustup"))) {
        return true;
    }
    let Ok(theirs) = looks::status(&program.with_file_name("rustup")) else { return false };
    looks::status(program).is_ok_and(|ours| ours.id == theirs.id)
}

/// The variable, then the nearest of directory overrides and toolchain files, then the default.
fn chosen(settings: &str, around: &Surroundings<'_>) -> Option<Toolchain> {
    if let Some(value) = around.var("RUSTUP_TOOLCHAIN") {
        return Some(named(&value.to_string_lossy(), around.cwd));
    }
    for dir in around.upwards() {
        let key = dir.to_str().and_then(|dir| toml_value(settings, "overrides", dir));
        let found = key.map(Toolchain::Name).or_else(|| toolchain_file(dir));
        if found.is_some() {
            return found;
        }
    }
    toml_value(settings, "", "default_toolchain").map(Toolchain::Name)
}

/// `rust-toolchain` (one word, or TOML) before `rust-toolchain.toml`, as rustup prefers them.
fn toolchain_file(dir: &Path) -> Option<Toolchain> {
    let plain = read_setting(&dir.join("rust-toolchain"));
    let text = plain.or_else(|| read_setting(&dir.join("rust-toolchain.toml")))?;
    if let Some(path) = toml_value(&text, "toolchain", "path") {
        return Some(Toolchain::Elsewhere(dir.join(path)));
    }
    if let Some(channel) = toml_value(&text, "toolchain", "channel") {
        return Some(Toolchain::Name(channel));
    }
    let word = text.trim();
    let bare = !word.is_empty() && !word.contains(['\n', '[', '=']);
    bare.then(|| Toolchain::Name(word.to_owned()))
}

fn named(word: &str, cwd: &Path) -> Toolchain {
    if word.contains('/') {
        return Toolchain::Directory(cwd.join(word));
    }
    Toolchain::Name(word.to_owned())
}

/// The directory of a toolchain: its whole name, or the name with this host's triple.
fn installed(home: &Path, settings: &str, label: &str) -> Option<PathBuf> {
    if label.is_empty() || label.contains('/') || label.starts_with('.') {
        return None;
    }
    let toolchains = home.join("toolchains");
    let configured = toml_value(settings, "", "default_host_triple");
    let arch = std::env::consts::ARCH;
    let hosts = ["gnu", "musl"].map(|libc| format!("{arch}-unknown-linux-{libc}"));
    let names = configured.into_iter().chain(hosts).map(|host| format!("{label}-{host}"));
    std::iter::once(label.to_owned())
        .chain(names)
        .map(|name| toolchains.join(name))
        .find(|dir| looks::is_dir(dir))
}

/// The string at `key` in `[section]` ("" for the top) of the little TOML that rustup writes.
fn toml_value(text: &str, section: &str, key: &str) -> Option<String> {
    let mut current = "";
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            current = header.split(']').next().unwrap_or_default().trim();
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        if current != section || name.trim().trim_matches(['"', '\'']) != key {
            continue;
        }
        let value = value.trim();
        let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        return value[1..].split(quote).next().map(str::to_owned);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::toml_value;

    #[test]
    fn little_toml() {
        let text =
            "version = \"12\"\ndefault_toolchain = \"stable\" # why\n\n[overrides]\n\"/a b\" = 'nightly'\n";
        assert_eq!(toml_value(text, "", "default_toolchain").as_deref(), Some("stable"));
        assert_eq!(toml_value(text, "overrides", "/a b").as_deref(), Some("nightly"));
        assert_eq!(toml_value(text, "overrides", "version"), None);
        assert_eq!(
            toml_value("[toolchain]\nchannel=\"1.80\"", "toolchain", "channel").as_deref(),
            Some("1.80")
        );
        assert_eq!(toml_value("a = 1\nb =\n=", "", "a"), None);
    }
}
