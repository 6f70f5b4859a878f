//! Files that are never half-written: written beside their target and renamed onto it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::{Compression, GzBuilder};

/// Calls `write` with an output that becomes `path` only if all goes well; compressed by gzip if `path` ends in `.gz`.
pub(crate) fn write_beside(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path names no file"))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.partial", std::process::id()));
    let beside = path.with_file_name(beside);
    let result = File::create(&beside).and_then(|file| {
        let mut buffered = BufWriter::with_capacity(1 << 18, file);
        if path.extension().is_some_and(|extension| extension == "gz") {
            // No time stamp: the same content gives the same bytes.
            let mut encoder = GzBuilder::new().write(&mut buffered, Compression::default());
            write(&mut encoder)?;
            encoder.finish()?;
        } else {
            write(&mut buffered)?;
        }
        buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&beside, path)
    });
    if result.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&beside);
    }
    result
}
