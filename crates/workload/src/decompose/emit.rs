//! The operations of a rank's channels.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use windtunnel_kernel::{BitRate, Bytes, NicId, RankId, Span, StreamId, Tag};

use crate::collectives::nccl::{Step, Steps};
use crate::{Dimension, OpKind, Peer, ProgramBuilder};

/// One call of one rank.
pub(super) struct Channels<'a> {
    pub builder: &'a mut ProgramBuilder,
    /// Of the rank's receives.
    pub sizes: &'a mut Vec<u64>,
    pub steps: &'a Steps,
    /// Ranks of the members, and behind them those that stand for switches.
    pub members: &'a [RankId],
    pub reduce: Option<BitRate>,
    pub dimension: Dimension,
    pub label: u32,
    /// The call's own begin.
    pub first: u32,
    /// What the end waits for.
    pub ends: Vec<u32>,
}

/// The last messages to or from a peer, as many as the buffer holds: a ring of their operations.
#[derive(Default)]
struct Window {
    ops: SmallVec<[u32; 8]>,
    next: usize,
}

impl Window {
    /// What has to be done before the next one, where the buffer is full.
    fn before(&self, slots: u32) -> Option<u32> {
        (self.ops.len() == slots as usize).then(|| self.ops[self.next])
    }

    fn push(&mut self, op: u32, slots: u32) {
        if self.ops.len() < slots as usize {
            self.ops.push(op);
        } else {
            self.ops[self.next] = op;
            self.next = (self.next + 1) % slots as usize;
        }
    }
}

/// Where a channel is.
#[derive(Default)]
struct State {
    /// The last computation of each lane.
    chains: BTreeMap<u32, u32>,
    /// By member and queue.
    sent: BTreeMap<(u32, u32), Window>,
    taken: BTreeMap<(u32, u32), Window>,
}

impl Channels<'_> {
    /// All steps of member `index` on `channel`, with a tag for each of its queues.
    pub(super) fn channel(&mut self, index: u32, channel: u32, tags: [Tag; 2], stream: StreamId) {
        let (steps, mut state) = (self.steps, State::default());
        steps.each(index, channel, &mut |step| {
            for bytes in steps.messages(step.bytes()) {
                self.message(index, &step, bytes, tags, stream, &mut state);
            }
        });
        self.ends.extend(state.chains.into_values());
        self.ends.extend(state.sent.into_values().flat_map(|window| window.ops));
    }

    fn message(
        &mut self,
        index: u32,
        step: &Step,
        bytes: u64,
        tags: [Tag; 2],
        stream: StreamId,
        state: &mut State,
    ) {
        let wire = self.steps.on_the_wire(bytes);
        let (taken_by, sent_by) = (tags[step.take as usize], tags[step.pass as usize]);
        let last = state.chains.get(&step.lane).copied();
        let ready = if step.from.is_empty() {
            last.unwrap_or(self.first)
        } else {
            let mut arrived: SmallVec<[u32; 4]> = last.into_iter().collect();
            for &from in &step.from {
                let peer = Some(Peer::Rank(self.members[from as usize]));
                let slots = self.steps.slots(index, from);
                let full = state.taken.get(&(from, step.take)).and_then(|window| window.before(slots));
                let receive = OpKind::Receive { peer, tag: Some(taken_by), stream };
                arrived.push(self.push(receive, &[full.unwrap_or(self.first)]));
                self.sizes.push(wire);
            }
            // Switches sum as it passes through them.
            let threads = self.reduce.filter(|_| !self.steps.is_switch(index));
            let duration = threads.map_or(Span::ZERO, |rate| rate.serialise(Bytes::new(bytes)));
            let done = self.push(OpKind::Calc { duration, stream }, &arrived);
            for &from in &step.from {
                let slots = self.steps.slots(index, from);
                state.taken.entry((from, step.take)).or_default().push(done, slots);
            }
            state.chains.insert(step.lane, done);
            done
        };
        for &to in &step.to {
            let slots = self.steps.slots(index, to);
            let window = state.sent.entry((to, step.pass)).or_default();
            let mut after: SmallVec<[u32; 2]> = SmallVec::from_slice(&[ready]);
            after.extend(window.before(slots));
            let peer = Peer::Rank(self.members[to as usize]);
            let send = OpKind::Send { peer, bytes: Bytes::new(wire), tag: sent_by, stream, nic: NicId(0) };
            let sent = self.push(send, &after);
            state.sent.entry((to, step.pass)).or_default().push(sent, slots);
        }
    }

    fn push(&mut self, kind: OpKind, after: &[u32]) -> u32 {
        let index = self.builder.push(kind, self.dimension, self.label);
        for &before in after {
            self.builder.requires(index, before);
        }
        index
    }
}
