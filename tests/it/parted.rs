//! Where two runs part: what parted them is named before what followed from it, and what cannot differ is not named.

use std::fs;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::{Sandbox, Server, User};

/// What one answer leads to: a file, and programs that read it.
const LED: &str = r#"
import http.client, subprocess
link = http.client.HTTPConnection("127.0.0.1", PORT)
link.request("GET", "/" + open("word").read(), headers={"authorization": "Bearer abc"})
if link.getresponse().status != 200: raise SystemExit("no answer")
open("in1").read()
for _ in range(4): subprocess.run(["cat", "in1"])
"#;

#[test]
fn the_request_that_parted_the_runs_comes_before_what_followed() {
    let sandbox = Sandbox::new(User::Caller);
    let server = Server::paths(&Arc::new(Mutex::new("answer")));
    sandbox.policy(&format!("read: .\nexec: python3\nexec: cat\nnet: 127.0.0.1:{}\n", server.port));
    sandbox.file("in1", "in1");
    sandbox.file("word", "one");
    sandbox.file("agent.py", LED.replace("PORT", &server.port.to_string()));
    let run = || sandbox.run(&["python3", "agent.py"]);
    run().exits(0);
    let trace = sandbox.trace();
    let text = trace.to_str().expect("text");
    sandbox.file("word", "two");
    let ran = sandbox.agentbox(&["replay", "-t", text, "--force", "--json"]);
    let line = ran.exits(1).stderr.lines().find(|line| line.starts_with('{')).expect("a verdict");
    let verdict: Value = serde_json::from_str(line).expect("JSON");
    let told: Vec<_> = verdict["divergences"].as_array().expect("a list").iter().collect();
    let classes: Vec<_> = told.iter().map(|one| one["class"].as_str().expect("text")).collect();
    assert_eq!(classes[..2], ["input-changed", "request-changed"], "{ran}");
    assert!(!classes.contains(&"missing-effect"), "{ran}");
    let further = verdict["further"].as_array().expect("a list").iter();
    let spawned = |one: &&Value| one["class"] == "missing-effect" && one["op"] == "proc.spawn";
    assert_eq!(further.clone().find(spawned).expect("they are counted")["count"], 4, "{ran}");
    let ran = sandbox.agentbox(&["replay", "-t", text, "--force"]);
    ran.exits(1).complains(" further differences, behind these: missing-effect ");
    // One that the report names can be looked at.
    let number = told[1]["recorded"]["i"].to_string();
    let shown = sandbox.agentbox(&["show", text, "--entry", &number]);
    assert!(shown.exits(0).stdout.contains(&format!("GET http://127.0.0.1:{}/one", server.port)), "{shown}");
    assert!(
        shown.stdout.contains("\n    \"method\": \"GET\",\n") && !shown.stdout.contains("fs.open"),
        "{shown}"
    );
    // Each run names the credential by a key of its own, and that is no difference.
    let first = sandbox.beside("first.jsonl");
    fs::rename(&trace, &first).expect("moves");
    fs::rename(sandbox.beside("trace.jsonl.blobs"), sandbox.beside("first.jsonl.blobs")).expect("moves");
    sandbox.file("word", "one");
    run().exits(0);
    let ran = sandbox.agentbox(&["diff".as_ref(), first.as_os_str(), trace.as_os_str()]);
    assert!(ran.exits(0).stdout.contains("secrets are not compared"), "{ran}");
    assert!(!ran.stdout.contains("redacted:"), "{ran}");
    let ran = sandbox.agentbox(&["diff".as_ref(), trace.as_os_str(), trace.as_os_str()]);
    assert!(!ran.exits(0).stdout.contains("secrets"), "{ran}");
}
