//! Real clients of TLS. Each gets a page over https from an origin whose certificate a test
//! authority signed, through a run that reads it, with no option and no variable set by hand; and each is
//! refused a path that no rule allows.

mod models;
mod places;
mod world;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Sandbox, User, everyone, has, skip};
use world::{HOST, World};

/// Where `.ci/run` installs packages of Python that are clients.
const PACKAGES: &str = "/opt/agentbox-test-clients";

const PLACE: &str = "https://origin.test/ok/";
const FORBIDDEN: &str = "https://origin.test/no/";

/// Rules as a user would write them, and `further` ones.
fn policy(further: &str) -> String {
    let reached = format!("net: GET|HEAD|POST {HOST}/ok/** private");
    format!("read: .\nwrite: ./out\nexec: /**\n{reached}\n{further}\n")
}

/// Rules that show what these programs need.
fn needing(programs: &[PathBuf]) -> String {
    programs.iter().map(|program| format!("exec: {}\n", program.display())).collect()
}

/// The one origin of all tests; it ends with them.
fn world() -> Option<&'static World> {
    static WORLD: OnceLock<Result<World, String>> = OnceLock::new();
    match WORLD.get_or_init(World::start) {
        Ok(world) => Some(world),
        Err(reason) => {
            skip("a client", reason);
            None
        }
    }
}

/// Runs `script` with the URL of a place that is allowed in `$1`, where it prints the page; then with
/// that of a place that is not, where it gets no page and the record has a denial.
fn fetches(programs: &[&str], script: &str) {
    if let Some(missing) = programs.iter().find(|program| !has(program)) {
        return skip(missing, "it is not installed");
    }
    everyone(|sandbox| fetches_in(sandbox, "", script));
}

fn fetches_in(sandbox: &Sandbox, rules: &str, script: &str) {
    let Some(world) = world() else { return };
    sandbox.policy(&policy(rules)).directory("out");
    let authority = world.authority();
    let options = ["--upstream-ca", authority.to_str().expect("text")];
    let run = |place: &str| {
        let url = format!("https://{HOST}/{place}");
        world.run(sandbox, &sandbox.run_command(&options, &["sh", "-ec", script, "sh", &url]))
    };
    let page = run("ok");
    page.exits(0).prints("page\n");
    let read =
        |entry: &&serde_json::Value| entry["args"]["url"].as_str().is_some_and(|url| url.starts_with(PLACE));
    assert!(page.of("http.exchange").iter().any(read), "TLS was not read\n{page}");
    let refused = run("no");
    assert!(!refused.stdout.contains("page\n"), "{refused}");
    let forbidden = |entry: &&serde_json::Value| {
        entry["args"]["url"].as_str().is_some_and(|url| url.starts_with(FORBIDDEN))
    };
    assert!(refused.denials("net").iter().any(forbidden), "nothing was denied\n{refused}");
}

/// A program of that installation.
fn packages(program: &str) -> PathBuf {
    Path::new(PACKAGES).join("bin").join(program)
}

/// Runs a program of Python's that imports `package`.
fn python(package: &str, program: &str) {
    let python = packages("python");
    let import = format!("import {package}");
    let imports = Command::new(&python).args(["-c", &import]).output();
    if !imports.is_ok_and(|output| output.status.success()) {
        return skip(package, &format!("it is not installed in {PACKAGES}"));
    }
    let script = format!("{} -c '{import}, sys; base = sys.argv[1]; {program}' $1", python.display());
    fetches_with_packages(&script);
}

fn fetches_with_packages(script: &str) {
    let rules = needing(&[packages("python"), packages("uv")]);
    everyone(|sandbox| fetches_in(sandbox, &rules, script));
}

#[test]
fn curl() {
    fetches(&["curl"], "curl -sS $1/page");
}

#[test]
fn wget() {
    fetches(&["wget"], "wget -qO- $1/page");
}

#[test]
fn git() {
    fetches(&["git"], "git clone -q $1/git/repo.git out/c; cat out/c/page; rm -r out/c");
}

#[test]
fn openssl() {
    let ask = "printf 'GET /%s/page HTTP/1.0\\r\\nHost: origin.test\\r\\n\\r\\n' ${1##*/}";
    fetches(
        &["openssl"],
        &format!("{ask} | openssl s_client -quiet -verify_return_error -connect origin.test:443 | tail -n 1"),
    );
}

#[test]
fn pip() {
    let pip = format!("{PACKAGES}/bin/pip install -q --no-cache-dir --root-user-action ignore");
    if !packages("pip").exists() {
        return skip("pip", &format!("it is not installed in {PACKAGES}"));
    }
    fetches_with_packages(&format!("{pip} -t out/p -i $1/pip/simple/ tiny; cat out/p/tiny.py; rm -r out/p"));
}

#[test]
fn uv() {
    let uv = format!("{PACKAGES}/bin/uv");
    if !packages("uv").exists() {
        return skip("uv", &format!("it is not installed in {PACKAGES}"));
    }
    let install = "pip install -q --no-cache --target out/u -i $1/pip/simple/ tiny";
    fetches_with_packages(&format!("{uv} {install}; cat out/u/tiny.py; rm -r out/u"));
}

#[test]
fn requests() {
    python("requests", "print(requests.get(base + \"/page\").text, end=\"\")");
}

#[test]
fn httpx() {
    python("httpx", "print(httpx.get(base + \"/page\").text, end=\"\")");
}

#[test]
fn aiohttp() {
    python(
        "aiohttp",
        "import asyncio
async def main():
    async with aiohttp.ClientSession() as session, session.get(base + \"/page\") as answer:
        print(await answer.text(), end=\"\")
asyncio.run(main())",
    );
}

#[test]
fn boto3() {
    python(
        "boto3",
        "client = boto3.client(\"s3\", endpoint_url=base, region_name=\"x\", aws_access_key_id=\"a\",
    aws_secret_access_key=\"b\")
print(client.get_object(Bucket=\"bucket\", Key=\"key\")[\"Body\"].read().decode(), end=\"\")",
    );
}

/// The cargo that builds these tests: it belongs to whoever runs them.
#[test]
fn cargo() {
    let Some(cargo) = option_env!("CARGO").map(PathBuf::from).filter(|path| path.exists()) else {
        return skip("cargo", "it is not installed");
    };
    let sandbox = Sandbox::new(User::Caller);
    sandbox.file("out/app/src/lib.rs", "");
    let manifest = "[package]\nname = \"app\"\nversion = \"1.0.0\"\n[dependencies]\n";
    sandbox.file("out/app/Cargo.toml", format!("{manifest}tiny = {{ version = \"1\", registry = \"t\" }}\n"));
    let config = "registries.t.index = \"sparse+'$1'/cargo/\"";
    let script = format!(
        "export CARGO_HOME=$PWD/out/home RUSTC={}; cd out/app; {} fetch -q --config '{config}'
        cat ../home/registry/src/*/tiny-1.0.0/page",
        cargo.with_file_name("rustc").display(),
        cargo.display(),
    );
    fetches_in(&sandbox, &needing(std::slice::from_ref(&cargo)), &script);
}

#[test]
fn npm() {
    let npm = "npm_config_cache=$PWD/out/cache npm install --silent --no-audit --no-fund";
    fetches(
        &["npm", "node"],
        &format!(
            "{npm} --prefix out/n --registry $1/npm/ tiny >&2; cat out/n/node_modules/tiny/page; rm -r out/n"
        ),
    );
}

#[test]
fn node() {
    let program = "fetch(process.argv[1] + \"/page\").then(r => r.text()).then(t => process.stdout.write(t))";
    fetches(&["node"], &format!("node -e '{program}' $1"));
}

#[test]
fn go() {
    if !has("go") {
        return skip("go", "it is not installed");
    }
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let directory = BUILT.get_or_init(|| {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let source = directory.path().join("client.go");
        std::fs::write(&source, GO).expect("a file");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(directory.path().join("client")).arg(&source).env("CGO_ENABLED", "0");
        assert!(go.status().expect("go starts").success());
        directory
    });
    everyone(|sandbox| {
        crate::support::copy_program(directory.path().join("client"), sandbox.path("client"));
        fetches_in(sandbox, "", "./client $1/page");
    });
}

const GO: &str = "package main
import (\"io\"; \"net/http\"; \"os\")
func main() {
    answer, err := http.Get(os.Args[1])
    if err != nil { panic(err) }
    io.Copy(os.Stdout, answer.Body)
}
";

#[test]
fn java() {
    const PROGRAM: &str = "import java.net.*; import java.net.http.*;
public class C { public static void main(String[] a) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(a[0])).build();
    System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body()); } }";
    if !has("javac") {
        return skip("javac", "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.file("C.java", PROGRAM);
        fetches_in(sandbox, "", "java C.java $1/page");
    });
}

#[test]
fn ruby() {
    fetches(&["ruby"], "ruby -ropen-uri -e 'print URI.open(ARGV[0] + \"/page\").read' $1");
}

#[test]
fn php() {
    fetches(&["php"], "php -r 'echo file_get_contents($argv[1] . \"/page\");' $1");
    let curl = "$c = curl_init($argv[1] . \"/page\"); curl_setopt($c, CURLOPT_RETURNTRANSFER, true);";
    let script = format!("php -r '{curl} echo curl_exec($c);' $1");
    // Where Debian says which extensions there are.
    everyone(|sandbox| fetches_in(sandbox, "read: /etc/php", &script));
}
