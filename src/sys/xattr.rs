//! Extended attributes and modes of an open file, whatever way it was opened.

use std::ffi::CStr;
use std::io;

/// Sets extended attribute `name` of the file at `path` (followed).
///
/// # Errors
/// The errno of setxattr(2).
pub fn set(path: &CStr, name: &CStr, value: &[u8], flags: i32) -> io::Result<()> {
    // SAFETY: path and name are C strings, `value` is a slice given with its length.
    let result =
        unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) };
    super::checked(libc::c_long::from(result)).map(|_| ())
}

/// Removes extended attribute `name` of the file at `path` (followed).
///
/// # Errors
/// The errno of removexattr(2).
pub fn remove(path: &CStr, name: &CStr) -> io::Result<()> {
    // SAFETY: path and name are C strings that outlive the call.
    super::checked(libc::c_long::from(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) })).map(|_| ())
}
