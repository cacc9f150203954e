//! Where the certificate goes: with roots, installations and variables of a host of the test's own.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{Around, OWN, files};
use crate::command;
use crate::fsview::{Content, GeneratedFile};
use crate::plan::{HostFacts, Root, Why};
use crate::policy::{LaunchHost, parse};

const NAME: &str = "agentbox run 01020304";
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nTVlPV04=\n-----END CERTIFICATE-----\n";
const OTHER: &str = "-----BEGIN CERTIFICATE-----\nT1RIRVI=\n-----END CERTIFICATE-----\n";

struct Case {
    directory: tempfile::TempDir,
    at: PathBuf,
    launcher: Vec<(OsString, OsString)>,
    enforce: bool,
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().canonicalize().expect("it exists");
        let launcher = vec![("PATH".into(), "/usr/bin:/bin".into())];
        Self { directory, at, launcher, enforce: true }
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.at.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(&path, content).expect("a file");
        path
    }

    fn launcher_has(&mut self, name: &str, value: &Path) {
        self.launcher.push((name.into(), value.into()));
    }

    /// The files and the variables of a run, `runtime` in the launch directory being needed by the command.
    fn plan(&self, policy: &str, runtime: &str) -> (Vec<GeneratedFile>, Vec<(OsString, OsString)>) {
        let mut facts = HostFacts::gather().expect("facts");
        facts.cwd.clone_from(&self.at);
        facts.environment.clone_from(&self.launcher);
        let host = LaunchHost::with(self.at.clone(), self.launcher.clone());
        let policy = parse(policy, "agentbox.policy", &host).expect("a policy");
        let command = command::resolve(&["cat".into()], &self.launcher, &self.at).expect("cat");
        let root = |path: PathBuf, why| Root { path, why, writable: false, executable: true };
        let needed = Why::Runtime("the command needs it".to_owned());
        let roots = [root("/etc/ssl".into(), Why::System), root(self.at.join(runtime), needed)];
        let mut env = super::super::environment::build(&policy, &command, &facts, self.enforce, &[]);
        let (policy, command, roots) = (&policy, &command, roots.as_slice());
        let (facts, host, enforce) = (&facts, &host, self.enforce);
        let around = Around { policy, command, roots, facts, host, enforce };
        let files = files(NAME, &around, &mut env);
        (files, env)
    }
}

fn value(env: &[(OsString, OsString)], name: &str) -> PathBuf {
    let found = env.iter().filter(|(key, _)| key == name).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{name}: {env:?}");
    found[0].1.clone().into()
}

fn content(files: &[GeneratedFile], path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let file = files.iter().find(|file| file.path == path);
    let file = file.unwrap_or_else(|| panic!("no {}: {files:?}", path.display()));
    let mut whole = Vec::new();
    let sources = file.content.open().expect("it can be opened");
    file.content.write(sources, AUTHORITY, &mut whole).expect("it can be read");
    String::from_utf8(whole).expect("text")
}

#[test]
fn every_variable_names_a_file_that_there_is() {
    let case = Case::new();
    let (files, env) = case.plan("", "venv");
    let bundle = value(&env, "SSL_CERT_FILE");
    for name in [
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "PIP_CERT",
        "DENO_CERT",
        "AWS_CA_BUNDLE",
    ] {
        assert_eq!(value(&env, name), bundle);
    }
    assert!(env.iter().all(|(name, _)| name != "JAVA_TOOL_OPTIONS"));
    assert!(content(&files, &bundle).ends_with(AUTHORITY));
    assert_eq!(content(&files, value(&env, "NODE_EXTRA_CA_CERTS")), AUTHORITY);
    let directories = value(&env, "SSL_CERT_DIR");
    assert!(directories.to_string_lossy().starts_with(&format!("{OWN}/certs:/etc/ssl/certs")));
}

#[test]
fn what_a_rule_passes_keeps_its_meaning() {
    let mut case = Case::new();
    let own = case.file("own.pem", &format!("# ours\n{OTHER}"));
    case.launcher_has("REQUESTS_CA_BUNDLE", &own);
    let passed = case.plan("env: REQUESTS_CA_BUNDLE", "venv");
    let set = case.plan("env: REQUESTS_CA_BUNDLE=own.pem", "venv");
    for (files, env) in [passed, set] {
        let named = value(&env, "REQUESTS_CA_BUNDLE");
        assert!(named.starts_with(OWN), "{}", named.display());
        assert_eq!(content(&files, named), format!("{OTHER}{AUTHORITY}"));
    }
    // Without a rule it says nothing inside.
    let (files, env) = case.plan("", "venv");
    assert_eq!(value(&env, "REQUESTS_CA_BUNDLE"), value(&env, "SSL_CERT_FILE"));
    assert!(!content(&files, value(&env, "SSL_CERT_FILE")).contains(OTHER));
    // What is no file is left to the user.
    let (_, env) = case.plan("env: REQUESTS_CA_BUNDLE=absent.pem", "venv");
    assert_eq!(value(&env, "REQUESTS_CA_BUNDLE"), Path::new("absent.pem"));
}

#[test]
fn roots_that_the_launcher_is_told_of_are_the_hosts() {
    let mut case = Case::new();
    let secret = "-----BEGIN PRIVATE KEY-----\nU0VDUkVU\n-----END PRIVATE KEY-----\n";
    let own = case.file("own.pem", &format!("{secret}{OTHER}"));
    case.launcher_has("SSL_CERT_FILE", &own);
    let (files, env) = case.plan("", "venv");
    let bundle = content(&files, value(&env, "SSL_CERT_FILE"));
    assert!(bundle.ends_with(&format!("{OTHER}{AUTHORITY}")) && !bundle.contains("U0VDUkVU"));
}

#[test]
fn bundles_of_packages_are_covered_where_the_agent_cannot_write() {
    let case = Case::new();
    let packages = "venv/lib/python3.11/site-packages";
    let bundle = case.file(&format!("{packages}/certifi/cacert.pem"), OTHER);
    let vendored = case.file(&format!("{packages}/pip/_vendor/certifi/cacert.pem"), OTHER);
    let (files, _) = case.plan("", "venv");
    for path in [&bundle, &vendored] {
        assert_eq!(content(&files, path), format!("{OTHER}{AUTHORITY}"));
    }
    let covered = |(files, _): (Vec<GeneratedFile>, _)| files.iter().any(|file| file.path == bundle);
    assert!(!covered(case.plan("write: ./venv", "venv")));
    assert!(!covered(case.plan("write: ./**/*.pem", "venv")));
    assert!(!covered(case.plan("deny: read **/cacert.pem", "venv")));
    assert!(!covered(case.plan("read: ./venv", "elsewhere")));
}

#[test]
fn a_link_to_a_secret_is_not_followed() {
    let case = Case::new();
    let secret = case.file("secret/key", "secret");
    let packages = case.file("venv/lib/python3.11/site-packages/certifi/core.py", "");
    symlink(&secret, packages.with_file_name("cacert.pem")).expect("a link");
    let (files, _) = case.plan("", "venv");
    let takes_it = |content: &Content| matches!(content, Content::Bundle { of, .. } if of.contains(&secret));
    assert!(files.iter().all(|file| file.path != secret && !takes_it(&file.content)), "{files:?}");
}

#[test]
fn an_observed_run_gets_no_file_of_its_own_on_the_host() {
    let mut case = Case::new();
    case.enforce = false;
    let own = case.file("own.pem", OTHER);
    case.file("venv/lib/python3.11/site-packages/certifi/cacert.pem", OTHER);
    let (files, env) = case.plan(&format!("env: PIP_CERT={}", own.display()), "venv");
    assert!(files.iter().all(|file| file.path.exists()), "{files:?}");
    assert_eq!(content(&files, &own), format!("{OTHER}{AUTHORITY}"));
    assert_eq!(value(&env, "NODE_EXTRA_CA_CERTS"), value(&env, "SSL_CERT_FILE"));
    assert!(env.iter().all(|(name, _)| name != "SSL_CERT_DIR"));
    drop(case.directory);
}
