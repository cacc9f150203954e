//! Started in a container of podman and runc: it runs where the container allows what docs/hosts.md names, as any user
//! and without a capability, and says in one line what to change where it does not.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::support::{Ran, Running, Sandbox, User, has, skip};

/// The profile that podman brings.
const PROFILE: &str = "/usr/share/containers/seccomp.json";
/// What it lacks.
const CALLS: [&str; 3] = ["chroot", "personality", "sethostname"];

/// Files of the machine as the container's root, written to apart; nothing is fetched.
struct Container {
    sandbox: Sandbox,
}

impl Container {
    /// None, with the reason, where no container runs.
    fn new() -> Result<Self, String> {
        if let Some(missing) = ["podman", "runc"].into_iter().find(|program| !has(program)) {
            return Err(format!("there is no {missing}"));
        }
        if !nix::unistd::geteuid().is_root() {
            return Err("the test is not root's".to_owned());
        }
        let container = Self { sandbox: Sandbox::new(User::Caller) };
        let sandbox = &container.sandbox;
        sandbox.file("agentbox.policy", "read: .\nwrite: ./out\nexec: /**\n");
        crate::support::copy_program(env!("CARGO_BIN_EXE_agentbox"), sandbox.path("agentbox"));
        fs::set_permissions(sandbox.directory("out"), Permissions::from_mode(0o777)).expect("chmod");
        // The limits of this machine may be lower than those that podman sets otherwise.
        let limits = "[containers]\ndefault_ulimits = [\"nofile=1024:4096\", \"nproc=4096:4096\"]\n";
        sandbox.file("../containers.conf", limits);
        let ran = container.podman(&[], &["true"]);
        if ran.code == 0 { Ok(container) } else { Err(format!("podman: {}", ran.stderr.trim())) }
    }

    /// Runs a command in a container with these options.
    fn podman(&self, options: &[&str], words: &[&str]) -> Ran {
        let sandbox = &self.sandbox;
        let mut podman = Command::new("podman");
        for (option, place) in [("--root", "graph"), ("--runroot", "run")] {
            podman.arg(option).arg(sandbox.beside(place));
        }
        podman.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]);
        podman.args(["--runtime", "runc", "run", "--rm", "--network", "none", "--workdir", "/w", "--volume"]);
        podman.arg(format!("{}:/w", sandbox.path("").display())).args(options).args(["--rootfs", "/:O"]);
        podman.args(words).current_dir(sandbox.path(""));
        podman.env("CONTAINERS_CONF", sandbox.beside("containers.conf"));
        podman.stdin(std::process::Stdio::null());
        podman.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        Running::start(podman).finish()
    }

    /// Runs a command confined in such a container, and replays it there.
    fn run(&self, options: &[&str]) -> Ran {
        let script = "/w/agentbox run -q -t /tmp/trace/t.jsonl -- sh -c 'echo ran; echo x >out/new' && \
                      rm out/new && /w/agentbox replay -q -t /tmp/trace/t.jsonl";
        let script = format!("mkdir -m 700 /tmp/trace && export XDG_STATE_HOME=/tmp/trace/state && {script}");
        self.podman(options, &["sh", "-c", &script])
    }

    fn says(&self, options: &[&str], parts: &[&str]) {
        let said = self.run(options);
        said.exits(125).prints("");
        assert_eq!(said.stderr.lines().count(), 1, "{said}");
        for part in parts {
            said.complains(part);
        }
        assert!(!self.sandbox.path("out/new").exists(), "{said}");
    }
}

/// podman's profile with the three calls, as docs/hosts.md makes it.
fn widened() -> String {
    let text = fs::read(PROFILE).expect("the profile");
    let mut profile: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let groups = profile["syscalls"].as_array_mut().expect("a list");
    for group in groups.iter_mut() {
        let names = group["names"].as_array_mut().expect("a list");
        names.retain(|name| name.as_str().is_none_or(|name| !CALLS.contains(&name)));
    }
    groups.retain(|group| group["names"].as_array().is_some_and(|names| !names.is_empty()));
    groups.push(serde_json::json!({"names": CALLS, "action": "SCMP_ACT_ALLOW", "args": []}));
    profile.to_string()
}

#[test]
fn a_container_runs_it_or_is_told_what_to_change() {
    let container = match Container::new() {
        Ok(container) => container,
        Err(reason) => return skip("podman", &reason),
    };
    let (unconfined, unmasked) = ("--security-opt=seccomp=unconfined", "--security-opt=unmask=ALL");
    let (no_rights, no_new) = ("--cap-drop=ALL", "--security-opt=no-new-privileges");
    container.says(&[], &["sethostname", "EPERM", "seccomp profile"]);
    container.says(&[unconfined], &["fsmount(proc)", "EPERM", "/proc unmasked"]);
    container.says(&[unconfined, unmasked, no_rights], &["uid_map", "EPERM", "CAP_SETFCAP", "another user"]);
    let nobody = "--user=65534";
    let profile = container.sandbox.file("../profile.json", widened());
    let profile = format!("--security-opt=seccomp={}", profile.display());
    for allowed in [unconfined, &profile] {
        container.run(&[allowed, unmasked]).exits(0).prints("ran\nran\n");
        container.run(&[allowed, unmasked, nobody, no_rights, no_new]).exits(0).prints("ran\nran\n");
    }
}

/// As an image that has nothing but one static program.
#[test]
fn a_root_without_tmp_is_enough_for_a_run_and_its_replay() {
    if !nix::unistd::geteuid().is_root() || !has("unshare") || !has("pivot_root") {
        return skip("another root", "the test is not root's, or there is no unshare or pivot_root");
    }
    let sandbox = Sandbox::new(User::Caller);
    sandbox.file("agentbox.policy", "read: .\nwrite: ./out\nexec: /**\n");
    crate::support::copy_program(env!("CARGO_BIN_EXE_agentbox"), sandbox.path("agentbox"));
    sandbox.directory("out");
    let root = sandbox.beside("root");
    fs::create_dir(&root).expect("makes");
    let script = "set -e; mount -t tmpfs none $1; mkdir $1/w $1/old
        for tree in usr etc proc dev sys; do mkdir $1/$tree; mount --rbind /$tree $1/$tree; done
        for link in bin lib lib64 sbin; do ln -s usr/$link $1/$link; done
        mount --bind $2 $1/w; cd $1; pivot_root . old; cd /w; umount -l /old
        export HOME=/w/home XDG_STATE_HOME=/w/state PATH=/usr/bin; mkdir /w/home
        ./agentbox run -q -- sh -c 'echo ran; echo x >out/new'; rm out/new; ./agentbox replay -q";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, "sh"]).arg(root).arg(sandbox.path(""));
    unshare.stdin(std::process::Stdio::null());
    unshare.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Running::start(unshare).finish().exits(0).prints("ran\nran\n");
}
