//! Collectives as the messages and reductions that NCCL makes of them, rank by rank.
//!
//! Each call becomes a computation of no length, or as long as a launch, where it begins, the steps of its channels
//! ([`crate::collectives::nccl::Steps`]) and a computation of no length where it ends. A step is, for each message of it: a receive from
//! each peer, a computation when they are there (the copy or the sum), a send to each peer. Computations of a chain go one after
//! another; a receive is posted, and a send leaves, when the one to the same peer that is as many messages before as the buffer holds is
//! done. So channels go beside each other and a chain is as far ahead as NCCL's buffers let it.
//!
//! Life cycle: [`Decomposition::new`] looks at every collective once, asks the tuner, and keeps a plan for each size and group;
//! [`ByRank::made`] makes the program of one rank, which whoever writes forgets before the next. So memory is that of the workload
//! and of one rank's program, whatever the channels.
//! What NCCL would have switches sum is done by the tuner's next best, and the account ([`Row::instead`]) says so; or, if [`Rules::switches`] asks
//! for it, ranks behind those of the workload stand for the switches ([`Switches`]).
//! Failure modes: [`LowerError`] for a collective that neither NCCL nor its own algorithm does.

mod emit;
mod switches;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use windtunnel_kernel::{BitRate, RankId, Span, StreamId, Tag};

use crate::collectives::nccl::{
    Communicator, Constants, Function, Layout, Library, Protocol, SWITCH_CHANNELS, Settings, Steps,
};
use crate::collectives::{CollectiveKind, CollectiveSpec, Plan};
use crate::goal::{ByRank, Made, Matcher};
use crate::lower::{LowerError, Parts};
use crate::program::CommSlot;
use crate::{OpKind, Peer, Program, ProgramBuilder, Workload};
use emit::Channels;
pub use switches::Switches;

/// Tags from here on belong to collectives.
const FIRST_TAG: u64 = 1 << 30;
/// How many tags there are before they begin anew.
const TAGS: u64 = (1 << 31) + (1 << 30) - 2;
/// No collective has more channels.
const MAX_CHANNELS: u64 = 64;

/// What is not the tuner's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rules {
    /// Most data of a step in place of what the buffer gives.
    pub chunk: Option<u64>,
    /// What the threads of a channel sum or copy; they take no time if left out.
    pub reduce: Option<BitRate>,
    /// Whether a call begins with its launch.
    pub launch: bool,
    /// Whether ranks stand for switches that sum; the tuner's next best otherwise.
    pub switches: bool,
}

/// How calls are done that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// What they compute.
    pub kind: &'static str,
    /// Size of each.
    pub bytes: u64,
    /// Members.
    pub members: u32,
    /// NCCL's algorithm, or ours where NCCL has no such collective.
    pub algorithm: &'static str,
    /// Protocol; empty where NCCL has no such collective.
    pub protocol: &'static str,
    /// Channels.
    pub channels: u32,
    /// Whether NCCL would have switches sum.
    pub instead: bool,
}

/// A collective of a group, and how it is done.
enum How {
    Steps(Box<Steps>, Span),
    Plan(Box<Plan>),
}

/// Specification of a program, and members of the group.
type Key = (u32, u32, u32);

/// A workload whose collectives are decomposed as its ranks are asked for.
pub struct Decomposition<'a> {
    workload: &'a Workload,
    matcher: Matcher<'a>,
    rules: Rules,
    how: FxHashMap<Key, How>,
    rows: BTreeMap<Row, u64>,
    /// Streams that the workload does not use, for channels.
    free: Vec<StreamId>,
    /// Streams of collectives, of which each has channels of its own.
    beside: Vec<StreamId>,
    most_channels: u32,
    switches: Switches,
    /// Operations of each rank that was made.
    written: Vec<AtomicU64>,
}

impl<'a> Decomposition<'a> {
    /// Plans all collectives of `workload`: those that name NCCL ([`CollectiveSpec::library`]) as it does them, others by their algorithm.
    ///
    /// # Errors
    /// [`LowerError`] for a collective that its algorithm does not compute, or that is left none.
    pub fn new(workload: &'a Workload, rules: Rules) -> Result<Self, LowerError> {
        let mut made = Self {
            workload,
            matcher: Matcher::new(workload),
            rules,
            how: FxHashMap::default(),
            rows: BTreeMap::new(),
            free: Vec::new(),
            beside: Vec::new(),
            most_channels: 1,
            switches: Switches::default(),
            written: Vec::new(),
        };
        let mut row_of: FxHashMap<Key, Row> = FxHashMap::default();
        let mut used = [false; 256];
        for rank in (0..workload.ranks() as u32).map(RankId) {
            let program = workload.program(rank);
            for (operation, op) in (0..).zip(&program.ops) {
                let (OpKind::Calc { stream, .. }
                | OpKind::Send { stream, .. }
                | OpKind::Receive { stream, .. }
                | OpKind::Collective { stream, .. }) = op.kind;
                used[usize::from(stream.0)] = true;
                let OpKind::Collective { comm, spec, .. } = op.kind else { continue };
                if !made.beside.contains(&stream) {
                    made.beside.push(stream);
                }
                let (key, index) = made.key(rank, comm, spec);
                let row = match row_of.get(&key) {
                    Some(row) => *row,
                    None => {
                        let spec = &program.specs[spec as usize];
                        let (how, row) = plan(spec, key.2, &rules).map_err(|error| match error {
                            Refused::Plan(error) => LowerError::Collective { rank: rank.0, operation, error },
                            Refused::Nccl(error) => LowerError::Nccl { rank: rank.0, operation, error },
                        })?;
                        made.most_channels = made.most_channels.max(row.channels);
                        made.how.insert(key, how);
                        row_of.insert(key, row);
                        row
                    }
                };
                // Once for all members.
                *made.rows.entry(row).or_default() += u64::from(index == 0);
                if let (0, How::Steps(steps, _)) = (index, &made.how[&key]) {
                    let binding = workload.binding(rank, comm);
                    let members = &workload.communicators[binding.communicator as usize].ranks;
                    let spec = &program.specs[spec as usize];
                    made.switches.take_part(binding.communicator, members, steps, spec);
                }
            }
        }
        made.switches.settle(workload.ranks() as u32);
        made.written = (0..made.ranks()).map(|_| AtomicU64::new(0)).collect();
        made.beside.sort_unstable();
        // Those of a GPU's own and the host's are left alone.
        made.free = (8..=255).filter(|&stream| !used[usize::from(stream)]).map(StreamId).collect();
        Ok(made)
    }

    /// How calls are done, and how many are done so.
    pub fn rows(&self) -> &BTreeMap<Row, u64> {
        &self.rows
    }

    /// Ranks behind those of the workload, which stand for switches.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Operations of the ranks that were made.
    pub fn written(&self) -> u64 {
        self.written.iter().map(|operations| operations.load(Ordering::Relaxed)).sum()
    }

    fn count(&self, rank: RankId, operations: u64) {
        self.written[rank.0 as usize].store(operations, Ordering::Relaxed);
    }

    fn key(&self, rank: RankId, comm: CommSlot, spec: u32) -> (Key, u32) {
        let binding = self.workload.binding(rank, comm);
        let members = self.workload.communicators[binding.communicator as usize].ranks.len() as u32;
        ((self.workload.program_of[rank.0 as usize], spec, members), binding.index)
    }

    /// The stream of a channel.
    fn stream(&self, of: StreamId, channel: u32) -> StreamId {
        let group = self.beside.binary_search(&of).unwrap_or(0) as u64;
        let number = group * u64::from(self.most_channels) + u64::from(channel);
        if self.free.is_empty() { of } else { self.free[(number % self.free.len() as u64) as usize] }
    }
}

/// The tag of a lane or channel of a call.
fn tag(communicator: u32, sequence: u32, lane: u32) -> Tag {
    let number = u64::from(communicator).wrapping_mul(0x9E37_79B9).wrapping_add(u64::from(sequence));
    Tag(FIRST_TAG + (number.wrapping_mul(MAX_CHANNELS) + u64::from(lane)) % TAGS)
}

/// The tags of a channel's two queues; the second is that of sums in switches, which have half as many channels.
fn tags(tag: &dyn Fn(u32) -> Tag, channel: u32) -> [Tag; 2] {
    [tag(channel), tag(channel + SWITCH_CHANNELS)]
}

enum Refused {
    Plan(crate::collectives::CollectiveError),
    Nccl(crate::collectives::nccl::NcclError),
}

/// How `spec` is done in a group of `n`.
fn plan(spec: &CollectiveSpec, n: u32, rules: &Rules) -> Result<(How, Row), Refused> {
    let row = |algorithm, protocol, channels, instead| Row {
        kind: spec.kind.name(),
        bytes: spec.bytes.get(),
        members: n,
        algorithm,
        protocol,
        channels,
        instead,
    };
    if let Some((steps, launch, instead)) = steps(spec, n, rules).map_err(Refused::Nccl)? {
        let choice = steps.choice();
        let row = row(choice.algorithm.name(), choice.protocol.name(), choice.channels, instead);
        return Ok((How::Steps(Box::new(steps), launch), row));
    }
    let plain = CollectiveSpec { library: None, ..spec.clone() };
    let plan = Plan::new(&plain, n).map_err(Refused::Plan)?;
    let row = row(plan.algorithm().name(), "", plan.lanes(), false);
    Ok((How::Plan(Box::new(plan)), row))
}

/// The steps of NCCL, its launch, and whether it would have had switches sum; `None` where it has no such collective.
fn steps(
    spec: &CollectiveSpec,
    n: u32,
    rules: &Rules,
) -> Result<Option<(Steps, Span, bool)>, crate::collectives::nccl::NcclError> {
    let Some(Library(machine)) = &spec.library else { return Ok(None) };
    let domain = spec.domain.clamp(1, n);
    let function = match spec.kind {
        CollectiveKind::AllToAllV => Some(Function::AllToAll),
        kind => Function::of(kind),
    };
    let empty = spec.bytes.get() == 0 && spec.matrix.is_none();
    let (Some(function), true) =
        (function, n > 1 && !empty && spec.routing.is_none() && n.is_multiple_of(domain))
    else {
        return Ok(None);
    };
    let layout = Layout { domains: n / domain, ranks: domain, ranks_per_process: 1 };
    let settings = machine.settings_for(function, spec.bytes.get(), layout);
    let chosen = |settings: &Settings, constants: &Constants| {
        Communicator { hardware: &machine.hardware, layout, settings }.time(
            function,
            spec.bytes.get(),
            constants,
        )
    };
    let (mut choice, _) = chosen(settings, &machine.constants)?;
    let sums = choice.algorithm.sums_in_switches() && !rules.switches;
    // Messages between ranks alone cannot say that a switch sums: the next best of the tuner stands in.
    let mut without = settings.clone();
    (without.nvls, without.collnet) = (false, false);
    let settings = if sums {
        choice = chosen(&without, &machine.constants)?.0;
        &without
    } else {
        settings
    };
    let communicator = Communicator { hardware: &machine.hardware, layout, settings };
    let Some(steps) = Steps::new(spec, &communicator, choice, rules.chunk) else { return Ok(None) };
    let launch = if rules.launch {
        launch(&machine.constants, steps.choice().protocol, function, steps.channels())
    } else {
        0.0
    };
    Ok(Some((steps, Span::from_seconds_ceil(launch), sums)))
}

/// Seconds until the first byte leaves.
fn launch(constants: &Constants, protocol: Protocol, function: Function, channels: u32) -> f64 {
    if function == Function::AllToAll {
        return constants.exchange;
    }
    constants.launch + f64::from(channels) * constants.channel + constants.base[protocol as usize]
}

impl ByRank for Decomposition<'_> {
    fn ranks(&self) -> usize {
        self.workload.ranks() + self.switches.ranks() as usize
    }

    fn made(&self, rank: RankId) -> Made {
        if rank.0 as usize >= self.workload.ranks() {
            return self.switch(rank);
        }
        let program = self.workload.program(rank);
        let mut builder = ProgramBuilder::new();
        let labels: Vec<u32> = program.labels.iter().map(|label| builder.label(label)).collect();
        let mut sizes = Vec::new();
        let mut own = self.matcher.receive_sizes(rank);
        let (mut begin, mut end) =
            (Vec::with_capacity(program.ops.len()), Vec::with_capacity(program.ops.len()));
        for op in &program.ops {
            let label = labels[op.label as usize];
            let kind = match op.kind {
                OpKind::Collective { .. } => {
                    let (first, last) = self.call(rank, program, op, label, &mut builder, &mut sizes);
                    begin.push(first);
                    end.push(last);
                    continue;
                }
                OpKind::Send { peer, bytes, tag, stream, nic } => OpKind::Send {
                    peer: Peer::Rank(self.workload.resolve(rank, peer)),
                    bytes,
                    tag,
                    stream,
                    nic,
                },
                OpKind::Receive { peer, tag, stream } => {
                    sizes.push(own.next().unwrap_or(0));
                    let peer = peer.map(|peer| Peer::Rank(self.workload.resolve(rank, peer)));
                    OpKind::Receive { peer, tag, stream }
                }
                calc @ OpKind::Calc { .. } => calc,
            };
            let index = builder.push(kind, op.dimension, label);
            begin.push(index);
            end.push(index);
        }
        for source in 0..program.ops.len() as u32 {
            for &target in program.requires.of(source) {
                builder.requires(begin[target as usize], end[source as usize]);
            }
            for &target in program.irequires.of(source) {
                builder.irequires(begin[target as usize], begin[source as usize]);
            }
        }
        let program =
            builder.finish().expect("what stands in for an operation of a graph without cycles has none");
        self.count(rank, program.ops.len() as u64);
        Made { program, receive_sizes: sizes }
    }
}

impl Decomposition<'_> {
    /// One call: its first operation and its last.
    fn call(
        &self,
        rank: RankId,
        program: &Program,
        op: &crate::Operation,
        label: u32,
        builder: &mut ProgramBuilder,
        sizes: &mut Vec<u64>,
    ) -> (u32, u32) {
        let OpKind::Collective { comm, spec, sequence, stream } = op.kind else { unreachable!("a call") };
        let binding = self.workload.binding(rank, comm);
        let members = &self.workload.communicators[binding.communicator as usize].ranks;
        let (key, index) = self.key(rank, comm, spec);
        debug_assert!(program.specs.len() > spec as usize);
        let tag = |lane: u32| tag(binding.communicator, sequence, lane);
        let (ends, first) = match &self.how[&key] {
            How::Steps(steps, launch) => {
                let first = builder.push(OpKind::Calc { duration: *launch, stream }, op.dimension, label);
                let with_switches = self.switches.behind(binding.communicator, members, steps);
                let mut channels = Channels {
                    builder,
                    sizes,
                    steps,
                    members: with_switches.as_deref().unwrap_or(members),
                    reduce: self.rules.reduce,
                    dimension: op.dimension,
                    label,
                    first,
                    ends: Vec::new(),
                };
                for channel in 0..steps.channels() {
                    channels.channel(index, channel, tags(&tag, channel), self.stream(stream, channel));
                }
                (channels.ends, first)
            }
            How::Plan(plan) => {
                let first = builder.push(OpKind::Calc { duration: Span::ZERO, stream }, op.dimension, label);
                let mut parts = Parts::new(builder, members, stream, op.dimension, label);
                for lane in 0..plan.lanes() {
                    parts.lane(plan, index, lane, tag(lane), first);
                }
                sizes.append(&mut parts.sizes);
                (parts.ends, first)
            }
        };
        let last = builder.push(OpKind::Calc { duration: Span::ZERO, stream }, op.dimension, label);
        builder.requires(last, first);
        for part in ends {
            builder.requires(last, part);
        }
        (first, last)
    }
}
