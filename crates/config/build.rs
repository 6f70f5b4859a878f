//! Embeds the data sheets of `data/` so that an installed engine needs no files.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

#[path = "../golden.rs"]
mod golden;

fn main() {
    golden::tell();
    let data = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../data");
    println!("cargo::rerun-if-changed={}", data.display());
    let mut code = String::from("&[\n");
    let mut folders: Vec<_> = entries(&data).into_iter().filter(|path| path.is_dir()).collect();
    folders.sort();
    for folder in folders {
        println!("cargo::rerun-if-changed={}", folder.display());
        // Folders inside hold what Python alone reads, such as constants of systems.
        for file in entries(&folder).into_iter().filter(|path| path.is_file()) {
            let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("sheet names are plain text");
            let kind =
                folder.file_name().and_then(|kind| kind.to_str()).expect("folder names are plain text");
            let path = file.canonicalize().expect("the file was just listed");
            println!("cargo::rerun-if-changed={}", path.display());
            writeln!(code, "    ({kind:?}, {stem:?}, include_str!({:?})),", path.display().to_string())
                .expect("a String takes all");
        }
    }
    code.push(']');
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("sheets.rs");
    fs::write(out, code).expect("cargo's folder can be written");
}

/// Sheets and folders in order of name.
fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .map(|entries| entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
        .unwrap_or_default();
    paths.retain(|path| {
        path.is_dir() || matches!(path.extension().and_then(|e| e.to_str()), Some("yaml" | "json"))
    });
    paths.sort();
    paths
}
