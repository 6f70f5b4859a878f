//! liballprof's traces (collprof 0.9), the input of Schedgen and ATLAHS: text, one file a rank, one call a line.
//!
//! `MPI_NAME:start:argument:…:end`, times in µs; a datatype is `id,size,extent`, a communicator `id,rank,size`. Of arguments that are
//! addresses the trace has the address: flags of tests, indices, arrays of requests.

mod calls;
mod communicators;
mod line;

use rustc_hash::FxHashMap;
use windtunnel_kernel::registry::Entry;

use crate::coverage::Coverage;
use crate::draft::Draft;
use crate::error::ImportError;
use crate::input::Input;
use crate::lines::Lines;
use crate::mpi::{Script, Tags};
use crate::{Options, Reader};
use calls::Replay;
use communicators::{Communicators, Tests};
use line::LineOf;

/// liballprof traces.
pub struct Liballprof;

impl Reader for Liballprof {
    fn entry(&self) -> &'static Entry {
        const {
            &Entry::new(
                "liballprof",
                "liballprof MPI traces (collprof 0.9), as Schedgen and ATLAHS read them",
            )
        }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        head.starts_with(b"# collprof") || head.starts_with(b"# htor")
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut draft =
            Draft { source: inputs[0].name.clone(), world: Some(inputs.len() as u32), ..Draft::default() };
        let mut tags = Tags::default();
        let world = inputs.len() as u32;
        let mut communicators = Communicators::of(world);
        // Who is who, and who is in which communicator, before any message.
        let mut ranks: Vec<(u32, Tests)> = Vec::with_capacity(inputs.len());
        for (index, input) in (0..).zip(inputs) {
            // The program's own words say who it is; else the order of the files does.
            let mut said = None;
            let mut lines = Lines::of(input)?;
            while let (None, Some((_, text))) = (said, lines.text()?) {
                said = identity(&text);
            }
            let rank = said.map_or(index, |(rank, _)| rank);
            if let Some((_, size)) = said.filter(|&(_, size)| size != world) {
                let expected = format!("a file of each of {size} ranks, as `MPI_COMM_WORLD` has");
                return Err(ImportError::new(&input.name, expected, format!("{world} files")).hint(
                    "where they are of several programs, `--only TEXT` takes those whose name has TEXT",
                ));
            }
            if ranks.iter().any(|(other, _)| *other == rank) {
                return Err(ImportError::new(&input.name, "one file a rank", format!("rank {rank} again"))
                    .hint("where the files are of several programs, `--only TEXT` takes those of one"));
            }
            let mut tests = Tests::default();
            let mut lines = Lines::of(input)?;
            while let Some((line, text)) = lines.text()? {
                if let Some(line) = call(&input.name, line, &text) {
                    communicators.see(rank, &line);
                    tests.see(&line);
                }
            }
            tests.end();
            ranks.push((rank, tests));
        }
        for ((rank, tests), input) in ranks.into_iter().zip(inputs) {
            let mut replay = Replay {
                script: Script::new(rank, &mut tags),
                draft: &mut draft,
                communicators: &mut communicators,
                tests,
                persistent: FxHashMap::default(),
            };
            let mut ended = false;
            let mut lines = Lines::of(input)?;
            while let Some((line, text)) = lines.text()? {
                let Some(line) = call(&input.name, line, &text) else { continue };
                ended |= line.fields[0] == "MPI_Finalize";
                replay.call(&line, coverage)?;
            }
            if !ended {
                return Err(ImportError::cut(&input.name, lines.byte(), "`MPI_Finalize`"));
            }
            let program = replay.script.finish(coverage);
            draft.ranks.insert(rank, program.of_file(&input.name));
        }
        Ok(draft)
    }
}

/// The call of a line; comments and what is empty have none.
fn call<'a>(file: &'a str, line: u64, text: &'a str) -> Option<LineOf<'a>> {
    let has = !text.is_empty() && !text.starts_with('#');
    has.then(|| LineOf { file, line, fields: text.split(':').collect() })
}

/// Rank and size of `MPI_COMM_WORLD` (number 0), where a call is made on it.
fn identity(line: &str) -> Option<(u32, u32)> {
    let fields: Vec<&str> = line.split(':').collect();
    let at = match fields[0].strip_prefix("MPI_")? {
        "Comm_size" | "Comm_rank" | "Barrier" => 2,
        "Bcast" => 6,
        "Send" | "Isend" | "Recv" | "Irecv" | "Allreduce" => 7,
        _ => return None,
    };
    let mut parts = fields.get(at)?.split(',');
    let (id, rank, size) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (id == "0" && rank < size).then_some((rank, size))
}
