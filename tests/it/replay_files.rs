//! What a run keeps of the files that it changes, so that it can be replayed from there.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::{Ran, Running, Sandbox, everyone, nothing_is_held, tree};

/// What the scripts start.
const PROGRAMS: &str = "exec: cat\nexec: ls\nexec: rm\nexec: mv\nexec: ln\nexec: mkdir\nexec: chmod\n";

/// The `before` of the entries of `op` for `path`, in order.
fn before(sandbox: &Sandbox, ran: &Ran, op: &str, name: &str) -> Vec<Value> {
    let path = sandbox.path(name);
    let path = path.to_str().expect("text");
    let of = |entry: &Value| {
        let args = &entry["args"];
        let at = args.get("resolved").unwrap_or_else(|| &args["path"]);
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
        let ran = record(
            sandbox,
            &[
                "sh",
                "-c",
                "echo second > old; echo third >> old; rm gone link; mv moved new; echo x > new; \
             chmod 600 mode; echo y > mode; mkdir made; echo z > made/file; rm made/file; ln -s a sym",
            ],
        );
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
        let ran = record(
            sandbox,
            &["sh", "-c", "mv a b; echo second > b/f; echo new > b/g; mkdir a; echo third > a/f"],
        );
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

/// Runs what can be replayed.
fn record(sandbox: &Sandbox, words: &[&str]) -> Ran {
    sandbox.run_with(&[], words)
}

/// Replays what [`record`] recorded: the host's files stay as they are.
fn replay(sandbox: &Sandbox, options: &[&str]) -> Ran {
    let before = tree(sandbox);
    let trace = sandbox.trace();
    let words = [&["replay", "-t", trace.to_str().expect("text")], options].concat();
    let ran = sandbox.agentbox(&words);
    assert_eq!(tree(sandbox), before, "the host's files\n{ran}");
    ran
}

#[test]
fn a_replay_writes_nothing_and_starts_from_the_first_state() {
    everyone(|sandbox| {
        sandbox.policy(&format!("write: .\nwrite: ../apart/file\nwrite: ../new\n{PROGRAMS}"));
        sandbox.file("old", "first\n");
        sandbox.file("a/deep/f", "moved\n");
        sandbox.file("a/g", "stays\n");
        sandbox.file("gone/x", "deleted\n");
        sandbox.file("../apart/file", "apart\n");
        sandbox.link("old", "link");
        let script = "set -e; cat old; echo second >> old; cat old; rm link; ln -s a link; mv a b; cat b/deep/f; \
             echo changed > b/deep/f; rm -r gone; mkdir gone; echo again > gone/x; cat ../apart/file; \
             echo more >> ../apart/file; mkdir ../new; echo n > ../new/n; cat ../new/n; ls b gone; \
             mkdir -p made/deep; echo z > made/deep/z; mv made/deep/z made/y; mv made other; cat other/y; chmod 600 b/g";
        let ran = record(sandbox, &["sh", "-c", script]);
        ran.exits(0);
        let again = replay(sandbox, &[]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
        // A second one, and one that keeps what it writes.
        let kept = sandbox.beside("kept");
        replay(sandbox, &["--keep", kept.to_str().expect("text")]).exits(0);
        let at = |name: &str| {
            let path = sandbox.path("").join(name);
            let path = fs::canonicalize(path).expect("is there");
            fs::read_to_string(kept.join(path.strip_prefix("/").expect("absolute")))
                .unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        assert_eq!(at("old"), "first\nsecond\n");
        assert_eq!(at("b/deep/f"), "changed\n");
        assert_eq!(at("../apart/file"), "apart\nmore\n");
        assert_eq!(at("../new/n"), "n\n");
        assert_eq!(at("other/y"), "z\n");
        replay(sandbox, &["--keep", kept.to_str().expect("text")]).complains("not empty");
    });
}

#[test]
fn a_changed_input_is_named_before_anything_runs() {
    everyone(|sandbox| {
        sandbox.policy(&format!("write: .\nread: ../in\n{PROGRAMS}"));
        sandbox.file("../in/a", "first\n");
        sandbox.file("../in/b", "first\n");
        let ran = record(sandbox, &["sh", "-c", "cat ../in/a ../in/b; cat ../in/c; echo x > out"]);
        ran.exits(0);
        replay(sandbox, &[]).exits(0).complains("replay ok");
        sandbox.file("../in/a", "second\n");
        sandbox.file("../in/c", "new\n");
        let again = replay(sandbox, &[]);
        again.exits(1).prints("").complains("../in/a".trim_start_matches("..")).complains("in/c has changed");
        replay(sandbox, &["--force"]).exits(1).prints("second\nfirst\nnew\n");
    });
}

#[test]
fn a_file_that_was_deleted_after_the_run_is_put_back() {
    everyone(|sandbox| {
        sandbox.policy(&format!("write: .\n{PROGRAMS}"));
        sandbox.file("f", "first\n");
        let ran = record(sandbox, &["sh", "-c", "cat f; echo second > f; mkdir d; echo x > d/x"]);
        ran.exits(0);
        fs::remove_file(sandbox.path("f")).expect("is there");
        fs::remove_dir_all(sandbox.path("d")).expect("is there");
        replay(sandbox, &[]).exits(0).prints("first\n").complains("replay ok");
    });
}

/// Runs `script` with `input` as standard input, as a pipe or as a file, and replays it without.
fn with_input(sandbox: &Sandbox, script: &str, input: &[u8], file: bool) -> (Ran, Ran) {
    let mut command = sandbox.run_command(&[], &["sh", "-c", script]);
    let recorded = if file {
        let path = sandbox.file("../input", input);
        command.stdin(fs::File::open(path).expect("opens"));
        Running::start(command).finish()
    } else {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        command.stdin(reader);
        let input = input.to_vec();
        // The command may end before it has read everything.
        let feeder = std::thread::spawn(move || writer.write_all(&input).is_ok());
        let ran = Running::start(command).finish();
        feeder.join().expect("ends");
        ran
    };
    let again = replay(sandbox, &[]);
    (recorded, again)
}

#[test]
fn standard_input_is_given_again() {
    everyone(|sandbox| {
        sandbox.policy(&format!("write: .\n{PROGRAMS}exec: wc\nexec: stat\nexec: head\n"));
        let script = "stat -L -c %F /proc/self/fd/0 2>&1; read line; echo \"$line\"; cat > copy; wc -c copy";
        let mut input = b"first\n".to_vec();
        input.extend((0..300_000u32).flat_map(u32::to_le_bytes));
        for file in [false, true] {
            let (ran, again) = with_input(sandbox, script, &input, file);
            ran.exits(0);
            assert!(ran.stdout.contains("first\n1200000 copy\n"), "{ran}");
            assert_eq!(ran.stdout.contains("regular file"), file, "{ran}");
            again.exits(0).prints(&ran.stdout).complains("replay ok");
        }
        let (ran, again) = with_input(sandbox, "head -c 5 && echo", &input, false);
        ran.exits(0).prints("first\n");
        again.exits(0).prints("first\n").complains("replay ok");
    });
}

#[test]
fn directories_list_their_names_in_the_same_order() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nexec: python3\n");
        for at in 0..12 {
            sandbox.file(format!("old/{}", at * 7919), "x");
            sandbox.file(format!("tree/sub{}/{at}", at % 3), "x");
        }
        let script = "
import os, shutil
print(os.listdir('old'))
os.mkdir('new')
for at in range(1000): open(f'new/{at * 104729}', 'w')
print(os.listdir('new'))
for at in range(0, 12, 2): os.unlink(f'old/{at * 7919}')
for at in range(5): open(f'old/n{at}', 'w')
print(os.listdir('old'), list(os.walk('tree')))
os.rename('tree', 'moved')
print(list(os.walk('moved')))
directory = os.open('new', os.O_RDONLY)
print(os.listdir(directory), os.listdir(directory))
shutil.rmtree('new')
print(sorted(os.listdir('.')))
";
        let ran = record(sandbox, &["python3", "-c", script]);
        ran.exits(0);
        replay(sandbox, &[]).exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

#[test]
fn what_programs_do_with_files_works_in_overlays() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nwrite: ../other\nexec: python3\n");
        sandbox.directory("../other");
        sandbox.file("old", "old\n");
        sandbox.file("base.db", "");
        let script = "
import errno, fcntl, mmap, os, socket, sqlite3, tempfile
def attempt(what, *args):
    try: return what(*args)
    except OSError as error: return errno.errorcode[error.errno]
with open('old', 'r+b') as one, open('old', 'rb') as two:
    fcntl.flock(one, fcntl.LOCK_EX); print(attempt(fcntl.flock, two, fcntl.LOCK_SH | fcntl.LOCK_NB))
    mapped = mmap.mmap(one.fileno(), 4); mapped[:3] = b'new'; mapped.close(); print(two.read())
os.link('old', 'linked'); open('linked', 'a').write('more\\n'); print(open('old').read(), os.stat('old').st_nlink)
print(attempt(os.rename, 'old', '../other/old'))
os.symlink('old', 'link'); print(os.readlink('link')); os.replace('link', 'link2')
server = socket.socket(socket.AF_UNIX); server.bind('socket'); server.listen()
client = socket.socket(socket.AF_UNIX); client.connect('socket'); client.send(b'hello'); print(server.accept()[0].recv(5))
with tempfile.TemporaryFile(dir='.') as nameless: nameless.write(b'x'); print(nameless.tell())
fd = os.open('excl', os.O_CREAT | os.O_EXCL | os.O_RDWR); print(attempt(os.open, 'excl', os.O_CREAT | os.O_EXCL))
os.ftruncate(fd, 5); os.chmod('excl', 0o600); os.utime('excl', (1, 1)); print(os.stat('excl').st_mtime)
os.setxattr('excl', 'user.x', b'v'); print(os.getxattr('excl', 'user.x'))
base = sqlite3.connect('base.db'); base.execute('pragma journal_mode=wal'); base.execute('create table t(x)')
base.execute('insert into t values(7)'); base.commit(); print(base.execute('select * from t').fetchall()); base.close()
";
        let ran = record(sandbox, &["python3", "-c", script]);
        ran.exits(0);
        replay(sandbox, &[]).exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

#[test]
fn a_killed_replay_leaves_nothing() {
    everyone(|sandbox| {
        sandbox.policy(&format!("write: .\n{PROGRAMS}exec: sleep\n"));
        record(sandbox, &["sh", "-c", "echo x > f; sleep 1"]).exits(0);
        let before = tree(sandbox);
        let trace = sandbox.trace();
        let mut command = sandbox.command(&["replay", "--paced", "-t", trace.to_str().expect("text")]);
        command.stdout(std::process::Stdio::null());
        let running = Running::start(command);
        std::thread::sleep(std::time::Duration::from_millis(400));
        running.signal(nix::sys::signal::Signal::SIGKILL);
        running.finish();
        nothing_is_held(sandbox);
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        assert!(!mounts.contains(sandbox.path("").to_str().expect("text")));
        assert_eq!(tree(sandbox), before);
        // The next one clears what it left in the state directory.
        replay(sandbox, &[]).exits(0);
        let left = fs::read_dir(sandbox.beside("state/agentbox/replays")).map_or(0, Iterator::count);
        assert_eq!(left, 0);
    });
}

#[test]
fn a_place_in_what_is_only_read_is_absent_again() {
    everyone(|sandbox| {
        sandbox.policy(&format!("read: .\nwrite: ./out\nwrite: ./new\n{PROGRAMS}"));
        let script = "ls; mkdir out; echo x > out/r; ls out; echo n > new; cat new; ls";
        let ran = record(sandbox, &["sh", "-c", script]);
        ran.exits(0);
        replay(sandbox, &[]).exits(0).prints(&ran.stdout).complains("replay ok");
        fs::remove_dir_all(sandbox.path("out")).expect("is there");
        fs::remove_file(sandbox.path("new")).expect("is there");
        replay(sandbox, &[]).exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

#[test]
fn a_replay_does_not_see_its_own_trace() {
    everyone(|sandbox| {
        for access in ["read", "write"] {
            sandbox.policy(&format!("{access}: .\n{PROGRAMS}"));
            sandbox.file("f", "x\n");
            let script = "ls -a; cat f; cat trace.jsonl; cat trace.jsonl.blobs; ls *";
            // The second one finds the first one's under another name.
            for _ in 0..2 {
                let ran = sandbox.agentbox(&["run", "-p", "../agentbox.policy", "--", "sh", "-c", script]);
                assert!(ran.stdout.contains("f\nx\n") || ran.stdout.contains("trace.jsonl.1\n"), "{ran}");
                let before = tree(sandbox);
                sandbox.agentbox(&["replay"]).exits(0).prints(&ran.stdout).complains("replay ok");
                assert_eq!(tree(sandbox), before);
            }
        }
    });
}

#[test]
fn directories_that_were_deleted_after_the_run_are_there_again() {
    everyone(|sandbox| {
        sandbox.policy(&format!("read: .\nwrite: ./out\n{PROGRAMS}"));
        sandbox.directory("out/a/deep");
        let script = "set -e; echo x > out/a/deep/f; echo y > out/g; mkdir out/new; echo z > out/new/z; ls out out/a; \
                      cat out/a/deep/f out/new/z";
        let ran = record(sandbox, &["sh", "-c", script]);
        ran.exits(0);
        for gone in ["out/a/deep", "out/a", "out"] {
            fs::remove_dir_all(sandbox.path(gone)).expect("is there");
            replay(sandbox, &[]).exits(0).prints(&ran.stdout).complains("replay ok");
        }
    });
}

#[test]
fn what_the_run_has_for_itself_is_no_input() {
    everyone(|sandbox| {
        // Reads are judged one by one.
        sandbox.policy(&format!("read: /etc\ndeny: read **/.env\nexec: cp\nexec: /tmp/**\n{PROGRAMS}"));
        let script = "cat /etc/passwd; cp /bin/echo /tmp/made; exec /tmp/made out";
        let ran = record(sandbox, &["sh", "-c", script]);
        ran.exits(0);
        let is_own = |op: &str, path: &str| {
            let of = ran.of(op).into_iter().filter(|entry| entry["args"]["path"] == path);
            of.map(|entry| entry["args"]["own"] == true).collect::<Vec<_>>()
        };
        assert_eq!(is_own("fs.open_read", "/etc/passwd"), [true], "{ran}");
        assert_eq!(is_own("proc.image", "/tmp/made"), [true], "{ran}");
        replay(sandbox, &[]).exits(0).prints(&ran.stdout).complains("replay ok");
    });
}

#[test]
fn files_that_nobody_may_read_are_kept_and_compared() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out\nexec: sh");
        sandbox.directory("out");
        let script = "umask 777; echo locked >out/lock; umask 477; echo written >out/write";
        let ran = sandbox.run(&["sh", "-c", script]);
        let written = ran.exits(0).of("fs.write");
        assert_eq!(written.len(), 2, "{ran}");
        assert!(written.iter().all(|entry| entry["args"]["sha256"].is_string()), "{ran}");
        for (name, mode) in [("lock", 0), ("write", 0o200)] {
            let file = fs::metadata(sandbox.path(format!("out/{name}"))).expect("a file");
            assert_eq!(file.permissions().mode() & 0o777, mode, "{name}");
        }
        let trace = sandbox.trace();
        let replayed = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("a name")]);
        replayed.exits(0).complains("agentbox: replay ok");
    });
}
