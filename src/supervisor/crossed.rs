//! What a path goes through on its way: the directories and links that decide where it leads.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::sys::stat::SFlag;

use super::view::View;

/// Links that a path may cross (path_resolution(7)).
const LINKS: usize = 40;

impl View {
    /// Every directory and link that leads from the root to what `absolute` names, the links of
    /// links included; and the directories that `..` leads out of.
    pub(super) fn crossed(&self, absolute: &[u8]) -> nix::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        let split = |path: &[u8]| path.split(|&b| b == b'/').rev().map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (mut left, mut at, mut links) = (split(absolute), PathBuf::from("/"), 0);
        let (mut crossed, mut parted) = (Vec::new(), Vec::new());
        while let Some(name) = left.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    parted.push(at.clone());
                    at.pop();
                    continue;
                }
                name => at.push(OsStr::from_bytes(name)),
            }
            crossed.push(at.clone());
            let found = self.find(at.as_os_str().as_bytes(), false)?;
            if found.kind() != SFlag::S_IFLNK {
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(Errno::ELOOP);
            }
            let target = readlinkat(&found.file, c"")?.into_vec();
            if target.first() == Some(&b'/') {
                at = PathBuf::from("/")
            } else {
                at.pop();
            }
            left.extend(split(&target));
        }
        Ok((crossed, parted))
    }
}
