//! Several workloads on ranks of their own, each from an instant on.

use windtunnel_kernel::{RankId, Span, StreamId};

use crate::goal::{MergeError, merge};
use crate::{Dimension, OpKind, Operation, Peer, Program, Workload};

windtunnel_kernel::named! {
    /// Which ranks workloads get that stand side by side.
    #[derive(Default)]
    pub enum Placing: "placing" {
        #[default]
        Packed = "packed", "one behind the other, or from the rank that is said";
        RoundRobin = "round-robin", "a rank of each in turn";
        Random = "random", "any, by the seed";
    }
}

/// A workload and where it stands.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it does.
    pub workload: Workload,
    /// Its first rank, where it is packed.
    pub from: u32,
    /// How much later it begins.
    pub start: Span,
}

/// Puts `parts` side by side.
///
/// # Errors
/// [`MergeError`] where two stand on one rank.
pub fn place(parts: Vec<Part>, placing: Placing, seed: u64) -> Result<Workload, MergeError> {
    let sizes: Vec<usize> = parts.iter().map(|part| part.workload.ranks()).collect();
    let jobs: Vec<(Workload, u32)> = parts
        .into_iter()
        .map(|mut part| {
            if part.start.ps() > 0 {
                for program in &mut part.workload.programs {
                    delay(program, part.start, StreamId(255));
                }
            }
            (part.workload, part.from)
        })
        .collect();
    let merged = merge(&jobs)?;
    Ok(match placing {
        Placing::Packed => merged,
        Placing::RoundRobin => renumber(&merged, &round_robin(&sizes)),
        Placing::Random => renumber(&merged, &shuffled(merged.ranks(), seed)),
    })
}

/// New numbers of ranks that stand one behind the other by `sizes`.
fn round_robin(sizes: &[usize]) -> Vec<u32> {
    let mut new = vec![0; sizes.iter().sum()];
    let firsts: Vec<usize> =
        sizes.iter().scan(0, |sum, size| Some(std::mem::replace(sum, *sum + size))).collect();
    let mut next = 0;
    for turn in 0..sizes.iter().copied().max().unwrap_or(0) {
        for (first, size) in firsts.iter().zip(sizes) {
            if turn < *size {
                new[first + turn] = next;
                next += 1;
            }
        }
    }
    new
}

/// A permutation of numbers below `ranks` (Fisher and Yates) by splitmix64, which stands in the files that it makes and must not change.
pub fn shuffled(ranks: usize, seed: u64) -> Vec<u32> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    let mut order: Vec<u32> = (0..ranks as u32).collect();
    for at in (1..ranks).rev() {
        order.swap(at, (draw() % (at as u64 + 1)) as usize);
    }
    order
}

/// `workload` with rank r called `new[r]`.
pub(super) fn renumber(workload: &Workload, new: &[u32]) -> Workload {
    let name = |rank: RankId| RankId(new[rank.0 as usize]);
    let mut changed = Workload { programs: workload.programs.clone(), ..Workload::default() };
    for program in &mut changed.programs {
        for op in &mut program.ops {
            if let OpKind::Send { peer: Peer::Rank(rank), .. }
            | OpKind::Receive { peer: Some(Peer::Rank(rank)), .. } = &mut op.kind
            {
                *rank = name(*rank);
            }
        }
    }
    changed.communicators.clone_from(&workload.communicators);
    for communicator in &mut changed.communicators {
        communicator.ranks.iter_mut().for_each(|rank| *rank = name(*rank));
    }
    let mut old = vec![0; workload.ranks()];
    for (rank, &new) in (0..).zip(new) {
        old[new as usize] = rank;
    }
    for rank in old {
        let rank: usize = rank;
        let bound = workload.binding_offsets[rank] as usize..workload.binding_offsets[rank + 1] as usize;
        changed.add_rank(workload.program_of[rank], &workload.bindings[bound]);
    }
    changed
}

/// Puts a computation of `start` on `stream` before all that begins at once.
pub(super) fn delay(program: &mut Program, start: Span, stream: StreamId) {
    let roots: Vec<u32> =
        (0u32..).zip(&program.prerequisites).filter(|(_, count)| **count == 0).map(|(op, _)| op).collect();
    if roots.is_empty() {
        return;
    }
    let wait = program.ops.len() as u32;
    program.ops.push(Operation {
        kind: OpKind::Calc { duration: start, stream },
        dimension: Dimension::Other,
        label: 0,
    });
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    for source in 0..wait {
        pairs.extend(program.requires.of(source).iter().map(|&target| (source, target)));
    }
    for root in roots {
        pairs.push((wait, root));
        program.prerequisites[root as usize] += 1;
    }
    program.prerequisites.push(0);
    program.requires = crate::program::Edges::new(program.ops.len(), &pairs);
    if !program.irequires.is_empty() {
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for source in 0..wait {
            pairs.extend(program.irequires.of(source).iter().map(|&target| (source, target)));
        }
        program.irequires = crate::program::Edges::new(program.ops.len(), &pairs);
    }
}
