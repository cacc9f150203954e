//! The rule that would allow a denied access, written so that it reads back as that one place.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Policy;
use super::caution::is_bytecode;
use super::name;
use super::source::is_line_safe;
use super::verdict::{Denied, PathAccess, Transport};

/// Directories of every PATH.
const USUAL: [&str; 2] = ["/usr/bin", "/bin"];

impl Policy {
    /// The line to add to the policy. Where no rule can say it (a name that is no text, port 0), the
    /// line is a comment.
    pub fn suggestion(&self, denied: &Denied) -> String {
        match denied {
            Denied::Connect { transport: Transport::Udp, port: 53, .. } => {
                return "# port 53 is answered by the launcher's own name server".to_owned();
            }
            Denied::Connect { port: 0, .. } | Denied::Request { port: 0, .. } => {
                return "# no rule can name port 0".to_owned();
            }
            Denied::Exec { argv, .. } if argv.is_empty() => {
                return "# no rule allows a program under a name that is another's".to_owned();
            }
            denied if is_bytecode(denied) => {
                return "# programs do without bytecode".to_owned();
            }
            Denied::Path { path, .. } if is_of_a_process(path) => {
                return "# no rule can name a process of the run".to_owned();
            }
            Denied::Path { access: PathAccess::Write, path } if path.starts_with("/proc") => {
                return "# no rule allows to change the kernel's settings".to_owned();
            }
            Denied::Entry { directory, .. } if self.is_too_wide(directory) => {
                let directory = directory.display();
                return format!("# that needs a rule for all of {directory}: work in a directory below it")
                    .escape_debug()
                    .to_string();
            }
            _ => {}
        }
        if let Some(place) = self.place_of_secrets(denied) {
            return format!("# {place} is a place of secrets");
        }
        let line = match denied {
            Denied::Path { access: PathAccess::Read, path } => {
                self.path(path).map(|path| format!("read: {path}"))
            }
            Denied::Path { access: PathAccess::Write, path } => {
                self.path(path).map(|path| format!("write: {path}"))
            }
            Denied::Entry { directory, .. } => self.path(directory).map(|path| format!("write: {path}")),
            Denied::Exec { exe, argv } => self.program(exe, argv.first().map(|name| name.as_os_str())),
            Denied::Name(host) => name::canonical(host).map(|host| format!("net: {host}")),
            Denied::Connect { names, address, port, transport } => {
                Some(self.connect(names, *address, *port, *transport))
            }
            Denied::Request { names, address, port, method, path } => {
                self.request(names, *address, *port, method, path)
            }
            Denied::Unix(path) => socket(path),
            Denied::Env(name) => variable(name),
        };
        line.unwrap_or_else(|| "# no rule can name this one: its name is no plain text".to_owned())
    }

    /// Relative to the launch directory where it lies below it.
    fn path(&self, path: &Path) -> Option<String> {
        let (start, rest) = match path.strip_prefix(&self.cwd) {
            Ok(below) if below.as_os_str().is_empty() => return Some(".".to_owned()),
            Ok(below) => ("./", below),
            Err(_) => match self.home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
                Some(below) if !below.as_os_str().is_empty() => ("~/", below),
                _ => ("", path),
            },
        };
        value(&format!("{start}{}", rest.to_str()?))
    }

    fn program(&self, exe: &Path, name: Option<&OsStr>) -> Option<String> {
        let spelled = name.map(Path::new);
        let is_word =
            spelled.is_some_and(|name| name.as_os_str().as_bytes().iter().all(|byte| *byte != b'/'));
        // Directories of PATH are called so nearly everywhere, and these are in it.
        let is_found = exe.parent().is_some_and(|above| above.ends_with("bin") || above.ends_with("sbin"));
        let is_usual = |path: &Path| path.parent().is_some_and(|above| USUAL.iter().any(|bin| above == *bin));
        let is_replaceable = !is_found || self.decide_path(PathAccess::Write, exe).is_allow();
        // A link with a name of its own (`/bin/sh`): a rule for the file would not allow that name.
        let is_link = spelled.is_some_and(|name| name.file_name() != exe.file_name());
        let program = match spelled {
            Some(name) if is_word && !is_replaceable => name,
            Some(name) if is_usual(name) && is_usual(exe) && !is_replaceable => Path::new(name.file_name()?),
            Some(name) if is_link && name.is_absolute() => name,
            _ => exe,
        };
        let here = program.strip_prefix(&self.cwd).ok().filter(|below| !below.as_os_str().is_empty());
        let below = here.map(|below| Path::new(".").join(below));
        shell_word(below.as_deref().unwrap_or(program).to_str()?).map(|word| format!("exec: {word}"))
    }

    /// The rule for one method and one path of a host.
    fn request(
        &self,
        names: &[String],
        address: std::net::IpAddr,
        port: u16,
        method: &str,
        path: &str,
    ) -> Option<String> {
        let host = self.connect(names, address, port, Transport::Tcp);
        let (host, suffix) = match host.strip_suffix(" private") {
            Some(host) => (host, " private"),
            None => (host.as_str(), ""),
        };
        let host = host.strip_prefix("net: ")?;
        // `OPTIONS *` has no path, and a star in a path is a letter.
        let path = if path == "*" { String::new() } else { path.replace('*', "%2A") };
        let rule = value(&format!("{method} {host}{path}"))?;
        // A blank alone needs no quotes here.
        let inside = rule.strip_prefix('"').and_then(|rule| rule.strip_suffix('"'));
        let plain = inside.filter(|text| !text.contains([',', '#', '"', '\\']));
        let line = format!("net: {}{suffix}", plain.unwrap_or(&rule));
        self.reads_back(&line, method, &path).then_some(line)
    }

    /// Whether the line is one rule for this method and path; a strange method or path has none.
    fn reads_back(&self, line: &str, method: &str, path: &str) -> bool {
        let host = super::host::LaunchHost::with("/".into(), Vec::new());
        let Ok(read) = super::check::parse(line, "suggestion", &host) else { return false };
        let [super::Rule { body: super::RuleBody::Net(net), .. }] = read.rules.as_slice() else {
            return false;
        };
        net.methods == [method] && net.path.as_ref().is_none_or(|pattern| pattern.matches(path))
    }

    fn connect(
        &self,
        names: &[String],
        address: std::net::IpAddr,
        port: u16,
        transport: Transport,
    ) -> String {
        let udp = if transport == Transport::Udp { "udp:" } else { "" };
        let address = super::address::canonical(address);
        let is_special = super::address::is_special(address) || self.is_own(address);
        // `net: localhost` means the loopback of the host and nothing else.
        let means_it = |host: &String| host != "localhost" || super::address::is_loopback(address);
        // `net: unix:443` names a socket, `net: udp:443` is no rule; with the root's dot it is the host.
        let spelled = |host: String| {
            if udp.is_empty() && matches!(&*host, "unix" | "udp") { format!("{host}.") } else { host }
        };
        match names.iter().find_map(|host| name::canonical(host)).filter(means_it).map(spelled) {
            Some(host) if is_special && host != "localhost" => {
                format!("net: {udp}{host}:{port} private")
            }
            Some(host) => format!("net: {udp}{host}:{port}"),
            None => format!("net: {udp}{}", std::net::SocketAddr::new(address, port)),
        }
    }
}

/// Whether it lies in the directory of one process (proc(5)): a rule would name one of the host's.
fn is_of_a_process(path: &Path) -> bool {
    let below = path.strip_prefix("/proc").ok().and_then(|below| below.iter().next());
    below.is_some_and(|name| name.as_bytes().iter().all(u8::is_ascii_digit))
}

fn socket(path: &Path) -> Option<String> {
    let text = format!("unix:{}", path.to_str()?);
    value(&text).map(|value| format!("net: {value}"))
}

fn variable(name: &str) -> Option<String> {
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_name = is_plain && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    is_name.then(|| format!("env: {name}"))
}

/// Quotes a value where a character in it would mean more than itself.
fn value(text: &str) -> Option<String> {
    if !is_line_safe(text) {
        return None;
    }
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+=:~".contains(c));
    // Blanks within a path that begins like one need no quotes, unless other paths seem to follow.
    let begins = |word: &str| ["/", "./", "~"].iter().any(|start| word.starts_with(start));
    let mut words = text.split(' ');
    let is_path = words.next().is_some_and(|word| is_plain(word) && begins(word))
        && words.all(|word| !word.is_empty() && is_plain(word) && !begins(word));
    Some(if is_plain(text) || is_path {
        text.to_owned()
    } else {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    })
}

/// The same for a word of `exec:`.
fn shell_word(text: &str) -> Option<String> {
    if !is_line_safe(text) || text.is_empty() {
        return None;
    }
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    Some(if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) })
}
