//! Which file an entry of written content is about: one that lost its name, was cut short or opened once more.

use serde_json::Value;

use crate::fs::sha256;
use crate::support::everyone;

fn is_of<'a>(name: &'a str) -> impl Fn(&&&Value) -> bool + 'a {
    move |entry| entry["args"]["path"].as_str().is_some_and(|path| path.ends_with(name))
}

#[test]
fn what_is_written_to_a_file_without_its_name_is_not_told_of_the_path() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = sandbox.python(
            "import os
def late(name): return os.open('out/' + name, os.O_CREAT | os.O_WRONLY)
def put(name, text):
    with open('out/' + name, 'w') as file: file.write(text)
def end(file, text): os.write(file, text); os.close(file)
file = late('deleted'); os.unlink('out/deleted'); put('deleted', 'EVIL'); end(file, b'HARMLESS')
file = late('over'); put('new', 'EVIL'); os.rename('out/new', 'out/over'); end(file, b'HARMLESS')
put('first', 'x'); os.link('out/first', 'out/second')
file = os.open('out/second', os.O_WRONLY); os.unlink('out/second'); end(file, b'EVIL')
file = late('before'); os.rename('out/before', 'out/behind'); end(file, b'EVIL')
put('same', 'EVIL'); os.link('out/same', 'out/too')
file = os.open('out/too', os.O_WRONLY); os.rename('out/same', 'out/too'); end(file, b'KEPT')",
        );
        let writes = ran.exits(0).of("fs.write");
        for name in ["deleted", "over"] {
            let (gone, there): (Vec<_>, Vec<_>) = writes
                .iter()
                .filter(is_of(&format!("out/{name}")))
                .partition(|entry| entry["args"]["unlinked"] == true);
            let digests = |entries: &[&&Value]| {
                entries.iter().map(|entry| entry["args"]["sha256"].clone()).collect::<Vec<_>>()
            };
            assert_eq!(digests(&gone).last(), Some(&Value::from(sha256("HARMLESS"))), "{name} {ran}");
            assert!(!digests(&there).contains(&Value::from(sha256("HARMLESS"))), "{name} {ran}");
        }
        for (name, text) in [("first", "EVIL"), ("behind", "EVIL"), ("too", "KEPT")] {
            let last = writes.iter().rfind(is_of(&format!("out/{name}")));
            let last = last.unwrap_or_else(|| panic!("{name} {ran}"));
            assert_eq!(last["args"]["sha256"], *sha256(text), "{name} {ran}");
            assert!(last["args"].get("unlinked").is_none(), "{name} {ran}");
        }
    });
}

#[test]
fn what_is_written_again_after_a_cut_is_recorded_again() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = sandbox.python(
            "import os
with open('out/file', 'w') as file: file.write('EVIL')
os.truncate('out/file', 0)
with open('out/file', 'r+') as file: file.write('EVIL')",
        );
        let entries = &ran.exits(0).entries;
        let cut = entries.iter().position(|entry| entry["op"] == "fs.meta").expect("a cut");
        let later = entries[cut..].iter().filter(|entry| entry["op"] == "fs.write").collect::<Vec<_>>();
        let [later] = later[..] else { panic!("{ran}") };
        assert_eq!(later["args"]["sha256"], *sha256("EVIL"), "{ran}");
        assert!(later["args"].get("unobserved").is_none(), "{ran}");
    });
}

#[test]
fn a_file_that_is_open_again_is_not_forgotten() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        // More files than are watched at a time.
        let ran = sandbox.python(
            "import os
with open('out/file', 'w') as file: file.write('one')
again = os.open('out/file', os.O_WRONLY)
for number in range(1200):
    with open(f'out/{number}', 'w') as file: file.write('x')
os.write(again, b'EVIL'); os.close(again)
os.rename('out/file', 'out/moved'); os.unlink('out/moved')",
        );
        let writes = ran.exits(0).of("fs.write");
        let last = writes.iter().rfind(is_of("out/file")).expect("an entry");
        assert_eq!(last["args"]["sha256"], *sha256("EVIL"), "{last}");
    });
}

#[test]
fn the_last_change_of_a_status_is_stored_last() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        let ran = sandbox.python(
            "import os
with open('out/file', 'w') as file: file.write('x')
for mode in (0o777, 0o600, 0o777, 0o600, 0o777): os.chmod('out/file', mode)
for text in ('EVIL', 'GOOD'):
    os.truncate('out/file', 0)
    with open('out/file', 'r+') as file: file.write(text)",
        );
        let changes = ran.exits(0).of("fs.meta");
        let modes = changes.iter().filter_map(|entry| entry["args"]["mode"].as_u64()).collect::<Vec<_>>();
        assert_eq!(modes, [0o777, 0o600, 0o777, 0o600, 0o777], "{ran}");
        let last =
            ran.entries.iter().rfind(|entry| ["fs.meta", "fs.write"].map(Value::from).contains(&entry["op"]));
        assert_eq!(last.expect("an entry")["args"]["sha256"], *sha256("GOOD"), "{ran}");
    });
}
