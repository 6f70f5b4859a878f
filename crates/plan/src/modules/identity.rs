//! What tells a program's modules from those of another program, or of another build of it, that go by the same names.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::inputs;

/// SHA-256 of the file that this code was loaded from, and so the modules beside it.
///
/// # Errors
/// When it cannot be found or read.
pub(super) fn of_program() -> io::Result<&'static str> {
    static FOUND: OnceLock<String> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let digest = inputs::of_file(&own_file()?)?;
    Ok(FOUND.get_or_init(|| digest))
}

/// The program, or the shared library of it that another program such as Python has loaded.
fn own_file() -> io::Result<PathBuf> {
    let here = of_program as fn() -> io::Result<&'static str>;
    mapped(here as usize).map_or_else(env::current_exe, Ok)
}

/// The file whose code is at `address`, where the system tells (Linux).
fn mapped(address: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let bound = |text: &str| usize::from_str_radix(text, 16).ok();
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let within = (bound(from)?..bound(to)?).contains(&address);
        within.then(|| rest.find('/').map(|start| PathBuf::from(&rest[start..])))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_a_program_of_its_own() {
        let (found, program) = (own_file().unwrap(), env::current_exe().unwrap());
        assert_eq!(found.canonicalize().unwrap(), program.canonicalize().unwrap());
        assert_eq!(of_program().unwrap(), inputs::of_file(&program).unwrap());
    }
}
