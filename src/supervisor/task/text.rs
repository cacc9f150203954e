//! Files of /proc that are text.

use std::os::fd::OwnedFd;

/// The content of a file of /proc, which says no size.
pub(super) fn whole(file: OwnedFd) -> nix::Result<Vec<u8>> {
    const PAGE: usize = 4096;
    let mut content = vec![0; PAGE];
    let mut length = 0;
    loop {
        let count = nix::unistd::read(&file, &mut content[length..])?;
        length += count;
        if count == 0 {
            content.truncate(length);
            return Ok(content);
        }
        if length == content.len() {
            content.resize(length * 2, 0);
        }
    }
}

/// The value of a line of /proc/PID/status.
pub(super) fn field(status: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(status);
    text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}
