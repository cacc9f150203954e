//! A network of the test's own around the program: servers that it starts, addresses that are
//! theirs, and the name server of its own resolv.conf. Nothing leaves it.

use std::ffi::OsStr;
use std::process::Command;

use nix::unistd::geteuid;

use super::{Ran, Running, Sandbox, User, has};

/// Addresses of the open internet that are served in the test's network.
pub(crate) const OUTSIDE_V4: &str = "93.184.216.34";
pub(crate) const OUTSIDE_V6: &str = "2606:2800:220:1::34";

/// `$1` resolv.conf, `$2` the server, `$3` the file that it makes when it serves; then the command. The server has a
/// network of its own behind a pair of devices: what were local here would be the machine's own.
const SETUP: &str = "
serves='until ip link set in up; do sleep 0.02; done 2>/dev/null
ip link set lo up
ip addr add 192.0.2.53/24 dev in; ip -6 addr add 2001:db8::53/64 dev in nodad
for net in 93.184.216.0/24 10.9.0.0/16 169.254.169.254/32; do ip route add local $net dev lo; done
ip -6 route add local 2606:2800::/32 dev lo
exec python3 \"$@\"'
unshare --net sh -c \"$serves\" sh $2 $3 & server=$!
ip link set lo up
while [ $(readlink /proc/$server/ns/net) = $(readlink /proc/self/ns/net) ]; do sleep 0.02; done
ip link add name out type veth peer name in netns $server
ip addr add 192.0.2.1/24 dev out; ip -6 addr add 2001:db8::1/64 dev out nodad
ip link set out up
ip route add default via 192.0.2.53; ip -6 route add default via 2001:db8::53
mount --bind $1 /etc/resolv.conf
while ! [ -e $3 ] && kill -0 $server; do sleep 0.02; done
shift 3
\"$@\"
code=$?
kill $server
wait
exit $code";

impl Sandbox {
    /// Whether such a network can be made here; else why not.
    pub(crate) fn outside_lacks() -> Option<&'static str> {
        ["python3", "unshare", "ip", "mount", "setpriv"].into_iter().find(|program| !has(program))
    }

    /// Runs a command confined, while the Python program `server` serves outside. It makes the file
    /// `sys.argv[1]` when it is ready; what it prints is lost.
    pub(crate) fn run_outside<W: AsRef<OsStr>>(&self, server: &str, options: &[&str], words: &[W]) -> Ran {
        let _ = std::fs::remove_file(self.trace());
        let resolv = self.file("../resolv.conf", "nameserver 192.0.2.53\nsearch corp.test\n");
        let server = self.file("../server.py", server);
        let ready = self.beside("ready");
        let _ = std::fs::remove_file(&ready);
        let inner = self.run_command(options, words);
        let mut whole: Vec<&OsStr> = std::iter::once(inner.get_program()).chain(inner.get_args()).collect();
        let user = match self.user {
            User::Caller => Vec::new(),
            // What comes before the program itself changes the user: the network is made by that user.
            User::Ordinary => {
                let own = whole.iter().position(|word| word.to_string_lossy().ends_with("/agentbox"));
                whole.drain(..own.expect("the program")).collect()
            }
        };
        let mut command = match user.split_first() {
            None => Command::new("unshare"),
            Some((program, words)) => {
                let mut command = Command::new(program);
                command.args(words).arg("unshare");
                command
            }
        };
        if self.user == User::Ordinary || !geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--net", "--mount", "sh", "-c", SETUP, "sh"]);
        command.args([&resolv, &server, &ready]).args(whole);
        command.current_dir(self.path("")).env_clear();
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut ran = Running::start(command).finish();
        ran.read_trace(&self.trace());
        ran
    }
}
