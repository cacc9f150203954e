//! Known interpreters, and the script that a command line asks one to run.
//!
//! The script is the first word that is no option. Which words are options differs: each
//! interpreter has options that take the next word, options that end the search (`-c CODE`), and
//! options whose value is the script (`-jar FILE`). [`options`] has the table, this file the
//! one reader of it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::surroundings::{Surroundings, os_string};
use super::{Executable, trail};
use crate::policy::looks;

mod options;

use options::{Grammar, Scripts};

/// Whether either name of an executable is that of an interpreter we know.
pub(super) fn is_known(executable: &Executable) -> bool {
    family(&executable.spelled).or_else(|| family(&executable.resolved)).is_some()
}

/// The files that an interpreter may start again with any arguments: itself under all its names.
/// Java starts every child through a helper of its own.
pub(super) fn own(executable: &Executable) -> Vec<PathBuf> {
    let mut files = trail::names(executable);
    let helper = executable.resolved.parent().and_then(Path::parent);
    let helper = helper.map(|prefix| prefix.join("lib/jspawnhelper"));
    if family(&executable.resolved) == Some("java") {
        files.extend(helper.filter(|path| looks::is_file(path)));
    }
    files
}

/// The family name of an interpreter: `python3.11` is `python`, `nodejs` is `node`.
pub(super) fn family(path: &Path) -> Option<&'static str> {
    grammar(path).map(|grammar| grammar.family)
}

fn grammar(path: &Path) -> Option<&'static Grammar> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix('-').unwrap_or(name);
    // python3.11, ruby3.1, python3.13t, tclsh8.6: the version is not part of the name.
    let end = name.find(|character: char| character.is_ascii_digit()).unwrap_or(name.len());
    let (stem, version) = name.split_at(end);
    let versioned = version.bytes().all(|byte| byte.is_ascii_digit() || b".tdmu-".contains(&byte));
    let stem = stem.trim_end_matches('-');
    versioned.then(|| options::GRAMMARS.iter().find(|grammar| grammar.names.contains(&stem)))?
}

/// The script that `argv` names to the interpreter `program`; absolute as spelled.
pub(super) fn named_script(
    program: &Path,
    argv: &[OsString],
    around: &Surroundings<'_>,
    notes: &mut Vec<String>,
) -> Option<PathBuf> {
    let typed = argv.first().map(Path::new);
    let grammar = grammar(program)
        .or_else(|| typed.and_then(grammar))
        .or_else(|| grammar(&looks::canonical(program).ok()?))?;
    let words: Vec<&[u8]> = argv.iter().skip(1).map(|word| word.as_bytes()).collect();
    let (word, by_option) = first_operand(grammar, &words)?;
    let name = OsStr::from_bytes(word);
    let path = around.absolute(Path::new(name));
    match grammar.scripts {
        Scripts::File => {}
        Scripts::Source(ending) if by_option || word.ends_with(ending.as_bytes()) => {}
        Scripts::Source(_) => return None,
        // `deno run https://…`, `bun run TASK`: only a file is a script.
        Scripts::Existing if looks::is_file(&path) => {}
        Scripts::Existing => return None,
    }
    // Descriptors and pipes are no files of their own (`bash <(…)` names /dev/fd/63).
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return None;
    }
    if looks::is_dir(&path) {
        let name = name.to_string_lossy();
        notes.push(format!("`{name}` is a directory: a rule must allow what is run from it"));
        return None;
    }
    Some(path)
}

/// The operand that names the script, or the value of an option that does (then true).
fn first_operand<'a>(grammar: &Grammar, words: &[&'a [u8]]) -> Option<(&'a [u8], bool)> {
    let mut rest = words;
    if let [first, tail @ ..] = rest
        && grammar.subcommands.iter().any(|name| name.as_bytes() == *first)
    {
        rest = tail;
    }
    while let [word, tail @ ..] = rest {
        rest = tail;
        match step(grammar, word) {
            Step::Operand => return Some((word, false)),
            Step::Script(value) => return Some((value, true)),
            Step::None => return None,
            Step::ScriptNext => return rest.first().map(|word| (*word, true)),
            Step::OperandNext => return rest.first().map(|word| (*word, false)),
            Step::Skip(count) => rest = rest.get(count..).unwrap_or_default(),
        }
    }
    None
}

/// What one word of the command line means for the search.
enum Step<'a> {
    /// The word itself is the script.
    Operand,
    /// The script is this value.
    Script(&'a [u8]),
    /// The next word is the value of a script option.
    ScriptNext,
    /// The next word is an operand, whatever it looks like.
    OperandNext,
    /// An option; so many following words belong to it.
    Skip(usize),
    /// No script is named.
    None,
}

fn step<'a>(grammar: &Grammar, word: &'a [u8]) -> Step<'a> {
    let sign = word.first().copied();
    if sign == Some(b'+') && grammar.plus_options {
        return cluster(grammar, &word[1..]);
    }
    if sign != Some(b'-') {
        return Step::Operand;
    }
    if word == b"--" {
        return Step::OperandNext;
    }
    if word == b"-" {
        return Step::None;
    }
    let end = word.iter().position(|byte| *byte == b'=').unwrap_or(word.len());
    let (name, value) = word.split_at(end);
    let among = |names: &[&str]| names.iter().any(|known| known.as_bytes() == name);
    if among(grammar.ends) {
        return Step::None;
    }
    if among(grammar.script_options) {
        return match value {
            [] => Step::ScriptNext,
            [_, value @ ..] => Step::Script(value),
        };
    }
    if among(grammar.takes_word) {
        return Step::Skip(usize::from(value.is_empty()));
    }
    if word.starts_with(b"--") || !grammar.clusters {
        return Step::Skip(0);
    }
    cluster(grammar, &word[1..])
}

/// Short options in one word (`-xec CODE`): a letter that takes a value takes the rest of the
/// word, or the next word when nothing is left.
fn cluster<'a>(grammar: &Grammar, letters: &'a [u8]) -> Step<'a> {
    let mut words = 0;
    let mut letters = letters;
    while let [letter, tail @ ..] = letters {
        letters = tail;
        let short = [b'-', *letter];
        let among = |names: &[&str]| names.iter().any(|known| known.as_bytes() == short);
        if among(grammar.ends) {
            return Step::None;
        }
        if among(grammar.script_options) {
            return if tail.is_empty() { Step::ScriptNext } else { Step::Script(tail) };
        }
        if among(grammar.takes_word) {
            if grammar.words_follow_cluster {
                words += 1;
                continue;
            }
            return Step::Skip(usize::from(tail.is_empty()));
        }
        if grammar.takes_rest.as_bytes().contains(letter) {
            return Step::Skip(words);
        }
    }
    Step::Skip(words)
}

/// The node_modules tree that a script belongs to: the outermost one on its path.
pub(super) fn node_modules(script: &Path) -> Option<PathBuf> {
    let bytes = script.as_os_str().as_bytes();
    let name = b"/node_modules/";
    let start = bytes.windows(name.len()).position(|window| window == name)?;
    Some(PathBuf::from(os_string(&bytes[..start + name.len() - 1])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(line: &str) -> Option<String> {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let around = Surroundings { env: &[], cwd: Path::new("/w") };
        let program = Path::new("/nowhere").join(&argv[0]);
        named_script(&program, &argv, &around, &mut Vec::new())
            .map(|path| path.to_string_lossy().into_owned())
    }

    #[track_caller]
    fn is(line: &str, expected: &str) {
        assert_eq!(script(line).as_deref(), Some(expected), "{line}");
    }

    #[track_caller]
    fn none(line: &str) {
        assert_eq!(script(line), None, "{line}");
    }

    #[test]
    fn python() {
        is("python3 a.py --flag", "/w/a.py");
        is("python3.11 -u -W ignore -X dev ./d/a.py", "/w/d/a.py");
        is("python3 -Wignore -Xdev -bb /a.py", "/a.py");
        is("python3 -uW ignore a.py", "/w/a.py");
        is("python3 -- -odd.py", "/w/-odd.py");
        is("pypy3 a.py", "/w/a.py");
        none("python3");
        none("python3 -c pass a.py");
        none("python3 -m http.server 80");
        none("python3 -um pytest tests");
        none("python3 - a.py");
        none("python3 /dev/stdin");
    }

    #[test]
    fn node_deno_bun() {
        is("node a.js", "/w/a.js");
        is("nodejs -r ./pre.js --import=x --max-old-space-size=4 a.js b", "/w/a.js");
        is("node inspect a.js", "/w/a.js");
        none("node -e 1 a.js");
        none("node --eval=1 a.js");
        none("node -p 1");
        none("node --test a.js");
        none("deno run https://example.org/x.ts");
    }

    #[test]
    fn shells() {
        is("sh run.sh", "/w/run.sh");
        is("bash -eu -o pipefail run.sh x", "/w/run.sh");
        is("bash -euo pipefail run.sh", "/w/run.sh");
        is("bash +x --rcfile f run.sh", "/w/run.sh");
        is("bash --norc +O extglob run.sh", "/w/run.sh");
        none("sh -c echo x");
        none("bash -lc echo");
        none("sh -s a");
        is("fish -C x run.fish", "/w/run.fish");
    }

    #[test]
    fn perl_ruby_and_others() {
        is("perl -w -I lib -Mstrict a.pl", "/w/a.pl");
        is("perl -pi.bak a.pl", "/w/a.pl");
        none("perl -lane print a");
        none("perl -e 1");
        is("ruby -I lib -rset -w a.rb", "/w/a.rb");
        none("ruby -e 1 a.rb");
        is("php -f a.php", "/w/a.php");
        is("php -d x=1 a.php", "/w/a.php");
        none("php -r 1;");
        is("lua -e x=1 -l mod a.lua", "/w/a.lua");
        is("Rscript --vanilla a.R", "/w/a.R");
        is("tclsh8.6 a.tcl", "/w/a.tcl");
    }

    #[test]
    fn java() {
        is("java -cp a:b -Xmx1g -jar app.jar x", "/w/app.jar");
        is("java --enable-preview --source 21 Main.java", "/w/Main.java");
        none("java -cp . Main");
        none("java -m mod/Main x.java");
    }

    #[test]
    fn what_is_no_interpreter() {
        none("cat a.py");
        none("python-config a");
        none("nodemon a.js");
        assert_eq!(family(Path::new("/x/python3.13t")), Some("python"));
        assert_eq!(family(Path::new("/x/perl5.36.0")), Some("perl"));
        assert_eq!(family(Path::new("/x/pythonista")), None);
    }

    #[test]
    fn outermost_node_modules() {
        let deep = Path::new("/p/node_modules/a/node_modules/b/x.js");
        assert_eq!(node_modules(deep), Some(PathBuf::from("/p/node_modules")));
        assert_eq!(node_modules(Path::new("/p/x.js")), None);
    }
}
