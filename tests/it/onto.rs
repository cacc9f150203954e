//! Names that a run gives to what it made elsewhere: none leads around a rule, nor to where the launcher looks.

use std::fs;

use crate::support::{Ran, Sandbox, everyone};

/// Does each act and prints `done` or the name of its errno.
const ACTS: &str = "import ctypes, errno, os
def act(function, *words):
    try: function(*words); print('done', end=' ')
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
def write(path): open(path, 'w').write('evil')
def exchange(a, b):
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, a.encode(), -100, b.encode(), 2): raise OSError(ctypes.get_errno(), '')
";

fn python(sandbox: &Sandbox, program: &str) -> Ran {
    sandbox.python(&format!("{ACTS}{program}"))
}

/// The launcher would put a trace that waits there where it says, at the end of this run or of the next one.
#[test]
fn no_state_directory_is_planted() {
    const PLANT: &str = "import json
home, target = os.path.abspath('../home'), os.path.abspath('../read')
waiting = home + '/y/state/agentbox/pending/1-1'
os.makedirs(waiting)
for path in '/y/state/agentbox', '/y/state/agentbox/pending', '/y/state/agentbox/pending/1-1': os.chmod(home + path, 0o700)
write(waiting + '/trace.jsonl')
found = os.stat(target)
journal = {'destination': target + '/planted', 'dev': found.st_dev, 'ino': found.st_ino}
open(waiting + '/journal.json', 'w').write(json.dumps(journal))
os.chdir(home); write('file'); os.symlink('y', 'link'); os.mkdir('empty')
";
    everyone(|sandbox| {
        sandbox.directory("../read");
        sandbox.policy("write: ~\nread: ../read");
        let ran = python(
            sandbox,
            &format!(
                "{PLANT}act(os.rename, 'y', '.local'); act(os.symlink, 'y', '.local'); act(os.rename, 'link', '.local')
act(os.link, 'file', '.local'); act(os.rename, 'file', '.local'); act(os.mkfifo, '.local'); act(write, '.local')
act(os.mkdir, '.local'); act(os.rename, 'y', '.local'); act(exchange, 'y', '.local'); act(exchange, '.local', 'y')
act(os.rename, 'y/state', '.local/state'); act(os.symlink, '../y/state', '.local/state'); act(os.mkdir, '.local/state')
act(os.rename, 'y/state', '.local/state'); act(exchange, '.local/state', 'y/state')
act(os.mkdir, '.local/state/agentbox'); act(os.rename, 'y/state/agentbox', '.local/state/agentbox')
act(os.mkdir, '.local/share'); act(os.rename, 'empty', '.local/lib'); act(os.symlink, 'share', '.local/doc')"
            ),
        );
        let refused = |count| "EACCES ".repeat(count);
        ran.exits(0).prints(&format!("{}done {}done {}done done done ", refused(7), refused(5), refused(4)));
        ran.denied("write", "/home/.local").denied("write", "/home/.local/state");
        assert_eq!(fs::read_dir(sandbox.beside("read")).expect("lists").count(), 0);
    });
}

#[test]
fn nothing_comes_to_a_denied_place_within_a_directory() {
    everyone(|sandbox| {
        sandbox.directory("out/conf");
        sandbox.directory("out/.git");
        sandbox.file("out/kept/.env", "secret");
        sandbox.policy(
            "write: ./out\ndeny: write ./out/conf/app.ini, **/.git/hooks, ./out/late/app/x.ini\ndeny: read **/.env",
        );
        let ran = python(
            sandbox,
            "os.chdir('out')
act(os.mkdir, '.git/hooks'); act(write, 'conf/app.ini')
os.rename('.git', 'g'); os.mkdir('g/hooks'); act(os.rename, 'g', '.git')
os.mkdir('u'); write('u/app.ini'); act(os.rename, 'u', 'conf'); act(exchange, 'u', 'conf'); act(exchange, 'conf', 'u')
os.mkdir('w'); write('w/hooks'); act(os.rename, 'w', '.git')
act(os.symlink, 'u', 'late'); act(os.mkdir, 'late'); act(os.symlink, '../u', 'late/app'); os.symlink('u', 'link')
act(os.rename, 'link', 'late/app'); act(os.link, 'link', 'late/app'); os.rmdir('late')
os.mkdir('q'); os.symlink('u', 'q/app'); act(os.rename, 'q', 'late'); act(exchange, 'link', 'conf'); act(exchange, 'conf', 'link')
print()
os.makedirs('m/.tmp-1/lib'); write('m/.tmp-1/lib/x'); act(os.rename, 'm/.tmp-1', 'm/package')
os.symlink('lib', 'm/package/link'); act(os.rename, 'm/package', 'm/other'); act(os.rename, 'kept', 'm/kept')
act(os.rename, 'm', 'n'); act(os.symlink, 'n', 'm'); act(os.rename, 'g/hooks', 'g/none'); act(os.rename, 'g', '.git2')",
        );
        ran.exits(0);
        let mut lines = ran.stdout.lines();
        let expected = format!("{}done {}", "EACCES ".repeat(8), "EACCES ".repeat(6));
        assert_eq!(lines.next(), Some(expected.as_str()), "{ran}");
        assert_eq!(lines.next(), Some("done done done done done done done "), "{ran}");
        for name in ["out/.git/hooks", "out/conf/app.ini", "out/late/app"] {
            assert!(fs::symlink_metadata(sandbox.path(name)).is_err(), "{name} was made: {ran}");
        }
    });
}
