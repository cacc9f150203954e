//! asdf and mise: `shims/PROGRAM` picks `installs/TOOL/VERSION/bin/PROGRAM`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::Start;
use crate::command::surroundings::{Surroundings, read_setting};
use crate::command::{CommandError, lookup};
use crate::policy::looks;

/// Files that pin tools, one `TOOL VERSION` or `TOOL = "VERSION"` a line.
const PINS: [&str; 5] =
    ["mise.local.toml", "mise.toml", ".mise.toml", ".config/mise/config.toml", ".tool-versions"];

/// The program that such a shim would start; none if `program`, which is `real`, is no such shim.
pub(super) fn behind(
    program: &Path,
    real: Option<&Path>,
    around: &Surroundings<'_>,
) -> Result<Option<Start>, CommandError> {
    let Some((manager, root)) = manager_of(program, real) else {
        return Ok(None);
    };
    let Some(name) = program.file_name() else {
        return Ok(None);
    };
    let installs = root.join("installs");
    let home = around.home();
    for dir in around.upwards().chain(home.as_deref()) {
        for pins in PINS.iter().filter_map(|file| read_setting(&dir.join(file))) {
            for (tool, version) in pins.lines().filter_map(pin) {
                if version == "system" {
                    continue;
                }
                let found = candidates(&installs, &tool, &version, name);
                if let Some(found) = found.into_iter().find(|path| lookup::is_executable(path)) {
                    return Ok(Some(Start::behind(found)));
                }
            }
        }
    }
    match lookup::find_except(name, around, program.parent()) {
        Ok(found) => Ok(Some(Start::plain(found))),
        Err(_) => Err(CommandError::ShimTargetMissing {
            shim: program.to_owned(),
            manager,
            reason: format!(
                "no pinned version has it (give the path that `{manager} which {}` prints)",
                name.to_string_lossy()
            ),
        }),
    }
}

fn manager_of(program: &Path, real: Option<&Path>) -> Option<(&'static str, PathBuf)> {
    let dir = program.parent()?;
    if dir.file_name() != Some(OsStr::new("shims")) {
        return None;
    }
    let root = dir.parent()?.to_owned();
    if !looks::is_dir(&root.join("installs")) {
        return None;
    }
    if real?.file_name() == Some(OsStr::new("mise")) {
        return Some(("mise", root));
    }
    let calls_asdf = read_setting(program)?.contains("asdf");
    calls_asdf.then_some(("asdf", root))
}

/// One line of a pin file. Lists and tables of mise are left alone: their first string counts.
fn pin(line: &str) -> Option<(String, String)> {
    let line = line.split('#').next()?.trim();
    let (tool, version) = match line.split_once('=') {
        Some((tool, value)) => (tool.trim(), value.split(['"', '\'']).nth(1)?),
        None => {
            let mut words = line.split_whitespace();
            (words.next()?, words.next()?)
        }
    };
    let tool = tool.trim_matches(['"', '\'']);
    let plain = |word: &str| !word.is_empty() && !word.contains('/') && !word.starts_with('.');
    (plain(tool) && plain(version)).then(|| (tool.to_owned(), version.to_owned()))
}

/// Where the tool may be: under its pinned version, or the newest that begins with it. Some tools
/// have their programs at the top of the version's directory.
fn candidates(installs: &Path, tool: &str, version: &str, name: &OsStr) -> Vec<PathBuf> {
    let tool = match tool {
        "nodejs" if !looks::is_dir(&installs.join(tool)) => "node",
        "golang" if !looks::is_dir(&installs.join(tool)) => "go",
        other => other,
    };
    let dir = installs.join(tool);
    let mut versions = vec![version.to_owned()];
    let start = format!("{version}.");
    let entries = fs::read_dir(&dir).into_iter().flatten();
    let longer = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    versions.extend(longer.filter(|entry| entry.starts_with(&start)));
    let places = ["bin", "go/bin", ""];
    versions.iter().flat_map(|version| places.map(|place| dir.join(version).join(place).join(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::pin;

    fn pair(tool: &str, version: &str) -> Option<(String, String)> {
        Some((tool.to_owned(), version.to_owned()))
    }

    #[test]
    fn pins() {
        assert_eq!(pin("nodejs 20.1.0 # lts"), pair("nodejs", "20.1.0"));
        assert_eq!(pin("node = \"20\""), pair("node", "20"));
        assert_eq!(pin("python = ['3.11', '3.10']"), pair("python", "3.11"));
        assert_eq!(pin("[tools]"), None);
        assert_eq!(pin("x ../../etc"), None);
        assert_eq!(pin(""), None);
    }
}
