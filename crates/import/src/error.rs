//! Why a recording cannot be read: which file, where in it, what was found, what was expected, and what to do.

use std::fmt;

/// A place in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A byte of it (after decompression), from 0.
    Byte(u64),
    /// A line of it, from 1.
    Line(u64),
    /// A record of it, from 1.
    Record(u64),
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The file, or `archive:member`; several with commas.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ImportError {
    /// An error about a whole file.
    pub fn new(file: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> Self {
        let (file, expected, found) = (file.into(), expected.into(), found.into());
        Self { file, place: Place::Whole, expected, found, hint: None }
    }

    /// The same at a place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An error of the operating system or of a decoder, `read` bytes into the file.
    pub fn io(file: &str, read: u64, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{InvalidData, InvalidInput, OutOfMemory, UnexpectedEof};
        let memory = error.kind() == OutOfMemory;
        let damaged = matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof);
        let found = if damaged { format!("damaged or cut data ({error})") } else { error.to_string() };
        let error = Self::new(file, "a readable file", found).at(Place::Byte(read));
        if damaged {
            error.hint("copy the file again; `gzip -t FILE` tells whether it is whole")
        } else if memory {
            error.hint("this kind of recording is read whole: use a machine with more memory than it is long, or record less")
        } else {
            error
        }
    }

    /// Whether the file ends too soon.
    pub(crate) fn is_cut(&self) -> bool {
        self.found == END
    }

    /// A file that ends too soon.
    pub fn cut(file: &str, byte: u64, expected: impl Into<String>) -> Self {
        Self::new(file, expected, END)
            .at(Place::Byte(byte))
            .hint("the recording was cut off: let the program end before its files are copied")
    }
}

/// What is found where a file ends too soon.
const END: &str = "the end of the file";

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        match self.place {
            Place::Whole => {}
            Place::Byte(byte) => write!(f, "byte {byte}:")?,
            Place::Line(line) => write!(f, "{line}:")?,
            Place::Record(record) => write!(f, "record {record}:")?,
        }
        write!(f, " expected {}, found {}", self.expected, self.found)?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ImportError {}
