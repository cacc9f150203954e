//! Links the unwinder into the program: a library less to be loaded at each start.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
