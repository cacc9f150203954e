//! git through its own HTTP server: fetching goes, pushing does not.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::vocabulary::rules;
use crate::support::{everyone, has, skip};

/// Runs git's server program for each request, as a web server does (git-http-backend(1)).
const SERVER: &str = r#"
import http.server, os, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def handle_it(self):
        path, _, query = self.path.partition("?")
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else: body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        env = dict(os.environ, GIT_PROJECT_ROOT=sys.argv[1], GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path, QUERY_STRING=query,
            REQUEST_METHOD=self.command, CONTENT_TYPE=self.headers.get("Content-Type", ""), CONTENT_LENGTH=str(len(body)),
            HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""), GIT_PROTOCOL=self.headers.get("Git-Protocol", ""))
        out = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE).stdout
        head, _, content = out.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((value for name, value in fields if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, value in fields:
            if name != "Status": self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    do_GET = do_POST = handle_it
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A server with the repository `owner/repo.git`; ended with the test.
struct Server {
    child: Child,
    port: u16,
    root: TempDir,
}

impl Server {
    fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let repository = root.path().join("owner/repo.git");
        fs::create_dir_all(&repository).expect("a directory");
        git(&repository, &["init", "-q", "--bare", "-b", "main", "."]);
        git(&repository, &["config", "http.receivepack", "true"]);
        let work = root.path().join("work");
        git(root.path(), &["clone", "-q", "owner/repo.git", "work"]);
        fs::write(work.join("file"), "one\n").expect("written");
        git(&work, &["add", "file"]);
        git(&work, &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "one"]);
        git(&work, &["push", "-q", "origin", "HEAD:main"]);
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", SERVER])
            .arg(root.path())
            .env("HOME", root.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server");
        let mut port = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("its output"));
        said.read_line(&mut port).expect("its port");
        Self { child, port: port.trim().parse().expect("a port"), root }
    }

    /// What the repository's branch is.
    fn head(&self) -> String {
        git(&self.root.path().join("owner/repo.git"), &["rev-parse", "main"])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(directory).env("HOME", directory).env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().expect("git");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

const WORK: &str = "set -e
git clone -q http://HOST/owner/repo.git c; cd c; cat file
git fetch -q origin; git ls-remote -q origin main >/dev/null
echo two >file; git -c user.name=t -c user.email=t@t commit -qam two
git push -q origin HEAD:main && echo pushed || echo refused";

#[test]
fn fetching_goes_and_pushing_does_not() {
    if !has("git") || !has("python3") || !Path::new("/usr/lib/git-core/git-http-backend").exists() {
        return skip("git", "git, its HTTP server or python3 is not installed");
    }
    everyone(|sandbox| {
        let server = Server::start();
        let (port, host) = (server.port, format!("127.0.0.1:{}", server.port));
        let base = "include: profile/git\nwrite: .\nexec: cat\n";
        let before = server.head();
        let rules = rules("git: fetch", &[("github.com:443", port)]).replace("OWNER/REPO", "owner/repo");
        sandbox.policy(&format!("{base}{rules}"));
        let ran = sandbox.run(&["sh", "-c", &WORK.replace("HOST", &host)]);
        ran.exits(0).prints("one\nrefused\n").complains("403");
        assert_eq!(server.head(), before, "{ran}");
        let denial = ran.recorded("net", "url", "/owner/repo.git/git-receive-pack");
        assert_eq!(denial["args"]["method"], "POST", "{ran}");
        // The whole host, and the same words: the server itself refuses nothing.
        sandbox.policy(&format!("{base}net: {host}\n"));
        let ran = sandbox.run(&["sh", "-c", &WORK.replace("HOST", &host).replace(" c; cd c", " d; cd d")]);
        ran.exits(0).prints("one\npushed\n").denied_nothing();
        assert_ne!(server.head(), before, "{ran}");
    });
}
