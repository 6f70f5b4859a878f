//! What stops the reading of a log.

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("cannot read `{file}`: {error}")]
    File {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no text that can be read.
    #[error("{file}: {what}\n\nhint: {hint}")]
    Encoding {
        /// The file.
        file: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// A row is at fault.
    #[error("{file}:{line}: {fault}{hint}")]
    Row {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        fault: String,
        /// What to do, with its blank line.
        hint: String,
    },
    /// No job is left.
    #[error("{file}: there is no job with GPUs in the log{}", .without.as_str())]
    Empty {
        /// The file.
        file: String,
        /// What was left out, in words.
        without: String,
    },
}
