//! The name server inside against one outside that keeps account of every query: what goes out, and
//! what comes back, asked by real programs.

mod server;

use std::collections::BTreeSet;

use crate::support::{OUTSIDE_V4, OUTSIDE_V6, Ran, Sandbox, everyone, has, skip};
use server::{SERVER, queries};

const POLICY: &str = "exec: /**
net: alias.test, big.test, v6.test, v4.test, both.test, mixed.test, rot.test, *.wild.test, gone.test, fail.test
net: db.test, short, printer.local, meta.test
";

/// Runs a shell script inside and gives what the outer name server was asked for beside it.
fn run(sandbox: &Sandbox, script: &str) -> (Ran, BTreeSet<String>) {
    let log = sandbox.beside("queries");
    let _ = std::fs::remove_file(&log);
    let server = SERVER.replace("LOG", &format!("{:?}", log.display().to_string()));
    let ran = sandbox.run_outside(&server, &[], &["sh", "-c", script]);
    (ran, queries(&log))
}

fn everywhere(programs: &[&str], test: impl Fn(&Sandbox)) {
    if let Some(missing) = Sandbox::outside_lacks() {
        return skip(missing, "it is not installed");
    }
    if let Some(missing) = programs.iter().find(|program| !has(program)) {
        return skip(missing, "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        test(sandbox);
    });
}

#[test]
fn only_what_a_rule_matches_is_ever_asked_outside() {
    everywhere(&["dig"], |sandbox| {
        let names = "secret-data.evil.test evil.test a.alias.test wild.test gone.test.evil.test x.onion \
                     printer.local _s._tcp.evil.test 34.216.184.93.in-addr.arpa v4.test.";
        let script = format!(
            "for name in {names}; do for kind in A AAAA TXT SRV HTTPS; do
                dig +tries=1 +time=3 +notcp +short $name $kind; done
                dig +tries=1 +time=3 +short @8.8.8.8 $name ANY; dig +tries=1 +time=3 +short @8.8.8.8 $name
            done >/dev/null; dig +tries=1 +time=3 +tcp +short @9.9.9.9 more.evil.test
            dig -x {OUTSIDE_V4} +short; getent hosts other.evil.test; exit 0"
        );
        let (ran, asked) = run(sandbox, &script);
        ran.exits(0).prints("v4.test.\n");
        let expected = ["v4.test A", "v4.test AAAA", "v4.test TXT", "v4.test SRV"];
        assert_eq!(asked, expected.map(str::to_owned).into(), "{ran}");
        let lookups = ran.of("dns.lookup");
        assert!(
            lookups.iter().all(|entry| entry["proc"].as_str().is_some_and(|proc| proc.starts_with("0."))),
            "{ran}"
        );
        ran.denied("net", "secret-data.evil.test")
            .denied("net", "more.evil.test")
            .denied("net", "other.evil.test");
    });
}

#[test]
fn chains_belong_to_the_name_that_was_asked_for() {
    everywhere(&["dig", "curl"], |sandbox| {
        let script = format!(
            "dig +tries=1 +time=3 +noall +answer alias.test; dig +tries=1 +time=3 +short target.test
            curl -sS -m 9 http://alias.test:8000/; curl -sS -m 9 --noproxy '*' http://alias.test:8000/
            curl -sS -m 9 --noproxy '*' --resolve target.test:8000:{OUTSIDE_V4} http://target.test:8000/ -w '%{{http_code}}\\n' -o /dev/null"
        );
        let (ran, asked) = run(sandbox, &script);
        ran.exits(0);
        let lines: Vec<Vec<&str>> =
            ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][0], "alias.test.", "{ran}");
        assert_eq!((lines[0][3], lines[0][4]), ("A", OUTSIDE_V4), "{ran}");
        let rest: Vec<&str> = ran.stdout.lines().skip(1).collect();
        assert_eq!(rest, ["page of alias.test:8000", "page of alias.test:8000", "403"], "{ran}");
        // The end of a chain is asked for once more where the answer lacks it; never because of the agent.
        let chain = |query: &String| query.starts_with("alias.test ") || query == "target.test AAAA";
        assert!(asked.iter().all(chain), "{asked:?}");
        ran.denied("net", "target.test").denied("net", "target.test:8000");
    });
}

#[test]
fn large_answers_come_whole_over_tcp_on_both_sides() {
    everywhere(&["dig", "python3"], |sandbox| {
        let script = "dig +tries=1 +time=5 +notcp +ignore +noedns big.test | grep -c 'flags:.* tc'
            dig +tries=1 +time=5 +noedns +short big.test | wc -l
            python3 -c 'import socket; print(len({a[4][0] for a in socket.getaddrinfo(\"big.test\", 80)}))'";
        let (ran, asked) = run(sandbox, script);
        ran.exits(0).prints("1\n60\n60\n");
        assert!(asked.contains("big.test A tcp"), "{asked:?}");
        let lookup = ran.of("dns.lookup").into_iter().find(|entry| entry["args"]["type"] == "A");
        assert_eq!(lookup.expect("a lookup")["result"]["answers"].as_array().expect("a list").len(), 60);
    });
}

#[test]
fn each_family_alone_and_both() {
    everywhere(&["python3", "curl", "dig"], |sandbox| {
        let script = "for name in v4.test v6.test both.test; do
                for kind in A AAAA; do dig +tries=1 +time=3 $name $kind | grep -o 'status: [A-Z]*'; done
                curl -sS -m 9 http://$name:8000/; curl -sS -m 9 --noproxy '*' http://$name:8000/
                curl -sS -m 9 --noproxy '*' --socks5-hostname ${HTTP_PROXY#http://} http://$name:8000/
            done; python3 -c 'import socket
print(sorted(a[4][0] for a in socket.getaddrinfo(\"both.test\", 80, type=socket.SOCK_STREAM)))'";
        let (ran, _) = run(sandbox, script);
        let status = "status: NOERROR\n".repeat(2);
        let pages = |name: &str| format!("{status}{}", format!("page of {name}:8000\n").repeat(3));
        let all: String = ["v4.test", "v6.test", "both.test"].map(pages).concat();
        ran.exits(0).prints(&format!("{all}['{OUTSIDE_V6}', '{OUTSIDE_V4}']\n"));
        assert!(ran.denials("net").is_empty(), "{ran}");
    });
}

#[test]
fn an_answer_cannot_lead_into_a_refused_range() {
    everywhere(&["dig", "python3"], |sandbox| {
        let script = "dig +tries=1 +time=3 +short mixed.test; dig +tries=1 +time=3 +short meta.test
            for turn in 1 2 3; do dig +tries=1 +time=3 +short rot.test; sleep 1.2; done
            python3 -c 'import socket
for host in (\"169.254.169.254\", \"10.9.0.1\"):
    try: socket.create_connection((host, 8000), 3); print(\"connected\")
    except OSError as error: print(type(error).__name__)
print(socket.create_connection((\"93.184.216.40\", 8000), 3).getpeername())'";
        let (ran, _) = run(sandbox, script);
        let refused = "PermissionError\n".repeat(2);
        // The third answer is a private address: the first two stay as they were given.
        ran.exits(0).prints(&format!(
            "{OUTSIDE_V4}\n93.184.216.40\n93.184.216.41\n{refused}('93.184.216.40', 8000)\n"
        ));
        ran.denied("net", "mixed.test").denied("net", "meta.test").denied("net", "rot.test");
    });
}

#[test]
fn services_search_domains_and_failures() {
    everywhere(&["dig", "python3"], |sandbox| {
        let script = "dig +tries=1 +time=3 +short _pg._tcp.db.test SRV; dig +tries=1 +time=3 +short db.test TXT
            dig +tries=1 +time=3 +short db.test HTTPS; getent hosts short; getent hosts nothing
            dig +tries=1 +time=9 fail.test | grep -o 'status: [A-Z]*'; dig +tries=1 gone.test | grep -o 'status: [A-Z]*'
            python3 -c 'import socket
for name in (\"app.localhost\", \"localhost\"): print(socket.getaddrinfo(name, 80, socket.AF_INET)[0][4][0])
message = lambda n: bytes([0, n]) + b\"\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\" + b\"\\2v4\\4tEst\\0\" + b\"\\0\\1\\0\\1\"
s = socket.create_connection((\"8.8.4.4\", 53)); s.settimeout(9)
s.sendall(b\"\".join(len(message(n)).to_bytes(2, \"big\") + message(n) for n in range(20)))
f = s.makefile(\"rb\"); seen = []
for _ in range(20):
    reply = f.read(int.from_bytes(f.read(2), \"big\")); seen.append(reply[1]); assert b\"tEst\" in reply
print(seen == list(range(20)))'";
        let (ran, asked) = run(sandbox, script);
        ran.prints(&format!(
            "0 5 5432 a.db.test.\n\"v=1\"\n{OUTSIDE_V4}   short\nstatus: SERVFAIL\nstatus: NXDOMAIN\n127.0.0.1\n127.0.0.1\nTrue\n"
        ));
        assert!(asked.contains("short.corp.test A"), "{asked:?}");
        assert!(
            asked.iter().all(|query| !query.contains("HTTPS") && !query.contains("nothing")),
            "{asked:?}"
        );
    });
}

/// A resolver of its own in a static program: it asks for both families at once, and trusts no `nsswitch.conf`.
#[test]
fn a_static_program_of_musl_resolves_and_connects() {
    const PROGRAM: &str = r#"
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        struct addrinfo *found, hints = { .ai_socktype = SOCK_STREAM };
        int error = getaddrinfo(names[i], "8000", &hints, &found);
        if (error) { printf("%s: %s\n", names[i], gai_strerror(error)); continue; }
        int s = socket(found->ai_family, SOCK_STREAM, 0);
        if (connect(s, found->ai_addr, found->ai_addrlen)) { perror(names[i]); return 1; }
        char answer[4096] = "";
        dprintf(s, "GET / HTTP/1.0\r\nHost: %s:8000\r\n\r\n", names[i]);
        for (size_t at = 0, n; (n = read(s, answer + at, sizeof answer - 1 - at)) > 0; at += n);
        printf("%s", strstr(answer, "\r\n\r\n") + 4);
    }
    return 0;
}"#;
    everywhere(&["musl-gcc"], |sandbox| {
        let source = sandbox.file("client.c", PROGRAM);
        let built = std::process::Command::new("musl-gcc")
            .args(["-static", "-o"])
            .arg(sandbox.path("client"))
            .arg(source)
            .status();
        assert!(built.expect("musl-gcc").success());
        sandbox.give("client");
        sandbox.policy(&format!("{POLICY}exec: ./client\n"));
        let (ran, asked) = run(sandbox, "./client v4.test v6.test a.wild.test evil.test");
        ran.exits(0).denied("net", "evil.test");
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(lines[..2], ["page of v4.test:8000", "page of v6.test:8000"], "{ran}");
        assert!(lines[2].starts_with("a.wild.test: ") && lines[3].starts_with("evil.test: "), "{ran}");
        assert!(asked.iter().all(|query| !query.starts_with("evil.test")), "{asked:?}");
    });
}

/// By its name, as any stream; its own configuration, of a user who is none inside, is no reason to give up.
#[test]
fn ssh_reaches_a_host_by_name() {
    everywhere(&["ssh"], |sandbox| {
        let script = "for host in v4.test v6.test evil.test; do ssh -v -o BatchMode=yes $host true; done";
        let (ran, asked) = run(sandbox, script);
        ran.exits(255).denied("net", "evil.test");
        assert_eq!(ran.stderr.matches("remote software version outside").count(), 2, "{ran}");
        assert!(!ran.stderr.contains("Bad owner"), "{ran}");
        assert!(asked.iter().all(|query| !query.starts_with("evil.test")), "{asked:?}");
        let streams = ran.of("net.stream");
        assert_eq!(streams.len(), 2, "{ran}");
        assert!(streams.iter().all(|stream| stream["args"]["port"] == 22), "{ran}");
    });
}
