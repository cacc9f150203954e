//! Devices that nobody inside opens, whatever is granted: files lie in them without their names.

use std::path::{Path, PathBuf};

use nix::sys::stat::{SFlag, major, minor};

use super::view::Found;

const RAW: &str = "a raw device holds the launcher's files too";
/// As userfaultfd(2) is refused, which /dev/userfaultfd stands for.
const FAULTS: &str = "userfaultfd is refused";

/// Those that the kernel gives other numbers in each boot, by their class: SCSI's (bsg), NVMe's whole controllers and
/// their namespaces as character devices, flash memory.
const RAW_CLASSES: [&str; 4] = ["bsg", "nvme", "nvme-generic", "mtd"];

/// Why `found` may not be opened, if it is such a device: block devices, and /dev/mem, kmem, port and sg (mem(4), sd(4);
/// null(4) has others of that number).
pub(super) fn refusal(found: &Found) -> Option<&'static str> {
    const MEMORY: u64 = 1;
    const SCSI_GENERIC: u64 = 21;
    // What an overlay marks removals with, which nothing drives, and tty(4), pts(4), which are opened often.
    const HARMLESS: [u64; 4] = [0, 4, 5, 136];
    let device = found.status.st_rdev;
    match found.kind() {
        SFlag::S_IFBLK => Some(RAW),
        SFlag::S_IFCHR => match major(device) {
            MEMORY => matches!(minor(device), 1 | 2 | 4).then_some(RAW),
            SCSI_GENERIC => Some(RAW),
            harmless if HARMLESS.contains(&harmless) => None,
            major => refusal_of_class(&Path::new("/sys/dev/char").join(format!("{major}:{}", minor(device)))),
        },
        _ => None,
    }
}

/// The same by what sysfs says of the device; one that it cannot tell of is refused.
fn refusal_of_class(device: &Path) -> Option<&'static str> {
    let ends = |link: PathBuf, names: &[&str]| {
        let target = link.read_link().ok()?;
        let name = target.file_name()?;
        Some(names.iter().any(|one| name == *one))
    };
    match (ends(device.join("subsystem"), &RAW_CLASSES), ends(device.to_owned(), &["userfaultfd"])) {
        (Some(false), Some(false)) => None,
        (_, Some(true)) => Some(FAULTS),
        _ => Some(RAW),
    }
}
