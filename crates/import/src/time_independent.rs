//! SimGrid's time-independent traces: text, one file a rank, `RANK ACTION ARGUMENTS`, computation in floating-point operations.
//!
//! Sizes are counts of a datatype: by number 0 double, 1 int, 2 char, 3 short, 4 long, 5 float, 6 byte; left out, doubles if
//! `init` has an argument and bytes if not. A gather's and a scatter's root is the first number behind the counts.

use windtunnel_kernel::registry::Entry;
use windtunnel_workload::collectives::CollectiveKind;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::mpi::{Envelope, Said, Script, Tags};
use crate::{Options, Reader};

/// Time-independent traces.
pub struct TimeIndependent;

/// FLOP/s of a rank where none is given: the default host of SimGrid's examples.
const FLOPS: f64 = 1e9;
const WORLD: &str = "world";

impl Reader for TimeIndependent {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("simgrid", "SimGrid time-independent traces (SMPI replay)") }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        let text = String::from_utf8_lossy(&head[..head.len().min(256)]);
        let mut words = text.lines().next().unwrap_or("").split_whitespace();
        words.next().is_some_and(|rank| rank.parse::<u32>().is_ok()) && words.next() == Some("init")
    }

    fn read(
        &self,
        inputs: &[Input],
        options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let flops = options.flops.unwrap_or(FLOPS);
        if !(flops.is_finite() && flops > 0.0) {
            return Err(ImportError::new("--flops", "a positive number", flops.to_string()));
        }
        if options.flops.is_none() {
            coverage.note(
                "the trace counts operations: a rank is taken to do 1e9 a second; `--flops` says better",
            );
        }
        let mut draft =
            Draft { source: inputs[0].name.clone(), world: Some(inputs.len() as u32), ..Draft::default() };
        let mut tags = Tags::default();
        for input in inputs {
            let bytes = input.whole()?;
            let text = String::from_utf8_lossy(&bytes);
            let number = text.split_whitespace().next().and_then(|rank| rank.parse().ok());
            let number: u32 = number
                .ok_or_else(|| ImportError::new(&input.name, "a rank", "nothing").at(Place::Line(1)))?;
            let mut trace = Trace { file: &input.name, size: 1, flops, world: inputs.len() as u32 };
            let mut script = Script::new(number, &mut tags);
            let mut ended = false;
            for (line, text) in (1..).zip(text.lines()) {
                let words: Vec<&str> = text.split_whitespace().collect();
                if let [rank, action, arguments @ ..] = &words[..] {
                    if rank.parse() != Ok(number) {
                        return Err(trace.fault(
                            line,
                            &format!("rank {number}, as in the lines before"),
                            rank,
                        ));
                    }
                    ended |= *action == "finalize";
                    trace.action(line, action, arguments, &mut script, &mut draft, coverage)?;
                } else if !words.is_empty() {
                    return Err(trace.fault(line, "`RANK ACTION …`", text));
                }
            }
            if !ended {
                return Err(ImportError::cut(&input.name, bytes.len() as u64, "`finalize`"));
            }
            let program = script.rank.of_file(&input.name);
            if draft.ranks.insert(number, program).is_some() {
                return Err(ImportError::new(&input.name, "one file a rank", format!("rank {number} again")));
            }
        }
        Ok(draft)
    }
}

struct Trace<'a> {
    file: &'a str,
    /// Bytes of an element where no datatype is given.
    size: u64,
    flops: f64,
    world: u32,
}

impl Trace<'_> {
    fn fault(&self, line: u64, expected: &str, found: &str) -> ImportError {
        let found: String = found.chars().take(60).collect();
        ImportError::new(self.file, expected, format!("`{found}`")).at(Place::Line(line))
    }

    /// Bytes of an element of datatype number `text`.
    fn size_of(&self, text: Option<&&str>) -> u64 {
        match text.copied() {
            Some("0" | "4") => 8,
            Some("1" | "5") => 4,
            Some("2" | "6") => 1,
            Some("3") => 2,
            _ => self.size,
        }
    }

    fn action(
        &mut self,
        line: u64,
        action: &str,
        arguments: &[&str],
        script: &mut Script<'_>,
        draft: &mut Draft,
        coverage: &mut Coverage,
    ) -> Result<(), ImportError> {
        let number = |at: usize| -> Result<f64, ImportError> {
            let text = arguments.get(at).copied().unwrap_or("");
            let value =
                text.parse::<f64>().ok().filter(|value| value.is_finite() && (-2.0..1e18).contains(value));
            value.ok_or_else(|| {
                self.fault(line, &format!("a number as argument {} of `{action}`", at + 1), text)
            })
        };
        let count = |at: usize| -> Result<u64, ImportError> { Ok(number(at)?.max(0.0) as u64) };
        let rank = |at: usize| -> Result<u32, ImportError> {
            let value = number(at)?;
            let known = (0.0..f64::from(self.world)).contains(&value);
            known
                .then_some(value as u32)
                .ok_or_else(|| self.fault(line, &format!("a rank below {}", self.world), arguments[at]))
        };
        let ranks: Vec<u32> = (0..self.world).collect();
        let flops =
            |at: usize| -> Result<u64, ImportError> { Ok((number(at)?.max(0.0) / self.flops * 1e9) as u64) };
        let n = u64::from(self.world);
        let message = |peer: u32, tag: &str, bytes: u64| Envelope {
            communicator: WORLD,
            peer: Some(peer),
            tag: tag.parse().ok(),
            bytes,
        };
        match action.to_ascii_lowercase().as_str() {
            "init" => {
                self.size = if arguments.is_empty() { 1 } else { 8 };
                coverage.count("other calls", Treatment::Mapped, "begin and end of MPI", 0, 0);
            }
            "finalize" | "comm_size" | "comm_split" | "comm_dup" => {
                coverage.count("other calls", Treatment::Mapped, "begin and end of MPI", 0, 0);
            }
            "compute" => {
                let time = flops(0)?;
                script.compute(time, coverage);
            }
            "sleep" => {
                let time = (number(0)?.max(0.0) * 1e9) as u64;
                script.compute(time, coverage);
            }
            kind @ ("send" | "isend" | "recv" | "irecv") => {
                let (peer, tag) = (rank(0)?, arguments.get(1).copied().unwrap_or("0"));
                let bytes = count(2)?.saturating_mul(self.size_of(arguments.get(3)));
                let request = kind.starts_with('i').then(|| {
                    // The wait names source, destination and tag, not a request.
                    request_of(
                        if kind == "isend" { script.number } else { peer },
                        if kind == "isend" { peer } else { script.number },
                        tag,
                    )
                });
                if kind.ends_with("send") {
                    script.send(&message(peer, tag, bytes), request, coverage);
                } else {
                    script.receive(&message(peer, tag, bytes), request, coverage);
                }
            }
            "wait" | "test" => {
                let request = request_of(rank(0)?, rank(1)?, arguments.get(2).copied().unwrap_or("0"));
                script.wait(&[request], coverage);
            }
            "waitall" => {
                let all = script.pending();
                script.wait(&all, coverage);
            }
            "barrier" => {
                script.collective(draft, WORLD, &ranks, Said::new(CollectiveKind::Barrier, 0, 0), coverage);
            }
            "bcast" => {
                let root = if arguments.len() > 1 { rank(1)? } else { 0 };
                let bytes = count(0)?.saturating_mul(self.size_of(arguments.get(2)));
                script.collective(
                    draft,
                    WORLD,
                    &ranks,
                    Said::new(CollectiveKind::Broadcast { root }, bytes, 0),
                    coverage,
                );
            }
            "reduce" => {
                let root = if arguments.len() > 2 { rank(2)? } else { 0 };
                let bytes = count(0)?.saturating_mul(self.size_of(arguments.get(3)));
                let time = flops(1)?;
                script.collective(
                    draft,
                    WORLD,
                    &ranks,
                    Said::new(CollectiveKind::Reduce { root }, bytes, 0),
                    coverage,
                );
                script.compute(time, coverage);
            }
            "allreduce" => {
                let bytes = count(0)?.saturating_mul(self.size_of(arguments.get(2)));
                let time = flops(1)?;
                script.collective(
                    draft,
                    WORLD,
                    &ranks,
                    Said::new(CollectiveKind::AllReduce, bytes, 0),
                    coverage,
                );
                script.compute(time, coverage);
            }
            "alltoall" => {
                let bytes = count(0)?.saturating_mul(self.size_of(arguments.get(2))).saturating_mul(n);
                script.collective(
                    draft,
                    WORLD,
                    &ranks,
                    Said::new(CollectiveKind::AllToAll, bytes, 0),
                    coverage,
                );
            }
            "allgather" => {
                let bytes = count(0)?.saturating_mul(self.size_of(arguments.get(2))).saturating_mul(n);
                script.collective(
                    draft,
                    WORLD,
                    &ranks,
                    Said::new(CollectiveKind::AllGather, bytes, 0),
                    coverage,
                );
            }
            "alltoallv" => {
                let size = self.size_of(arguments.get(2 + 2 * self.world as usize));
                let mut splits = Vec::with_capacity(arguments.len().min(self.world as usize));
                for at in 0..self.world as usize {
                    splits.push(count(1 + at)?.saturating_mul(size));
                }
                let bytes = splits.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
                let said = Said { splits: Some(splits), ..Said::new(CollectiveKind::AllToAll, bytes, 0) };
                script.collective(draft, WORLD, &ranks, said, coverage);
            }
            kind @ ("gather" | "scatter") => {
                let root = if arguments.len() > 2 { rank(2)? } else { 0 };
                let bytes = count(0)?.saturating_mul(self.size_of(arguments.get(3)));
                script.rooted(WORLD, &ranks, root, &[bytes], kind == "gather", coverage);
            }
            "reducescatter" => {
                let mut bytes = 0u64;
                for at in 0..self.world as usize {
                    bytes = bytes.saturating_add(count(at)?.saturating_mul(self.size));
                }
                script.collective(
                    draft,
                    WORLD,
                    &ranks,
                    Said::new(CollectiveKind::ReduceScatter, bytes, 0),
                    coverage,
                );
            }
            _ => coverage.count(&format!("action {action}"), Treatment::Dropped, "not modelled", 0, 0),
        }
        Ok(())
    }
}

/// A name for what a wait of (source, destination, tag) means.
fn request_of(source: u32, destination: u32, tag: &str) -> i64 {
    let tag: i64 = tag.parse().unwrap_or(0);
    (i64::from(source) << 42) ^ (i64::from(destination) << 20) ^ tag
}
