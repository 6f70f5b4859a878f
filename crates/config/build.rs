//! Embeds the data sheets of `data/` so that an installed engine needs no files.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

#[path = "../golden.rs"]
mod golden;
#[path = "../sheets.rs"]
mod sheets;

fn main() {
    golden::tell();
    let data = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../data");
    let mut code = String::from("&[\n");
    for file in sheets::embedded(&data) {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("sheet names are plain text");
        let folder = file.parent().and_then(Path::file_name);
        let kind = folder.and_then(|kind| kind.to_str()).expect("folder names are plain text");
        let path = file.canonicalize().expect("the file was just listed");
        writeln!(code, "    ({kind:?}, {stem:?}, include_str!({:?})),", path.display().to_string())
            .expect("a String takes all");
    }
    code.push(']');
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("sheets.rs");
    fs::write(out, code).expect("cargo's folder can be written");
}
