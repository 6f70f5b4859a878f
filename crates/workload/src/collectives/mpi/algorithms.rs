//! The phases of algorithms.

use super::{Algorithm, Collective, MpiError};

/// Who sends to whom in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// Every rank to the one `d` further on.
    Shift(u32),
    /// Every rank with the one whose number differs in bit `k`.
    Bit(u32),
    /// Every rank with its partner of step `k` of a Bine tree: (1 - (-2)^(k+1)) / 3 further on for even ranks, back for odd
    /// ones.
    Bine(u32),
    /// The same where all ranks take part, whose number is even but no power of two.
    BineEven(u32),
    /// Ranks beyond the largest power of two with those below.
    Fold,
    /// Every rank with every other: a message each.
    All,
    /// Rank 0 with every other.
    Root,
}

/// Rounds of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    /// Rounds.
    pub rounds: f64,
    /// Who.
    pub pattern: Pattern,
    /// Bytes that a rank sends in a round.
    pub bytes: f64,
    /// Messages that a rank sends in a round.
    pub messages: f64,
    /// Bytes that a rank reduces in a round.
    pub reduced: f64,
    /// Bytes that a rank copies in a round.
    pub copied: f64,
    /// Part of the pattern's ranks that send: a tree's first rounds have few.
    pub active: f64,
}

impl Phase {
    fn send(pattern: Pattern, bytes: f64) -> Self {
        Self { rounds: 1.0, pattern, bytes, messages: 1.0, reduced: 0.0, copied: 0.0, active: 1.0 }
    }

    fn times(self, rounds: f64) -> Self {
        Self { rounds, ..self }
    }

    fn reducing(self) -> Self {
        Self { reduced: self.bytes, ..self }
    }

    fn blocks(self, messages: f64) -> Self {
        Self { messages: messages.max(1.0), ..self }
    }
}

/// Steps of a binary tree over `n`, and the ranks that no power of two takes in.
fn levels(n: u32) -> (u32, u32) {
    let steps = n.ilog2();
    (steps, n - (1 << steps))
}

/// Blocks that a rank has more after each round over any number of ranks, farthest partners first: the step and how many.
fn gathered(n: u32) -> Vec<(u32, f64)> {
    let mut had = 1;
    (0..n.next_power_of_two().ilog2())
        .rev()
        .map(|step| {
            let more = had.min(n - had);
            had += more;
            (step, f64::from(more))
        })
        .collect()
}

/// The phases of `algorithm` for `collective` of `bytes` over ranks in a torus of `sides`, or in one row.
///
/// # Errors
/// [`MpiError::Unsupported`].
#[expect(clippy::match_same_arms, reason = "an arm for each algorithm, as they are defined")]
pub(super) fn phases(
    collective: Collective,
    algorithm: Algorithm,
    bytes: f64,
    sides: &[u32],
) -> Result<Vec<Phase>, MpiError> {
    use {Algorithm as A, Collective as C};
    let n: u32 = sides.iter().product();
    let (steps, beyond) = levels(n);
    let (ranks, block) = (f64::from(n), bytes / f64::from(n));
    // One side after the other, each with what the sides before have left (Chan et al. 2007: bucket algorithm).
    let rings = |reduce: bool| {
        let mut left = bytes;
        let side = |&side: &u32| {
            left /= f64::from(side);
            let phase = Phase::send(Pattern::Shift(1), left).times(f64::from(side - 1));
            if reduce { phase.reducing() } else { phase }
        };
        sides.iter().map(side).collect::<Vec<_>>()
    };
    // Step k of a vector that halves: near partners first, or far ones.
    let halving = |pattern: fn(u32) -> Pattern, near_first: bool, reduce: bool| {
        (0..steps)
            .map(|k| {
                let part = bytes / f64::from(2u32 << k);
                let phase = Phase::send(pattern(if near_first { k } else { steps - 1 - k }), part);
                if reduce { phase.reducing() } else { phase }
            })
            .collect::<Vec<_>>()
    };
    // From the root outwards twice as many send in every round.
    let outwards = |phases: Vec<Phase>| {
        let twice = |(k, phase)| Phase { active: 1.0 / f64::from(2u32 << (steps - 1 - k as u32)), ..phase };
        phases.into_iter().enumerate().map(twice).collect::<Vec<_>>()
    };
    let blocks = |phases: Vec<Phase>| {
        phases.into_iter().map(|phase| phase.blocks(phase.bytes / block)).collect::<Vec<_>>()
    };
    let even = |reduce: bool| {
        let round = |(step, blocks): (u32, f64)| {
            let phase = Phase::send(Pattern::BineEven(step), blocks * block).blocks(blocks);
            if reduce { phase.reducing() } else { phase }
        };
        let mut all: Vec<Phase> = gathered(n).into_iter().map(round).collect();
        if reduce {
            all.reverse();
        }
        all
    };
    let mut found = match (collective, algorithm) {
        (C::AllReduce, A::Ring) => {
            let mut all = rings(true);
            all.extend(rings(false));
            all
        }
        (C::AllReduce, A::RecursiveDoubling) => {
            (0..steps).map(|k| Phase::send(Pattern::Bit(k), bytes).reducing()).collect()
        }
        (C::AllReduce, A::BineWhole) => {
            (0..steps).map(|k| Phase::send(Pattern::Bine(k), bytes).reducing()).collect()
        }
        (C::AllReduce, A::Rabenseifner) => {
            let mut all = halving(Pattern::Bit, true, true);
            all.extend(halving(Pattern::Bit, true, false));
            all
        }
        (C::AllReduce, A::Bine) => {
            let mut all = halving(Pattern::Bine, true, true);
            all.extend(halving(Pattern::Bine, true, false));
            all
        }
        (C::AllReduce, A::BineBlocks) => {
            let mut all = blocks(halving(Pattern::Bine, true, true));
            all.extend(blocks(halving(Pattern::Bine, true, false)));
            all
        }
        (C::AllReduce, A::BineBlocksEven) => {
            let mut all = even(true);
            all.extend(even(false));
            all
        }
        (C::AllGather | C::ReduceScatter, A::BineBlocksEven) => even(collective == C::ReduceScatter),
        (C::AllGather | C::ReduceScatter, A::Ring) => rings(collective == C::ReduceScatter),
        (C::AllGather, A::NeighbourExchange) => {
            vec![
                Phase::send(Pattern::Shift(1), block),
                Phase::send(Pattern::Shift(1), 2.0 * block).times(ranks / 2.0 - 1.0),
            ]
        }
        (C::AllGather, A::RecursiveDoubling) => halving(Pattern::Bit, false, false),
        (C::AllGather, A::Bruck) => (0..n.next_power_of_two().ilog2())
            .map(|k| {
                let sent = f64::from((1u32 << k).min(n - (1 << k)));
                Phase::send(Pattern::Shift(1 << k), sent * block)
            })
            .collect(),
        // Few blocks go far, many to the next rank (Loch, Koslovski 2021).
        (C::AllGather, A::Sparbit) => gathered(n)
            .into_iter()
            .map(|(step, blocks)| Phase::send(Pattern::Shift(1 << step), blocks * block).blocks(blocks))
            .collect(),
        (C::AllGather, A::Bine) => halving(Pattern::Bine, true, false),
        (C::AllGather, A::BineTwoBlocks) => {
            halving(Pattern::Bine, true, false).into_iter().map(|phase| phase.blocks(2.0)).collect()
        }
        (C::AllGather, A::BineBlocks) => blocks(halving(Pattern::Bine, true, false)),
        (C::ReduceScatter, A::RecursiveHalving) => halving(Pattern::Bit, false, true),
        (C::ReduceScatter, A::DistanceDoubling) => halving(Pattern::Bit, true, true),
        (C::ReduceScatter, A::Bine) => halving(Pattern::Bine, true, true),
        (C::ReduceScatter, A::BineTwoBlocks) => {
            halving(Pattern::Bine, true, true).into_iter().map(|phase| phase.blocks(2.0)).collect()
        }
        (C::ReduceScatter, A::BineBlocks) => blocks(halving(Pattern::Bine, true, true)),
        (C::ReduceScatter, A::Pairwise) => {
            vec![Phase::send(Pattern::All, block).times(ranks - 1.0).reducing()]
        }
        // All children of the root are sent to at once and share its link; so do theirs.
        (C::Broadcast, A::Binomial) => (0..steps)
            .map(|k| Phase::send(Pattern::Bit(steps - 1 - k), bytes * f64::from(steps - k)))
            .collect(),
        (C::Broadcast, A::Bine) => {
            (0..steps).map(|k| Phase::send(Pattern::Bine(steps - 1 - k), bytes)).collect()
        }
        (C::Broadcast, A::ScatterAllgather) => {
            let mut all = outwards(halving(Pattern::Bit, false, false));
            all.extend(halving(Pattern::Bit, false, false));
            all
        }
        (C::Broadcast, A::ScatterRing) => {
            let mut all = outwards(halving(Pattern::Bit, false, false));
            all.extend(rings(false));
            all
        }
        (C::Broadcast, A::BineBlocks) => {
            let mut all = outwards(halving(Pattern::Bine, true, false));
            all.extend(halving(Pattern::Bine, true, false));
            all
        }
        (C::Reduce, A::Binomial) => {
            (0..steps).map(|k| Phase::send(Pattern::Bit(k), bytes).reducing()).collect()
        }
        (C::Reduce, A::BineWhole) => {
            (0..steps).map(|k| Phase::send(Pattern::Bine(k), bytes).reducing()).collect()
        }
        (C::Reduce, A::Rabenseifner) => {
            let mut all = halving(Pattern::Bit, true, true);
            all.extend(halving(Pattern::Bit, true, false));
            all
        }
        (C::Reduce, A::Bine) => {
            let mut all = halving(Pattern::Bine, true, true);
            all.extend(halving(Pattern::Bine, true, false));
            all
        }
        (C::Gather | C::Scatter, A::Binomial) => halving(Pattern::Bit, false, false),
        (C::Gather | C::Scatter, A::Bine) => halving(Pattern::Bine, true, false),
        (C::Gather | C::Scatter, A::Linear) => {
            vec![Phase::send(Pattern::Root, bytes * (ranks - 1.0) / ranks).blocks(ranks - 1.0)]
        }
        (C::AllToAll, A::Linear) => {
            vec![Phase::send(Pattern::All, bytes * (ranks - 1.0) / ranks).blocks(ranks - 1.0)]
        }
        (C::AllToAll, A::Pairwise) => vec![Phase::send(Pattern::All, block).times(ranks - 1.0)],
        (C::AllToAll, A::Bruck) => (0..n.next_power_of_two().ilog2())
            .map(|k| Phase { copied: bytes, ..Phase::send(Pattern::Shift(1 << k), bytes / 2.0) })
            .collect(),
        (C::AllToAll, A::Bine) => (0..steps)
            .map(|k| Phase { copied: bytes, ..Phase::send(Pattern::Bine(k), bytes / 2.0) })
            .collect(),
        _ => return Err(MpiError::Unsupported { collective, algorithm }),
    };
    let tree = matches!(algorithm, A::Binomial | A::Bine | A::BineWhole);
    match collective {
        C::Broadcast | C::Scatter if tree => found = outwards(found),
        // Towards it, half as many.
        C::Reduce if tree && algorithm != A::Bine => {
            found = outwards(found.into_iter().rev().collect());
            found.reverse();
        }
        C::Gather if tree => found = outwards(found),
        _ => {}
    }
    let any_number = matches!(
        algorithm,
        A::Ring | A::NeighbourExchange | A::Bruck | A::Sparbit | A::BineBlocksEven | A::Linear | A::Pairwise
    );
    if beyond > 0 && !any_number {
        // Ranks beyond the power of two hand over what they have and get what they are due.
        let (given, due) = match collective {
            C::AllReduce => (bytes, bytes),
            C::AllGather | C::Gather => (block, bytes),
            C::ReduceScatter | C::Scatter => (bytes, block),
            _ => (bytes, 0.0),
        };
        let before = Phase::send(Pattern::Fold, given);
        let reduces = matches!(collective, C::AllReduce | C::ReduceScatter | C::Reduce);
        found.insert(0, if reduces { before.reducing() } else { before });
        if due > 0.0 {
            found.push(Phase::send(Pattern::Fold, due));
        }
    }
    Ok(found)
}

/// How far a partner of step `k` of a Bine tree is: (1 - (-2)^(k+1)) / 3, its sign the direction.
pub(super) fn bine_distance(k: u32) -> i64 {
    (1 - (-2i64).pow(k + 1)) / 3
}
