//! The last look at the end of a run: what no close of a written file explains.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::fs::sha256;
use crate::support::everyone;

#[test]
fn what_nothing_but_the_last_look_finds_is_recorded_as_unobserved() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.policy("write: ./out");
        // More files than are watched at a time come between the last close and the last store.
        let ran = sandbox.python(
            "import mmap, os
with open('out/file', 'w') as file: file.write('..........')
with open('out/file', 'r+b') as file: memory = mmap.mmap(file.fileno(), 0)
with open('out/file', 'r+b') as file: file.write(b'1')
for number in range(1200):
    with open(f'out/{number}', 'w') as file: file.write('x')
memory[1:2] = b'2'",
        );
        let writes = ran.exits(0).of("fs.write");
        let own = |entry: &&&serde_json::Value| {
            entry["args"]["path"].as_str().is_some_and(|path| path.ends_with("out/file"))
        };
        let last = writes.iter().rfind(own).expect("an entry");
        assert_eq!(last["args"]["sha256"], *sha256("12........"), "{last}");
        assert_eq!(last["args"]["unobserved"], true, "{last}");
        let unobserved = writes.iter().filter(|entry| entry["args"].get("unobserved").is_some());
        assert_eq!(unobserved.count(), 1, "{last}");
    });
}

#[test]
fn the_last_look_finds_what_was_renamed_closed_or_set_back() {
    everyone(|sandbox| {
        sandbox.directory("out/many");
        sandbox.policy("write: ./out");
        let ran = sandbox.python(
            "import mmap, os
def mapped(name):
    with open(name, 'w+b') as file:
        file.write(b'harmless..'); file.flush()
        memory = mmap.mmap(file.fileno(), 0)
    with open(name, 'r+b') as file: file.write(b'H')
    return memory
os.makedirs('out/closed/more')
maps = [mapped('out/' + name) for name in ('mode', 'link', 'over', 'closed/more/way')]
with open('out/before', 'w+b') as file:
    file.write(b'harmless..'); file.flush()
    maps.append(mmap.mmap(file.fileno(), 0))
with open('out/before', 'r+b') as file:
    os.link('out/before', 'out/behind'); os.unlink('out/before')
    file.write(b'H')
late = os.open('out/late', os.O_CREAT | os.O_WRONLY); os.write(late, b'harmless..')
with open('out/late', 'r+b') as file: file.write(b'H')
for number in range(1200):
    with open(f'out/many/{number}', 'w') as file: file.write('x')
os.chmod('out/mode', 0)
os.link('out/link', 'out/other'); os.unlink('out/link')
os.link('out/over', 'out/under'); os.rename('out/many/1', 'out/over')
times = os.fstat(late)
os.pwrite(late, b'EVIL', 0)
os.utime('out/late', ns=(times.st_atime_ns, times.st_mtime_ns))
for memory in maps: memory[:4] = b'EVIL'
os.chmod('out/closed/more', 0); os.chmod('out/closed', 0)",
        );
        let writes = ran.exits(0).of("fs.write");
        for name in ["mode", "link", "over", "late", "closed/more/way", "before"] {
            let is_last = |entry: &&&serde_json::Value| {
                entry["args"]["path"].as_str().is_some_and(|path| path.ends_with(&format!("out/{name}")))
                    && entry["args"]["unobserved"] == true
            };
            let last = writes.iter().rfind(is_last).unwrap_or_else(|| panic!("{name}: {ran}"));
            assert_eq!(last["args"]["sha256"], *sha256("EVILless.."), "{last}");
        }
        let unobserved = writes.iter().filter(|entry| entry["args"].get("unobserved").is_some());
        assert_eq!(unobserved.count(), 6, "{ran}");
        // As the run left them.
        for name in ["out/closed", "out/closed/more"] {
            let status = std::fs::metadata(sandbox.path(name)).expect("there");
            assert_eq!(status.permissions().mode() & 0o777, 0, "{name}");
            std::fs::set_permissions(sandbox.path(name), std::fs::Permissions::from_mode(0o755))
                .expect("chmod");
        }
    });
}

#[test]
fn the_last_look_opens_no_directory_behind_a_link() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.directory("other/closed");
        let closed = sandbox.path("other/closed");
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o600)).expect("a mode");
        let changed = || std::fs::metadata(&closed).map(|status| (status.ctime(), status.ctime_nsec())).ok();
        let before = changed();
        sandbox.policy("write: ./out");
        // More files than are watched at a time come between.
        let ran = sandbox.python(
            "import os
os.makedirs('out/way/closed')
with open('out/way/closed/file', 'w+') as file: file.write('x')
for number in range(1200):
    with open(f'out/{number}', 'w') as file: file.write('x')
os.unlink('out/way/closed/file'); os.removedirs('out/way/closed'); os.symlink('../other', 'out/way')",
        );
        ran.exits(0);
        assert_eq!(changed(), before);
    });
}

/// Such as a box into which everybody may drop.
#[test]
fn what_may_be_written_and_not_read_is_written_without_a_digest() {
    everyone(|sandbox| {
        sandbox.directory("out");
        sandbox.file("out/drop", "");
        let drop = sandbox.path("out/drop");
        let closed = std::fs::Permissions::from_mode(0o222);
        std::fs::set_permissions(&drop, closed).expect("a mode");
        if nix::unistd::geteuid().is_root() {
            // Another user's, where there can be one.
            std::os::unix::fs::chown(&drop, Some(12_345), Some(12_345)).expect("an owner");
        }
        sandbox.policy("write: ./out");
        let ran = sandbox.python("with open('out/drop', 'a') as file: file.write('in')\nprint('done')");
        ran.exits(0).prints("done\n");
        let writes = ran.of("fs.write");
        assert!(
            writes
                .iter()
                .any(|entry| entry["args"]["path"].as_str().is_some_and(|path| path.ends_with("out/drop"))),
            "{ran}"
        );
    });
}
