//! Files of the launcher's own making: who the user is, and how names are resolved.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::HostFacts;
use crate::fsview::{Content, GeneratedFile};

/// The host name inside.
pub const HOSTNAME: &str = "agentbox";

pub(super) fn files(facts: &HostFacts, home: &OsStr) -> Vec<GeneratedFile> {
    let file = |path: &str, content: Vec<u8>| GeneratedFile {
        path: PathBuf::from(path),
        content: Content::Bytes(content),
    };
    let text = |path: &str, content: &str| file(path, content.as_bytes().to_vec());
    vec![
        file("/etc/passwd", passwd(facts, home)),
        text("/etc/group", &group(facts)),
        text(
            "/etc/hosts",
            &format!("127.0.0.1 localhost {HOSTNAME}\n::1 localhost ip6-localhost ip6-loopback\n"),
        ),
        text("/etc/hostname", &format!("{HOSTNAME}\n")),
        text(
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
        ),
        // One server that answers at once: no other is ever asked.
        text("/etc/resolv.conf", "nameserver 127.0.0.1\noptions edns0\n"),
        // The same in every run: it tells nothing about the host.
        text("/etc/machine-id", "6167656e74626f786167656e74626f78\n"),
    ]
}

fn passwd(facts: &HostFacts, home: &OsStr) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut line = |name: &str, uid: u32, gid: u32, home: &[u8], shell: &str| {
        lines.extend_from_slice(format!("{name}:x:{uid}:{gid}::").as_bytes());
        lines.extend_from_slice(home);
        lines.extend_from_slice(format!(":{shell}\n").as_bytes());
    };
    if facts.uid != 0 {
        line("root", 0, 0, b"/", "/usr/sbin/nologin");
    }
    // A home with a colon or a newline cannot stand in passwd(5).
    let home = home.as_bytes();
    let home = if home.iter().any(|byte| b":\n".contains(byte)) { b"/" } else { home };
    line(&facts.user, facts.uid, facts.gid, home, "/bin/sh");
    if facts.uid != 65534 {
        line("nobody", 65534, 65534, b"/", "/usr/sbin/nologin");
    }
    lines
}

fn group(facts: &HostFacts) -> String {
    let mut lines = String::new();
    if facts.gid != 0 {
        lines.push_str("root:x:0:\n");
    }
    lines.push_str(&format!("{}:x:{}:\n", facts.group, facts.gid));
    if facts.gid != 5 {
        lines.push_str("tty:x:5:\n");
    }
    if facts.gid != 65534 {
        lines.push_str("nogroup:x:65534:\n");
    }
    lines
}
