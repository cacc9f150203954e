//! The printed plan outside of agentbox: the OCI schema takes it, and runc runs it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::skip;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Where Debian's golang-github-opencontainers-specs-dev puts the schema.
const SCHEMA: &str = "/usr/share/gocode/src/github.com/opencontainers/runtime-spec/schema";
/// Reads a schema directory and documents; fails at the first that the schema does not take.
const VALIDATE: &str = r#"
import json, pathlib, sys
from jsonschema import Draft4Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4
directory = pathlib.Path(sys.argv[1])
load = lambda path: json.loads(pathlib.Path(path).read_text())
fetch = lambda uri: Resource.from_contents(load(directory / uri.rsplit("/", 1)[-1]), DRAFT4)
schema = load(directory / "config-schema.json")
validator = Draft4Validator(schema, registry=Registry(retrieve=fetch))
for path in sys.argv[2:]:
    validator.validate(load(path))
"#;
const NOBODY: u32 = 65534;

/// A launch directory, and beside it the bundle that runc wants.
struct Bundle {
    directory: TempDir,
    user: u32,
}

impl Bundle {
    fn new(policy: &str, user: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("data")).expect("a directory");
        fs::create_dir_all(at("bundle/rootfs")).expect("a directory");
        fs::write(at("data/in.txt"), "hello\n").expect("a file");
        fs::write(at("data/secret.txt"), "secret\n").expect("a file");
        fs::write(at("beside.txt"), "beside\n").expect("a file");
        fs::write(at("agentbox.policy"), policy).expect("a file");
        // The build may lie where another user cannot go.
        crate::support::copy_program(env!("CARGO_BIN_EXE_agentbox"), at("agentbox"));
        let bundle = Self { directory, user };
        if user != own_user() {
            for name in [".", "bundle", "bundle/rootfs"] {
                std::os::unix::fs::chown(bundle.at(name), Some(user), Some(user)).expect("chown");
            }
        }
        bundle
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.directory.path()).env("HOME", self.directory.path());
        if self.user != own_user() {
            command.uid(self.user).gid(self.user);
        }
        command
    }

    fn print(&self, words: &[&str]) -> Output {
        self.command(self.at("agentbox")).args(["spec", "--"]).args(words).output().expect("it runs")
    }

    /// Prints the plan of a command, changes it, and has runc run it.
    fn run(&self, words: &[&str], change: impl FnOnce(&mut Value)) -> Output {
        let printed = self.print(words);
        assert!(printed.status.success(), "{printed:?}");
        let mut document: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
        change(&mut document);
        fs::write(self.at("bundle/config.json"), document.to_string()).expect("written");
        let name = format!("agentbox-test-{}-{}", std::process::id(), self.user);
        self.command("runc")
            .args(["--root", "state", "run", "--bundle", "bundle", &name])
            .output()
            .expect("runc runs")
    }
}

fn own_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn has_runc() -> bool {
    Command::new("runc").arg("--version").output().is_ok()
}

/// A Python with jsonschema: the system's, or one of our own.
fn validator(directory: &Path) -> Result<PathBuf, String> {
    let run = |command: &mut Command| {
        let output = command.output().map_err(|error| error.to_string())?;
        let reason = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(reason()) }
    };
    if run(Command::new("python3").args(["-c", "import jsonschema, referencing"])).is_ok() {
        return Ok("python3".into());
    }
    let venv = directory.join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let python = venv.join("bin/python");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "jsonschema>=4.18,<5"]))?;
    Ok(python)
}

#[test]
fn the_schema_takes_what_is_printed() {
    if !Path::new(SCHEMA).is_dir() {
        return skip("the OCI schema", "golang-github-opencontainers-specs-dev is not installed");
    }
    let policy =
        "read: ./data\nwrite: ./out\ndeny: read ./data/secret.txt\nnet: example.org:443\nexec: git\n";
    let bundle = Bundle::new(policy, own_user());
    let python = match validator(bundle.directory.path()) {
        Ok(python) => python,
        Err(reason) => return skip("jsonschema", &reason),
    };
    let printed = bundle.print(&["/bin/cat", "data/in.txt"]);
    assert!(printed.status.success(), "{printed:?}");
    assert_eq!(printed.stdout, bundle.print(&["/bin/cat", "data/in.txt"]).stdout, "the same every time");
    let validate = |document: &[u8]| {
        let path = bundle.at("document.json");
        fs::write(&path, document).expect("written");
        Command::new(&python).args(["-c", VALIDATE, SCHEMA]).arg(path).output().expect("python runs")
    };
    let taken = validate(&printed.stdout);
    assert!(taken.status.success(), "{taken:?}");
    // The schema is really looked at, in all its files.
    let mut document: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    document["linux"]["namespaces"][0]["type"] = json!("none such");
    let refused = validate(document.to_string().as_bytes());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("ValidationError"), "{refused:?}");
}

#[test]
fn printing_runs_nothing_and_leaves_nothing() {
    let bundle = Bundle::new("read: ./data\nwrite: ./data\n", own_user());
    let names = || {
        let entries = fs::read_dir(bundle.directory.path()).expect("it reads");
        let mut names: Vec<OsString> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let printed = bundle.print(&["touch", "data/touched"]);
    assert!(printed.status.success() && printed.stderr.is_empty(), "{printed:?}");
    assert_eq!(names(), before);
    assert!(!bundle.at("data/touched").exists());
}

#[test]
fn what_no_document_can_say_is_an_error() {
    let bundle = Bundle::new("read: ./data\n", own_user());
    let word = OsString::from_vec(b"data/\xff".to_vec());
    let program = bundle.at("agentbox");
    let output = bundle.command(program).args(["spec", "--", "cat"]).arg(word).output().expect("it runs");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("\\xFF\" is not UTF-8"), "{output:?}");
}

#[test]
fn runc_runs_what_is_printed() {
    if own_user() != 0 || !has_runc() {
        return skip("runc", "it is not installed, or the test is not root's");
    }
    let bundle = Bundle::new("read: ./data\ndeny: read ./data/secret.txt\n", own_user());
    let shown = bundle.run(&["/bin/cat", "data/in.txt"], |_| {});
    assert_eq!((shown.status.code(), shown.stdout.as_slice()), (Some(0), &b"hello\n"[..]), "{shown:?}");
    // A rule hides it: runc puts /dev/null there.
    let hidden = bundle.run(&["/bin/cat", "data/secret.txt"], |_| {});
    assert_eq!((hidden.status.code(), hidden.stdout.as_slice()), (Some(0), &b""[..]), "{hidden:?}");
    let absent = bundle.run(&["/bin/cat", "beside.txt"], |_| {});
    assert_eq!(absent.status.code(), Some(1), "{absent:?}");
    assert!(String::from_utf8_lossy(&absent.stderr).contains("No such file"), "{absent:?}");
}

/// runc becomes root in its user namespace, whoever the command will be: as docs/spec.md says,
/// an ordinary user maps the own id to 0.
#[test]
fn runc_runs_it_for_an_ordinary_user() {
    if own_user() != 0 || !has_runc() {
        return skip("runc", "it is not installed, or the test is not root's");
    }
    let bundle = Bundle::new("read: ./data\n", NOBODY);
    let shown = bundle.run(&["/bin/cat", "data/in.txt"], |document| {
        document["linux"]["uidMappings"][0]["containerID"] = json!(0);
        document["linux"]["gidMappings"][0]["containerID"] = json!(0);
        document["process"]["user"] = json!({"uid": 0, "gid": 0});
    });
    assert_eq!((shown.status.code(), shown.stdout.as_slice()), (Some(0), &b"hello\n"[..]), "{shown:?}");
}
