//! The host's /etc/resolv.conf in all its forms: inside, names are resolved by our own in every case.

use std::fs;
use std::process::Stdio;

use super::finish;
use crate::support::{Ran, Sandbox, everyone, has, skip};

/// A name server that knows one name, on 127.0.0.53 alone; says which names it was asked for.
const SERVER: &str = "import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(('127.0.0.53', 53))
print('up', flush=True)
while True:
    query, client = server.recvfrom(4096)
    end = 12; labels = []
    while query[end]: labels.append(query[end + 1:end + 1 + query[end]].decode()); end += 1 + query[end]
    question = query[12:end + 5]; known = labels == ['known', 'test'] and question[-3] == 1
    print('.'.join(labels), file=open(sys.argv[1], 'a'), flush=True)
    answer = b'\\xc0\\x0c\\0\\x01\\0\\x01\\0\\0\\0\\x3c\\0\\x04\\x08\\x08\\x04\\x04' if known else b''
    server.sendto(query[:2] + b'\\x81' + (b'\\x80' if known or labels == ['known', 'test'] else b'\\x83')
                  + b'\\0\\x01\\0' + bytes([known]) + b'\\0\\0\\0\\0' + question + answer, client)
";

/// In a network and mounts of its own: an /etc that is a copy, with `$1` as what becomes of resolv.conf, and
/// the server; then the launcher, as whoever it is started by.
const HOST: &str =
    "ip link set lo up; mkdir -p $1/etc; mount -t tmpfs etc $1/etc; cp -a /etc/. $1/etc 2>/dev/null
mount --bind $1/etc /etc; rm -f /etc/resolv.conf; (cd /etc; eval \"$2\")
python3 -c \"$3\" $1/asked >$1/up & server=$!
while ! grep -q up $1/up; do sleep .01; done
one=$1; shift 3; \"$@\"; code=$?; kill $server; exit $code";

/// What becomes of /etc/resolv.conf, and whether names can be resolved then.
const FORMS: [(&str, bool); 7] = [
    ("echo nameserver 127.0.0.53 >resolv.conf", true),
    (
        "mkdir -p run; echo 'nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .' >run/stub-resolv.conf; ln -s run/stub-resolv.conf resolv.conf",
        true,
    ),
    (
        "echo 'nameserver 127.0.0.53\nsearch corp.example lan' >real; ln -s real between; ln -s ../etc/between resolv.conf",
        true,
    ),
    (
        "printf '# made by hand\n; old style\ndomain corp.example\nnameserver 127.0.0.53\nsortlist 10.0.0.0\noptions ndots:5 timeout:1 rotate single-request\n' >resolv.conf",
        true,
    ),
    ("ln -s ../run/systemd/resolve/nowhere.conf resolv.conf", false),
    ("true", false),
    (": >resolv.conf", false),
];

const PROGRAM: &str = "import socket
print(open('/etc/resolv.conf').read().split('\\n')[0])
for name in ('known.test', 'unknown.test', 'localhost'):
    try: print(sorted({found[4][0] for found in socket.getaddrinfo(name, 80, socket.AF_INET)})[0])
    except OSError as error: print('no')";

fn run(sandbox: &Sandbox, form: &str) -> Ran {
    let _ = fs::remove_file(sandbox.trace());
    let _ = fs::remove_file(sandbox.beside("asked"));
    let command = sandbox.run_command(&[], &["python3", "-c", PROGRAM]);
    let place = sandbox.beside("").display().to_string();
    let mut outside = std::process::Command::new("unshare");
    outside.args(["--mount", "--net", "sh", "-c", HOST, "sh", &place, form, SERVER]);
    outside.arg(command.get_program()).args(command.get_args()).current_dir(sandbox.path("")).env_clear();
    outside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(sandbox, outside)
}

#[test]
fn whatever_resolv_conf_is_names_are_resolved_by_ours() {
    if !nix::unistd::geteuid().is_root() || !has("ip") || !has("python3") {
        return skip("all", "it takes root, ip and python3 to change /etc for one process");
    }
    everyone(|sandbox| {
        sandbox.policy("net: known.test\nnet: unknown.test");
        for (form, works) in FORMS {
            let ran = run(sandbox, form);
            let known = if works { "8.8.4.4" } else { "no" };
            ran.exits(0).prints(&format!("nameserver 127.0.0.1\n{known}\nno\n127.0.0.1\n"));
            ran.denied_nothing();
            let asked = fs::read_to_string(sandbox.beside("asked")).unwrap_or_default();
            assert!(
                asked.lines().all(|name| ["known.test", "unknown.test"].contains(&name)),
                "{form}: {asked}\n{ran}"
            );
            let code = if works { "NXDOMAIN" } else { "SERVFAIL" };
            let unknown = ran.recorded("dns.lookup", "name", "unknown.test");
            assert_eq!(unknown["result"]["code"], code, "{form}\n{ran}");
            assert_eq!(works, !asked.is_empty(), "{form}\n{ran}");
        }
    });
}
