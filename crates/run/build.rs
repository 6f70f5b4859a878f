//! A number for the sources that figures come from, so that what another engine has left is not taken for this one's.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../sheets.rs"]
mod sheets;

/// Rooms whose code decides what a run gives.
const ROOMS: [&str; 9] =
    ["kernel", "topology", "workload", "fabric", "cluster", "backend", "plan", "config", "run"];

fn main() {
    let mut files = vec![PathBuf::from("../../Cargo.lock")];
    for room in ROOMS {
        let folder = PathBuf::from(format!("../{room}/src"));
        println!("cargo::rerun-if-changed={}", folder.display());
        gather(&folder, &mut files);
    }
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    // Figures come from the constants of sheets as well.
    files.extend(sheets::embedded(Path::new("../../data")));
    files.sort();
    // FNV-1a, 64 bits: no more is asked of it than to differ.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut take = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for file in files {
        take(file.to_string_lossy().as_bytes());
        // A package without a lock file has none to differ in.
        take(&fs::read(&file).unwrap_or_default());
    }
    println!("cargo::rustc-env=WINDTUNNEL_BUILD={hash:016x}");
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.push(path);
        }
    }
}
