//! Recursive halving and doubling. Each collective is done as its source has it, for they differ in who comes first:
//!
//! - all-reduce (Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner, Gropp,
//!   "Optimization of collective communication operations in MPICH", IJHPCA 2005, §4.5): recursive *vector halving and distance
//!   doubling*, then vector doubling and distance halving. The longest messages, half the vector, go to the nearest rank;
//! - reduce-scatter (Thakur et al., §4.3): recursive *halving*. Half the vector goes to the farthest rank, so that the block
//!   in hand at the end is the own one without a permutation;
//! - all-gather (Thakur et al., §4.1): recursive *doubling*. The nearest rank comes first, with one block.
//!
//! A group that is no power of two is folded: with p the largest power of two in n and e = n − p, the first 2e indices are
//! pairs, one of each pair stays in the core, and the p that stay do the powers of two. The fold in of an all-reduce takes two
//! rounds: the pair exchanges halves, each reduces one, and the odd index, which leaves, hands its half over. In a
//! reduce-scatter the even index leaves at once, with its whole vector. MPICH gathers over other numbers by Bruck's algorithm;
//! here an all-gather by `recursive` is folded too.

use windtunnel_kernel::registry::Entry;

use super::CollectiveKind;
use super::method::{Arrangement, Method, Rings};
use super::parts::{Part, Round, Sink};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;

/// The fold of a group.
#[derive(Clone, Copy)]
struct Fold {
    n: u32,
    /// Largest power of two ≤ n.
    core: u32,
    /// Indices folded away.
    extra: u32,
    /// Which index of a pair stays: 0 the even one, 1 the odd one.
    stays: u32,
}

impl Fold {
    fn new(n: u32, stays: u32) -> Self {
        let core = 1 << n.ilog2();
        Self { n, core, extra: n - core, stays }
    }

    /// Position in the core, `None` for an index that is folded away.
    fn position(self, index: u32) -> Option<u32> {
        if index >= 2 * self.extra {
            Some(index - self.extra)
        } else {
            (index % 2 == self.stays).then_some(index / 2)
        }
    }

    /// Index at a position in the core.
    fn index(self, position: u32) -> u32 {
        if position < self.extra { 2 * position + self.stays } else { position + self.extra }
    }

    /// The blocks of the group owned by `count` positions of the core from `position` on, and by those folded into them.
    fn blocks(self, position: u32, count: u32) -> Part {
        let first = |position: u32| position + position.min(self.extra);
        Part::range(first(position), first(position + count) - first(position), self.n)
    }

    /// Of the other in the pair of `index`: its index, and whether `index` is the one that leaves.
    fn pair(self, index: u32) -> Option<(u32, bool)> {
        (index < 2 * self.extra).then_some((index ^ 1, index % 2 != self.stays))
    }
}

/// Rounds of one phase (all-gather or reduce-scatter): log2 of the core, and 2 more when the group is folded.
pub(super) fn phase_rounds(n: u32) -> u32 {
    n.ilog2() + 2 * u32::from(!n.is_power_of_two())
}

/// Rounds of an all-reduce: twice log2 of the core, and 3 more when the group is folded.
pub(super) fn all_reduce_rounds(n: u32) -> u32 {
    2 * n.ilog2() + 3 * u32::from(!n.is_power_of_two())
}

/// Where a round stands: folding in, in the core, or unfolding.
enum Step {
    In(u32),
    Core(u32),
    Out,
}

/// Round `round` of a plan with `folds` rounds of folding in, if any, and `core_rounds` in the core.
fn step(fold: Fold, round: u32, folds: u32, core_rounds: u32) -> Step {
    let folds = if fold.extra == 0 { 0 } else { folds };
    match round.checked_sub(folds) {
        None => Step::In(round),
        Some(core) if core < core_rounds => Step::Core(core),
        Some(_) => Step::Out,
    }
}

/// The index that leaves hands `part` to its pair, or gets it back.
fn hand_over(fold: Fold, index: u32, inwards: bool, part: impl Fn(u32) -> Part, sink: &mut impl Sink) {
    let Some((other, leaves)) = fold.pair(index) else { return };
    let part = part(if leaves { index } else { other });
    if leaves == inwards {
        sink.send(other, part);
    } else {
        sink.receive(other, part);
    }
}

/// First of the `core` >> `steps` blocks that `position` has in hand after `steps` halvings with near ones first: bit j of its
/// position says which half it kept in step j.
fn near_first(core: u32, position: u32, steps: u32) -> u32 {
    (0..steps).map(|step| (position >> step & 1) * (core >> (step + 1))).sum()
}

/// Both exchange with the position that differs in bit `bit`: a part that both name after the position given.
fn swap(fold: Fold, index: u32, bit: u32, keeps: bool, part: impl Fn(u32) -> Part, sink: &mut impl Sink) {
    let Some(position) = fold.position(index) else { return };
    let partner = position ^ (1 << bit);
    let (own, theirs) = (part(position), part(partner));
    // A reduction sends what the partner keeps, a gathering what is in hand.
    let (sent, received) = if keeps { (theirs, own) } else { (own, theirs) };
    sink.send(fold.index(partner), sent);
    sink.receive(fold.index(partner), received);
}

/// Recursive halving, farthest first.
pub(super) fn reduce_scatter(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let fold = Fold::new(n, 1);
    let levels = n.ilog2();
    match step(fold, round, 1, levels) {
        Step::In(_) => hand_over(fold, index, true, |_| Part::range(0, n, n), sink),
        Step::Core(s) => {
            let half = fold.core >> (s + 1);
            let part = |position: u32| fold.blocks(position & !(half - 1), half);
            swap(fold, index, levels - 1 - s, true, part, sink);
        }
        Step::Out => hand_over(fold, index, false, |leaver| Part::one(leaver, n), sink),
    }
}

/// Recursive doubling, nearest first.
pub(super) fn all_gather(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let fold = Fold::new(n, 0);
    match step(fold, round, 1, n.ilog2()) {
        Step::In(_) => hand_over(fold, index, true, |leaver| Part::one(leaver, n), sink),
        Step::Core(s) => {
            let size = 1 << s;
            swap(fold, index, s, false, |position| fold.blocks(position & !(size - 1), size), sink);
        }
        Step::Out => hand_over(fold, index, false, |leaver| Part::range((leaver + 1) % n, n - 1, n), sink),
    }
}

/// Rabenseifner's: vector halving and distance doubling, then the reverse, over as many blocks as the core has members.
pub(super) fn all_reduce(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let fold = Fold::new(n, 0);
    let (core, levels) = (fold.core, n.ilog2());
    match step(fold, round, 2, 2 * levels) {
        Step::In(0) => {
            let Some((other, _)) = fold.pair(index) else { return };
            let half = |of: u32| Part::range(of % 2 * (core / 2), core / 2, core);
            sink.send(other, half(other));
            sink.receive(other, half(index));
        }
        Step::In(_) => hand_over(fold, index, true, |_| Part::range(core / 2, core / 2, core), sink),
        Step::Core(s) => {
            let reduces = s < levels;
            let bit = if reduces { s } else { 2 * levels - 1 - s };
            let part = |position| Part::range(near_first(core, position, bit + 1), core >> (bit + 1), core);
            swap(fold, index, bit, reduces, part, sink);
        }
        Step::Out => hand_over(fold, index, false, |_| Part::range(0, core, core), sink),
    }
}

/// Rabenseifner's all-reduce, and its two halves.
pub(super) struct Recursive;

impl Method for Recursive {
    const ENTRY: Entry = Entry::new("recursive", "recursive halving and doubling");
    const KINDS: &'static [CollectiveKind] =
        &[CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        Arrangement::of(match plan.kind() {
            CollectiveKind::AllReduce => all_reduce_rounds(plan.members()),
            _ => phase_rounds(plan.members()),
        })
    }

    fn emit(plan: &Plan, index: u32, _: u32, round: u32, sink: &mut impl Sink) {
        let n = plan.members();
        match plan.kind() {
            CollectiveKind::AllReduce => all_reduce(n, index, round, sink),
            CollectiveKind::ReduceScatter => reduce_scatter(n, index, round, sink),
            _ => all_gather(n, index, round, sink),
        }
    }

    fn exchange(_: &Plan, _: u32, _: u32, _: &mut Round) {}

    fn coupled(_: &Plan) -> Option<CoupledShape> {
        None
    }

    fn traffic(_: &Plan) -> Option<Traffic> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `index` does in a round: (peer, first block, blocks) sent, and the same received.
    type Messages = (Vec<(u32, u32, u32)>, Vec<(u32, u32, u32)>);

    #[derive(Default)]
    struct Told(Messages);

    impl Sink for Told {
        fn send(&mut self, to: u32, part: Part) {
            self.0.0.push((to, part.first, part.count));
        }
        fn receive(&mut self, from: u32, part: Part) {
            self.0.1.push((from, part.first, part.count));
        }
    }

    fn told(algorithm: impl Fn(u32, u32, u32, &mut Told), n: u32, index: u32, round: u32) -> Messages {
        let mut told = Told::default();
        algorithm(n, index, round, &mut told);
        told.0
    }

    /// Rabenseifner 2004, figure 1, for 8: in round s the partner is 2^s away and the message has n / 2^(s+1) blocks; then back.
    #[test]
    fn an_all_reduce_exchanges_long_messages_with_near_ranks() {
        for levels in 1..=8u32 {
            let n = 1 << levels;
            assert_eq!(all_reduce_rounds(n), 2 * levels);
            for index in 0..n {
                for round in 0..2 * levels {
                    let (sent, received) = told(all_reduce, n, index, round);
                    let near = round.min(2 * levels - 1 - round);
                    let partner = index ^ (1 << near);
                    let [(to, first, count)] = sent[..] else { panic!("{sent:?}") };
                    let [(from, back, same)] = received[..] else { panic!("{received:?}") };
                    assert_eq!((to, from, count, same), (partner, partner, n >> (near + 1), n >> (near + 1)));
                    // The lower rank keeps the first half, and gathers from it.
                    let lower_sends_second = round < levels;
                    assert_eq!(first > back, (index < partner) == lower_sends_second, "{n} {index} {round}");
                }
            }
        }
        let rank =
            |index: u32| (0..6).map(|round| told(all_reduce, 8, index, round).0[0]).collect::<Vec<_>>();
        assert_eq!(rank(0), [(1, 4, 4), (2, 2, 2), (4, 1, 1), (4, 0, 1), (2, 0, 2), (1, 0, 4)]);
        assert_eq!(rank(5), [(4, 0, 4), (7, 6, 2), (1, 4, 1), (1, 5, 1), (7, 4, 2), (4, 4, 4)]);
    }

    /// Thakur et al. 2005, §4.5 and figure 8: of 6 ranks the first two pairs exchange halves, the odd ones hand over and leave, and
    /// 0, 2, 4, 5 go on as 0 to 3.
    #[test]
    fn an_all_reduce_of_no_power_of_two_folds_by_halves() {
        assert_eq!(all_reduce_rounds(6), 2 * 2 + 3);
        let partners = |index: u32| {
            let round = |round| {
                let (sent, received) = told(all_reduce, 6, index, round);
                (sent.first().map(|&(to, ..)| to), received.first().map(|&(from, ..)| from))
            };
            (0..7).map(round).collect::<Vec<_>>()
        };
        let both = |peer| (Some(peer), Some(peer));
        let (none, to, from) = ((None, None), |peer| (Some(peer), None), |peer| (None, Some(peer)));
        assert_eq!(partners(0), [both(1), from(1), both(2), both(4), both(4), both(2), to(1)]);
        assert_eq!(partners(3), [both(2), to(2), none, none, none, none, from(2)]);
        assert_eq!(partners(5), [none, none, both(4), both(2), both(2), both(4), none]);
        // Of four blocks: even ranks reduce the first half, odd ones the second.
        assert_eq!(told(all_reduce, 6, 2, 0), (vec![(3, 2, 2)], vec![(3, 0, 2)]));
        assert_eq!(told(all_reduce, 6, 3, 1), (vec![(2, 2, 2)], vec![]));
        assert_eq!(told(all_reduce, 6, 2, 6), (vec![(3, 0, 4)], vec![]));
    }

    /// Thakur et al. 2005, §4.3: halving goes to the farthest rank first; the even ranks of the first pairs leave.
    #[test]
    fn a_reduce_scatter_halves_with_far_ranks_first() {
        for levels in 1..=8u32 {
            let n = 1 << levels;
            for index in 0..n {
                for round in 0..levels {
                    let (sent, received) = told(reduce_scatter, n, index, round);
                    let half = n >> (round + 1);
                    let start = |rank: u32| rank / half * half;
                    assert_eq!(sent, [(index ^ half, start(index ^ half), half)]);
                    assert_eq!(received, [(index ^ half, start(index), half)]);
                }
            }
        }
        let rounds = |index| (0..4).map(|round| told(reduce_scatter, 5, index, round).0).collect::<Vec<_>>();
        assert_eq!(rounds(0), [vec![(1, 0, 5)], vec![], vec![], vec![]]);
        assert_eq!(rounds(1), [vec![], vec![(3, 3, 2)], vec![(2, 2, 1)], vec![(0, 0, 1)]]);
        assert_eq!(rounds(3), [vec![], vec![(1, 0, 3)], vec![(4, 4, 1)], vec![]]);
    }

    /// Thakur et al. 2005, §4.1: doubling begins with the nearest rank and one block.
    #[test]
    fn an_all_gather_doubles_with_near_ranks_first() {
        for levels in 1..=8u32 {
            let n = 1 << levels;
            for index in 0..n {
                for round in 0..levels {
                    let (sent, received) = told(all_gather, n, index, round);
                    let size = 1 << round;
                    let start = |rank: u32| rank / size * size;
                    assert_eq!(sent, [(index ^ size, start(index), size)]);
                    assert_eq!(received, [(index ^ size, start(index ^ size), size)]);
                }
            }
        }
    }
}
