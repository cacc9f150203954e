//! The house rules: imports go down only, files and functions stay small, every file says its job.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use source::{Source, sources};

/// Each folder of `src`, and its layer. A folder imports from lower layers alone.
const LAYERS: [(&str, u32); 12] = [
    ("cli", 5),
    ("replay", 4),
    ("run", 3),
    ("plan", 2),
    ("command", 1),
    ("fsview", 1),
    ("netproxy", 1),
    ("ns", 1),
    ("supervisor", 1),
    ("policy", 0),
    ("sys", 0),
    ("trace", 0),
];

const LONGEST_FILE: usize = 400;
const LONGEST_FUNCTION: usize = 60;

/// Where files may import each other in a circle: a tunnel carries HTTP, and HTTP opens tunnels.
const CIRCLES: [&str; 1] = ["netproxy"];

/// Names that say nothing of what a module holds.
const EMPTY_NAMES: [&str; 9] =
    ["util", "utils", "helper", "helpers", "common", "types", "misc", "manager", "shared"];

#[track_caller]
fn none(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}\n{}", breaches.join("\n"));
}

fn everywhere() -> Vec<Source> {
    ["src", "tests/it"].into_iter().flat_map(sources).collect()
}

fn at(source: &Source, what: impl std::fmt::Display) -> String {
    format!("  {}: {what}", source.path.display())
}

#[test]
fn imports_go_down_only() {
    let layers = BTreeMap::from(LAYERS);
    let mut breaches = Vec::new();
    for source in sources("src") {
        let modules = source.modules();
        let Some(folder) = modules.first() else { continue };
        let Some(layer) = layers.get(folder.as_str()) else {
            breaches.push(at(&source, "this folder is not in the table of layers"));
            continue;
        };
        let above = "super::".repeat(modules.len());
        if source.product().contains(&above) {
            breaches.push(at(&source, format!("{above} leaves the folder")));
        }
        for other in imports(&source.code, "crate") {
            let allowed = other == *folder || layers.get(other.as_str()).is_some_and(|other| other < layer);
            if !allowed {
                breaches.push(at(&source, format!("imports {other}")));
            }
        }
    }
    none("a folder imports from lower layers alone", &breaches);
}

/// What is named directly below a path: `crate::{a::B, c}` and `crate::d::E` give a, c, d.
fn imports(code: &str, path: &str) -> BTreeSet<String> {
    let word = |text: &str| {
        text.split(|char: char| !char.is_alphanumeric() && char != '_').next().map(str::to_owned)
    };
    let mut found = BTreeSet::new();
    for (position, _) in code.match_indices(&format!("{path}::")) {
        let before = code[..position].chars().next_back();
        if before.is_some_and(|char| char.is_alphanumeric() || char == '_' || char == ':') {
            continue;
        }
        let rest = &code[position + path.len() + 2..];
        match rest.strip_prefix('{') {
            None => found.extend(word(rest)),
            Some(group) => {
                let mut depth = 0;
                let parts = group.split(|char| {
                    depth += i32::from(char == '{') - i32::from(char == '}');
                    char == ',' && depth == 0 || depth < 0
                });
                found.extend(
                    parts.take_while(|part| !part.contains(';')).filter_map(|part| word(part.trim())),
                );
            }
        }
    }
    found.remove("");
    found
}

#[test]
fn no_folder_has_a_circle_between_its_files() {
    let mut edges: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for source in sources("src") {
        let modules = source.modules();
        if source.is_test() || modules.len() != 2 {
            continue;
        }
        let named = imports(source.product(), "super");
        edges.insert((modules[0].clone(), modules[1].clone()), named);
    }
    let mut breaches = Vec::new();
    for (folder, name) in edges.keys().filter(|(folder, _)| !CIRCLES.contains(&folder.as_str())) {
        let mut ways: BTreeMap<&str, String> = BTreeMap::new();
        let mut waiting = vec![(name.as_str(), name.clone())];
        while let Some((next, way)) = waiting.pop() {
            for other in edges.get(&(folder.clone(), next.to_owned())).into_iter().flatten() {
                if other != next && !ways.contains_key(other.as_str()) {
                    ways.insert(other, format!("{way} -> {other}"));
                    waiting.push((other, format!("{way} -> {other}")));
                }
            }
        }
        breaches.extend(ways.get(name.as_str()).map(|way| format!("  src/{folder}: {way}")));
    }
    none("no circles between the files of a folder", &breaches);
}

#[test]
fn files_are_short() {
    let mut breaches = Vec::new();
    for source in everywhere() {
        let lines = source.text.lines().count();
        if lines > LONGEST_FILE {
            breaches.push(at(&source, format!("{lines} lines")));
        }
    }
    none(&format!("a file has at most {LONGEST_FILE} lines"), &breaches);
}

#[test]
fn functions_are_short() {
    let mut breaches = Vec::new();
    for source in everywhere() {
        for (name, line, length) in functions(&source.code) {
            if length > LONGEST_FUNCTION {
                breaches.push(at(&source, format!("line {line}: {name} has {length} lines")));
            }
        }
    }
    none(&format!("a function has at most {LONGEST_FUNCTION} lines"), &breaches);
}

/// Each function with a body: its name, its line, and how many lines it has.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for (position, _) in code.match_indices("fn ") {
        let before = code[..position].chars().next_back();
        if before.is_some_and(|char| !char.is_whitespace()) {
            continue;
        }
        let rest = &code[position + 3..];
        let Some(name) = rest.split(['(', '<']).next().filter(|name| !name.is_empty()) else { continue };
        let mut depth = 0;
        let mut opened = false;
        // Types may hold `[u8; 4]`: only a semicolon outside of brackets ends a declaration.
        let mut brackets = 0;
        let end = rest.char_indices().find_map(|(at, char)| {
            match char {
                '{' => (depth, opened) = (depth + 1, true),
                '}' => depth -= 1,
                '[' | '(' => brackets += 1,
                ']' | ')' => brackets -= 1,
                _ => {}
            }
            let declared = !opened && brackets == 0 && char == ';';
            (declared || (opened && depth == 0)).then_some(at)
        });
        if let Some(end) = end.filter(|_| opened) {
            let line = code[..position].matches('\n').count() + 1;
            found.push((name, line, rest[..end].matches('\n').count() + 1));
        }
    }
    found
}

#[test]
fn every_file_says_its_job() {
    let silent = everywhere().into_iter().filter(|source| !source.text.starts_with("//! "));
    let breaches: Vec<_> = silent.map(|source| at(&source, "does not begin with `//!`")).collect();
    none("a file begins by saying its job", &breaches);
}

#[test]
fn names_say_what_is_inside() {
    let mut breaches = Vec::new();
    for source in everywhere() {
        if source.modules().iter().any(|name| EMPTY_NAMES.contains(&name.as_str())) {
            breaches.push(at(&source, "the name says nothing"));
        }
    }
    none("a module is named for what it holds", &breaches);
}

#[test]
fn every_test_file_is_listed() {
    let main = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/main.rs"));
    let main = main.expect("tests/it/main.rs");
    let mut breaches = Vec::new();
    for source in sources("tests/it") {
        let inner = source.path.strip_prefix("tests/it").expect("a path in tests/it").with_extension("");
        let is_top = inner.iter().count() == 1 && inner != Path::new("main");
        let listed = main.lines().any(|line| line == format!("mod {};", inner.display()));
        if is_top && !listed {
            breaches.push(at(&source, "is not listed in main.rs"));
        }
    }
    none("a test file that is not listed does not run", &breaches);
}

#[test]
fn unsafe_code_stays_at_the_kernel() {
    let mut breaches = Vec::new();
    for source in everywhere() {
        let words = source.code.split(|char: char| !char.is_alphanumeric() && char != '_');
        if words.into_iter().any(|word| word == "unsafe") && !source.path.starts_with("src/sys") {
            breaches.push(at(&source, "has unsafe code"));
        }
    }
    none("only src/sys has unsafe code", &breaches);
}

#[test]
fn nothing_is_left_for_later() {
    let unfinished = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore")];
    let notes = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X:")];
    let mut breaches = Vec::new();
    for source in everywhere() {
        let code = unfinished.into_iter().filter(|word| source.code.contains(word));
        let text = notes.into_iter().filter(|word| source.text.contains(word));
        breaches.extend(code.chain(text).map(|word| at(&source, format!("has {word}"))));
        if source.product().contains("allow(dead_code)") {
            breaches.push(at(&source, "hides dead code"));
        }
    }
    none("what is there is finished", &breaches);
}

#[test]
fn the_rules_see_what_they_look_for() {
    assert_eq!(
        imports("use crate::{a::{B, C}, d};\nuse crate::e::F;\nmycrate::g", "crate"),
        BTreeSet::from(["a", "d", "e"].map(str::to_owned))
    );
    let code = "trait T {\n fn a(x: [u8; 2]);\n fn b() {\n {\n}\n}\n}";
    assert_eq!(functions(code), [("b", 3, 4)]);
}
