//! SimGrid's time-independent traces: text, one file a rank, `RANK ACTION ARGUMENTS`, computation in floating-point operations.
//!
//! Sizes are counts of a datatype: by number 0 double, 1 int, 2 char, 3 short, 4 long, 5 float, 6 byte; left out, doubles if
//! `init` has an argument and bytes if not. A gather's and a scatter's root is the first number behind the counts.
//!
//! Older traces call a rank `p3`, have messages without tags (`send p1 1e6`), and a `wait` that names no message is for the one begun
//! last.

use windtunnel_kernel::registry::Entry;
use windtunnel_workload::collectives::CollectiveKind;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::lines::Lines;
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
        words.next().is_some_and(|rank| rank_of(rank).is_some()) && words.next() == Some("init")
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
            let mut lines = Lines::of(input)?;
            let mut under: Option<(Trace<'_>, Script<'_>)> = None;
            let mut ended = false;
            while let Some((line, text)) = lines.text()? {
                let words: Vec<&str> = text.split_whitespace().collect();
                let Some(&first) = words.first() else { continue };
                if under.is_none() {
                    let number = rank_of(first).ok_or_else(|| no_rank(&input.name, line, first))?;
                    let trace = Trace { file: &input.name, size: 1, flops, world: inputs.len() as u32 };
                    under = Some((trace, Script::new(number, &mut tags)));
                }
                let (trace, script) = under.as_mut().expect("there from its first line on");
                let [rank, action, arguments @ ..] = &words[..] else {
                    return Err(trace.fault(line, "`RANK ACTION …`", &text));
                };
                let number = script.number;
                if rank_of(rank) != Some(number) {
                    return Err(trace.fault(line, &format!("rank {number}, as in the lines before"), rank));
                }
                ended |= *action == "finalize";
                trace.action(line, action, arguments, script, &mut draft, coverage)?;
            }
            let Some((_, script)) = under else { return Err(no_rank(&input.name, 1, "")) };
            let number = script.number;
            if !ended {
                return Err(ImportError::cut(&input.name, lines.byte(), "`finalize`"));
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

    /// Bytes of each rank: as many counts as there are ranks, from `from` on.
    fn parts(
        &self,
        from: usize,
        size: u64,
        count: &dyn Fn(usize) -> Result<u64, ImportError>,
    ) -> Result<Vec<u64>, ImportError> {
        (from..from + self.world as usize).map(|at| Ok(count(at)?.saturating_mul(size))).collect()
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
            let value = text
                .strip_prefix('p')
                .unwrap_or(text)
                .parse::<f64>()
                .ok()
                .filter(|value| value.is_finite() && (-2.0..1e18).contains(value));
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
            "finalize" => {
                coverage.count("other calls", Treatment::Mapped, "begin and end of MPI", 0, 0);
            }
            "comm_size" | "comm_split" | "comm_dup" | "location" | "iprobe" | "probe" => {
                coverage.count("other calls", Treatment::Mapped, "no communication and no time", 0, 0);
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
                let peer = rank(0)?;
                // Without a tag the size is the second, or left out where the sender says it.
                let (tag, bytes) = match arguments.len() {
                    0 | 1 => ("0", 0),
                    2 => ("0", count(1)?),
                    _ => (arguments[1], count(2)?),
                };
                let bytes = bytes.saturating_mul(self.size_of(arguments.get(3)));
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
            "wait" if arguments.is_empty() => {
                let all = script.pending();
                script.wait(&all[all.len().saturating_sub(1)..], coverage);
            }
            "wait" | "test" => {
                let request = request_of(rank(0)?, rank(1)?, arguments.get(2).copied().unwrap_or("0"));
                script.wait(&[request], coverage);
            }
            "waitall" => {
                let all = script.pending();
                script.wait(&all, coverage);
            }
            "testall" => {
                let all = script.pending();
                let why = "whether all were done is not in the trace: taken as done";
                script.wait_as(&all, Treatment::Guessed, why, coverage);
            }
            "sendrecv" => {
                // Count and receiver, count and source, both datatypes.
                let (to, from) = (rank(1)?, rank(3)?);
                let sent = count(0)?.saturating_mul(self.size_of(arguments.get(4)));
                let taken = count(2)?.saturating_mul(self.size_of(arguments.get(5)));
                let why = "not in the trace: any is taken, and 0 sent";
                coverage.count("tag of sendRecv", Treatment::Guessed, why, 0, 0);
                script.send(&message(to, "0", sent), Some(i64::MIN), coverage);
                script.receive(
                    &Envelope { tag: None, ..message(from, "0", taken) },
                    Some(i64::MIN + 1),
                    coverage,
                );
                script.wait(&[i64::MIN, i64::MIN + 1], coverage);
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
                let splits = self.parts(1, size, &count)?;
                let bytes = total(&splits);
                let said = Said { splits: Some(splits), ..Said::new(CollectiveKind::AllToAll, bytes, 0) };
                script.collective(draft, WORLD, &ranks, said, coverage);
            }
            kind @ ("gather" | "scatter") => {
                let root = if arguments.len() > 2 { rank(2)? } else { 0 };
                let bytes = count(0)?.saturating_mul(self.size_of(arguments.get(3)));
                script.rooted(WORLD, &ranks, root, &[bytes], kind == "gather", coverage);
            }
            "gatherv" => {
                // What this rank brings, what each brings, root, datatypes.
                let ranks_n = self.world as usize;
                let root = if arguments.len() > 1 + ranks_n { rank(1 + ranks_n)? } else { 0 };
                let size = self.size_of(arguments.get(2 + ranks_n));
                let mut parts = self.parts(1, size, &count)?;
                if let Some(own) = parts.get_mut(script.number as usize) {
                    *own = count(0)?.saturating_mul(size);
                }
                script.rooted(WORLD, &ranks, root, &parts, true, coverage);
            }
            "scatterv" => {
                let ranks_n = self.world as usize;
                let root = if arguments.len() > 1 + ranks_n { rank(1 + ranks_n)? } else { 0 };
                let size = self.size_of(arguments.get(2 + ranks_n));
                script.rooted(WORLD, &ranks, root, &self.parts(0, size, &count)?, false, coverage);
            }
            "allgatherv" => {
                // What this rank brings, what each brings; then datatypes, displacements, or both.
                let ranks_n = self.world as usize;
                let behind = arguments.len().saturating_sub(1 + ranks_n);
                let typed = (1..=2).contains(&behind) || behind > ranks_n;
                let size = if typed { self.size_of(arguments.get(1 + ranks_n)) } else { self.size };
                let bytes = total(&self.parts(1, size, &count)?);
                let said = Said::new(CollectiveKind::AllGather, bytes, 0);
                script.collective(draft, WORLD, &ranks, said, coverage);
            }
            "scan" | "exscan" => {
                // Size, what it computes where three or more are there, datatype.
                let (last, time) = match arguments.len() {
                    0 | 1 => (None, 0),
                    2 => (arguments.last(), 0),
                    all => (arguments.last(), flops(all - 2)?),
                };
                let bytes = count(0)?.saturating_mul(self.size_of(last));
                let said = Said {
                    as_another: Some("a scan, as an all-reduce"),
                    ..Said::new(CollectiveKind::AllReduce, bytes, 0)
                };
                script.collective(draft, WORLD, &ranks, said, coverage);
                script.compute(time, coverage);
            }
            "reducescatter" => {
                // What each gets, what a rank computes, datatype.
                let ranks_n = self.world as usize;
                let size = self.size_of(arguments.get(1 + ranks_n));
                let bytes = total(&self.parts(0, size, &count)?);
                let time = if arguments.len() > ranks_n { flops(ranks_n)? } else { 0 };
                let said = Said::new(CollectiveKind::ReduceScatter, bytes, 0);
                script.collective(draft, WORLD, &ranks, said, coverage);
                script.compute(time, coverage);
            }
            _ => coverage.count(&format!("action {action}"), Treatment::Dropped, "not modelled", 0, 0),
        }
        Ok(())
    }
}

/// A file that does not begin with a rank.
fn no_rank(file: &str, line: u64, first: &str) -> ImportError {
    let found: String = first.chars().take(60).collect();
    let found = if found.is_empty() { "nothing".to_owned() } else { format!("`{found}`") };
    ImportError::new(file, "a rank (`0` or `p0`) before each action", found)
        .at(Place::Line(line))
        .hint("give the files that `smpirun -trace-ti` lists, one a rank")
}

/// The number of a rank, `3` or `p3`.
fn rank_of(text: &str) -> Option<u32> {
    text.strip_prefix('p').unwrap_or(text).parse().ok()
}

fn total(parts: &[u64]) -> u64 {
    parts.iter().fold(0u64, |sum, part| sum.saturating_add(*part))
}

/// A name for what a wait of (source, destination, tag) means.
fn request_of(source: u32, destination: u32, tag: &str) -> i64 {
    let tag: i64 = tag.parse().unwrap_or(0);
    (i64::from(source) << 42) ^ (i64::from(destination) << 20) ^ tag
}
