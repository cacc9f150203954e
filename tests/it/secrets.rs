//! Secrets: the command has placeholders, one host gets the values, and nothing that is kept or shown holds them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Ran, Sandbox, everyone, has, skip};
use crate::tls::{Shown, certify};

const ORIGIN: &str = include_str!("secrets/origin.py");

const VALUE: &str = "ghp_Real0Value1That2Nobody3Sees4Inside56";

/// A server on the host's loopback that writes down what it gets.
struct Origin {
    directory: TempDir,
    process: Child,
    port: u16,
}

impl Origin {
    fn start() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        certify(&directory, Shown::Good);
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", ORIGIN]).arg(directory.path()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        Self { directory, process, port: line.trim().parse().expect("a port") }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// Path, credential and body of each request since the last look.
    fn got(&self) -> Vec<(String, String, String)> {
        let file = self.directory.path().join("got");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(file);
        text.lines().map(|line| serde_json::from_str(line).expect("three words")).collect()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a script with the URL of an origin that gets the secret in `$1`, and that of another in `$2`; what is
/// left of the run holds no value.
fn confided(sandbox: &Sandbox, origins: (&Origin, &Origin), script: &str) -> Ran {
    confided_by(sandbox, origins, "", script)
}

/// The same with further rules.
fn confided_by(sandbox: &Sandbox, origins: (&Origin, &Origin), rules: &str, script: &str) -> Ran {
    confided_under(sandbox, origins, rules, script, &[])
}

/// The same with further options.
fn confided_under(
    sandbox: &Sandbox,
    origins: (&Origin, &Origin),
    rules: &str,
    script: &str,
    options: &[&str],
) -> Ran {
    let (own, other) = origins;
    sandbox.policy(&format!(
        "exec: curl, sh, env, cat, grep, python3\nnet: localhost:{}, localhost:{}\nsecret: GITHUB_TOKEN -> localhost:{}\n{rules}",
        own.port, other.port, own.port
    ));
    sandbox.environment("GITHUB_TOKEN", VALUE);
    let authorities = origins_authorities(origins);
    let mut options = options.to_vec();
    options.extend(authorities.iter().flat_map(|file| ["--upstream-ca", file.as_str()]));
    let ran = sandbox.run_with(&options, &["sh", "-c", script, "sh", &own.url(""), &other.url("")]);
    assert!(!ran.stdout.contains(VALUE) && !ran.stderr.contains(VALUE), "{ran}");
    assert_clean(sandbox.beside("").as_path());
    ran
}

fn origins_authorities((own, other): (&Origin, &Origin)) -> Vec<String> {
    [own, other].map(|origin| origin.directory.path().join("authority.pem").display().to_string()).to_vec()
}

/// Nothing below `directory` holds the value, compressed or not.
fn assert_clean(directory: &Path) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            assert_clean(&path);
        } else if kind.is_file() && path.file_name().is_some_and(|name| name != "agentbox") {
            let mut bytes = fs::read(&path).unwrap_or_default();
            if path.extension().is_some_and(|end| end == "zst") {
                bytes = zstd::decode_all(bytes.as_slice()).expect("a blob");
            }
            assert!(!contains(&bytes, VALUE.as_bytes()), "{} holds the value", path.display());
        }
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Runs `test` with two origins, where there is a curl.
fn with_origins(test: impl Fn(&Sandbox, (&Origin, &Origin))) {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let (own, other) = (Origin::start(), Origin::start());
    everyone(|sandbox| {
        own.got();
        other.got();
        test(sandbox, (&own, &other));
    });
}

#[test]
fn one_host_gets_the_value_and_the_command_never_does() {
    with_origins(|sandbox, origins| {
        let script = "echo $GITHUB_TOKEN; for path in / /gzip /deflate; do \
            curl -sS -i --compressed -H \"Authorization: Bearer $GITHUB_TOKEN\" $1$path; echo; done";
        let ran = confided(sandbox, origins, script);
        ran.exits(0).denied_nothing();
        let placeholder = ran.stdout.lines().next().expect("a line").to_owned();
        assert!(placeholder.starts_with("ghp_") && placeholder.len() == VALUE.len(), "{ran}");
        let got = origins.0.got();
        let keys: Vec<&str> = got.iter().map(|(_, key, _)| key.as_str()).collect();
        assert!(
            keys.len() == 3 && keys.iter().all(|key| *key == format!("Bearer {VALUE}")),
            "{keys:?}\n{ran}"
        );
        // The header field and the body of each answer.
        assert_eq!(ran.stdout.matches(&placeholder).count(), 1 + 3 * 2, "{ran}");
        assert_eq!(ran.of("http.exchange").len(), 3, "{ran}");
        let start = ran.of("env.pass")[0].to_string();
        assert!(start.contains("GITHUB_TOKEN"), "{start}");
    });
}

#[test]
fn other_hosts_get_neither() {
    with_origins(|sandbox, origins| {
        let script = "curl -sS -w '%{http_code}\\n' -H \"Authorization: Bearer $GITHUB_TOKEN\" $2/; \
            curl -sS -w '%{http_code}\\n' $1/?key=$GITHUB_TOKEN; \
            curl -sS -w '%{http_code}\\n' -d key=$GITHUB_TOKEN $2/; \
            curl -sS -w '%{http_code}\\n' -X TRACE -H \"Authorization: $GITHUB_TOKEN\" $1/";
        let ran = confided(sandbox, origins, script);
        assert_eq!(ran.stdout.lines().filter(|line| *line == "403").count(), 4, "{ran}");
        assert_eq!(ran.denials("net").len(), 4, "{ran}");
        assert!(ran.denials("net").iter().all(|denial| {
            let reason = denial["args"]["reason"].as_str().unwrap_or("");
            reason.contains("GITHUB_TOKEN")
                && denial["rule"].as_str().is_some_and(|rule| rule.ends_with(":3"))
        }));
        let sent = [origins.0.got(), origins.1.got()].concat();
        assert!(sent.iter().all(|(_, key, body)| key.is_empty() && !body.contains("ghp_")), "{sent:?}");
    });
}

#[test]
fn streams_stay_streams() {
    with_origins(|sandbox, origins| {
        let program = r#"
import os, sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/stream", headers={"Authorization": "Bearer " + os.environ["GITHUB_TOKEN"]})
with urllib.request.urlopen(request) as answer:
    print(answer.readline().decode().strip())
    # The next event comes after this alone.
    urllib.request.urlopen(sys.argv[1] + "/go").read()
    rest = answer.read().decode()
print(os.environ["GITHUB_TOKEN"] in rest, len(rest))
"#;
        sandbox.file("stream.py", program);
        let ran = confided(sandbox, origins, &format!("python3 -c '{program}' $1"));
        ran.exits(0);
        let mut lines = ran.stdout.lines();
        assert_eq!(lines.next(), Some("data: one"), "{ran}");
        assert!(lines.next().is_some_and(|line| line.starts_with("True ")), "{ran}");
        assert_eq!(origins.0.got()[0].1, format!("Bearer {VALUE}"), "{ran}");
    });
}

#[test]
fn a_change_of_protocol_needs_its_name_and_is_searched() {
    with_origins(|sandbox, origins| {
        let program = r#"
import http.client, os, sys
port = int(sys.argv[1].rsplit(":", 1)[1])
for path in "/live", "/other":
    connection = http.client.HTTPSConnection("localhost", port)
    connection.putrequest("GET", path)
    for name, value in ("Connection", "Upgrade"), ("Upgrade", "lines"), ("Authorization", os.environ["GITHUB_TOKEN"]):
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.sock.makefile("rb")
    status = answer.readline().split()[1].decode()
    while answer.readline().strip(): pass
    if status == "101":
        print(status, answer.readline().decode().strip() == os.environ["GITHUB_TOKEN"])
        connection.sock.sendall(b"hello\n")
        print(answer.readline().decode().strip())
    else: print(status)
"#;
        sandbox.file("live.py", program);
        let live = format!("net: UPGRADE localhost:{}/live\nread: .\n", origins.0.port);
        let ran = confided_by(sandbox, origins, &live, "python3 live.py $1");
        ran.exits(0).prints("101 True\nheard hello\n403\n");
        assert_eq!(origins.0.got()[0].1, VALUE, "{ran}");
    });
}

#[test]
fn no_usual_form_gives_the_value_back() {
    with_origins(|sandbox, origins| {
        let script = "curl -sSi -H \"Authorization: $GITHUB_TOKEN\" $1/forms; echo; echo $GITHUB_TOKEN";
        let ran = confided(sandbox, origins, script);
        let (told, placeholder) = ran.exits(0).stdout.trim_end().rsplit_once('\n').expect("two lines");
        let forms: [fn(u8) -> String; 5] = [
            |byte| format!("&#{byte};"),
            |byte| format!("&#x{byte:02X};"),
            |byte| format!("%{byte:02x}"),
            |byte| format!("\\u{byte:04x}"),
            |byte| char::from(byte).to_string(),
        ];
        let escaped: String = VALUE.bytes().enumerate().map(|(at, byte)| forms[at % 5](byte)).collect();
        let stands: String = placeholder.chars().cycle().take(escaped.len()).collect();
        assert!(
            told.contains(&format!("/?{stands}\r\n")) && told.contains(&format!("\n{stands}\n")),
            "{ran}"
        );
        let lines: String = told.rsplit_once(&stands).expect("a body").1.split_whitespace().collect();
        for (before, text) in [("-".repeat(50), lines), (String::new(), told.to_owned())] {
            let own = base64::engine::general_purpose::STANDARD.encode(before.clone() + VALUE);
            let own = &own[before.len() * 4 / 3 + 4..];
            let shown = (0..own.len() - 12).any(|at| text.contains(&own[at..at + 12]));
            assert!(!shown && (before.is_empty() || text.len() == 120), "{ran}");
        }
    });
}

#[test]
fn bytes_that_are_no_http_are_searched_where_all_is_observed() {
    with_origins(|sandbox, origins| {
        let program = r#"
import http.client, os, socket, ssl, sys
port, key = int(sys.argv[1].rsplit(":", 1)[1]), os.environ["GITHUB_TOKEN"]
asked = http.client.HTTPSConnection("localhost", port)
asked.request("GET", "/", headers={"Authorization": key})
asked.getresponse().read()
bare = socket.create_connection(("localhost", port))
bare = ssl.create_default_context().wrap_socket(bare, server_hostname="localhost")
bare.sendall(b"LAST\r\n")
print(bare.makefile().readline().strip() == "+" + key)
"#;
        sandbox.file("bare.py", program);
        let ran = confided_under(sandbox, origins, "read: .\n", "python3 bare.py $1", &["--observe"]);
        ran.exits(0).prints("True\n");
        assert_eq!(origins.0.got()[0].1, VALUE, "{ran}");
    });
}

#[test]
fn what_cannot_be_searched_is_withheld() {
    with_origins(|sandbox, origins| {
        let script = "curl -sS -w '%{http_code}' -H \"Authorization: $GITHUB_TOKEN\" $1/compress";
        let ran = confided(sandbox, origins, script);
        assert!(ran.stdout.ends_with("502") && ran.stdout.contains("coded compress"), "{ran}");
        let script = "curl -sS -w '%{http_code}' -H \"Authorization: $GITHUB_TOKEN\" $1/coded";
        let ran = confided(sandbox, origins, script);
        assert!(ran.stdout.ends_with("502") && ran.stdout.contains("coded in no known way"), "{ran}");
    });
}

#[test]
fn the_sandbox_is_searched_in_vain() {
    with_origins(|sandbox, origins| {
        // The pattern is put together inside, so that no command line holds the value.
        let script = r#"python3 -c '
import glob, os
value = b"ghp_Real0Value1That2" + b"Nobody3Sees4Inside56"
seen = []
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/run/**", recursive=True):
    try:
        if value in open(path, "rb").read(): seen.append(path)
    except OSError: pass
for process in glob.glob("/proc/[0-9]*"):
    try: memory = open(process + "/mem", "rb", 0)
    except OSError: continue
    if process == "/proc/%d" % os.getpid(): continue
    for line in open(process + "/maps"):
        start, end = (int(at, 16) for at in line.split()[0].split("-"))
        try:
            memory.seek(start)
            if value in memory.read(end - start): seen.append(process + " memory")
        except (OSError, OverflowError, ValueError): pass
print(seen)'"#;
        confided(sandbox, origins, script).exits(0).prints("[]\n");
    });
}

#[test]
fn what_would_give_a_secret_away_is_refused_before_the_start() {
    everyone(|sandbox| {
        sandbox
            .environment("TOKEN", VALUE)
            .environment("COPY", format!("x={VALUE}"))
            .environment("SHORT", "hunter2");
        let secret = "net: localhost:1\nsecret: TOKEN -> localhost:1\n";
        let refused = |policy: &str, options: &[&str], words: &[&str], reason: &str| {
            sandbox.policy(policy);
            let ran = sandbox.run_with(options, words);
            ran.exits(2).complains(reason);
            assert!(!ran.stderr.contains(VALUE) && !sandbox.trace().exists(), "{ran}");
        };
        refused(
            &format!("{secret}env: TOKEN\n"),
            &[],
            &["true"],
            "gives the process the value of `TOKEN` itself",
        );
        refused(&format!("{secret}env: COPY\n"), &[], &["true"], "the variable COPY holds the value");
        refused(secret, &[], &["true", VALUE], "the command line holds the value of the secret TOKEN");
        refused(&format!("{secret}# {VALUE}\n"), &[], &["true"], "the policy holds the value");
        refused(secret, &["--no-intercept"], &["true"], "cannot be held when TLS is left unread");
        refused("net: localhost:1\nsecret: SHORT -> localhost:1\n", &[], &["true"], "shorter than 8 bytes");
        sandbox.policy("net: localhost:1\nsecret: UNSET -> localhost:1\nexec: env\n");
        let ran = sandbox.run(&["env"]);
        ran.exits(0).complains("agentbox: UNSET is not set, so the command does not get it");
        assert!(!ran.stdout.contains("UNSET"), "{ran}");
        sandbox.policy(secret);
        for words in [
            &["spec", "-p", "../agentbox.policy", "--", "true"][..],
            &["policy", "show", "-p", "../agentbox.policy"],
        ] {
            let ran = sandbox.agentbox(words);
            ran.exits(0);
            assert!(!ran.stdout.contains(VALUE) && ran.stdout.contains("TOKEN"), "{ran}");
        }
    });
}

#[test]
fn tokens_of_oauth_are_not_shown() {
    with_origins(|sandbox, origins| {
        let script = "curl -sS -d 'grant_type=refresh_token&refresh_token=hunter2hunter2' $2/token";
        let ran = confided(sandbox, origins, script);
        ran.exits(0);
        let body: &Value = &ran.recorded("http.exchange", "url", "/token")["args"]["body"];
        assert_eq!(body["private"], true, "{body}");
        assert!(
            body["redacted"].as_str().is_some_and(|text| text.contains("refresh_token=redacted:")),
            "{body}"
        );
        let trace = fs::read_to_string(sandbox.trace()).expect("a trace");
        // The command line of the shell is the user's own.
        assert!(
            trace.lines().filter(|line| line.contains("http.exchange")).all(|line| !line.contains("hunter2"))
        );
    });
}
