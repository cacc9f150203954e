//! An origin under a name of its own, in namespaces of its own: nothing outside is asked for it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::unistd::geteuid;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

use crate::support::{Ran, Running, Sandbox};

/// The origin's name.
pub(super) const HOST: &str = "origin.test";
/// Its address, which is private.
const ADDRESS: &str = "10.71.0.1";
const ORIGIN: &str = include_str!("origin.py");

/// Sets the network and /etc/hosts up and becomes the origin.
const START: &str = "ip link set lo up && ip address add $2/32 dev lo && mount --bind $1/hosts /etc/hosts \
    && mount --bind $1/resolv.conf /etc/resolv.conf && exec /usr/bin/python3 $1/origin.py $1 $2";

/// The origin, and the namespaces that it is in.
#[derive(Debug)]
pub(super) struct World {
    directory: TempDir,
    origin: Child,
}

impl World {
    /// Starts it; the error says what cannot be had here.
    pub(super) fn start() -> Result<Self, String> {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let at = |name: &str| directory.path().join(name);
        certify(HOST, at("authority.pem"), at("chain.pem"), at("key.pem"));
        fs::write(at("origin.py"), ORIGIN).expect("a file");
        fs::write(at("hosts"), format!("127.0.0.1 localhost\n{ADDRESS} {HOST}\n")).expect("a file");
        fs::write(at("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n").expect("a file");
        repository(&directory);
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let mut start = Command::new("unshare");
        start.args(["--mount", "--net"]);
        if !geteuid().is_root() {
            start.args(["--user", "--map-root-user"]);
        }
        start.args(["sh", "-c", START, "sh"]).arg(directory.path()).arg(ADDRESS);
        start.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut origin = start.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let stdout = origin.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let world = Self { directory, origin };
        if line == "listening\n" { Ok(world) } else { Err("the origin does not start".to_owned()) }
    }

    /// The certificate of the origin's authority.
    pub(super) fn authority(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// `command` of a sandbox, started where the origin is.
    pub(super) fn run(&self, sandbox: &Sandbox, command: &Command) -> Ran {
        self.start_in(sandbox, command, "exec \"$@\"")
    }

    /// The same after the shell's words `before`, whose mounts are for this command alone.
    pub(super) fn run_after(&self, before: &str, sandbox: &Sandbox, command: &Command) -> Ran {
        let script = format!("exec unshare --mount sh -c '{before} && cd \"$PWD\" && exec \"$@\"' sh \"$@\"");
        self.start_in(sandbox, command, &script)
    }

    fn start_in(&self, sandbox: &Sandbox, command: &Command, script: &str) -> Ran {
        let _ = fs::remove_file(sandbox.trace());
        let mut inside = Command::new("nsenter");
        let pid = self.origin.id();
        if !geteuid().is_root() {
            inside.args(["--user", "--preserve-credentials"]);
        }
        // nsenter(1) leaves the working directory behind.
        let enter = format!("cd \"$1\" && shift && {script}");
        inside.args(["--mount", "--net", "--target", &pid.to_string(), "sh", "-c", &enter, "sh"]);
        inside.arg(sandbox.path("")).arg(command.get_program()).args(command.get_args()).env_clear();
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut ran = Running::start(inside).finish();
        ran.read_trace(&sandbox.trace());
        ran
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It ends with its stdin anyway.
        let _ = self.origin.kill();
        let _ = self.origin.wait();
    }
}

/// An authority, and a certificate that it signed for `host`.
pub(super) fn certify(
    host: &str,
    authority: impl AsRef<OsStr>,
    chain: impl AsRef<OsStr>,
    key: impl AsRef<OsStr>,
) {
    let write = |path: &OsStr, text: &str| fs::write(path, text).expect("a file");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "Authority of a test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed");
    let own = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
    params.use_authority_key_identifier_extension = true;
    let leaf = params.signed_by(&own, &issuer).expect("signed");
    write(authority.as_ref(), &issuer.pem());
    write(chain.as_ref(), &(leaf.pem() + &issuer.pem()));
    write(key.as_ref(), &own.serialize_pem());
}

/// A repository with one file, `page`.
fn repository(directory: &TempDir) {
    let script = "mkdir repo && cd repo && git init -q -b main && echo page >page && git add page \
        && git -c user.name=a -c user.email=a@b commit -qm first && git clone -q --bare . ../repo.git";
    let mut git = Command::new("sh");
    git.args(["-ec", script]).current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null");
    // Without git no client asks for it.
    let _ = git.stderr(Stdio::null()).status();
}
