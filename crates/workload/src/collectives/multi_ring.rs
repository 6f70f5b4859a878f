//! As many rings at once as a scale-up domain has members, each over all n members of the group with its share of the
//! buffer: NCCL's rings, one a channel and NIC (NCCL 2.x, `graph/rings.cc`, with `NCCL_CROSS_NIC=2`).
//!
//! The group is g domains of m neighbours. Ring l enters domain 0 at the member with local index l, goes up through all of
//! its members and leaves it at l - 1; the next domain it goes down, from l - 1 to l, and so on. So it enters a domain by
//! the rail by which it left the one before (from the last domain to the first one only if g is even), and every member
//! leaves its domain by its own NIC in one ring. The rings go on apart from each other, as NCCL's channels do: links inside and
//! between domains are busy at once, where [two levels](super::hierarchical) take turns, and a ring pays the latency between
//! domains only where it leaves one. They are the lanes of a plan, or share them in turn where there are more than lanes; in a
//! round of a lane a member sends to its neighbour inside, or to another domain in the ring in which it is the last.
//!
//! Blocks: a lane's part of the buffer is cut into a share for each member, and that into a block for each ring of the lane.

use windtunnel_kernel::registry::Entry;

use super::method::{Arrangement, Method, Rings};
use super::parts::{Part, Round, Sink, back, share};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;
use super::{Algorithm, CollectiveKind, MAX_LANES};

/// The rings of a group.
#[derive(Clone, Copy)]
pub(super) struct RingsOfGroup {
    /// Members of a domain, at least 2.
    pub inner: u32,
    /// Domains, at least 2.
    pub outer: u32,
}

impl RingsOfGroup {
    /// Those of a plan with levels.
    fn of(plan: &Plan) -> Self {
        Self { inner: plan.domain(), outer: plan.members() / plan.domain() }
    }

    /// Lanes over which the rings are spread evenly.
    pub(super) fn lanes(self) -> u32 {
        (1..=MAX_LANES).rev().find(|&lanes| self.inner.is_multiple_of(lanes)).unwrap_or(1)
    }

    fn members(self) -> u32 {
        self.inner * self.outer
    }

    /// Where `index` stands in `ring`.
    pub(super) fn position(self, index: u32, ring: u32) -> u32 {
        let m = self.inner;
        let (domain, local) = (index / m, index % m);
        let up = (local + m - ring) % m;
        domain * m + if domain.is_multiple_of(2) { up } else { m - 1 - up }
    }

    /// Who stands at `position` of `ring`.
    pub(super) fn member(self, position: u32, ring: u32) -> u32 {
        let m = self.inner;
        let (domain, passed) = (position / m, position % m);
        let up = if domain.is_multiple_of(2) { passed } else { m - 1 - passed };
        domain * m + (ring + up) % m
    }

    /// The block of the member at `position` in `ring`.
    fn block(self, position: u32, ring: u32) -> Part {
        let rings = self.inner / self.lanes();
        let block = self.member(position, ring) * rings + ring / self.lanes();
        Part::one(block, self.members() * rings)
    }

    /// A round of `lane` in which a member at position p passes on the block of p - `behind`; messages to one peer follow one
    /// another, and are one.
    fn pass(self, index: u32, lane: u32, behind: u32, sink: &mut impl Sink) {
        let n = self.members();
        let domain = |member: u32| member / self.inner;
        for inside in [false, true] {
            for ring in (lane..self.inner).step_by(self.lanes() as usize) {
                let position = self.position(index, ring);
                let next = self.member((position + 1) % n, ring);
                if (domain(next) == domain(index)) == inside {
                    sink.send(next, self.block(back(position, behind, n), ring));
                }
                let before = back(position, 1, n);
                let from = self.member(before, ring);
                if (domain(from) == domain(index)) == inside {
                    sink.receive(from, self.block(back(before, behind, n), ring));
                }
            }
        }
    }

    /// Round `round` of n - 1 of a reduce-scatter.
    pub(super) fn reduce_scatter(self, index: u32, lane: u32, round: u32, sink: &mut impl Sink) {
        self.pass(index, lane, round + 1, sink);
    }

    /// Round `round` of n - 1 of an all-gather.
    pub(super) fn all_gather(self, index: u32, lane: u32, round: u32, sink: &mut impl Sink) {
        self.pass(index, lane, round, sink);
    }

    /// (from, to, rings that use it), those between domains first.
    pub(super) fn edges(self) -> Vec<(u32, u32, u32)> {
        let (m, n) = (self.inner, self.members());
        let leave = |ring: u32| {
            (1..=self.outer).map(move |domain| {
                let last = domain * m - 1;
                (self.member(last, ring), self.member((last + 1) % n, ring), 1)
            })
        };
        let inside = |index: u32| {
            let (domain, local) = (index / m, index % m);
            let next = if domain.is_multiple_of(2) { (local + 1) % m } else { (local + m - 1) % m };
            (index, domain * m + next, m - 1)
        };
        (0..m).flat_map(leave).chain((0..n).map(inside)).collect()
    }
}

/// As many rings as a scale-up domain has members.
pub(super) struct MultiRing;

impl Method for MultiRing {
    const ENTRY: Entry = Entry::new(
        "multi_ring",
        "NCCL's rings: as many at once as a scale-up domain has members, each leaving by a NIC of its own",
    );
    const KINDS: &'static [CollectiveKind] =
        &[CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter];
    const RINGS: Rings = Rings::Several;
    const WHOLE_DOMAINS: bool = true;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(plan: &mut Plan) {
        // Domains of one member, or a single domain, have one ring.
        if !plan.has_levels() {
            plan.becomes(Algorithm::Ring);
        }
    }

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        let n = plan.members();
        let rounds = if plan.kind() == CollectiveKind::AllReduce { 2 * (n - 1) } else { n - 1 };
        Arrangement { lanes: RingsOfGroup::of(plan).lanes(), ..Arrangement::of(rounds) }
    }

    fn emit(plan: &Plan, index: u32, lane: u32, round: u32, sink: &mut impl Sink) {
        let (rings, half) = (RingsOfGroup::of(plan), plan.members() - 1);
        match plan.kind() {
            CollectiveKind::AllReduce if round >= half => rings.all_gather(index, lane, round - half, sink),
            CollectiveKind::AllGather => rings.all_gather(index, lane, round, sink),
            _ => rings.reduce_scatter(index, lane, round, sink),
        }
    }

    fn exchange(_: &Plan, _: u32, _: u32, _: &mut Round) {}

    fn coupled(plan: &Plan) -> Option<CoupledShape> {
        let blocks = u128::from(plan.members()) * u128::from(plan.domain());
        let steps = plan.rounds(0);
        let bytes = (u128::from(steps) * u128::from(plan.bytes())).div_ceil(blocks) as u64;
        Some(CoupledShape { edges: RingsOfGroup::of(plan).edges(), bytes, steps })
    }

    fn traffic(plan: &Plan) -> Option<Traffic> {
        let (n, bytes, lanes) = (plan.members(), plan.bytes(), plan.lanes());
        let rings = plan.domain() / lanes;
        let messages = if rings == 1 {
            // In each round of a lane each block that has a byte goes one hop: one message.
            (0..lanes).map(|lane| u128::from(share(bytes, lanes, lane).min(n.into()))).sum()
        } else {
            // What a member sends to one peer in a round of a lane is one message: it leaves its domain in one ring, and goes to its
            // neighbour there in the others. With blocks without a byte, it is counted one by one.
            let all = share(bytes, lanes, lanes - 1) >= u64::from(n) * u64::from(rings);
            u128::from(n) * u128::from(all.then_some(2 * lanes)?)
        };
        Some(Traffic { messages, bytes: bytes.into() } * plan.rounds(0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_members_and_leave_by_every_rail_once() {
        for (inner, outer) in [(2, 2), (4, 2), (8, 3), (8, 4), (3, 5)] {
            let rings = RingsOfGroup { inner, outer };
            let n = inner * outer;
            let mut used = vec![(0, 0); n as usize];
            for ring in 0..inner {
                for position in 0..n {
                    assert_eq!(rings.position(rings.member(position, ring), ring), position);
                }
                for domain in 1..=outer {
                    let from = rings.member(domain * inner - 1, ring);
                    let to = rings.member(domain * inner % n, ring);
                    used[from as usize].0 += 1;
                    used[to as usize].1 += 1;
                    let wraps = domain == outer && !outer.is_multiple_of(2);
                    assert_eq!(from % inner == to % inner, !wraps, "{inner} {outer} {ring} {domain}");
                }
            }
            assert!(used.iter().all(|&ways| ways == (1, 1)));
        }
    }

    #[test]
    fn edges_are_those_of_a_round() {
        #[derive(Default)]
        struct Sends(Vec<(u32, u32)>, u32);
        impl Sink for Sends {
            fn send(&mut self, to: u32, _: Part) {
                self.0.push((self.1, to));
            }
            fn receive(&mut self, _: u32, _: Part) {}
        }
        for (inner, outer) in [(2, 2), (4, 3), (8, 4), (16, 2)] {
            let rings = RingsOfGroup { inner, outer };
            let mut sends = Sends::default();
            for index in 0..inner * outer {
                sends.1 = index;
                (0..rings.lanes()).for_each(|lane| rings.all_gather(index, lane, 0, &mut sends));
            }
            let edges = rings.edges();
            let mut each: Vec<(u32, u32)> = Vec::new();
            for &(from, to, weight) in &edges {
                each.extend((0..weight).map(|_| (from, to)));
            }
            each.sort_unstable();
            sends.0.sort_unstable();
            assert_eq!(sends.0, each);
        }
    }
}
