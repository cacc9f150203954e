//! The mount API of Linux 5.2 and 5.12: open_tree, move_mount, fsopen, mount_setattr.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::refused::Refused;

/// `struct mount_attr` of mount_setattr(2); not in libc.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}
const _: () = assert!(size_of::<MountAttr>() == 32);

/// Read-only mount.
pub const RDONLY: u64 = 0x1;
/// Set-user-ID bits have no effect.
pub const NOSUID: u64 = 0x2;
/// Device nodes cannot be opened.
pub const NODEV: u64 = 0x4;
/// Files cannot be executed or mapped executable.
pub const NOEXEC: u64 = 0x8;

fn fd(result: libc::c_long) -> io::Result<OwnedFd> {
    let raw = i32::try_from(super::checked(result)?).map_err(io::Error::other)?;
    // SAFETY: the call that gave `raw` made a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Makes a detached copy of the mount at `path` below `dir` (a link there is not followed), with everything mounted below it
/// when `recursive`.
///
/// # Errors
/// The errno of open_tree(2).
pub fn clone_tree(dir: BorrowedFd<'_>, path: &CStr, recursive: bool) -> io::Result<OwnedFd> {
    let follow = (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW).cast_unsigned();
    let mut flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | follow;
    if recursive {
        flags |= libc::AT_RECURSIVE.cast_unsigned();
    }
    // SAFETY: `path` is a C string that outlives the call.
    fd(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) })
}

/// Whether the kernel copies `tree`, a mount that is nowhere attached (Linux 6.15; EINVAL before).
#[must_use]
pub fn is_copied_unattached(tree: BorrowedFd<'_>) -> bool {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: the path is a static C string.
    fd(unsafe { libc::syscall(libc::SYS_open_tree, tree.as_raw_fd(), c"".as_ptr(), flags) }).is_ok()
}

/// Makes a detached copy of the mount at the absolute `path`, see [`clone_tree`].
///
/// # Errors
/// The errno of open_tree(2).
pub fn clone_path(path: &CStr, recursive: bool) -> io::Result<OwnedFd> {
    // SAFETY: AT_FDCWD is no descriptor; the kernel takes it for the working directory and the
    // value is not closed.
    let here = unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };
    clone_tree(here, path, recursive)
}

/// Sets `attributes` on the mount that `mount` refers to, and on all below it when `recursive`;
/// makes them private, so that nothing mounted later on the host appears inside.
///
/// # Errors
/// The errno of mount_setattr(2).
pub fn set_attributes(mount: BorrowedFd<'_>, set: u64, clear: u64, recursive: bool) -> io::Result<()> {
    let attributes =
        MountAttr { attr_set: set, attr_clr: clear, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static C string, `attributes` outlives the call and its size is given.
    super::checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    })
    .map(|_| ())
}

/// Attaches a detached mount at `path` below `dir`; a symbolic link there is not followed.
///
/// # Errors
/// The errno of move_mount(2).
pub fn attach(mount: BorrowedFd<'_>, dir: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
    const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
    // SAFETY: both paths are C strings that outlive the call.
    super::checked(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            dir.as_raw_fd(),
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH,
        )
    })
    .map(|_| ())
}

/// Creates a new file system of `kind` with string options, as a detached mount. An option with an empty value
/// is a flag.
///
/// # Errors
/// The errno of fsopen(2), fsconfig(2) or fsmount(2).
pub fn new_filesystem(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> Result<OwnedFd, Refused> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_SET_FLAG: libc::c_uint = 0;
    const FSCONFIG_SET_STRING: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    // SAFETY: `kind` is a C string that outlives the call.
    let context = fd(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })
        .map_err(Refused::by("fsopen"))?;
    for (key, value) in options {
        let (command, value) = match value.is_empty() {
            true => (FSCONFIG_SET_FLAG, std::ptr::null()),
            false => (FSCONFIG_SET_STRING, value.as_ptr()),
        };
        // SAFETY: key and value are C strings that outlive the call; a flag has no value.
        super::checked(unsafe {
            libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key.as_ptr(), value, 0)
        })
        .map_err(Refused::by("fsconfig"))?;
    }
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no key and no value.
    super::checked(unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0)
    })
    .map_err(Refused::by("fsconfig"))?;
    // SAFETY: integers only.
    fd(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) })
        .map_err(Refused::by("fsmount"))
}
