//! What a workload consists of.

use windtunnel_kernel::{Bytes, RankId, Span, StreamId};

use crate::{OpKind, Program, Workload};

/// Totals over all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Ranks.
    pub ranks: u64,
    /// Ranks without an operation.
    pub idle_ranks: u64,
    /// Operations.
    pub operations: u64,
    /// Sends, which is to say messages.
    pub sends: u64,
    /// Receives.
    pub receives: u64,
    /// Receives from any source.
    pub any_source: u64,
    /// Receives of any tag.
    pub any_tag: u64,
    /// Computations.
    pub calcs: u64,
    /// Collectives, counted once per member.
    pub collectives: u64,
    /// Edges that wait for an end.
    pub requires: u64,
    /// Edges that wait for a start.
    pub irequires: u64,
    /// Operations without a prerequisite.
    pub roots: u64,
    /// Payload of all messages.
    pub bytes: Bytes,
    /// Payload of the largest message.
    pub largest_message: Bytes,
    /// Streams of the rank that uses most: highest number used, plus one.
    pub cpus: u32,
    /// NICs likewise.
    pub nics: u32,
    /// Computation of all ranks together.
    pub calc: Span,
    /// No run is shorter: over ranks, the larger of the longest chain of computations and the busiest stream.
    pub critical_path: Span,
}

/// Counts. Time grows with the operations of the distinct programs, not of the ranks.
pub fn stats(workload: &Workload) -> Stats {
    let mut ranks_of = vec![0u64; workload.programs.len()];
    for &program in &workload.program_of {
        ranks_of[program as usize] += 1;
    }
    let mut total = Stats { ranks: workload.ranks() as u64, ..Stats::default() };
    for (program, &ranks) in workload.programs.iter().zip(&ranks_of) {
        if ranks > 0 {
            add(&mut total, program, ranks);
        }
    }
    total
}

fn add(total: &mut Stats, program: &Program, ranks: u64) {
    total.operations += ranks * program.ops.len() as u64;
    total.idle_ranks += if program.ops.is_empty() { ranks } else { 0 };
    total.requires += ranks * program.requires.len() as u64;
    total.irequires += ranks * program.irequires.len() as u64;
    total.roots += ranks * program.prerequisites.iter().filter(|&&count| count == 0).count() as u64;
    let mut busy = [Span::ZERO; 256];
    for op in &program.ops {
        let (stream, nic) = match op.kind {
            OpKind::Calc { duration, stream } => {
                total.calcs += ranks;
                let StreamId(index) = stream;
                busy[usize::from(index)] = saturating(busy[usize::from(index)], duration);
                (stream, None)
            }
            OpKind::Send { bytes, stream, nic, .. } => {
                total.sends += ranks;
                total.bytes = Bytes::new(total.bytes.get().saturating_add(bytes.get().saturating_mul(ranks)));
                total.largest_message = total.largest_message.max(bytes);
                (stream, Some(nic))
            }
            OpKind::Receive { peer, tag, stream } => {
                total.receives += ranks;
                total.any_source += if peer.is_none() { ranks } else { 0 };
                total.any_tag += if tag.is_none() { ranks } else { 0 };
                (stream, None)
            }
            OpKind::Collective { stream, .. } => {
                total.collectives += ranks;
                (stream, None)
            }
        };
        total.cpus = total.cpus.max(u32::from(stream.0) + 1);
        total.nics = total.nics.max(nic.map_or(0, |nic| u32::from(nic.0) + 1));
    }
    let calc = busy.into_iter().fold(Span::ZERO, saturating);
    total.calc = Span::from_ps(total.calc.ps().saturating_add(calc.ps().saturating_mul(ranks)));
    let busiest = busy.into_iter().max().unwrap_or_default();
    total.critical_path = total.critical_path.max(busiest).max(longest_chain(program));
}

fn saturating(a: Span, b: Span) -> Span {
    Span::from_ps(a.ps().saturating_add(b.ps()))
}

/// Longest chain of computations: an operation starts after the ends of what it requires and the starts of what it
/// irequires; messages take no time.
fn longest_chain(program: &Program) -> Span {
    let mut left = program.prerequisites.clone();
    let mut start = vec![Span::ZERO; program.ops.len()];
    let mut ready: Vec<u32> = (0..program.ops.len() as u32).filter(|&op| left[op as usize] == 0).collect();
    let mut longest = Span::ZERO;
    while let Some(op) = ready.pop() {
        let begun = start[op as usize];
        let ended = match program.ops[op as usize].kind {
            OpKind::Calc { duration, .. } => saturating(begun, duration),
            _ => begun,
        };
        longest = longest.max(ended);
        let after_end = program.requires.of(op).iter().map(|&next| (next, ended));
        let after_start = program.irequires.of(op).iter().map(|&next| (next, begun));
        for (next, earliest) in after_end.chain(after_start) {
            let next = next as usize;
            start[next] = start[next].max(earliest);
            left[next] -= 1;
            if left[next] == 0 {
                ready.push(next as u32);
            }
        }
    }
    longest
}

/// Per-rank figures for a table.
impl Stats {
    /// Figures of one rank alone.
    pub fn of_rank(workload: &Workload, rank: RankId) -> Self {
        let mut stats = Self { ranks: 1, ..Self::default() };
        add(&mut stats, workload.program(rank), 1);
        stats
    }
}
