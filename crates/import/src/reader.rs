//! What every format of recordings is: a [`Reader`], and what it may be asked.

use windtunnel_kernel::registry::Entry;

use crate::assemble::Missing;
use crate::coverage::Coverage;
use crate::draft::Draft;
use crate::error::ImportError;
use crate::input::Input;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether anything that is dropped is an error.
    pub strict: bool,
    /// Ranks that were not recorded.
    pub missing: Missing,
    /// FLOP/s of a rank, where a recording counts operations in place of time.
    pub flops: Option<f64>,
    /// Of storage: the architecture of the service, by name or as a file `*.yaml`; `replicated` if left out.
    pub architecture: Option<String>,
}

/// A format of recordings.
pub trait Reader: Sync {
    /// Its name, and a line about it.
    fn entry(&self) -> &'static Entry;
    /// Whether a file that begins with `head` is of this kind.
    fn detects(&self, head: &[u8], name: &str) -> bool;
    /// Reads the recordings of all ranks.
    ///
    /// # Errors
    /// [`ImportError`] where a recording cannot be read or says too little.
    fn read(
        &self,
        inputs: &[Input],
        options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError>;
}
