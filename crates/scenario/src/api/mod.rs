//! What the bindings call: text, numbers and tables in, text and tables out.

pub mod goal;

use std::path::{Path, PathBuf};

use crate::error::InputError;
use crate::table::{ProgressSink, TableSink};

/// Why something did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The input is at fault; exit status 2.
    Input(InputError),
    /// The run is; exit status 1.
    Run(String),
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}
