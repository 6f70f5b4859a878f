//! Compiles `use.c` against the header and the shared library with the system's C compiler, as strictly as it can, and
//! runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts the libraries that a test is built with: beside the test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("target/PROFILE/deps/test").to_owned()
}

#[test]
fn c_code_routes_by_rule() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = libraries().join("windtunnel-routing-use");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-D_POSIX_C_SOURCE=200809L"])
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join("tests/use.c"))
        .arg("-L")
        .arg(libraries())
        .arg("-lwindtunnel_routing")
        .arg(format!("-Wl,-rpath,{}", libraries().display()))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler is needed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(&program).output().expect("it was just compiled");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(String::from_utf8_lossy(&run.stdout), "routed by rule\n");
}
