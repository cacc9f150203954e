//! Builds the image that stands in for the kernel's vDSO in replayable runs, and links the unwinder into
//! the program: a library less to be loaded at each start.

use std::path::Path;
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
    link_unwinder();
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

fn link_unwinder() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let for_this_host = std::env::var("HOST") == std::env::var("TARGET");
    if !for_this_host || !is("CARGO_CFG_TARGET_ENV", "gnu") || std::env::var_os("RUSTC_LINKER").is_some() {
        return;
    }
    // Where the compiler that links has it; it says the bare name where it has none.
    let Ok(said) = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output() else { return };
    let said = String::from_utf8_lossy(&said.stdout);
    if let Some(directory) = Path::new(said.trim()).parent().filter(|directory| directory.is_absolute()) {
        println!("cargo::rustc-link-search=native={}", directory.display());
        // As a whole: what asks for it is linked after it, where libgcc_s.so is no longer needed.
        println!("cargo::rustc-link-lib=static:+whole-archive=gcc_eh");
    }
}
