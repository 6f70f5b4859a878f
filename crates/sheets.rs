//! Part of build scripts: which files of `data/` are embedded in the engine, where the constants of its figures stand.

use std::fs;
use std::path::{Path, PathBuf};

/// The files that stand in the folders of `data`, by folder and name, and tells cargo to look at them.
pub fn embedded(data: &Path) -> Vec<PathBuf> {
    println!("cargo::rerun-if-changed=../sheets.rs");
    println!("cargo::rerun-if-changed={}", data.display());
    let mut found = Vec::new();
    for folder in entries(data).into_iter().filter(|path| path.is_dir()) {
        println!("cargo::rerun-if-changed={}", folder.display());
        // Folders inside hold what Python alone reads, such as constants of systems.
        for file in entries(&folder).into_iter().filter(|path| path.is_file()) {
            println!("cargo::rerun-if-changed={}", file.display());
            found.push(file);
        }
    }
    found
}

/// Sheets and folders in order of name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .map(|entries| entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
        .unwrap_or_default();
    paths.retain(|path| {
        path.is_dir() || matches!(path.extension().and_then(|e| e.to_str()), Some("yaml" | "json"))
    });
    paths.sort();
    paths
}
