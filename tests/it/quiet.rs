//! `--quiet`: nothing is said but what is wrong.

use std::fs;

use crate::support::{everyone, skip};

#[test]
fn a_run_says_nothing_of_its_own() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        sandbox.policy("read: ~/.ssh\nexec: nosuchprogram\nsecret: UNSET_TOKEN -> host.test\nnet: host.test");
        let command = ["sh", "-c", "echo out; echo err >&2; cat secret.txt 2>&1; exit 3"];
        for quiet in ["-q", "--quiet"] {
            let ran = sandbox.run_with(&[quiet], &command);
            ran.exits(3);
            assert_eq!(ran.stderr, "err\n", "{ran}");
            assert!(!ran.denials("exec").is_empty(), "{ran}");
        }
        // A mistake is told all the same, and so is what cannot be done.
        sandbox.policy("raed: .");
        sandbox.agentbox(&["run", "-q", "-p", "../agentbox.policy", "true"]).exits(2).complains("raed");
        sandbox.policy("");
        sandbox
            .agentbox(&["run", "-q", "-p", "../agentbox.policy", "nosuchprogram"])
            .exits(127)
            .complains("nosuchprogram");
    });
}

#[test]
fn readers_and_replays_say_what_is_wrong() {
    everyone(|sandbox| {
        sandbox.policy("read: .");
        let input = sandbox.file("input.txt", "one\n");
        let ran = sandbox.run_with(&["-q"], &["python3", "-c", "print(open('input.txt').read(), end='')"]);
        ran.exits(0).prints("one\n");
        assert_eq!(ran.stderr, "", "{ran}");
        let trace = sandbox.trace();
        let name = trace.to_str().expect("a name").to_owned();
        let silent = |words: &[&str]| {
            let said = sandbox.agentbox(words);
            assert_eq!((said.exits(0).stderr.as_str(), said.stdout.as_str()), ("", ""), "{said}");
        };
        silent(&["verify", "-q", &name]);
        silent(&["show", "-q", &name, "--op", "nothing.*"]);
        let replay = ["replay", "-q", "-t", &name];
        if sandbox.agentbox(&replay).stderr.contains("overlay") {
            return skip("replays", "no overlays here");
        }
        let again = sandbox.agentbox(&replay);
        again.exits(0).prints("one\n");
        assert_eq!(again.stderr, "", "{again}");
        fs::write(&input, "two\n").expect("the input");
        sandbox.agentbox(&replay).exits(1).complains("input.txt").complains("nothing was run");
        let forced = sandbox.agentbox(&["replay", "-q", "--force", "-t", &name]);
        forced.exits(1).prints("two\n").complains("replay diverged");

        let whole = fs::read(&trace).expect("the trace");
        fs::write(&trace, &whole[..whole.len() - 20]).expect("the trace");
        assert!(sandbox.agentbox(&["verify", "-q", &name]).exits(3).stdout.contains("torn"));
        sandbox.agentbox(&["show", "-q", &name]).exits(0).complains("torn");
        fs::write(&trace, String::from_utf8_lossy(&whole).replacen("input.txt", "inqut.txt", 1))
            .expect("the trace");
        assert!(sandbox.agentbox(&["verify", "-q", &name]).exits(1).stdout.contains("TAMPERED"));
    });
}
