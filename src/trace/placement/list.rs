//! A list to which many launchers add: it is shortened by another file of its name, so that none is lost.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};

use nix::fcntl::{Flock, FlockArg};

use super::directory::{Directory, file_identity};

/// Opens the list `name` for reading and adding, for this launcher alone; makes it where it is missing.
pub(super) fn locked(directory: &Directory, name: &OsStr) -> io::Result<Flock<File>> {
    loop {
        let file = directory.open_list(name)?;
        let file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| io::Error::from(errno))?;
        // Whoever had the lock may have replaced it.
        let identity = file_identity(&file)?;
        if directory.entry(name)?.is_some_and(|entry| entry.identity == identity) {
            return Ok(file);
        }
    }
}

/// Replaces the list by one that holds `content`. It is `locked` meanwhile.
pub(super) fn replace(
    directory: &Directory,
    name: &OsStr,
    _locked: &Flock<File>,
    content: &[u8],
) -> io::Result<()> {
    let mut new = OsString::from(name);
    new.push(".new");
    // What was left by a launcher that was killed here.
    match directory.remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = directory.create_file(&new)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    let done = written.and_then(|()| directory.replace(&new, name));
    if done.is_err() {
        // The list is as it was.
        let _ = directory.remove_file(&new);
    }
    done
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::path::Path;

    use super::*;

    const NAME: &str = "list";

    fn content(path: &Path) -> String {
        std::fs::read_to_string(path.join(NAME)).expect("a list")
    }

    #[test]
    fn whoever_holds_the_former_list_finds_it_whole() {
        let place = tempfile::tempdir().expect("a directory");
        let (directory, name) = (Directory::open(place.path()).expect("opens"), OsStr::new(NAME));
        let mut list = locked(&directory, name).expect("a lock");
        list.write_all(b"one\n").expect("writes");
        let mut former = directory.open_file(name).expect("opens");
        // As a launcher leaves it that is killed before it renames.
        std::fs::write(place.path().join("list.new"), "half").expect("writes");
        replace(&directory, name, &list, b"two\n").expect("replaced");
        let mut text = String::new();
        former.read_to_string(&mut text).expect("reads");
        assert_eq!((text.as_str(), content(place.path()).as_str()), ("one\n", "two\n"));
        assert_eq!(place.path().read_dir().expect("lists").count(), 1);
    }

    #[test]
    fn a_list_that_was_replaced_meanwhile_is_opened_again() {
        let place = tempfile::tempdir().expect("a directory");
        let (directory, name) = (Directory::open(place.path()).expect("opens"), OsStr::new(NAME));
        let list = locked(&directory, name).expect("a lock");
        let path = place.path().join(NAME);
        let descriptors = || {
            let links = std::fs::read_dir("/proc/self/fd").expect("lists").flatten();
            links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == path)).count()
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut list = locked(&directory, name).expect("a lock");
                list.write_all(b"late\n").expect("writes");
            });
            // It has opened the list, and waits for the lock.
            while descriptors() < 2 {
                std::thread::yield_now();
            }
            replace(&directory, name, &list, b"kept\n").expect("replaced");
            drop(list);
            other.join().expect("no panic");
        });
        assert_eq!(content(place.path()), "kept\nlate\n");
    }
}
