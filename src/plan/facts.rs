//! What is true of the host and of the caller, as far as a plan depends on it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use nix::unistd::{getegid, geteuid, ttyname};

use crate::sys::mountinfo::{self, Mount};
use crate::sys::netlink;

/// Facts, gathered once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Effective user id, as the run sees it.
    pub uid: u32,
    /// Effective group id, as the run sees it.
    pub gid: u32,
    /// Both as the host sees them.
    pub caller: (u32, u32),
    /// The caller's name in /etc/passwd, or its number.
    pub user: String,
    /// The group's name in /etc/group, or its number.
    pub group: String,
    /// The launch directory, links followed.
    pub cwd: PathBuf,
    /// The caller's home, from HOME.
    pub home: Option<PathBuf>,
    /// The launcher's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The caller's terminal, where the command is to have it.
    pub terminal: Option<PathBuf>,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub architecture: String,
    /// Addresses that lead to this machine: those that it has, and those of local routes.
    pub addresses: Vec<IpNet>,
    /// What is mounted.
    pub mounts: Vec<Mount>,
}

impl HostFacts {
    /// Gathers them.
    ///
    /// # Errors
    /// When the working directory, uname(2) or the mounts cannot be had.
    pub fn gather() -> io::Result<Self> {
        let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let uname = nix::sys::utsname::uname()?;
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let home = environment
            .iter()
            .find(|(name, _)| name == "HOME")
            .map(|(_, value)| PathBuf::from(value))
            .filter(|home| home.is_absolute());
        Ok(Self {
            uid,
            gid,
            caller: (uid, gid),
            user: name_of(Path::new("/etc/passwd"), uid).unwrap_or_else(|| uid.to_string()),
            group: name_of(Path::new("/etc/group"), gid).unwrap_or_else(|| gid.to_string()),
            cwd: std::env::current_dir()?,
            home,
            environment,
            terminal: None,
            kernel: uname.release().to_string_lossy().into_owned(),
            architecture: uname.machine().to_string_lossy().into_owned(),
            // A name that resolves to one of them is local by route.
            addresses: [
                netlink::own_addresses().unwrap_or_default().into_iter().map(IpNet::from).collect(),
                netlink::local_routes().unwrap_or_default(),
            ]
            .concat(),
            mounts: mountinfo::mounts()?,
        })
    }

    /// The terminal that standard input, output or error is, the first of them.
    #[must_use]
    pub fn with_terminal(self) -> Self {
        let terminal = ttyname(std::io::stdin()).or_else(|_| ttyname(std::io::stdout()));
        Self { terminal: terminal.or_else(|_| ttyname(std::io::stderr())).ok(), ..self }
    }

    /// The value of an environment variable of the launcher.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }
}

/// Looks an id up in passwd(5) or group(5) by ourselves: a static binary has no NSS modules.
fn name_of(file: &Path, id: u32) -> Option<String> {
    let text = std::fs::read(file).ok()?;
    String::from_utf8_lossy(&text).lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}
