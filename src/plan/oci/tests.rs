//! A plan that is written and read is the same plan, and a changed document is a changed plan or refused.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{HooksBuilder, LinuxNamespaceType, Spec};
use serde_json::{Value, json};

use super::super::{HostFacts, LaunchPlan, PlanError, Request, intercepts};
use crate::fsview::{LandlockRule, Link, MountKind, Right};
use crate::policy::{FileId, LaunchHost, parse};
use crate::supervisor::access::Protected;
use crate::{command, fsview};

const POLICIES: [&str; 6] = [
    "",
    "read: ./data\nwrite: ./out\ndeny: read ./data/secret, deny: write ./out/kept\n",
    "read: ./**/*.txt\ndeny: read **/.env\nwrite: ./later/there\n",
    "net: example.org:443, *.example.com, cidr/10.0.0.0/8:5432, localhost:8080, unix:/run/some.sock\n",
    "exec: git status, cat\nexec: ./data/tool\nenv: HOME, LC_*, GREETING=hello\n",
    "runtime: ./data\nread: /dev/null\nread: ~/.config\n",
];

/// A launch directory with a few files.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["data", "out"] {
        std::fs::create_dir(directory.path().join(name)).expect("a directory");
    }
    for name in ["data/secret", "data/tool", "out/kept"] {
        std::fs::write(directory.path().join(name), name).expect("a file");
    }
    directory
}

fn plan(cwd: &Path, policy: &str, enforce: bool) -> LaunchPlan {
    let mut facts = HostFacts::gather().expect("facts");
    facts.cwd = cwd.canonicalize().expect("it exists");
    facts.environment = vec![("PATH".into(), "/usr/bin:/bin".into()), ("HOME".into(), "/root".into())];
    let host = LaunchHost::with(facts.cwd.clone(), facts.environment.clone());
    let policy = parse(policy, "agentbox.policy", &host).expect("a policy");
    let typed: Vec<OsString> = ["cat", "data/in.txt"].map(OsString::from).to_vec();
    let command = command::resolve(&typed, &facts.environment, &facts.cwd).expect("a command");
    let protected = vec![Protected {
        path: cwd.join("trace.jsonl"),
        id: Some(FileId { dev: 1, ino: 2 }),
        unlisted: true,
    }];
    let (facts, authority) = (&facts, intercepts(&policy, enforce).then_some("certificate"));
    let (placeholders, replay) = (Vec::new(), enforce);
    let request =
        Request { policy, command, typed, facts, protected, enforce, authority, placeholders, replay };
    LaunchPlan::new(request, &host)
}

/// Through the text that is printed.
fn through_text(plan: &LaunchPlan) -> Result<LaunchPlan, PlanError> {
    let text = serde_json::to_string_pretty(&plan.to_spec()?).expect("text");
    LaunchPlan::from_spec(&serde_json::from_str(&text).expect("the same document"))
}

/// What comes of a document after `change`.
fn changed(change: impl FnOnce(&mut Value)) -> Result<LaunchPlan, String> {
    let directory = directory();
    let spec = plan(directory.path(), POLICIES[1], true).to_spec().expect("a document");
    let mut document = serde_json::to_value(spec).expect("JSON");
    change(&mut document);
    let spec: Spec = serde_json::from_value(document).map_err(|error| error.to_string())?;
    LaunchPlan::from_spec(&spec).map_err(|error| error.to_string())
}

#[test]
fn every_plan_comes_back() {
    let directory = directory();
    for policy in POLICIES {
        for enforce in [true, false] {
            let plan = plan(directory.path(), policy, enforce);
            assert_eq!(through_text(&plan).expect("it reads"), plan, "{policy}");
        }
    }
}

#[test]
fn bytes_that_are_no_text_come_back() {
    let odd = || OsString::from_vec(b"/a\xff\n\\x\xf4\x8f\xbb\xbf\x80".to_vec());
    let directory = directory();
    let mut plan = plan(directory.path(), POLICIES[1], true);
    plan.process.argv.push(odd());
    plan.process.env.push((odd(), odd()));
    plan.process.env.push(("=odd".into(), "a=b".into()));
    plan.process.cwd = odd().into();
    if let Some(MountKind::Bind { source, .. }) = plan.fs.mounts.first_mut().map(|op| &mut op.kind) {
        *source = odd().into();
    }
    if let Some(mask) = plan.fs.mounts.last_mut() {
        mask.target = odd().into();
    }
    plan.fs.links.push(Link { path: odd().into(), target: odd() });
    let content = fsview::Content::Bytes(odd().into_vec());
    plan.fs.files.push(fsview::GeneratedFile { path: odd().into(), content });
    plan.landlock.push(LandlockRule { path: odd().into(), right: Right::Read });
    plan.access.protected.push(Protected { path: odd().into(), id: None, unlisted: false });
    plan.access.private.push(odd().into());
    plan.unix.push(odd().into());
    assert_eq!(through_text(&plan).expect("it reads"), plan);
    assert!(matches!(plan.to_portable_spec(), Err(PlanError::NotText { .. })));
}

#[test]
fn the_document_says_what_oci_has_fields_for() {
    let directory = directory();
    let cwd = directory.path().canonicalize().expect("it exists");
    let spec = plan(&cwd, POLICIES[1], true).to_portable_spec().expect("a document");
    let document = serde_json::to_value(&spec).expect("JSON");
    assert_eq!(document["process"]["args"], json!(["/usr/bin/cat", "data/in.txt"]));
    assert_eq!(document["process"]["noNewPrivileges"], json!(true));
    assert_eq!(document["process"]["capabilities"]["bounding"], json!([]));
    assert_eq!(document["root"], json!({"path": "rootfs", "readonly": true}));
    let masks = document["linux"]["maskedPaths"].as_array().expect("masks");
    assert_eq!(masks[0], json!(cwd.join("data/secret")));
    // What this host has of it.
    assert!(masks[1..].iter().all(|mask| mask.as_str().is_some_and(|path| path.starts_with("/proc/"))));
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().clone()).expect("namespaces");
    assert_eq!(namespaces.len(), 7);
    assert!(namespaces.iter().any(|one| one.typ() == LinuxNamespaceType::User));
    let mounts = document["mounts"].as_array().expect("mounts");
    let at =
        |path: PathBuf| mounts.iter().find(|mount| mount["destination"] == json!(path)).expect("a mount");
    assert_eq!(at(cwd.join("data"))["options"], json!(["rbind", "rro", "rnosuid", "rnodev"]));
    assert_eq!(at("/proc".into())["type"], json!("proc"));
    assert!(mounts.iter().all(|mount| mount["destination"] != json!("/dev/null")));
}

#[test]
fn a_dropped_mount_is_dropped() {
    let without = changed(|document| {
        let mounts = document["mounts"].as_array_mut().expect("mounts");
        mounts.retain(|mount| mount["destination"] != json!("/usr"));
    });
    let plan = without.expect("it reads");
    assert!(plan.fs.mounts.iter().all(|op| op.target != Path::new("/usr")));
}

#[test]
fn what_the_launch_would_not_do_is_refused() {
    let refused = |change: fn(&mut Value), word: &str| {
        let error = changed(change).expect_err(word);
        assert!(error.contains(word), "{error}");
    };
    refused(|document| document["process"]["noNewPrivileges"] = json!(false), "`process`");
    refused(
        |document| document["process"]["capabilities"]["bounding"] = json!(["CAP_SYS_ADMIN"]),
        "`process`",
    );
    refused(|document| document["process"]["args"] = json!([]), "process.args");
    refused(|document| document["root"]["readonly"] = json!(false), "`root`");
    refused(|document| document["linux"]["sysctl"] = json!({"kernel.msgmax": "1"}), "`linux`");
    refused(|document| document["linux"]["namespaces"] = json!([{"type": "pid"}]), "`linux`");
    refused(|document| document["linux"]["uidMappings"][0]["hostID"] = json!(4_000_000), "`linux`");
    refused(|document| document["ociVersion"] = json!("9.0.0"), "`ociVersion`");
    refused(|document| document["mounts"][0]["options"] = json!(["rbind", "ro"]), "option `ro`");
    refused(|document| document["mounts"][0]["type"] = json!("overlay"), "a type");
    refused(|document| document["annotations"]["agentbox.guard"] = json!("{}"), "agentbox.guard");
    refused(|document| document["annotations"]["agentbox.devices"] = json!("[\"/dev/mem\"]"), "/dev/mem");
    refused(|document| document["annotations"]["agentbox.new"] = json!("1"), "agentbox.new");
    refused(
        |document| {
            document["annotations"].as_object_mut().expect("annotations").remove("agentbox.landlock");
        },
        "agentbox.landlock",
    );
}

#[test]
fn hooks_are_refused_and_foreign_annotations_are_not_ours() {
    let directory = directory();
    let plan = plan(directory.path(), "", true);
    let mut spec = plan.to_spec().expect("a document");
    if let Some(annotations) = spec.annotations_mut() {
        annotations.insert("org.example.note".to_owned(), "kept".to_owned());
    }
    assert_eq!(LaunchPlan::from_spec(&spec).expect("it reads"), plan);
    spec.set_hooks(Some(HooksBuilder::default().build().expect("hooks")));
    assert!(matches!(LaunchPlan::from_spec(&spec), Err(PlanError::Unsupported { member: "hooks" })));
}

#[test]
fn a_mask_before_a_mount_has_no_place_in_the_document() {
    let directory = directory();
    let mut plan = plan(directory.path(), POLICIES[1], true);
    plan.fs.mounts.reverse();
    assert!(matches!(plan.to_spec(), Err(PlanError::MaskOrder { .. })));
}
