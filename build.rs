//! Builds the image that stands in for the kernel's vDSO in replayable runs, and links the C library and the unwinder
//! into the program: nothing is loaded and looked up at each start.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The image is mapped as it is: it needs nothing of any library, and nothing in it is to be relocated.
const IMAGE: [&str; 19] = [
    "-O2",
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-jump-tables",
    "-fcf-protection=none",
    "-fvisibility=hidden",
    "-mgeneral-regs-only",
    "-s",
    "-Wl,-soname=linux-vdso.so.1",
    "-Wl,--hash-style=both",
    "-Wl,--build-id=none",
    "-Wl,-z,max-page-size=4096",
    "-Wl,-z,noexecstack",
    "-Wl,--no-undefined",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    build_image();
    link_libraries();
}

fn build_image() {
    let (source, layout) = ("src/sys/vdso/image.c", "src/sys/vdso/image.ld");
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed={layout}");
    println!("cargo::rerun-if-env-changed=CC");
    let output = std::env::var("OUT_DIR").expect("cargo names a directory");
    let compiler = std::env::var("CC").unwrap_or_default();
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words).args(IMAGE).arg(format!("-Wl,-T,{layout}")).arg(source);
    let ended = command.arg("-o").arg(Path::new(&output).join("clock.vdso")).status();
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{source} was not compiled: {status}: {command:?}"),
        Err(error) => {
            panic!("{source} needs a C compiler, as the linking does (set CC): {error}: {command:?}")
        }
    }
}

fn link_libraries() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let for_this_host = std::env::var("HOST") == std::env::var("TARGET");
    if !for_this_host || !is("CARGO_CFG_TARGET_ENV", "gnu") || std::env::var_os("RUSTC_LINKER").is_some() {
        return;
    }
    // What asks for libgcc_s.so gets by that name what is not in the unwinder.
    if !offer(
        "unwinder",
        &[("libgcc_eh.a", "libgcc_eh.a"), ("libgcc_s.a", "libgcc.a")],
        "rustc-link-search=native=",
    ) {
        return;
    }
    // As a whole: what asks for it is linked after it.
    println!("cargo::rustc-link-lib=static:+whole-archive=gcc_eh");
    let is_static = std::env::var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|features| features.split(',').any(|feature| feature == "crt-static"));
    if !is_static {
        link_c_library();
    }
}

/// As `-C target-feature=+crt-static` does, which cannot be asked for here, nor for the program alone. Where there is no
/// such library the program loads the shared one.
fn link_c_library() {
    const LIBRARIES: [&str; 6] = ["libc.a", "libm.a", "libdl.a", "libpthread.a", "librt.a", "libutil.a"];
    // The linker takes the first directory that has a library of the name, be it shared or not.
    if found("rcrt1.o").is_some() && offer("c", &LIBRARIES.map(|name| (name, name)), "rustc-link-arg-bins=-L")
    {
        println!("cargo::rustc-link-arg-bins=-static-pie");
        // A linker that goes through the libraries once has it before the C library, which needs it too.
        println!("cargo::rustc-link-arg-bins=-lgcc");
    }
}

/// Makes a directory with these names for files of the compiler, and names it by `word`; false where one is missing.
fn offer(directory: &str, names: &[(&str, &str)], word: &str) -> bool {
    let output = std::env::var("OUT_DIR").expect("cargo names a directory");
    let directory = Path::new(&output).join(directory);
    let Some(files) = names.iter().map(|(_, file)| found(file)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    std::fs::create_dir_all(&directory).expect("the directory of cargo can be written");
    for ((name, _), file) in names.iter().zip(files) {
        let link = directory.join(name);
        if std::fs::read_link(&link).is_ok_and(|former| former == file) {
            continue;
        }
        // There may be another.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(file, &link).expect("the directory of cargo can be written");
    }
    println!("cargo::{word}{}", directory.display());
    true
}

/// Where the compiler that links has a file.
fn found(name: &str) -> Option<PathBuf> {
    let said = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    // It says the bare name where it has none.
    let path = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
    (path.is_absolute() && path.exists()).then_some(path)
}
