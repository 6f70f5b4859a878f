//! Rings: all-reduce, all-gather, reduce-scatter, broadcast, reduce.

use super::{Step, Steps, cut, pieces};
use crate::collectives::CollectiveKind;
use crate::collectives::multi_ring::RingsOfGroup;

/// A channel's ring: who stands where.
#[derive(Clone, Copy)]
struct Ring {
    n: u32,
    /// Rings that leave each domain by another member, and which of them; none where the group has one level.
    levels: Option<(RingsOfGroup, u32)>,
}

impl Ring {
    fn position(self, index: u32) -> u32 {
        self.levels.map_or(index, |(rings, ring)| rings.position(index, ring))
    }

    /// Who stands `behind` others behind `position`.
    fn behind(self, position: u32, behind: u32) -> u32 {
        self.member((position + self.n - behind % self.n) % self.n)
    }

    fn member(self, position: u32) -> u32 {
        self.levels.map_or(position, |(rings, ring)| rings.member(position, ring))
    }
}

impl Steps {
    fn ring_of(&self, channel: u32) -> Ring {
        let (inner, outer) = (self.layout.ranks, self.layout.domains);
        let levels = (inner > 1 && outer > 1).then(|| (RingsOfGroup { inner, outer }, channel % inner));
        Ring { n: self.members(), levels }
    }

    pub(super) fn ring(&self, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let ring = self.ring_of(channel);
        match self.kind {
            CollectiveKind::AllReduce => self.all_reduce(ring, index, channel, tell),
            CollectiveKind::Broadcast { root } => self.broadcast(ring, index, root, channel, tell),
            CollectiveKind::Reduce { root } => self.reduce(ring, index, root, channel, tell),
            _ => self.shares(ring, index, channel, tell),
        }
    }

    /// Loop by loop of n chunks: n - 1 steps that sum, of which the last gives the whole sum of one chunk, and n - 1 that pass it on.
    fn all_reduce(&self, ring: Ring, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let n = ring.n;
        let at = ring.position(index);
        let (next, before) = (ring.member((at + 1) % n), ring.behind(at, 1));
        let (start, len) = cut(self.bytes, self.channels(), channel);
        let mut done = 0;
        while done < len {
            let rest = len - done;
            let whole = u64::from(n) * self.chunk;
            let chunk =
                if rest < whole { rest.div_ceil(u64::from(n)).next_multiple_of(16) } else { self.chunk };
            let here = rest.min(u64::from(n) * chunk);
            let block = |number: u32| {
                let offset = u64::from(number % n) * chunk;
                (start + done + offset, chunk.min(here.saturating_sub(offset)))
            };
            tell(Step::send(next, block(at + n - 1)));
            for step in 2..n {
                tell(Step::receive(before, block(at + n - step)).reduced().and_send(next));
            }
            tell(Step::receive(before, block(at)).reduced().kept().and_send(next));
            for step in 1..n - 1 {
                tell(Step::receive(before, block(at + n - step)).kept().and_send(next));
            }
            tell(Step::receive(before, block(at + 1)).kept());
            done += here;
        }
    }

    /// All-gather and reduce-scatter: of each member's share a channel has a part, in chunks.
    fn shares(&self, ring: Ring, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let n = ring.n;
        let at = ring.position(index);
        let (next, before) = (ring.member((at + 1) % n), ring.behind(at, 1));
        let part = |member: u32| {
            let (first, bytes) = cut(self.bytes, n, member);
            let (offset, bytes) = cut(bytes, self.channels(), channel);
            (first + offset, bytes)
        };
        let longest = cut(cut(self.bytes, n, 0).1, self.channels(), channel).1;
        for number in 0..longest.div_ceil(self.chunk) {
            let block = |behind: u32| {
                let (first, bytes) = part(ring.behind(at, behind));
                let offset = (number * self.chunk).min(bytes);
                (first + offset, self.chunk.min(bytes - offset))
            };
            if self.kind == CollectiveKind::ReduceScatter {
                tell(Step::send(next, block(1)));
                for step in 2..n {
                    tell(Step::receive(before, block(step)).reduced().and_send(next));
                }
                tell(Step::receive(before, block(0)).reduced().kept());
            } else {
                tell(Step::send(next, block(0)));
                for step in 1..n - 1 {
                    tell(Step::receive(before, block(step)).kept().and_send(next));
                }
                tell(Step::receive(before, block(n - 1)).kept());
            }
        }
    }

    fn broadcast(&self, ring: Ring, index: u32, root: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let at = ring.position(index);
        let (next, before) = (ring.member((at + 1) % ring.n), ring.behind(at, 1));
        for range in pieces(cut(self.bytes, self.channels(), channel), self.chunk) {
            if index == root {
                tell(Step::send(next, range));
            } else {
                let step = Step::receive(before, range).kept();
                tell(if next == root { step } else { step.and_send(next) });
            }
        }
    }

    fn reduce(&self, ring: Ring, index: u32, root: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let at = ring.position(index);
        let (next, before) = (ring.member((at + 1) % ring.n), ring.behind(at, 1));
        for range in pieces(cut(self.bytes, self.channels(), channel), self.chunk) {
            if before == root {
                tell(Step::send(next, range));
            } else {
                let step = Step::receive(before, range).reduced();
                tell(if index == root { step.kept() } else { step.and_send(next) });
            }
        }
    }
}
