//! Recordings of real applications as workloads: one reader a format, behind one trait.
//!
//! ```text
//! files, folders, archives → Input → Reader → Draft (ranks as recorded) → Workload
//!                                        └──→ Coverage: what was read, mapped, approximated, guessed, dropped
//! ```
//!
//! Life cycle: [`input::expand`] lists recordings, [`detect`] says of which kind one is, [`import`] reads all of one kind.
//! A [`Reader`] makes a [`Draft`](draft::Draft) of operations and calls; matching calls of all members, filling in missing
//! ranks and building programs is the same for all ([`assemble`]).
//!
//! Invariants: whatever is read is counted once ([`coverage`]); arbitrary bytes never panic; memory grows with what is there
//! and never with an announced length. Failure modes: [`ImportError`] with file, place, expected, found and hint.

#![warn(unreachable_pub)]

pub mod assemble;
mod blocks;
mod bytes;
pub mod chakra;
pub mod coverage;
pub mod draft;
pub mod dumpi;
pub mod error;
pub mod execution_trace;
pub mod flight_recorder;
pub mod input;
pub mod inspector;
pub mod json;
pub mod kineto;
pub mod liballprof;
mod lines;
mod mpi;
pub mod mpi_tracer;
mod nccl;
pub mod nccl_profiler;
pub mod nsys;
pub mod otf2;
pub mod pickle;
mod reader;
mod sqlite;
pub mod storage;
pub mod time_independent;
mod window;
pub mod xplane;

use std::path::PathBuf;

use windtunnel_kernel::nearest;
use windtunnel_workload::Workload;

pub use assemble::Missing;
pub use coverage::{Coverage, Treatment};
pub use error::{ImportError, Place};
use input::Input;
pub use reader::{Options, Reader};

/// All readers, in the order in which they are asked.
pub const READERS: [&dyn Reader; 13] = [
    &mpi_tracer::MpiTracer,
    &inspector::Inspector,
    &nccl_profiler::NcclProfiler,
    &flight_recorder::FlightRecorder,
    &chakra::Chakra,
    &xplane::XPlane,
    &nsys::Nsys,
    &kineto::Kineto,
    &dumpi::Dumpi,
    &liballprof::Liballprof,
    &time_independent::TimeIndependent,
    &storage::Storage,
    &otf2::Otf2,
];

/// The reader called `name`.
///
/// # Errors
/// [`ImportError`] with the nearest name.
pub fn reader(name: &str) -> Result<&'static dyn Reader, ImportError> {
    READERS.into_iter().find(|reader| reader.entry().name == name).ok_or_else(|| {
        let names: Vec<&str> = READERS.iter().map(|reader| reader.entry().name).collect();
        let error = ImportError::new("import", "a kind of recording", format!("`{name}`"));
        match nearest(name, names.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("there are `{}`", names.join("`, `"))),
        }
    })
}

/// The kind of a recording, if it is known.
///
/// # Errors
/// [`ImportError`] where it cannot be read.
pub fn detect(input: &Input) -> Result<Option<&'static dyn Reader>, ImportError> {
    let head = input.head(1 << 16)?;
    Ok(READERS.into_iter().find(|reader| reader.detects(&head, &input.name)))
}

/// Reads the recordings that `sources` name.
///
/// # Errors
/// [`ImportError`] where they cannot be read, or, if that is asked for, where anything is dropped.
pub fn import(
    kind: &str,
    sources: &[PathBuf],
    options: &Options,
) -> Result<(Workload, Coverage), ImportError> {
    import_inputs(reader(kind)?, &input::expand(sources)?, options)
}

/// Says of recordings without a byte what they are: a reader would miss something else first.
fn refuse_empty(reader: &dyn Reader, inputs: &[Input]) -> Result<(), ImportError> {
    for input in inputs {
        if !input.head(1)?.is_empty() {
            return Ok(());
        }
    }
    let Some(first) = inputs.first() else {
        return Err(ImportError::new("import", "at least one recording", "none"));
    };
    let found =
        if inputs.len() == 1 { "an empty file".to_owned() } else { format!("{} empty files", inputs.len()) };
    Err(ImportError::new(&first.name, format!("a recording for `{}`", reader.entry().name), found).hint(
        "it was copied before it was written, or the program ended before: let it end, and copy the files again",
    ))
}

/// The same of recordings that are already listed.
///
/// # Errors
/// As [`import`].
pub fn import_inputs(
    reader: &dyn Reader,
    inputs: &[Input],
    options: &Options,
) -> Result<(Workload, Coverage), ImportError> {
    let mut coverage = Coverage::default();
    refuse_empty(reader, inputs)?;
    let draft = reader.read(inputs, options, &mut coverage)?;
    let source = draft.source.clone();
    let workload = draft.finish(options.missing, &mut coverage)?;
    if let (true, Some(dropped)) = (options.strict, coverage.first_dropped()) {
        return Err(ImportError::new(
            source,
            "a recording of which nothing is dropped, as `--strict` asks",
            dropped,
        ));
    }
    Ok((workload, coverage))
}
