//! What each rank does on each channel of a collective of NCCL: the steps of its kernels, in order.
//!
//! A channel is a block of threads on every GPU with its own part of the buffer. It does one [`Step`] after another: wait for a chunk
//! of each peer in `from`, add its own where the step reduces, keep the result, pass it on to each in `to`. What NCCL calls
//! `send`, `recvReduceSend`, `recvReduceCopySend`, `recvCopySend` and `recv` are the steps with and without each of these.
//!
//! Life cycle: [`Steps`] is made of a choice of the tuner for a group and answers for any index and channel; nothing is kept.
//! Invariants: the k-th message from a to b on a channel (and queue) is taken by b's k-th step from a there, and both have its ranges in the
//! same order; a channel's ranges are its own, so channels never wait for each other; on every rank the steps in order end with what the
//! collective computes (the test executes them on sets of contributions).
//!
//! Sources: NCCL `src/device/all_reduce.h`, `all_gather.h`, `reduce_scatter.h`, `broadcast.h`, `reduce.h` (order of steps),
//! `src/enqueue.cc` and `src/include/device.h` (chunks, slices, buffers) at github.com/NVIDIA/nccl@5067397c2676; facts only. Hu et al.
//! 2025, arXiv:2507.04786, section 5.

mod exchange;
mod ring;
mod switches;
mod tree;

use std::sync::Arc;

use smallvec::SmallVec;

pub(crate) use switches::CHANNELS as SWITCH_CHANNELS;
pub(super) use switches::chunk as chunk_of_sums;

use super::time::step;
use super::{Algorithm, Choice, Communicator, Function, Layout, Protocol};
use crate::collectives::{CollectiveKind, CollectiveSpec};

/// Steps that a buffer between two GPUs holds (`NCCL_STEPS`).
const BUFFERED: u32 = 8;

/// A step of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Chains of one channel that go beside each other: a tree goes up in one and down in the other.
    pub lane: u32,
    /// Members from each of which a chunk comes.
    pub from: SmallVec<[u32; 3]>,
    /// Which of the queues between two members it is that they come by; 0 but for sums in switches.
    pub take: u32,
    /// And by which the result goes.
    pub pass: u32,
    /// Members that get the result.
    pub to: SmallVec<[u32; 3]>,
    /// Where it lies: first byte and how many. An all-to-all's output lies behind its input.
    pub ranges: SmallVec<[(u64, u64); 1]>,
    /// Whether the rank adds what it has there itself.
    pub reduce: bool,
    /// Whether the rank keeps the result there.
    pub keep: bool,
}

impl Step {
    /// Data of a message of this step.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|&(_, bytes)| bytes).sum()
    }

    fn send(to: u32, range: (u64, u64)) -> Self {
        Self { to: SmallVec::from_slice(&[to]), ranges: SmallVec::from_slice(&[range]), ..Self::default() }
    }

    fn receive(from: u32, range: (u64, u64)) -> Self {
        Self {
            from: SmallVec::from_slice(&[from]),
            ranges: SmallVec::from_slice(&[range]),
            ..Self::default()
        }
    }

    fn and_send(mut self, to: u32) -> Self {
        self.to.push(to);
        self
    }

    fn reduced(mut self) -> Self {
        self.reduce = true;
        self
    }

    fn kept(mut self) -> Self {
        self.keep = true;
        self
    }
}

/// A collective of a group, as NCCL does it.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    kind: CollectiveKind,
    bytes: u64,
    matrix: Option<Arc<[u64]>>,
    layout: Layout,
    choice: Choice,
    /// Most data of a step.
    chunk: u64,
    /// Most data of a message.
    slice: u64,
    /// Least data of a message where a step is cut into two.
    least: u64,
    /// Messages to a peer under way on a channel.
    slots: u32,
}

impl Steps {
    /// What `choice` makes of `spec`; `None` for a collective that NCCL has not. Where switches sum, they are members behind the ranks
    /// ([`Self::switches`]).
    pub fn new(
        spec: &CollectiveSpec,
        communicator: &Communicator<'_>,
        choice: Choice,
        chunk: Option<u64>,
    ) -> Option<Self> {
        let function = match spec.kind {
            CollectiveKind::AllToAllV => Function::AllToAll,
            kind => Function::of(kind)?,
        };
        let fits = match choice.algorithm {
            Algorithm::Ring => function != Function::AllToAll,
            Algorithm::Tree => function == Function::AllReduce,
            Algorithm::Pat => {
                matches!(function, Function::AllGather | Function::ReduceScatter)
                    && communicator.layout.ranks == 1
            }
            Algorithm::PointToPoint => function == Function::AllToAll,
            Algorithm::Nvls => {
                matches!(function, Function::AllReduce | Function::AllGather | Function::ReduceScatter)
                    && communicator.layout.domains == 1
            }
            Algorithm::NvlsTree | Algorithm::CollnetDirect | Algorithm::CollnetChain => {
                function == Function::AllReduce && communicator.layout.domains > 1
            }
        };
        if !fits {
            return None;
        }
        // A peer of grouped sends has some of the channels, not all.
        let peer = match choice.algorithm {
            Algorithm::PointToPoint => communicator.channels_of_peer(),
            Algorithm::Ring | Algorithm::Tree | Algorithm::Pat => choice.channels,
            _ => switches::CHANNELS,
        };
        let choice = Choice { channels: choice.channels.min(peer).max(1), ..choice };
        let bytes = spec.bytes.get();
        let step = step(choice.protocol, communicator.settings.buffer).max(16);
        // Rings of Simple take four steps at once, in two slices.
        let long = choice.algorithm == Algorithm::Ring
            && choice.protocol == Protocol::Simple
            && !matches!(function, Function::Broadcast | Function::Reduce);
        let sums = choice.algorithm.sums_in_switches();
        let natural = match choice.algorithm {
            _ if sums => switches::chunk(choice, communicator.layout, bytes, step),
            Algorithm::Tree => (communicator.tree_chunk(choice, bytes) as u64).max(16),
            _ if long => 4 * step,
            _ => step,
        };
        let chunk = chunk.unwrap_or(natural).max(1);
        let (slice, least) = match long {
            _ if sums => (chunk, chunk),
            true => (2 * step, step / 16),
            false => (step, step),
        };
        Some(Self {
            kind: spec.kind,
            bytes,
            matrix: spec.matrix.clone(),
            layout: communicator.layout,
            choice,
            chunk,
            slice,
            least,
            slots: if long { BUFFERED / 2 } else { BUFFERED },
        })
    }

    /// Switches that take part, members behind those of the group: one of each domain where NVLink's sum, one where the network's do.
    pub const fn switches(&self) -> u32 {
        match self.choice.algorithm {
            Algorithm::Nvls | Algorithm::NvlsTree => self.layout.domains,
            Algorithm::CollnetDirect | Algorithm::CollnetChain => 1,
            _ => 0,
        }
    }

    /// Members of the group.
    pub const fn members(&self) -> u32 {
        self.layout.members()
    }

    /// What the tuner chose.
    pub const fn choice(&self) -> Choice {
        self.choice
    }

    /// Channels.
    pub const fn channels(&self) -> u32 {
        self.choice.channels
    }

    /// Messages between two members that are under way on a channel at most: the buffer between them holds no more. NVLink's switches
    /// have one for each head.
    pub const fn slots(&self, one: u32, other: u32) -> u32 {
        let switch = one >= self.members() || other >= self.members();
        match self.choice.algorithm {
            Algorithm::Nvls | Algorithm::NvlsTree if switch => self.slots * self.layout.ranks,
            _ => self.slots,
        }
    }

    /// Bytes on the wire of so many bytes of data: LL has 8 bytes of data in a line of 16, LL128 120 in one of 128.
    pub const fn on_the_wire(&self, data: u64) -> u64 {
        match self.choice.protocol {
            Protocol::Simple => data,
            Protocol::LL => data.div_ceil(8) * 16,
            Protocol::LL128 => data.div_ceil(120) * 128,
        }
    }

    /// Data of each message of a step of `bytes`.
    pub fn messages(&self, bytes: u64) -> impl Iterator<Item = u64> {
        // Half of the step, in whole lines of 16 bytes; short steps are one message.
        let half = bytes.div_ceil(2).next_multiple_of(16);
        let each = half.max(self.least).min(self.slice).max(1);
        (0..bytes.div_ceil(each)).map(move |number| each.min(bytes - number * each))
    }

    /// The steps of member `index` on `channel`, each told to `tell`.
    pub fn each(&self, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        // What carries nothing is no message, on either side.
        let tell = &mut |step: Step| {
            if step.bytes() > 0 {
                tell(step);
            }
        };
        match self.choice.algorithm {
            Algorithm::Tree => self.tree(index, channel, tell),
            Algorithm::Pat => self.pat(index, channel, tell),
            Algorithm::PointToPoint => self.exchange(index, channel, tell),
            Algorithm::Nvls | Algorithm::NvlsTree => self.nvls(index, channel, tell),
            Algorithm::CollnetDirect => self.collnet_direct(index, channel, tell),
            Algorithm::CollnetChain => self.collnet_chain(index, channel, tell),
            Algorithm::Ring => self.ring(index, channel, tell),
        }
    }
}

/// Part `number` of `parts` of so many bytes: its first byte, and how many; they differ by at most one.
fn cut(bytes: u64, parts: u32, number: u32) -> (u64, u64) {
    let (parts, number) = (u64::from(parts), u64::from(number));
    let (each, more) = (bytes / parts, bytes % parts);
    (number * each + number.min(more), each + u64::from(number < more))
}

/// Pieces of at most `most` bytes of a range, in order.
fn pieces((first, bytes): (u64, u64), most: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(most)).map(move |number| (first + number * most, most.min(bytes - number * most)))
}

#[cfg(test)]
mod tests;
