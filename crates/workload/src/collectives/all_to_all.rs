//! Personalised exchange: direct (shifted, several rounds in flight), pairwise (one peer at a time; by exclusive or where n
//! is a power of two) and two-level, and the all-gather and reduce-scatter that move blocks straight to where they belong.
//!
//! The two-level exchange goes through the local rail peer, as NCCL's PXN does: first everything for local index c of any
//! domain goes to the neighbour with that index, then each index sends each domain what its neighbours gave it, so
//! messages between domains are fewer, longer and stay on their rail.

use windtunnel_kernel::registry::Entry;

use super::CollectiveKind;
use super::method::{Arrangement, Method, Rings};
use super::parts::{Part, Round, Sink, back, share};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;

/// Bytes from one index to another.
#[derive(Clone, Copy)]
pub(super) enum Sizes<'a> {
    /// Every index has the same buffer, cut into n blocks.
    Equal { bytes: u64, n: u32 },
    /// `matrix[from · n + to]`.
    Matrix { matrix: &'a [u64], n: u32 },
}

impl Sizes<'_> {
    fn get(self, from: u32, to: u32) -> u64 {
        match self {
            Self::Equal { bytes, n } => share(bytes, n, to),
            Self::Matrix { matrix, n } => matrix[from as usize * n as usize + to as usize],
        }
    }

    fn n(self) -> u32 {
        match self {
            Self::Equal { n, .. } | Self::Matrix { n, .. } => n,
        }
    }

    /// Bytes of `from` for local index `local` of any domain of `m`.
    fn to_local(self, from: u32, local: u32, m: u32) -> u64 {
        match self {
            Self::Equal { bytes, n } => Part { first: local, step: m, count: n / m, blocks: n }.bytes(bytes),
            Self::Matrix { n, .. } => (0..n / m).map(|domain| self.get(from, domain * m + local)).sum(),
        }
    }

    /// Bytes of all of `domain` for `to`.
    fn of_domain(self, domain: u32, to: u32, m: u32) -> u64 {
        match self {
            Self::Equal { .. } => self.get(0, to) * u64::from(m),
            Self::Matrix { .. } => (domain * m..(domain + 1) * m).map(|from| self.get(from, to)).sum(),
        }
    }
}

impl Plan {
    /// What each member of an all-to-all has for each other.
    pub(super) fn sizes(&self) -> Sizes<'_> {
        match self.matrix() {
            Some(matrix) if self.kind() == CollectiveKind::AllToAllV => {
                Sizes::Matrix { matrix, n: self.members() }
            }
            _ => Sizes::Equal { bytes: self.bytes(), n: self.members() },
        }
    }
}

/// Direct exchange, round r of n − 1: to index + r + 1, from index − r − 1.
pub(super) fn direct(sizes: Sizes<'_>, index: u32, round: u32, out: &mut Round) {
    let n = sizes.n();
    let (to, from) = ((index + round + 1) % n, back(index, round + 1, n));
    out.send(to, sizes.get(index, to));
    out.receive(from, sizes.get(from, index));
}

/// Pairwise exchange, round r of n − 1.
pub(super) fn pairwise(sizes: Sizes<'_>, index: u32, round: u32, out: &mut Round) {
    if !sizes.n().is_power_of_two() {
        return direct(sizes, index, round, out);
    }
    let peer = index ^ (round + 1);
    out.send(peer, sizes.get(index, peer));
    out.receive(peer, sizes.get(peer, index));
}

/// Rounds of the two-level exchange over domains of `m`: between the phases stand depth − 1 empty rounds, because round r
/// starts when all rounds up to r − depth are complete.
pub(super) fn hierarchical_rounds(n: u32, m: u32, depth: u32) -> u32 {
    let (inside, between) = (m - 1, n / m - 1);
    inside + between + if inside > 0 && between > 0 { depth - 1 } else { 0 }
}

/// Two-level exchange.
pub(super) fn hierarchical(sizes: Sizes<'_>, m: u32, depth: u32, index: u32, round: u32, out: &mut Round) {
    let (domain, local) = (index / m, index % m);
    let domains = sizes.n() / m;
    if round < m - 1 {
        let (to, from) = ((local + round + 1) % m, back(local, round + 1, m));
        out.send(domain * m + to, sizes.to_local(index, to, m));
        out.receive(domain * m + from, sizes.to_local(domain * m + from, local, m));
    } else {
        let gap = if m > 1 { depth - 1 } else { 0 };
        let Some(step) = (round + 1).checked_sub(m + gap) else { return };
        let (to, from) = ((domain + step + 1) % domains, back(domain, step + 1, domains));
        out.send(to * m + local, sizes.of_domain(domain, to * m + local, m));
        out.receive(from * m + local, sizes.of_domain(from, index, m));
    }
}

/// All-gather by sending the own block to every other index.
pub(super) fn direct_all_gather(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let from = back(index, round + 1, n);
    sink.send((index + round + 1) % n, Part::one(index, n));
    sink.receive(from, Part::one(from, n));
}

/// Reduce-scatter by sending every other index its block.
pub(super) fn direct_reduce_scatter(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let to = (index + round + 1) % n;
    sink.send(to, Part::one(to, n));
    sink.receive(back(index, round + 1, n), Part::one(index, n));
}

/// Of direct and pairwise exchanges: each member has a buffer and keeps one block of it; or each block goes to all others.
fn each_block_to_others(plan: &Plan) -> Option<Traffic> {
    let (n, bytes) = (u128::from(plan.members()), plan.bytes());
    let equal = plan.kind() != CollectiveKind::AllToAllV;
    equal.then(|| Traffic { messages: n.min(bytes.into()), bytes: bytes.into() } * (n - 1))
}

/// Every pair at once.
pub(super) struct Direct;

impl Method for Direct {
    const ENTRY: Entry = Entry::new("direct", "every pair at once, at most `outstanding` in flight");
    const KINDS: &'static [CollectiveKind] = &[
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,
        CollectiveKind::AllToAllV,
    ];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(plan: &Plan, outstanding: u32) -> Arrangement {
        let rounds = plan.members() - 1;
        Arrangement { depth: outstanding.min(rounds), ..Arrangement::of(rounds) }
    }

    fn emit(plan: &Plan, index: u32, _: u32, round: u32, sink: &mut impl Sink) {
        match plan.kind() {
            CollectiveKind::ReduceScatter => direct_reduce_scatter(plan.members(), index, round, sink),
            _ => direct_all_gather(plan.members(), index, round, sink),
        }
    }

    fn exchange(plan: &Plan, index: u32, round: u32, out: &mut Round) {
        direct(plan.sizes(), index, round, out);
    }

    fn coupled(plan: &Plan) -> Option<CoupledShape> {
        CoupledShape::pairs(plan)
    }

    fn traffic(plan: &Plan) -> Option<Traffic> {
        each_block_to_others(plan)
    }
}

/// Pair by pair.
pub(super) struct Pairwise;

impl Method for Pairwise {
    const ENTRY: Entry = Entry::new("pairwise", "pair by pair");
    const KINDS: &'static [CollectiveKind] = &[CollectiveKind::AllToAll, CollectiveKind::AllToAllV];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        Arrangement::of(plan.members() - 1)
    }

    fn emit(_: &Plan, _: u32, _: u32, _: u32, _: &mut impl Sink) {}

    fn exchange(plan: &Plan, index: u32, round: u32, out: &mut Round) {
        pairwise(plan.sizes(), index, round, out);
    }

    fn coupled(plan: &Plan) -> Option<CoupledShape> {
        CoupledShape::pairs(plan)
    }

    fn traffic(plan: &Plan) -> Option<Traffic> {
        each_block_to_others(plan)
    }
}
