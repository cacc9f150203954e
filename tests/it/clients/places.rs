//! Hosts that keep their roots elsewhere, or nowhere; runs in which nothing is refused.

use std::path::Path;

use super::world::World;
use super::{HOST, policy, world};
use crate::support::{Ran, Sandbox, User, everyone, has, skip};

/// Runs `script` on the world's host as `before` has changed it.
fn on(world: &World, sandbox: &Sandbox, before: &str, options: &[&str], script: &str) -> Ran {
    let authority = world.authority();
    let mut all = vec!["--upstream-ca", authority.to_str().expect("text")];
    all.extend(options);
    let url = format!("https://{HOST}/ok");
    world.run_after(before, sandbox, &sandbox.run_command(&all, &["sh", "-c", script, "sh", &url]))
}

/// The page twice: as it is, and without any variable.
const TWICE: &str = "curl -sS $1/page; env -i curl -sS --proxy $https_proxy $1/page";

#[test]
fn a_bundle_behind_a_link_out_of_etc() {
    let Some(world) = world() else { return };
    everyone(|sandbox| {
        sandbox.policy(&policy("")).directory("out");
        let before = "cp /etc/ssl/certs/ca-certificates.crt /tmp/roots.$$ && mount -t tmpfs none /usr/local/share \
            && mv /tmp/roots.$$ /usr/local/share/roots.crt && mount -t tmpfs none /etc/ssl && mkdir /etc/ssl/certs \
            && ln -s ../../../usr/local/share/roots.crt /etc/ssl/certs/ca-certificates.crt";
        let script = format!("{TWICE}; readlink /etc/ssl/certs/ca-certificates.crt; echo $CURL_CA_BUNDLE");
        on(world, sandbox, before, &[], &script)
            .exits(0)
            .prints("page\npage\n../../../usr/local/share/roots.crt\n/usr/local/share/roots.crt\n");
    });
}

#[test]
fn a_host_without_any_bundle() {
    let Some(world) = world() else { return };
    everyone(|sandbox| {
        sandbox.policy(&policy("")).directory("out");
        let ran =
            on(world, sandbox, "mount -t tmpfs none /etc/ssl", &[], "curl -sS $1/page; echo $SSL_CERT_FILE");
        ran.exits(0).prints("page\n/run/agentbox/tls/roots.pem\n");
    });
}

/// As Arch has it; `trust list --filter=ca-anchors` of p11-kit reads the file so.
#[test]
fn an_anchor_for_those_that_ask_p11_kit() {
    let Some(world) = world() else { return };
    everyone(|sandbox| {
        sandbox.policy(&policy("")).directory("out");
        let before = "mount -t tmpfs none /usr/share/ca-certificates && mkdir /usr/share/ca-certificates/trust-source \
            && echo first >/usr/share/ca-certificates/trust-source/mozilla.trust.p11-kit";
        let script = "cd /usr/share/ca-certificates/trust-source; head -n 5 *; tail -n +6 * | cmp - /run/agentbox/tls/agentbox.pem";
        let anchor = "first\n\n[p11-kit-object-v1]\nlabel: \"agentbox\"\ntrusted: true\n";
        on(world, sandbox, before, &[], script).exits(0).prints(anchor);
    });
}

#[test]
fn nothing_of_the_host_is_changed() {
    let Some(world) = world() else { return };
    let places = ["/etc/ssl/certs", "/usr/local/share/ca-certificates", "/etc/ssl/certs/java"];
    let look = || -> Vec<_> {
        let listed = places.iter().flat_map(|place| std::fs::read_dir(place).into_iter().flatten());
        let state = |path: &Path| path.symlink_metadata().and_then(|status| status.modified()).ok();
        listed.flatten().map(|entry| (entry.path(), state(&entry.path()))).collect()
    };
    let before = look();
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(&policy("")).directory("out");
    for options in [&[][..], &["--observe"]] {
        on(world, &sandbox, ":", options, TWICE).exits(0).prints("page\npage\n");
    }
    assert_eq!(look(), before);
    assert!(!Path::new("/run/agentbox").exists());
}

#[test]
fn an_observed_run_is_read_as_well() {
    let Some(world) = world() else { return };
    everyone(|sandbox| {
        sandbox.policy("").directory("out");
        let mut script = TWICE.to_owned();
        if has("node") {
            script += "; node -e 'fetch(process.argv[1] + \"/page\").then(r => r.text()).then(t => console.log(t))' $1";
        } else {
            skip("node", "it is not installed");
        }
        let ran = on(world, sandbox, ":", &["--observe"], &script);
        ran.exits(0);
        assert!(ran.stdout.starts_with("page\npage\n") && !ran.of("http.exchange").is_empty(), "{ran}");
        assert!(!has("node") || ran.stdout == "page\npage\npage\n\n", "{ran}");
    });
}

#[test]
fn what_is_not_read_shows_no_authority() {
    let Some(world) = world() else { return };
    let sandbox = Sandbox::new(User::Caller);
    for (rules, options) in [
        (format!("net: {HOST} private\n"), &["--no-intercept"][..]),
        (format!("net: {HOST} private tunnel\n"), &[]),
        (String::new(), &[]),
    ] {
        sandbox.policy(&format!("read: .\nexec: /**\n{rules}"));
        let script = "echo $SSL_CERT_FILE$NODE_EXTRA_CA_CERTS; ls /run/agentbox; grep -c tls /proc/mounts";
        let ran = on(world, &sandbox, ":", options, script);
        ran.prints("\nhome\n0\n");
    }
}
