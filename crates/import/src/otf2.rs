//! OTF2 archives (Score-P): known, and refused.
//!
//! An archive is an anchor file, global definitions and an event file for each location, in chunks with compressed numbers and time
//! stamps of their own. Which part is whose, and what a communicator's members are, stands in the definitions alone; a file by itself
//! says neither.

use windtunnel_kernel::registry::Entry;

use crate::coverage::Coverage;
use crate::draft::Draft;
use crate::error::ImportError;
use crate::input::Input;
use crate::{Options, Reader};

/// OTF2.
pub struct Otf2;

impl Reader for Otf2 {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("otf2", "OTF2 archives of Score-P: known, and refused with what to do instead") }
    }

    fn detects(&self, head: &[u8], name: &str) -> bool {
        let end = std::path::Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or("");
        head.starts_with(b"OTF2")
            || matches!(end, "otf2" | "evt")
            || (end == "def" && head.first().is_some_and(|byte| *byte < 32))
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        _coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        Err(ImportError::new(
            &inputs[0].name,
            "a kind of recording that is read",
            "an OTF2 archive, which is not read yet",
        )
        .hint("record with liballprof or DUMPI, whose traces are read (`liballprof`, `dumpi`)"))
    }
}
