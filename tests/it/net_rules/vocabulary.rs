//! The ready rules of the page on policies, against servers that stand in for the real ones.

use super::origin::{Origin, found};
use crate::support::{Sandbox, User, has, skip};

const PAGE: &str = include_str!("../../../docs/policy.md");

/// The rules of the page whose comment says so, with the stand-in for each host.
pub(super) fn rules(title: &str, hosts: &[(&str, u16)]) -> String {
    let block = PAGE.split("```policy\n").find(|block| block.starts_with(&format!("# {title}")));
    let block = block.unwrap_or_else(|| panic!("no block {title}")).split("```").next().expect("its end");
    hosts.iter().fold(block.to_owned(), |text, (host, port)| text.replace(host, &format!("127.0.0.1:{port}")))
}

/// Asks for each line `METHOD /path` with curl and demands the status in front of it.
fn asks(policy: &str, port: u16, cases: &[(u16, &str)]) {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(&format!("exec: /**\n{policy}"));
    let script = "while read -r status method path; do
        curl -sS -o /dev/null --path-as-is -X $method -d '' -w \"%{http_code} $method $path\\n\" \"http://127.0.0.1:$0$path\"
        done";
    let lines: String = cases.iter().map(|(status, line)| format!("{status} {line}\n")).collect();
    let input = format!("{script} <<'END'\n{lines}END");
    sandbox.run(&["sh", "-c", &input, &port.to_string()]).exits(0).prints(&lines);
}

#[test]
fn packages_are_downloaded_and_not_published() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let origin = Origin::start();
    let port = origin.port;
    let all = ["pypi.org:443", "files.pythonhosted.org:443"].map(|host| (host, port));
    asks(
        &rules("Python packages", &all),
        port,
        &[(200, "GET /simple/requests/"), (200, "GET /packages/ab/x.whl"), (403, "POST /legacy/")],
    );
    asks(
        &rules("npm packages", &[("registry.npmjs.org:443", port)]),
        port,
        &[
            (200, "GET /express"),
            (200, "GET /@babel%2fcore"),
            (200, "GET /express/-/express-4.tgz"),
            (403, "PUT /express"),
            (403, "POST /-/npm/v1/tokens"),
            (403, "DELETE /-/package/express/dist-tags/latest"),
        ],
    );
    let all = ["index.crates.io:443", "static.crates.io:443"].map(|host| (host, port));
    asks(
        &rules("Rust crates", &all),
        port,
        &[(200, "GET /se/rd/serde"), (200, "GET /crates/serde/1/download"), (403, "PUT /api/v1/crates/new")],
    );
}

#[test]
fn one_endpoint_of_a_model_and_no_other() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let origin = Origin::start();
    let port = origin.port;
    asks(
        &rules("One endpoint", &[("api.anthropic.com:443", port)]),
        port,
        &[
            (200, "POST /v1/messages?beta=true"),
            (200, "POST /v1/messages/count_tokens"),
            (403, "GET /v1/messages"),
            (403, "POST /v1/messages/batches"),
            (403, "POST /v1/files"),
            (403, "GET /v1/organizations/api_keys"),
            (400, "POST /v1/messages/../files"),
        ],
    );
}

#[test]
fn pip_installs_under_its_rules() {
    if !std::path::Path::new("/usr/lib/python3/dist-packages/pip").exists() || !has("python3") {
        return skip("pip", "it is not installed");
    }
    let wheel = wheel();
    let origin = Origin::serving(move |line| match line.split(' ').nth(1) {
        Some("/simple/tiny/") => found(
            "text/html",
            b"<a href=\"/packages/tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>",
        ),
        _ => found("application/octet-stream", &wheel),
    });
    let all = ["pypi.org:443", "files.pythonhosted.org:443"].map(|host| (host, origin.port));
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(&format!("exec: /**\nwrite: .\n{}", rules("Python packages", &all)));
    let index = format!("http://127.0.0.1:{}/simple", origin.port);
    let words =
        ["/usr/bin/python3", "-m", "pip", "download", "-q", "--no-cache-dir", "--no-deps", "-d", "got"];
    let ran = sandbox.run(&[&words[..], &["--index-url", &index, "tiny"]].concat());
    ran.exits(0);
    assert!(sandbox.path("got/tiny-1.0-py3-none-any.whl").exists(), "{ran}");
}

/// A package of one module, as a zip archive without compression (APPNOTE 4.3).
fn wheel() -> Vec<u8> {
    let files = [
        ("tiny.py", "x = 1\n"),
        ("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"),
        (
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
        ("tiny-1.0.dist-info/RECORD", "tiny.py,,\n"),
    ];
    let script = "import io, sys, zipfile
out = io.BytesIO()
with zipfile.ZipFile(out, 'w') as archive:
    for name, text in zip(sys.argv[1::2], sys.argv[2::2]): archive.writestr(name, text)
sys.stdout.buffer.write(out.getvalue())";
    let arguments = files.iter().flat_map(|(name, text)| [*name, *text]);
    let output = std::process::Command::new("/usr/bin/python3").args(["-c", script]).args(arguments).output();
    output.expect("python3").stdout
}
