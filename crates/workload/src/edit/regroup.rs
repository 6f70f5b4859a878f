//! Other hosts for the same GPUs: ranks that are nodes of several GPUs are cut up, and GPUs are put together.
//!
//! A GPU is the part of a rank that has a stretch of its streams to itself: GPU g of a node of streams 0 to F·w − 1 has those from
//! g·w on. Every operation goes to the node of its GPU and stays one operation; edges between operations that end up on one node stay
//! edges. What lies between two operations decides the rest:
//!
//! | between | before | becomes |
//! |---|---|---|
//! | GPUs of different nodes | a message | a message, with a tag that tells the pair of GPUs |
//! | GPUs of one node | a message | a copy on the sender's stream, for which the receive (of no length) waits; or nothing but that order |
//! | GPUs that were one node and are none | an edge | a message of one byte |
//!
//! Receives take the sends that GOAL's own matching gives them (`goal::matching`), wildcards too; each names its sender afterwards.
//!
//! Invariants: operations afterwards = operations before + 2 · edges that became messages; bytes between nodes + bytes inside = bytes
//! before. Failure modes: [`RegroupError`].

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{BitRate, Bytes, NicId, RankId, Span, StreamId, Tag};

use crate::collectives::neighbours_at;
use crate::goal::Matcher;
use crate::program::ProgramError;
use crate::{Dimension, OpKind, Peer, Program, ProgramBuilder, Workload};

/// What becomes of a message between two GPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// A copy over the links of the node.
    Copy {
        /// What a GPU sends.
        rate: BitRate,
        /// What every copy takes beside.
        latency: Span,
    },
    /// It takes no time; the receive still waits for the send.
    Drop,
}

/// How GPUs are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// GPUs of a rank before.
    pub from: u32,
    /// Streams of a GPU before, where a rank has several; those used, evenly, if left out.
    pub streams: Option<u32>,
    /// GPUs of each node afterwards, each GPU on one.
    pub nodes: Vec<Vec<u32>>,
    /// NICs of a node afterwards; those of all its GPUs if left out.
    pub nics: Option<u8>,
    /// What becomes of messages inside.
    pub inside: Inside,
}

/// What a regrouping did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regrouped {
    /// Messages between nodes.
    pub messages_between: u64,
    /// Their bytes.
    pub bytes_between: u64,
    /// Messages that are copies inside a node, or dropped.
    pub messages_inside: u64,
    /// Their bytes.
    pub bytes_inside: u64,
    /// Edges that became messages of one byte.
    pub edges_as_messages: u64,
    /// Receives from any source or of any tag, which now name the send that they take in program order.
    pub wildcards: u64,
}

/// Why GPUs cannot be grouped so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegroupError {
    /// A GPU stands on two nodes, or on none.
    #[error("expected each of GPUs 0 to {} on one node, found GPU {gpu} on {times}", gpus - 1)]
    Places {
        /// GPUs in all.
        gpus: u32,
        /// Which.
        gpu: u32,
        /// On how many.
        times: u32,
    },
    /// The streams of a rank are no whole number for each GPU.
    #[error(
        "{streams} streams are no whole number for each of {from} GPUs of a rank\n\nhint: say how many a GPU has by `--streams`"
    )]
    Streams {
        /// Streams of a rank.
        streams: u32,
        /// GPUs of a rank.
        from: u32,
    },
    /// A stream belongs to no GPU.
    #[error("rank {rank}, operation {operation}: stream {stream} is beyond {from} GPUs of {width} streams")]
    Beyond {
        /// Where.
        rank: u32,
        /// Its operation.
        operation: u32,
        /// Its stream.
        stream: u8,
        /// GPUs of a rank.
        from: u32,
        /// Streams of a GPU.
        width: u32,
    },
    /// A node has more streams than a file can say.
    #[error("a node of {gpus} GPUs with {width} streams each has more than 256 streams")]
    TooMany {
        /// GPUs of the node.
        gpus: usize,
        /// Streams of each.
        width: u32,
    },
    /// A message has no partner.
    #[error(
        "rank {rank}, operation {operation}: {what} has no partner\n\nhint: `windtunnel goal check` lists all"
    )]
    Unmatched {
        /// Where.
        rank: u32,
        /// Its operation.
        operation: u32,
        /// A send or a receive.
        what: &'static str,
    },
    /// A node's operations wait for each other.
    #[error("node {node}: {error}")]
    Program {
        /// Where.
        node: u32,
        /// Why.
        error: ProgramError,
    },
}

/// No partner.
const NOBODY: u32 = u32::MAX;

/// Groups the GPUs of `workload`, which consists of messages (see [`crate::lower`]), anew.
///
/// # Errors
/// [`RegroupError`] where the grouping does not fit, or a message has no partner.
pub fn regroup(workload: &Workload, grouping: &Grouping) -> Result<(Workload, Regrouped), RegroupError> {
    let places = Places::new(workload, grouping)?;
    let mut account = Regrouped::default();
    let partners = Partners::new(workload, &mut account)?;
    let made = Making {
        workload,
        grouping,
        tags: Tags::new(workload, &places, &partners),
        places: &places,
        partners: &partners,
        account: &mut account,
        builders: grouping.nodes.iter().map(|_| ProgramBuilder::new()).collect(),
    }
    .run()?;
    Ok((Workload::from_programs(made), account))
}

/// `workload` with each GPU a rank as before, renumbered so that hosts filled in order are the given nodes.
///
/// # Errors
/// [`RegroupError::Places`] where a rank stands on two nodes or on none.
pub fn regroup_ranks(workload: &Workload, nodes: &[Vec<u32>]) -> Result<Workload, RegroupError> {
    check_places(nodes, workload.ranks() as u32)?;
    let (mut new, mut node_of) = (vec![0; workload.ranks()], Vec::with_capacity(workload.ranks()));
    for (node, &gpu) in
        nodes.iter().enumerate().flat_map(|(node, gpus)| gpus.iter().map(move |gpu| (node, gpu)))
    {
        new[gpu as usize] = node_of.len() as u32;
        node_of.push(node as u32);
    }
    let mut changed = super::place::renumber(workload, &new);
    // How many neighbours share a domain is no longer what it was.
    for index in 0..changed.programs.len() {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for rank in
            (0..changed.ranks() as u32).filter(|&rank| changed.program_of[rank as usize] == index as u32)
        {
            for op in &changed.programs[index].ops {
                if let OpKind::Collective { comm, spec, .. } = op.kind
                    && changed.programs[index].specs[spec as usize].domain > 1
                {
                    groups.entry(spec).or_default().push(changed.binding(RankId(rank), comm).communicator);
                }
            }
        }
        for (spec, mut bound) in groups {
            bound.sort_unstable();
            bound.dedup();
            let members = bound.iter().map(|&group| changed.communicators[group as usize].ranks.as_slice());
            let domain = neighbours_at(members, |rank| node_of[rank.0 as usize]);
            changed.programs[index].specs[spec as usize].domain = domain;
        }
    }
    Ok(changed)
}

fn check_places(nodes: &[Vec<u32>], gpus: u32) -> Result<(), RegroupError> {
    let mut times = vec![0u32; gpus as usize];
    for &gpu in nodes.iter().flatten() {
        match times.get_mut(gpu as usize) {
            Some(times) => *times += 1,
            None => return Err(RegroupError::Places { gpus, gpu, times: 1 }),
        }
    }
    match (0..).zip(times).find(|&(_, times)| times != 1) {
        Some((gpu, times)) => Err(RegroupError::Places { gpus, gpu, times }),
        None => Ok(()),
    }
}

fn stream_of(kind: OpKind) -> StreamId {
    match kind {
        OpKind::Calc { stream, .. }
        | OpKind::Send { stream, .. }
        | OpKind::Receive { stream, .. }
        | OpKind::Collective { stream, .. } => stream,
    }
}

fn kinds(workload: &Workload) -> impl Iterator<Item = OpKind> {
    workload.programs.iter().flat_map(|program| &program.ops).map(|op| op.kind)
}

/// Where each operation goes.
struct Places {
    from: u32,
    /// Streams of a GPU before.
    width: u32,
    /// A GPU's streams afterwards, in order of those before.
    streams: Vec<u8>,
    /// NICs of a GPU.
    nics: u32,
    node_of: Vec<u32>,
    slot_of: Vec<u32>,
    /// Node and operation there, by rank and operation.
    new: Vec<Vec<(u32, u32)>>,
}

impl Places {
    fn new(workload: &Workload, grouping: &Grouping) -> Result<Self, RegroupError> {
        let from = grouping.from.max(1);
        let gpus = workload.ranks() as u32 * from;
        check_places(&grouping.nodes, gpus)?;
        let highest = kinds(workload).map(|kind| stream_of(kind).0).max().unwrap_or(0);
        let all = u32::from(highest) + 1;
        let width = match grouping.streams {
            Some(width) => width.max(1),
            None if from == 1 => 256,
            None if all % from == 0 => all / from,
            None => return Err(RegroupError::Streams { streams: all, from }),
        };
        // Uniform, so that cutting up what was put together gives the same; without gaps where that is too many.
        let most = grouping.nodes.iter().map(Vec::len).max().unwrap_or(1);
        let mut used: Vec<u8> = (0..width.min(all)).map(|stream| stream as u8).collect();
        if used.len() * most > 256 {
            let mut seen = [false; 256];
            kinds(workload).for_each(|kind| seen[(u32::from(stream_of(kind).0) % width) as usize] = true);
            used.retain(|&stream| seen[usize::from(stream)]);
        }
        if used.len() * most > 256 {
            return Err(RegroupError::TooMany { gpus: most, width: used.len() as u32 });
        }
        let nic = |kind| if let OpKind::Send { nic, .. } = kind { u32::from(nic.0) } else { 0 };
        let nics = kinds(workload).map(nic).max().unwrap_or(0) / from + 1;
        let (mut node_of, mut slot_of) = (vec![0; gpus as usize], vec![0; gpus as usize]);
        for (node, of_node) in (0..).zip(&grouping.nodes) {
            for (slot, &gpu) in (0..).zip(of_node) {
                (node_of[gpu as usize], slot_of[gpu as usize]) = (node, slot);
            }
        }
        let mut places = Self { from, width, streams: used, nics, node_of, slot_of, new: Vec::new() };
        places.new = places.operations(workload, grouping.nodes.len())?;
        Ok(places)
    }

    /// Operations keep their order; of several ranks on a node those of the lowest come first.
    fn operations(&self, workload: &Workload, nodes: usize) -> Result<Vec<Vec<(u32, u32)>>, RegroupError> {
        let mut next = vec![0; nodes];
        let mut new = Vec::with_capacity(workload.ranks());
        for rank in 0..workload.ranks() as u32 {
            let ops = (0..).zip(&workload.program(RankId(rank)).ops);
            let place = |(operation, op): (u32, &crate::Operation)| {
                let stream = stream_of(op.kind);
                if u32::from(stream.0) / self.width >= self.from {
                    let (from, width, stream) = (self.from, self.width, stream.0);
                    return Err(RegroupError::Beyond { rank, operation, stream, from, width });
                }
                let node = self.node_of[self.gpu(rank, stream) as usize];
                let count: &mut u32 = &mut next[node as usize];
                *count += 1;
                Ok((node, *count - 1))
            };
            new.push(ops.map(place).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(new)
    }

    fn gpu(&self, rank: u32, stream: StreamId) -> u32 {
        rank * self.from + u32::from(stream.0) / self.width
    }

    fn gpu_of(&self, workload: &Workload, (rank, operation): (u32, u32)) -> u32 {
        self.gpu(rank, stream_of(workload.program(RankId(rank)).ops[operation as usize].kind))
    }

    fn stream(&self, rank: u32, stream: StreamId) -> StreamId {
        let slot = self.slot_of[self.gpu(rank, stream) as usize] as usize;
        let own = (u32::from(stream.0) % self.width) as u8;
        let at = self.streams.binary_search(&own).unwrap_or(0);
        StreamId((slot * self.streams.len() + at) as u8)
    }
}

/// The other end of every message: rank and operation, by rank and operation.
struct Partners(Vec<Vec<(u32, u32)>>);

impl Partners {
    fn new(workload: &Workload, account: &mut Regrouped) -> Result<Self, RegroupError> {
        let ranks = 0..workload.ranks() as u32;
        let nobody = |rank| vec![(NOBODY, NOBODY); workload.program(RankId(rank)).ops.len()];
        let mut found: Vec<Vec<(u32, u32)>> = ranks.clone().map(nobody).collect();
        let matcher = Matcher::new(workload);
        for rank in ranks.clone() {
            for receive in matcher.receives(RankId(rank)) {
                let operation = receive.operation;
                let what = "the receive";
                let Some(send) = receive.send else {
                    return Err(RegroupError::Unmatched { rank, operation, what });
                };
                let send = matcher.incoming(RankId(rank))[send as usize];
                found[rank as usize][operation as usize] = (send.source.0, send.operation);
                found[send.source.0 as usize][send.operation as usize] = (rank, operation);
                account.wildcards += u64::from(receive.source.is_none() || receive.tag.is_none());
            }
        }
        for rank in ranks {
            let ops = (0..).zip(&workload.program(RankId(rank)).ops);
            for (operation, op) in ops {
                let alone = found[rank as usize][operation as usize].0 == NOBODY;
                if alone && matches!(op.kind, OpKind::Send { .. }) {
                    return Err(RegroupError::Unmatched { rank, operation, what: "the send" });
                }
            }
        }
        Ok(Self(found))
    }

    fn of(&self, rank: u32, operation: u32) -> (u32, u32) {
        self.0[rank as usize][operation as usize]
    }
}

/// Tags that keep messages of different pairs of GPUs between the same nodes apart.
struct Tags {
    /// By slot of the sender, slot of the receiver and tag; `None` where tags stay as they are.
    new: Option<Vec<(u32, u32, u64)>>,
    /// The first tag of no message.
    next: u64,
}

impl Tags {
    fn new(workload: &Workload, places: &Places, partners: &Partners) -> Self {
        let mut known = Vec::new();
        let mut highest = 0;
        for rank in 0..workload.ranks() as u32 {
            for (operation, op) in (0..).zip(&workload.program(RankId(rank)).ops) {
                if let OpKind::Send { tag, stream, .. } = op.kind {
                    let from = places.gpu(rank, stream);
                    let to = places.gpu_of(workload, partners.of(rank, operation));
                    highest = highest.max(tag.0 + 1);
                    if places.node_of[from as usize] != places.node_of[to as usize] {
                        known.push((places.slot_of[from as usize], places.slot_of[to as usize], tag.0));
                    }
                }
                // Most of a long program has the same few.
                if known.len() > 1 << 20 {
                    known.sort_unstable();
                    known.dedup();
                }
            }
        }
        known.sort_unstable();
        known.dedup();
        if known.iter().all(|&(from, to, _)| from == 0 && to == 0) {
            return Self { new: None, next: highest };
        }
        Self { next: known.len() as u64, new: Some(known) }
    }

    fn of(&self, from: u32, to: u32, tag: Tag) -> Tag {
        match &self.new {
            None => tag,
            Some(known) => Tag(known.binary_search(&(from, to, tag.0)).map_or(0, |at| at as u64)),
        }
    }
}

struct Making<'a> {
    workload: &'a Workload,
    grouping: &'a Grouping,
    places: &'a Places,
    partners: &'a Partners,
    tags: Tags,
    account: &'a mut Regrouped,
    builders: Vec<ProgramBuilder>,
}

impl Making<'_> {
    fn run(mut self) -> Result<Vec<Program>, RegroupError> {
        for rank in 0..self.workload.ranks() as u32 {
            let program = self.workload.program(RankId(rank));
            for (operation, op) in (0..).zip(&program.ops) {
                let (node, _) = self.places.new[rank as usize][operation as usize];
                let kind = self.kind(rank, operation, op.kind);
                let builder = &mut self.builders[node as usize];
                let label = builder.label(&program.labels[op.label as usize]);
                builder.push(kind, op.dimension, label);
            }
        }
        for rank in 0..self.workload.ranks() as u32 {
            self.edges(rank);
        }
        (0..)
            .zip(self.builders)
            .map(|(node, builder)| builder.finish().map_err(|error| RegroupError::Program { node, error }))
            .collect()
    }

    /// What an operation is afterwards.
    fn kind(&mut self, rank: u32, operation: u32, kind: OpKind) -> OpKind {
        let places = self.places;
        let stream = places.stream(rank, stream_of(kind));
        let own = places.gpu(rank, stream_of(kind)) as usize;
        let other = || places.gpu_of(self.workload, self.partners.of(rank, operation)) as usize;
        let idle = OpKind::Calc { duration: Span::ZERO, stream };
        match kind {
            OpKind::Calc { duration, .. } => OpKind::Calc { duration, stream },
            OpKind::Send { bytes, tag, nic, .. } => {
                let to = other();
                if places.node_of[own] != places.node_of[to] {
                    self.account.messages_between += 1;
                    self.account.bytes_between += bytes.get();
                    let tag = self.tags.of(places.slot_of[own], places.slot_of[to], tag);
                    let peer = Peer::Rank(RankId(places.node_of[to]));
                    return OpKind::Send { peer, bytes, tag, stream, nic: self.nic(own, nic) };
                }
                self.account.messages_inside += 1;
                self.account.bytes_inside += bytes.get();
                match self.grouping.inside {
                    Inside::Copy { rate, latency } => {
                        OpKind::Calc { duration: latency + rate.serialise(bytes), stream }
                    }
                    Inside::Drop => idle,
                }
            }
            OpKind::Receive { .. } => {
                let from = other();
                if places.node_of[own] == places.node_of[from] {
                    return idle;
                }
                let (sender, send) = self.partners.of(rank, operation);
                let OpKind::Send { tag, .. } = self.workload.program(RankId(sender)).ops[send as usize].kind
                else {
                    unreachable!("a receive takes a send");
                };
                let tag = Some(self.tags.of(places.slot_of[from], places.slot_of[own], tag));
                OpKind::Receive { peer: Some(Peer::Rank(RankId(places.node_of[from]))), tag, stream }
            }
            OpKind::Collective { .. } => unreachable!("a workload of messages"),
        }
    }

    fn nic(&self, gpu: usize, nic: NicId) -> NicId {
        let own = self.places.slot_of[gpu] * self.places.nics + u32::from(nic.0) % self.places.nics;
        NicId((own % self.grouping.nics.map_or(256, |nics| u32::from(nics.max(1)))) as u8)
    }

    /// Edges of a rank, and those from copies to their receives.
    fn edges(&mut self, rank: u32) {
        let program = self.workload.program(RankId(rank));
        let new = &self.places.new[rank as usize];
        // Messages that stand for edges: one for all that wait on a node for the same.
        let mut stand: FxHashMap<u32, u32> = FxHashMap::default();
        for source in 0..program.ops.len() as u32 {
            for (edges, started) in [(&program.requires, false), (&program.irequires, true)] {
                stand.clear();
                for &target in edges.of(source) {
                    let (from, to) = (new[source as usize], new[target as usize]);
                    let before = if from.0 == to.0 {
                        from.1
                    } else {
                        *stand.entry(to.0).or_insert_with(|| {
                            self.account.edges_as_messages += 1;
                            let tag = Tag(self.tags.next);
                            self.tags.next += 1;
                            let stream =
                                |op: u32| self.places.stream(rank, stream_of(program.ops[op as usize].kind));
                            let (peer, nic) = (Peer::Rank(RankId(to.0)), NicId(0));
                            let send =
                                OpKind::Send { peer, bytes: Bytes::new(1), tag, stream: stream(source), nic };
                            let builder = &mut self.builders[from.0 as usize];
                            let sent = builder.push(send, Dimension::Other, 0);
                            if started {
                                builder.irequires(sent, from.1);
                            } else {
                                builder.requires(sent, from.1);
                            }
                            let peer = Some(Peer::Rank(RankId(from.0)));
                            let receive = OpKind::Receive { peer, tag: Some(tag), stream: stream(target) };
                            self.builders[to.0 as usize].push(receive, Dimension::Other, 0)
                        })
                    };
                    let builder = &mut self.builders[to.0 as usize];
                    if started && from.0 == to.0 {
                        builder.irequires(to.1, before);
                    } else {
                        builder.requires(to.1, before);
                    }
                }
            }
            if let OpKind::Send { .. } = program.ops[source as usize].kind {
                let (receiver, receive) = self.partners.of(rank, source);
                let (from, to) = (new[source as usize], self.places.new[receiver as usize][receive as usize]);
                if from.0 == to.0 {
                    self.builders[to.0 as usize].requires(to.1, from.1);
                }
            }
        }
    }
}
