//! On files that programs made.

use std::path::Path;
use std::process::Command;

use super::explains_by_time;

/// What `script` makes as `out`, from a file `f` of that time with that content.
fn made(script: &str, time: &str, content: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("f"), content).expect("writes");
    let script = format!("touch -d '{time}' f && {script}");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).current_dir(directory.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let ran = command.output().expect("runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    std::fs::read(directory.path().join("out")).expect("is made")
}

fn has(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|directory| Path::new(&directory).join(program).exists())
}

/// Two files that differ in the time of `f` are the same; two that differ in its content are not.
fn check(program: &str, script: &str) {
    if !has(program) {
        return;
    }
    let one = made(script, "2020-01-02 03:04:06", "x = 1\n");
    let later = made(script, "2021-02-03 04:05:08", "x = 1\n");
    let other = made(script, "2021-02-03 04:05:08", "x = 2\n");
    assert_ne!(one, later, "{script}");
    assert!(explains_by_time(&one, &later).is_some(), "{script}");
    assert_eq!(explains_by_time(&one, &other), None, "{script}");
}

#[test]
fn compiled_modules_of_python() {
    check("python3", "python3 -c 'import py_compile; py_compile.compile(\"f\", cfile=\"out\")'");
}

#[test]
fn indexes_of_git() {
    check("git", "git init -q . && git add f && cp .git/index out");
    check(
        "git",
        "git init -q . && git config index.version 4 && mkdir d && cp -p f d && git add f d && cp .git/index out",
    );
}

#[test]
fn archives() {
    check("tar", "tar -cf out f");
    check("tar", "tar -cf out --format=pax f");
    check("tar", "tar -czf out f");
    check("zip", "zip -q out.zip f && mv out.zip out");
    check("python3", "python3 -c 'import zipfile; zipfile.ZipFile(\"out\", \"w\").write(\"f\")'");
    check("ar", "ar rcU out f");
    check("gzip", "gzip f && mv f.gz out");
}

#[test]
fn what_is_cut_short_is_not_explained() {
    let tar = made("tar -cf out f", "2020-01-02", "x\n");
    for end in [0, 3, 12, 262, 512, 600, 1024] {
        let _ = explains_by_time(&tar[..end], &tar);
    }
    let zip: &[u8] = b"PK\x03\x04\xff\xff\xff\xff";
    assert_eq!(explains_by_time(zip, b"PK\x03\x04"), None);
    assert_eq!(explains_by_time(b"DIRC\0\0\0\x02\xff\xff\xff\xff", b"DIRC\0\0\0\x02\xff\xff\xff\xfe"), None);
}

#[test]
fn entries_of_go_s_cache() {
    let entry = |digest: &str, time: u64| {
        format!("v1 {} {} {:20} {time:20}\n", digest.repeat(64), "b".repeat(64), 5).into_bytes()
    };
    assert!(explains_by_time(&entry("a", 1_796_000_930_396_649_896), &entry("a", 17)).is_some());
    assert_eq!(explains_by_time(&entry("a", 1), &entry("c", 1)), None);
    let mut wrong = entry("a", 2);
    wrong[172] = b'x';
    assert_eq!(explains_by_time(&entry("a", 1), &wrong), None);
}
