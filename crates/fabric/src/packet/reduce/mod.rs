//! Reduction in the network, packet by packet: see [`crate::reduction`] for the tree and its turns.
//!
//! **Life cycle.** A run begins at all its members at once, when the last of them has come (`front`). A member cuts its vector
//! into segments of a full packet's payload and sends the first W of them ([`Contribution`](super::packets::Kind::Contribution)), W being the run's part
//! of the slots of a switch; the sum of segment k makes room for segment k + W. A switch keeps one slot for each segment
//! under way; when every child has contributed, the sum goes to the switch above, one latency later, or, at the root, down
//! to all children ([`Sum`](super::packets::Kind::Sum)). Switches below copy it to theirs. The run ends when every member has the last sum.
//!
//! **Loss.** As in SwitchML (Sapio et al., "Scaling distributed machine learning with in-network aggregation", NSDI 2021,
//! section 3.5), a member sends a segment again whose sum does not come, and a switch keeps sums for as long as a child may
//! lack them: a child that sends k has the sum of k − W, so when it does every child has contributed k − W and has the sum of
//! k − 2W, and 2W places are enough. A contribution that is known is not added again; it is answered by the sum, or, if
//! there is none yet, passed on once more. That holds for every residue of k mod W by itself, so a lost packet stops no
//! other slot.
//!
//! **Invariants.** Names ([`RunSpec::number`]) are counted by the front, so no result depends on processes. A packet of a run that
//! has ended finds another number, or none, and is forgotten.

mod engine;
mod front;

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::Bytes;

use super::packets::NONE;
use crate::reduction::Tree;
pub(super) use front::{Ended, Front};

/// A tree with what the engine asks of it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub tree: Arc<Tree>,
    /// NIC ports of the members with the member, in that order.
    pub ports: Vec<(u32, u32)>,
    /// A segment's round trip on an idle fabric.
    pub round_trip: u64,
}

/// One run, as every process is told of it.
#[derive(Clone, Debug)]
pub(super) struct RunSpec {
    /// Where it is kept, and its name among all runs.
    pub slot: u32,
    pub number: u64,
    pub prepared: Arc<Prepared>,
    pub bytes: Bytes,
    /// Data queue.
    pub queue: u8,
    /// The caller's name for it, told once for each member.
    pub token: u64,
}

/// A segment at a switch.
#[derive(Clone, Copy, Debug)]
struct Slot {
    segment: u32,
    /// Children that have contributed.
    count: u32,
    /// Whether its sum has gone down.
    done: bool,
}

/// A switch's slots; empty until the first contribution.
#[derive(Clone, Debug, Default)]
struct Places {
    slots: Vec<Slot>,
    /// Which children have contributed, `words` for each slot.
    came: Vec<u64>,
    words: usize,
}

/// A member's segments under way, one for each residue; empty until it begins.
#[derive(Clone, Debug, Default)]
struct Contributor {
    /// The segment, [`NONE`] if there is no more, and when it was last handed to the NIC.
    under_way: Vec<(u32, u64)>,
    /// Sums that have not come.
    missing: u32,
    /// Time-outs in a row without a sum.
    silent: u8,
    /// When its timer is due.
    due: u64,
}

/// A run under way in one process.
#[derive(Clone, Debug)]
struct Run {
    spec: RunSpec,
    start: u64,
    segments: u32,
    window: u32,
    /// By the tree's numbers.
    places: Vec<Places>,
    contributors: Vec<Contributor>,
}

/// What a switch does about a contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Wait,
    /// All have contributed.
    Sum,
    /// It was known, and the sum has been passed up: once more.
    UpAgain,
    /// It was known, and the sum has come down: once more to that child.
    DownAgain,
}

impl Run {
    fn new(spec: RunSpec, start: u64, payload: u64, window: u32) -> Self {
        let segments = u32::try_from(spec.bytes.get().div_ceil(payload)).expect("fewer than 2^32 segments");
        let tree = &spec.prepared.tree;
        Self {
            start,
            segments,
            window: window.min(segments),
            places: vec![Places::default(); tree.nodes.len()],
            contributors: vec![Contributor::default(); tree.members.len()],
            spec,
        }
    }

    /// Payload of a segment.
    fn payload_of(&self, segment: u32, payload: u64) -> u64 {
        payload.min(self.spec.bytes.get() - u64::from(segment) * payload)
    }

    /// Child `child` of node `node` contributes to `segment`.
    fn contribute(&mut self, node: u32, child: u32, segment: u32) -> Step {
        let children = self.spec.prepared.tree.nodes[node as usize].children.len();
        let places = &mut self.places[node as usize];
        let kept = (2 * self.window).min(self.segments) as usize;
        if places.slots.is_empty() {
            places.words = children.div_ceil(64);
            places.slots = vec![Slot { segment: NONE, count: 0, done: false }; kept];
            places.came = vec![0; kept * places.words];
        }
        let place = segment as usize % kept;
        let slot = &mut places.slots[place];
        if slot.segment != segment {
            if slot.segment != NONE && slot.segment > segment {
                // A late copy of one whose sum all children have.
                return Step::Wait;
            }
            *slot = Slot { segment, count: 0, done: false };
            places.came[place * places.words..(place + 1) * places.words].fill(0);
        }
        let word = &mut places.came[place * places.words + child as usize / 64];
        let bit = 1 << (child % 64);
        if *word & bit == 0 {
            *word |= bit;
            slot.count += 1;
            return if slot.count as usize == children { Step::Sum } else { Step::Wait };
        }
        match (slot.done, slot.count as usize == children) {
            (true, _) => Step::DownAgain,
            (false, true) => Step::UpAgain,
            (false, false) => Step::Wait,
        }
    }

    /// The sum of `segment` is at node `node` on its way down; whether it is new there.
    fn settle(&mut self, node: u32, segment: u32) -> bool {
        let places = &mut self.places[node as usize];
        let kept = places.slots.len();
        match places.slots.get_mut(segment as usize % kept.max(1)) {
            Some(slot) if slot.segment == segment && !slot.done => {
                slot.done = true;
                true
            }
            _ => false,
        }
    }
}

/// A sum on its way through a switch's unit.
#[derive(Clone, Copy, Debug)]
struct Due {
    time: u64,
    slot: u32,
    number: u64,
    node: u32,
    segment: u32,
}

/// What sums in a switch.
#[derive(Clone, Debug, Default)]
struct Unit {
    free_at: u64,
    /// In order of time.
    due: VecDeque<Due>,
}

/// The runs under way in one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Reductions {
    runs: Vec<Option<Box<Run>>>,
    units: FxHashMap<u32, Unit>,
}

impl Reductions {
    fn get(&mut self, slot: u32, number: u64) -> Option<&mut Run> {
        let run = self.runs.get_mut(slot as usize)?.as_deref_mut()?;
        (run.spec.number == number).then_some(run)
    }
}
