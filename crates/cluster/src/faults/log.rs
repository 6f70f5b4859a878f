//! A log of faults: CSV with the columns `time_s` and `repair_s` (seconds, decimals allowed) and `component` (a name), in any
//! order and perhaps among others; times count from the start of the run.
//!
//! Failure modes: a column that is missing, a hole, a number that is none, all with file and line. A lenient reader leaves
//! such rows out and counts them.

use std::path::Path;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedFault {
    /// Line of the file, counted from 1.
    pub line: u64,
    /// When, in nanoseconds.
    pub at: u64,
    /// What, by name.
    pub component: String,
    /// Nanoseconds until it worked again.
    pub repair: u64,
}

/// What is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultLogError {
    /// The file.
    #[error("cannot read `{file}`: {why}")]
    File {
        /// Its name.
        file: String,
        /// What the system says.
        why: String,
    },
    /// A column is missing.
    #[error("{file}:1: no column `{column}`, found `{}`", found.join("`, `"))]
    Column {
        /// The file.
        file: String,
        /// Its name.
        column: &'static str,
        /// Those that there are.
        found: Vec<String>,
    },
    /// A value is missing.
    #[error("{file}:{line}: `{column}` is empty")]
    Hole {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
    },
    /// A value is no time.
    #[error("{file}:{line}: `{column}`: expected seconds from 0 on, found `{found}`")]
    Number {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// What is there.
        found: String,
    },
}

const COLUMNS: [&str; 3] = ["time_s", "component", "repair_s"];

/// Longest time in seconds: a hundred years.
const LONGEST: f64 = 100.0 * 365.0 * 86_400.0;

/// Reads a log; returns also how many rows a `lenient` reader has left out.
///
/// # Errors
/// [`FaultLogError`]; of rows only if not `lenient`.
pub fn read(path: &Path, lenient: bool) -> Result<(Vec<LoggedFault>, u64), FaultLogError> {
    let file = path.display().to_string();
    let unreadable = |why: String| FaultLogError::File { file: path.display().to_string(), why };
    let mut begin = [0; 8];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read(&mut file, &mut begin));
    let length = read.map_err(|error| unreadable(error.to_string()))?;
    if let Some((what, hint)) = crate::log::not_utf8(&begin[..length]) {
        return Err(unreadable(format!("{what}\n\nhint: {hint}")));
    }
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .flexible(true)
        .from_path(path)
        .map_err(|error| unreadable(error.to_string()))?;
    let header = reader.headers().map_err(|error| unreadable(error.to_string()))?.clone();
    let mut places = [0; 3];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let found = || header.iter().map(str::to_owned).collect();
        *place = header.iter().position(|name| name == column).ok_or_else(|| FaultLogError::Column {
            file: file.clone(),
            column,
            found: found(),
        })?;
    }
    let (mut faults, mut left_out) = (Vec::new(), 0);
    for record in reader.records() {
        let record = record.map_err(|error| unreadable(error.to_string()))?;
        match row(&record, places, &file) {
            Ok(fault) => faults.push(fault),
            Err(_) if lenient => left_out += 1,
            Err(error) => return Err(error),
        }
    }
    faults.sort_by_key(|fault| fault.at);
    Ok((faults, left_out))
}

fn row(record: &csv::StringRecord, places: [usize; 3], file: &str) -> Result<LoggedFault, FaultLogError> {
    let line = record.position().map_or(0, csv::Position::line);
    let text = |which: usize| match record.get(places[which]) {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(FaultLogError::Hole { file: file.to_owned(), line, column: COLUMNS[which] }),
    };
    let seconds = |which: usize| {
        let found = text(which)?;
        match found.parse::<f64>() {
            Ok(value) if (0.0..=LONGEST).contains(&value) => Ok((value * 1e9).round() as u64),
            _ => {
                let (file, column, found) = (file.to_owned(), COLUMNS[which], found.to_owned());
                Err(FaultLogError::Number { file, line, column, found })
            }
        }
    };
    Ok(LoggedFault { line, at: seconds(0)?, component: text(1)?.to_owned(), repair: seconds(2)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, text: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("windtunnel-faults-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder of temporary files can be written");
        let path = folder.join(name);
        std::fs::write(&path, text).expect("and so can a file in it");
        path
    }

    #[test]
    fn a_log_in_utf_16_is_called_so() {
        let path = written("wide.csv", "");
        let wide: Vec<u8> =
            "\u{feff}time_s,component,repair_s\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        std::fs::write(&path, wide).expect("it can be written");
        let error = read(&path, true).expect_err("it cannot be read").to_string();
        assert!(error.contains("the file is in UTF-16, expected UTF-8\n\nhint: `iconv"), "{error}");
    }

    #[test]
    fn rows_come_in_order_of_time_whatever_the_columns() {
        let path =
            written("good.csv", "component, note, repair_s, time_s\nhost3, x, 60, 12.5\nleaf0,, 0, 1\n");
        let (faults, left_out) = read(&path, false).expect("it is whole");
        let seen: Vec<_> = faults.iter().map(|f| (f.at, f.component.as_str(), f.repair, f.line)).collect();
        assert_eq!(seen, [(1_000_000_000, "leaf0", 0, 3), (12_500_000_000, "host3", 60_000_000_000, 2)]);
        assert_eq!(left_out, 0);
    }

    #[test]
    fn holes_are_refused_with_their_line_or_counted() {
        let path =
            written("holes.csv", "time_s,component,repair_s\n1,host0,5\n,host1,5\n3,host2,soon\n4,host3\n");
        let error = read(&path, false).expect_err("line 3 has a hole").to_string();
        assert!(error.ends_with("holes.csv:3: `time_s` is empty"), "{error}");
        let (faults, left_out) = read(&path, true).expect("lenient");
        assert_eq!((faults.len(), left_out), (1, 3));
        let path = written("column.csv", "time,component,repair_s\n1,host0,5\n");
        let error = read(&path, true).expect_err("a column is missing").to_string();
        assert!(error.ends_with("no column `time_s`, found `time`, `component`, `repair_s`"), "{error}");
        let path = written("number.csv", "time_s,component,repair_s\n-1,host0,5\n");
        let error = read(&path, false).expect_err("before the start").to_string();
        assert!(error.ends_with(":2: `time_s`: expected seconds from 0 on, found `-1`"), "{error}");
    }
}
