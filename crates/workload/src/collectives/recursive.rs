//! Recursive halving and doubling (Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur,
//! Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005).
//!
//! A group that is no power of two is folded: with p the largest power of two in n and e = n − p, index 2k + 1 (k < e)
//! hands its data to 2k before, and gets its result from it after; the p that remain do the powers of two.

use super::parts::{Part, Sink};

/// The fold of a group.
#[derive(Clone, Copy)]
struct Fold {
    n: u32,
    /// Largest power of two ≤ n.
    core: u32,
    /// Indices folded away.
    extra: u32,
}

impl Fold {
    fn new(n: u32) -> Self {
        let core = 1 << n.ilog2();
        Self { n, core, extra: n - core }
    }

    /// Position in the core, `None` for an index that is folded away.
    fn position(self, index: u32) -> Option<u32> {
        if index >= 2 * self.extra {
            Some(index - self.extra)
        } else {
            index.is_multiple_of(2).then_some(index / 2)
        }
    }

    /// Index of a position in the core.
    fn index(self, position: u32) -> u32 {
        position + position.min(self.extra)
    }

    /// The blocks of the group owned by `count` positions of the core from `position` on.
    fn blocks(self, position: u32, count: u32) -> Part {
        let (from, to) = (self.index(position), self.index(position + count));
        Part::range(from, to - from, self.n)
    }
}

/// Rounds of one phase (all-gather or reduce-scatter): log2 of the core, and 2 more when the group is folded.
pub(super) fn phase_rounds(n: u32) -> u32 {
    n.ilog2() + 2 * u32::from(!n.is_power_of_two())
}

/// Rounds of an all-reduce.
pub(super) fn all_reduce_rounds(n: u32) -> u32 {
    2 * n.ilog2() + 2 * u32::from(!n.is_power_of_two())
}

/// Where a round stands: folding in, in the core, or unfolding.
enum Step {
    In,
    Core(u32),
    Out,
}

fn step(fold: Fold, round: u32, core_rounds: u32) -> Step {
    if fold.extra == 0 {
        Step::Core(round)
    } else if round == 0 {
        Step::In
    } else if round <= core_rounds {
        Step::Core(round - 1)
    } else {
        Step::Out
    }
}

/// The odd index hands `part` to its even neighbour, or gets it back.
fn exchange_folded(fold: Fold, index: u32, inwards: bool, part: impl Fn(u32) -> Part, sink: &mut impl Sink) {
    if index >= 2 * fold.extra {
        return;
    }
    let odd = index | 1;
    match (index == odd, inwards) {
        (true, true) => sink.send(index - 1, part(odd)),
        (false, true) => sink.receive(odd, part(odd)),
        (true, false) => sink.receive(index - 1, part(odd)),
        (false, false) => sink.send(odd, part(odd)),
    }
}

/// Halving step `step`: exchanges halves of the aligned range still in hand.
fn halve(fold: Fold, index: u32, step: u32, blocks: impl Fn(u32, u32) -> Part, sink: &mut impl Sink) {
    let Some(position) = fold.position(index) else { return };
    let half = fold.core >> (step + 1);
    let partner = position ^ half;
    sink.send(fold.index(partner), blocks(partner & !(half - 1), half));
    sink.receive(fold.index(partner), blocks(position & !(half - 1), half));
}

/// Doubling step `step`: exchanges the aligned ranges already in hand.
fn double(fold: Fold, index: u32, step: u32, blocks: impl Fn(u32, u32) -> Part, sink: &mut impl Sink) {
    let Some(position) = fold.position(index) else { return };
    let size = 1 << step;
    let partner = position ^ size;
    sink.send(fold.index(partner), blocks(position & !(size - 1), size));
    sink.receive(fold.index(partner), blocks(partner & !(size - 1), size));
}

/// A reduce-scatter by halving. A folded index keeps its own contribution to its own block and adds it at the end.
pub(super) fn reduce_scatter(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let fold = Fold::new(n);
    match step(fold, round, n.ilog2()) {
        Step::In => exchange_folded(fold, index, true, |odd| Part::range((odd + 1) % n, n - 1, n), sink),
        Step::Core(s) => halve(fold, index, s, |first, count| fold.blocks(first, count), sink),
        Step::Out => exchange_folded(fold, index, false, |odd| Part::one(odd, n), sink),
    }
}

/// An all-gather by doubling.
pub(super) fn all_gather(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let fold = Fold::new(n);
    match step(fold, round, n.ilog2()) {
        Step::In => exchange_folded(fold, index, true, |odd| Part::one(odd, n), sink),
        Step::Core(s) => double(fold, index, s, |first, count| fold.blocks(first, count), sink),
        Step::Out => exchange_folded(fold, index, false, |odd| Part::range((odd + 1) % n, n - 1, n), sink),
    }
}

/// An all-reduce: halving, then doubling, over as many blocks as the core has members.
pub(super) fn all_reduce(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let fold = Fold::new(n);
    let levels = n.ilog2();
    let blocks = |first, count| Part::range(first, count, fold.core);
    match step(fold, round, 2 * levels) {
        Step::In => exchange_folded(fold, index, true, |_| Part::range(0, fold.core, fold.core), sink),
        Step::Core(s) if s < levels => halve(fold, index, s, blocks, sink),
        Step::Core(s) => double(fold, index, s - levels, blocks, sink),
        Step::Out => exchange_folded(fold, index, false, |_| Part::range(0, fold.core, fold.core), sink),
    }
}
