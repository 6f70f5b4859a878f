//! Sums in switches: NVLink SHARP (NVLS, and its tree between hosts) and CollNet, direct and as a chain.
//!
//! A switch is a member behind the ranks: for NVLS one of each domain, for CollNet one that stands for the network's whole tree of
//! switches. It has no buffer: what comes from all is summed and passed on. Of a channel's part each *head* sums a chunk in turn; the heads
//! are all ranks of a domain (each GPU has a NIC beside it), in a chain one of them, another on each channel.
//!
//! NVLS has two queues between a GPU and its switch (`wire` 0 and 1): data that are summed on the way (loads of all at once,
//! `multimem.ld_reduce`), and data that reach all (`multimem.st`). So a GPU sends the buffer once for others' sums and its own chunk for all,
//! and gets as much back, where a ring or a direct exchange would send nearly twice the buffer.

use smallvec::SmallVec;

use super::{Step, Steps, cut, pieces};
use crate::collectives::CollectiveKind;
use crate::collectives::nccl::{Algorithm, Choice, Layout};
use crate::collectives::tree::relatives;

/// Lanes of a rank: what goes to heads, what it does as a head (and a chain's way up), what comes back from heads, the way down.
const OUT: u32 = 0;
const HEAD: u32 = 1;
const BACK: u32 = 2;
const DOWN: u32 = 3;

/// Data that reach all, on a queue of their own.
const SPREAD: u32 = 1;

/// Most channels: those of the two queues are told apart by number.
pub(crate) const CHANNELS: u32 = 32;

/// Most data of a chunk of NVLS (`NCCL_NVLS_CHUNKSIZE`).
const NVLS_CHUNK: u64 = 128 << 10;

/// Chunk of an algorithm in which switches sum (`calcCollChunking` in `enqueue.cc`): less where the buffer would not keep all channels
/// and heads busy. `step` is that of the protocol.
pub(in super::super) fn chunk(choice: Choice, layout: Layout, bytes: u64, step: u64) -> u64 {
    let (channels, heads) = (u64::from(choice.channels), u64::from(layout.ranks));
    let mut chunk = step;
    let rules: &[(u64, u64)] = match choice.algorithm {
        Algorithm::Nvls => &[(64, 64 << 10), (8, 32 << 10), (2, 16 << 10)],
        _ => &[(4, 64 << 10), (1, 32 << 10)],
    };
    match choice.algorithm {
        Algorithm::Nvls | Algorithm::NvlsTree => {
            let many = choice.algorithm == Algorithm::NvlsTree && layout.domains >= 4;
            chunk = chunk.min(if many { 64 << 10 } else { NVLS_CHUNK });
            for &(times, less) in rules {
                if bytes < times * channels * heads * chunk && chunk > less {
                    chunk = less;
                }
            }
        }
        _ => {
            let chain = choice.algorithm == Algorithm::CollnetChain;
            let (beside, depth) = if chain { (1, heads) } else { (heads, if heads > 1 { 2 } else { 1 }) };
            let last = if chain { depth } else { 8 * depth };
            for (times, less) in [(64 * depth, 128 << 10), (8 * depth, 64 << 10), (last, 32 << 10)] {
                while bytes / (channels * beside * chunk) < times && chunk > less {
                    chunk /= 2;
                }
            }
        }
    }
    chunk.max(16)
}

/// The range that each head has in a loop.
type Chunk<'a> = &'a dyn Fn(u32) -> (u64, u64);

impl Steps {
    /// The member that is the switch of a domain.
    fn switch(&self, domain: u32) -> u32 {
        self.members() + domain
    }

    /// Whether a member is a switch.
    pub fn is_switch(&self, member: u32) -> bool {
        member >= self.members()
    }

    /// The member of a domain that is number `local` in it.
    fn at(&self, domain: u32, local: u32) -> u32 {
        domain * self.layout.ranks + local % self.layout.ranks
    }

    /// The ranks of a domain.
    fn locals(&self, domain: u32) -> SmallVec<[u32; 3]> {
        (0..self.layout.ranks).map(|local| self.at(domain, local)).collect()
    }

    /// The chunks of a channel that heads sum, loop by loop: range of head `local` in each.
    fn chunks_of_heads(&self, channel: u32, tell: &mut dyn FnMut(Chunk<'_>)) {
        let heads = u64::from(self.layout.ranks);
        let (start, len) = cut(self.bytes, self.channels(), channel);
        if matches!(self.kind, CollectiveKind::AllReduce) {
            for done in (0..len).step_by((heads * self.chunk) as usize) {
                tell(&|local| {
                    let offset = (done + u64::from(local) * self.chunk).min(len);
                    (start + offset, self.chunk.min(len - offset))
                });
            }
            return;
        }
        // A head's share of an all-gather or a reduce-scatter is its own.
        let part = |local: u32| {
            let (first, bytes) = cut(self.bytes, self.layout.ranks, local);
            let (skipped, bytes) = cut(bytes, self.channels(), channel);
            (first + skipped, bytes)
        };
        for done in (0..part(0).1).step_by(self.chunk as usize) {
            tell(&|local| {
                let (first, bytes) = part(local);
                let offset = done.min(bytes);
                (first + offset, self.chunk.min(bytes - offset))
            });
        }
    }

    /// NVLS inside one domain, and with a tree between several.
    pub(super) fn nvls(&self, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let sums = self.kind != CollectiveKind::AllGather;
        let spreads = self.kind != CollectiveKind::ReduceScatter;
        if self.is_switch(index) {
            let locals = self.locals(index - self.members());
            self.chunks_of_heads(channel, &mut |range| {
                for (local, &head) in (0..).zip(&locals) {
                    let ranges = SmallVec::from_slice(&[range(local)]);
                    if sums {
                        let to = SmallVec::from_slice(&[head]);
                        tell(Step { from: locals.clone(), to, ranges: ranges.clone(), ..Step::default() });
                    }
                    if spreads {
                        let from = SmallVec::from_slice(&[head]);
                        let step = Step { lane: 1, from, to: locals.clone(), ranges, ..Step::default() };
                        tell(Step { take: SPREAD, pass: SPREAD, ..step });
                    }
                }
            });
            return;
        }
        let (domain, local) = (index / self.layout.ranks, index % self.layout.ranks);
        let switch = self.switch(domain);
        let (parent, children) = match self.layout.domains {
            1 => (None, [None; 2]),
            domains => relatives(domains, channel % 2, domain),
        };
        let parent = parent.map(|domain| self.at(domain, local));
        let children: SmallVec<[u32; 3]> =
            children.into_iter().flatten().map(|domain| self.at(domain, local)).collect();
        self.chunks_of_heads(channel, &mut |range| {
            let own = range(local);
            if sums {
                for head in 0..self.layout.ranks {
                    tell(Step { lane: OUT, ..Step::send(switch, range(head)) });
                }
                let mut sum = Step { lane: HEAD, ..Step::receive(switch, own) };
                sum.from.extend(children.iter().copied());
                tell(match parent {
                    Some(parent) => sum.and_send(parent),
                    None => sum.kept(),
                });
            }
            let way = if parent.is_some() { DOWN } else { HEAD };
            if let Some(parent) = parent {
                tell(Step { lane: way, ..Step::receive(parent, own).kept() });
            }
            for &child in &children {
                tell(Step { lane: way, ..Step::send(child, own) });
            }
            if spreads {
                tell(Step { lane: way, pass: SPREAD, ..Step::send(switch, own) });
                for head in 0..self.layout.ranks {
                    tell(Step { lane: BACK, take: SPREAD, ..Step::receive(switch, range(head)).kept() });
                }
            }
        });
    }

    /// CollNet where each rank of a domain is a head: it sums what the others of its domain have of its chunks.
    pub(super) fn collnet_direct(&self, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let (n, ranks) = (self.members(), self.layout.ranks);
        if self.is_switch(index) {
            self.chunks_of_heads(channel, &mut |range| {
                for local in 0..ranks {
                    tell(Step { lane: local, ..self.summed_by_network(local, range(local)) });
                }
            });
            return;
        }
        let (domain, local) = (index / ranks, index % ranks);
        // Each begins with the one behind it, so that not all go to one head at once.
        let others: SmallVec<[u32; 3]> = (1..ranks).map(|behind| (local + behind) % ranks).collect();
        let members: SmallVec<[u32; 3]> = others.iter().map(|&other| self.at(domain, other)).collect();
        self.chunks_of_heads(channel, &mut |range| {
            let own = range(local);
            for (&other, &member) in others.iter().zip(&members) {
                tell(Step { lane: OUT, ..Step::send(member, range(other)) });
            }
            let sum = Step { lane: HEAD, from: members.clone(), reduce: ranks > 1, ..Step::send(n, own) };
            tell(sum);
            tell(Step { lane: DOWN, ..Step::receive(n, own).kept() });
            for (&other, &member) in others.iter().zip(&members) {
                tell(Step { lane: DOWN, pass: SPREAD, ..Step::send(member, own) });
                tell(Step { lane: BACK, take: SPREAD, ..Step::receive(member, range(other)).kept() });
            }
        });
    }

    /// CollNet where a domain's ranks hang behind one head in a chain, behind another on each channel.
    pub(super) fn collnet_chain(&self, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let (n, ranks) = (self.members(), self.layout.ranks);
        let head = channel % ranks;
        let part = cut(self.bytes, self.channels(), channel);
        if self.is_switch(index) {
            for range in pieces(part, self.chunk) {
                tell(self.summed_by_network(head, range));
            }
            return;
        }
        let (domain, local) = (index / ranks, index % ranks);
        let along = (local + ranks - head) % ranks;
        let above = if along == 0 { n } else { self.at(domain, head + along - 1) };
        let below = (along + 1 < ranks).then(|| self.at(domain, head + along + 1));
        for range in pieces(part, self.chunk) {
            let (from, reduce) = (below.into_iter().collect(), below.is_some());
            tell(Step { lane: HEAD, from, reduce, ..Step::send(above, range) });
            let down = Step { lane: DOWN, ..Step::receive(above, range).kept() };
            tell(match below {
                Some(below) => down.and_send(below),
                None => down,
            });
        }
    }

    /// The network's step: the chunks that number `local` of every domain has are summed, and the sum goes back to each.
    fn summed_by_network(&self, local: u32, range: (u64, u64)) -> Step {
        let heads: SmallVec<[u32; 3]> =
            (0..self.layout.domains).map(|domain| self.at(domain, local)).collect();
        Step { from: heads.clone(), to: heads, ranges: SmallVec::from_slice(&[range]), ..Step::default() }
    }
}
