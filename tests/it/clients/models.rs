//! The packages of two models' makers: streamed answers over http and https, recorded, and replayed once
//! their origin is gone.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::world::certify;
use super::{PACKAGES, packages};
use crate::support::{Sandbox, everyone, skip};

/// Models that stream, with identifiers that no second answer has.
const ORIGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/replay/origin.py");

/// That origin on this machine's loopback.
struct Models {
    directory: TempDir,
    origin: Child,
    plain: String,
    secure: String,
}

impl Models {
    fn start() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let at = |name: &str| directory.path().join(name);
        certify("localhost", at("authority.pem"), at("chain.pem"), at("key.pem"));
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let mut python = Command::new("/usr/bin/python3");
        python.arg(ORIGIN).arg(directory.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut origin = python.spawn().expect("python3 starts");
        let mut line = String::new();
        let stdout = origin.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let (plain, secure) = line.trim().split_once(' ').expect("two ports");
        let (plain, secure) = (plain.to_owned(), secure.to_owned());
        Self { directory, origin, plain, secure }
    }
}

impl Drop for Models {
    fn drop(&mut self) {
        // It ends with its stdin anyway.
        let _ = self.origin.kill();
        let _ = self.origin.wait();
    }
}

/// Records `program`, which imports `package`, and replays it without its origin.
fn streams(package: &str, program: &str) {
    let python = packages("python");
    let imports = Command::new(&python).args(["-c", &format!("import {package}")]).output();
    if !imports.is_ok_and(|output| output.status.success()) {
        return skip(package, &format!("it is not installed in {PACKAGES}"));
    }
    everyone(|sandbox| streams_in(sandbox, &python, program));
}

fn streams_in(sandbox: &Sandbox, python: &Path, program: &str) {
    let models = Models::start();
    let (plain, secure) = (&models.plain, &models.secure);
    sandbox.policy(&format!("read: .\nexec: /**\nnet: localhost:{plain}, localhost:{secure}\n"));
    sandbox.file("stream.py", program);
    let authority = models.directory.path().join("authority.pem");
    let words = [
        python.to_str().expect("text").to_owned(),
        "stream.py".to_owned(),
        format!("http://localhost:{plain}"),
        format!("https://localhost:{secure}"),
    ];
    let ran = sandbox.run_with(&["--upstream-ca", authority.to_str().expect("text")], &words);
    ran.exits(0);
    let asked = |scheme: &str| {
        let asked = ran.of("http.exchange").into_iter();
        asked.filter(|entry| entry["args"]["url"].as_str().is_some_and(|url| url.starts_with(scheme))).count()
    };
    assert_eq!((asked("http:"), asked("https:")), (1, 2), "{ran}");
    drop(models);
    let trace = sandbox.trace();
    let again = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
    again.exits(0).prints(&ran.stdout).complains("replay ok");
}

#[test]
fn openai() {
    streams("openai", include_str!("../../../benches/replay/programs/openai_stream.py"));
}

#[test]
fn anthropic() {
    streams("anthropic", include_str!("../../../benches/replay/programs/anthropic_stream.py"));
}
