//! What sharding adds to a rank's passes: gathers of parameters ahead of their use, reductions of gradients behind.

use smallvec::SmallVec;
use windtunnel_kernel::Bytes;

use super::{Emitter, Lane, Tail};
use crate::collectives::CollectiveKind;
use crate::generate::grid::Role;
use crate::generate::passes::Exchange;
use crate::generate::sharding::Load;
use crate::program::Dimension;
use crate::schedules::Shape;

impl Emitter<'_> {
    /// Emits every gather up to number `last`, to start after `tail`.
    pub(super) fn gather_up_to(&mut self, last: u32, tail: &Tail) {
        while self.gathered.len() < self.gathers.loads.len() && self.gathered.len() as u64 <= u64::from(last)
        {
            let load = self.gathers.loads[self.gathered.len()];
            let half = self.shard_half(load.chunk);
            let mut ops = SmallVec::new();
            for (role, bytes) in [(Role::Shard(half), load.dense), (Role::ExpertShard(half), load.expert)] {
                if bytes.get() > 0 {
                    let kind = CollectiveKind::AllGather;
                    let exchange = Exchange {
                        role,
                        dimension: Dimension::Dp,
                        kind,
                        bytes,
                        routing: None,
                        label: "all-gather parameters",
                    };
                    ops.extend(self.collective(exchange, bytes, tail));
                }
            }
            self.gathered.push(ops);
        }
    }

    /// The half that names the shard groups of a chunk's stage (see [`Role::Shard`]).
    fn shard_half(&self, chunk: u16) -> u16 {
        let both = self.placement.shape == Shape::Bidirectional;
        u16::from(both && self.stage(chunk) >= self.stages.len() / 2)
    }

    pub(super) fn enter(&mut self, lane: &mut Lane) {
        let gather = self.gathers.of_entry[self.entry];
        self.entry += 1;
        let Some(gather) = gather else { return };
        if self.layout.zero == 3 {
            self.flush(lane);
            let tail: Tail = lane.tail.iter().copied().filter(|&op| Some(op) != lane.input).collect();
            self.gather_up_to(gather.saturating_add(self.layout.prefetch), &tail);
        }
        // A gather is awaited once: what follows on the lane comes after it.
        let ops = std::mem::take(&mut self.gathered[gather as usize]);
        if !ops.is_empty() {
            self.flush(lane);
            lane.tail.extend(ops);
        }
    }

    pub(super) fn leave(&mut self, lane: &mut Lane, units: &[u32]) {
        if !lane.reduces {
            return;
        }
        let work = &self.stages[self.stage(lane.action.chunk)];
        if !self.layout.overlap_gradients {
            let chunk = lane.action.chunk;
            let position = self.late.iter().position(|load| load.chunk == chunk).unwrap_or_else(|| {
                self.late.push(Load { chunk, ..Load::default() });
                self.late.len() - 1
            });
            for &unit in units {
                self.late[position].add_gradients(work, unit);
            }
            return;
        }
        for &unit in units {
            lane.bucket.add_gradients(work, unit);
        }
        if self.layout.zero == 3 || lane.bucket.total() >= self.layout.bucket_bytes {
            self.reduce(lane);
        }
    }

    /// Sends the lane's bucket on its way.
    pub(super) fn reduce(&mut self, lane: &mut Lane) {
        let load = std::mem::replace(&mut lane.bucket, Load { chunk: lane.action.chunk, ..Load::default() });
        if load.total().get() == 0 {
            return;
        }
        self.flush(lane);
        self.reduce_load(load, &lane.tail);
    }

    /// Reduces what was kept until the last pass, one chunk after the other.
    pub(super) fn reduce_late(&mut self, tail: &Tail) {
        for load in std::mem::take(&mut self.late) {
            self.reduce_load(load, tail);
        }
    }

    /// Reduces `load` once `tail` is done.
    fn reduce_load(&mut self, load: Load, tail: &[u32]) {
        let kind = self.layout.gradient_sum();
        let label = match kind {
            CollectiveKind::AllReduce => "all-reduce gradients",
            _ => "reduce-scatter gradients",
        };
        let half = self.shard_half(load.chunk);
        for (role, bytes) in [(Role::Shard(half), load.dense), (Role::ExpertShard(half), load.expert)] {
            if bytes.get() == 0 {
                continue;
            }
            let exchange = Exchange { role, dimension: Dimension::Dp, kind, bytes, routing: None, label };
            let reduced = self.collective(exchange, bytes, tail);
            let shard = bytes.get().div_ceil(u64::from(role.size(self.layout, self.placement)));
            let across = Exchange {
                role: Role::Replicate,
                kind: CollectiveKind::AllReduce,
                label: "all-reduce shards",
                ..exchange
            };
            let tail = reduced.map_or_else(|| Tail::from_slice(tail), |op| Tail::from_slice(&[op]));
            self.collective(across, Bytes::new(shard), &tail);
        }
    }
}
