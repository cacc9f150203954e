//! What a run keeps of the files that it changes, so that it can be replayed from there.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Ran, Sandbox, everyone};

/// The `before` of the entries of `op` for `path`, in order.
fn before(sandbox: &Sandbox, ran: &Ran, op: &str, name: &str) -> Vec<Value> {
    let path = sandbox.path(name);
    let path = path.to_str().expect("text");
    let of = |entry: &Value| {
        let args = &entry["args"];
        let at = args.get("resolved").unwrap_or(&args["path"]);
        at == path && entry["op"] == op
    };
    ran.entries.iter().filter(|entry| of(entry)).map(|entry| entry["args"]["before"].clone()).collect()
}

/// The content of a blob.
fn content(sandbox: &Sandbox, reference: &Value) -> Vec<u8> {
    let name = reference["blob"].as_str().expect("a reference");
    let file = fs::File::open(sandbox.beside(format!("trace.jsonl.blobs/{name}.zst"))).expect("a blob");
    zstd::decode_all(file).expect("zstd")
}

#[test]
fn what_was_there_is_kept_at_the_first_change() {
    everyone(|sandbox| {
        sandbox.policy(
            "write: .\nexec: sh\nexec: cat\nexec: rm\nexec: mv\nexec: chmod\nexec: ln\nexec: mkdir\n",
        );
        sandbox.file("old", "first\n");
        sandbox.file("gone", "deleted\n");
        sandbox.file("moved", "moved\n");
        sandbox.file("mode", "mode\n");
        sandbox.link("old", "link");
        let ran = sandbox.run(&[
            "sh",
            "-c",
            "echo second > old; echo third >> old; rm gone link; mv moved new; echo x > new; \
             chmod 600 mode; echo y > mode; mkdir made; echo z > made/file; rm made/file; ln -s a sym",
        ]);
        ran.exits(0);
        let [first, second] = before(sandbox, &ran, "fs.open_write", "old").try_into().expect("two");
        assert_eq!(
            (&first["type"], &first["size"], &first["mode"]),
            (&json!("file"), &json!(6), &json!(0o644))
        );
        assert_eq!(content(sandbox, &first["content"]), b"first\n");
        assert!(first["content"]["private"] == true && second.is_null());
        let [gone] = before(sandbox, &ran, "fs.delete", "gone").try_into().expect("one");
        assert_eq!(content(sandbox, &gone["content"]), b"deleted\n");
        let [link] = before(sandbox, &ran, "fs.delete", "link").try_into().expect("one");
        assert_eq!((&link["type"], &link["target"]), (&json!("symlink"), &json!("old")));
        let [moved] = before(sandbox, &ran, "fs.rename", "moved").try_into().expect("one");
        assert_eq!(content(sandbox, &moved["content"]), b"moved\n");
        let rename = ran.entries.iter().find(|entry| entry["op"] == "fs.rename").expect("is there");
        assert_eq!(rename["args"]["before_to"], "absent");
        assert_eq!(before(sandbox, &ran, "fs.open_write", "new"), [Value::Null]);
        let [mode] = before(sandbox, &ran, "fs.meta", "mode").try_into().expect("one");
        assert!(mode.get("content").is_none() && mode["mode"] == 0o644);
        let [mode] = before(sandbox, &ran, "fs.open_write", "mode").try_into().expect("one");
        assert_eq!(content(sandbox, &mode["content"]), b"mode\n");
        assert_eq!(before(sandbox, &ran, "fs.mkdir", "made"), [json!("absent")]);
        assert_eq!(before(sandbox, &ran, "fs.open_write", "made/file"), [json!("absent")]);
        assert_eq!(before(sandbox, &ran, "fs.delete", "made/file"), [Value::Null]);
        assert_eq!(before(sandbox, &ran, "fs.symlink", "sym"), [json!("absent")]);
        fs::remove_file(sandbox.path("sym")).expect("is there");
    });
}

#[test]
fn what_is_below_a_renamed_directory_is_kept_under_its_first_name() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: sh\nexec: mv\nexec: mkdir\n");
        sandbox.file("a/f", "first\n");
        let ran = sandbox.run(&[
            "sh",
            "-c",
            "mv a b; echo second > b/f; echo new > b/g; mkdir a; echo third > a/f",
        ]);
        ran.exits(0);
        let [directory] = before(sandbox, &ran, "fs.rename", "a").try_into().expect("one");
        assert_eq!(directory["type"], "dir");
        let [file] = before(sandbox, &ran, "fs.open_write", "b/f").try_into().expect("one");
        assert_eq!(file["at"], sandbox.path("a/f").to_str().expect("text"));
        assert_eq!(content(sandbox, &file["content"]), b"first\n");
        let [new] = before(sandbox, &ran, "fs.open_write", "b/g").try_into().expect("one");
        assert_eq!(new, json!({"at": sandbox.path("a/g").to_str(), "type": "absent"}));
        assert_eq!(before(sandbox, &ran, "fs.open_write", "a/f"), [Value::Null]);
    });
}
