//! Several workloads on the same ranks: what stands on one node runs beside each other there and shares its NICs.
//!
//! The operations of a rank are those of all workloads that stand on it. Nothing orders one workload's after another's: streams of
//! the second are numbered behind those of the first, its communicators are its own, and so are its tags, of which receives of any
//! tag get the one of the send that they take in program order.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{RankId, StreamId, Tag};

use super::place::{Part, delay};
use crate::goal::Matcher;
use crate::program::{Binding, Communicator, ProgramError};
use crate::{CommSlot, OpKind, Peer, Program, ProgramBuilder, Workload};

/// Why workloads cannot share ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedError {
    /// More streams than a rank can have.
    #[error("expected at most 256 streams on each rank, found more on rank {rank}")]
    Streams {
        /// Where.
        rank: u32,
    },
    /// More communicators than a rank can have.
    #[error("expected at most 65536 communicators on each rank, found more on rank {rank}")]
    Communicators {
        /// Where.
        rank: u32,
    },
    /// A receive of any tag takes no send.
    #[error(
        "job {job}: expected a send for every receive of any tag, found none for operation {operation} of rank {rank}"
    )]
    Unmatched {
        /// Index of the workload.
        job: usize,
        /// Its rank.
        rank: u32,
        /// Which.
        operation: u32,
    },
    /// A workload reaches too high.
    #[error("job {job} from rank {from} on: expected ranks below {}, found {ranks} of them", most())]
    TooHigh {
        /// Index of the workload.
        job: usize,
        /// Its first rank.
        from: u32,
        /// Its ranks.
        ranks: usize,
    },
    /// Operations depend on each other in a cycle.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Ranks that there may be.
const fn most() -> usize {
    1 << 24
}

impl SharedError {
    /// The message, with each workload called by its name in `names`.
    pub fn told(&self, names: &[&str]) -> String {
        let text = self.to_string();
        match *self {
            Self::Unmatched { job, .. } | Self::TooHigh { job, .. } => {
                text.replacen(&format!("job {job}"), &format!("`{}`", names[job]), 1)
            }
            _ => text,
        }
    }
}

/// A program on a rank: workload, program, and the workload's rank where that matters.
type Standing = (usize, u32, u32);
/// Tags of receives of any tag: by rank and operation of a workload.
type Settled = FxHashMap<(u32, u32), Tag>;

/// Puts `parts` on their ranks, which they may share.
///
/// # Errors
/// [`SharedError`] where a rank cannot hold them.
pub fn share(mut parts: Vec<Part>) -> Result<Workload, SharedError> {
    let mut ranks = 0;
    for (job, part) in parts.iter_mut().enumerate() {
        let own = part.workload.ranks();
        ranks = ranks.max(part.from as usize + own);
        if ranks > most() {
            return Err(SharedError::TooHigh { job, from: part.from, ranks: own });
        }
        if part.start.ps() > 0 {
            for program in &mut part.workload.programs {
                // A stream of its own, behind the last one.
                let last = streams(program).last().copied().unwrap_or(0);
                delay(program, part.start, StreamId(last.saturating_add(1)));
            }
        }
    }
    let tags = tags(&parts);
    let settled: Vec<Option<Settled>> =
        parts.iter().enumerate().map(|(job, part)| settle(job, &part.workload)).collect::<Result<_, _>>()?;
    let mut merged = Workload { binding_offsets: vec![0], ..Workload::default() };
    let mut first_communicator = Vec::with_capacity(parts.len());
    for (job, part) in parts.iter().enumerate() {
        first_communicator.push(merged.communicators.len() as u32);
        merged.communicators.extend(part.workload.communicators.iter().map(|communicator| Communicator {
            name: format!("{job}/{}", communicator.name),
            ranks: communicator.ranks.iter().map(|rank| RankId(rank.0 + part.from)).collect(),
        }));
    }
    let mut known: FxHashMap<Vec<(Standing, u32)>, u32> = FxHashMap::default();
    for rank in 0..ranks as u32 {
        let mut bindings: Vec<Binding> = Vec::new();
        let mut here: Vec<(Standing, u32)> = Vec::new();
        for (job, part) in parts.iter().enumerate() {
            let workload = &part.workload;
            let Some(own) = rank.checked_sub(part.from).filter(|own| (*own as usize) < workload.ranks())
            else {
                continue;
            };
            let which = if settled[job].is_some() { own } else { 0 };
            here.push(((job, workload.program_of[own as usize], which), bindings.len() as u32));
            let (from, to) =
                (workload.binding_offsets[own as usize], workload.binding_offsets[own as usize + 1]);
            bindings.extend(workload.bindings[from as usize..to as usize].iter().map(|binding| Binding {
                communicator: binding.communicator + first_communicator[job],
                ..*binding
            }));
        }
        if bindings.len() > usize::from(u16::MAX) + 1 {
            return Err(SharedError::Communicators { rank });
        }
        let program = match known.get(&here) {
            Some(&program) => program,
            None => {
                merged.programs.push(together(rank, &here, &parts, &tags, &settled)?);
                let program = merged.programs.len() as u32 - 1;
                known.insert(here, program);
                program
            }
        };
        merged.add_rank(program, &bindings);
    }
    Ok(merged)
}

/// One program of those that stand on `rank`, each with its first slot.
fn together(
    rank: u32,
    here: &[(Standing, u32)],
    parts: &[Part],
    tags: &[BTreeMap<u64, u64>],
    settled: &[Option<Settled>],
) -> Result<Program, SharedError> {
    let mut builder = ProgramBuilder::new();
    let mut behind = 0u32;
    for &((job, index, own), first_slot) in here {
        let part = &parts[job];
        let program = &part.workload.programs[index as usize];
        let used = streams(program);
        // Streams keep their distances where there is room for that, and their order in any case.
        let room = used.last().is_none_or(|last| behind + u32::from(*last) < 256);
        let mut stream_of = [0u8; 256];
        let mut next = behind;
        for (place, &stream) in (0..).zip(&used) {
            let new = behind + if room { u32::from(stream) } else { place };
            stream_of[usize::from(stream)] = u8::try_from(new).map_err(|_| SharedError::Streams { rank })?;
            next = new + 1;
        }
        behind = next;
        let (base, move_tag) = (builder.len() as u32, |tag: Tag| Tag(tags[job][&tag.0]));
        let slot = |slot: CommSlot| CommSlot((first_slot + u32::from(slot.0)) as u16);
        let peer = |peer: Peer| match peer {
            Peer::Rank(rank) => Peer::Rank(RankId(rank.0 + part.from)),
            Peer::Member(comm, index) => Peer::Member(slot(comm), index),
        };
        let labels: Vec<u32> = program.labels.iter().map(|label| builder.label(label)).collect();
        let specs: Vec<u32> = program.specs.iter().map(|spec| builder.spec(spec.clone())).collect();
        for (operation, op) in (0..).zip(&program.ops) {
            let mut kind = op.kind;
            match &mut kind {
                OpKind::Calc { .. } => {}
                OpKind::Send { peer: to, tag, .. } => (*to, *tag) = (peer(*to), move_tag(*tag)),
                OpKind::Receive { peer: from, tag, .. } => {
                    let known = settled[job].as_ref().and_then(|known| known.get(&(own, operation)).copied());
                    (*from, *tag) = (from.map(peer), tag.or(known).map(move_tag));
                }
                OpKind::Collective { comm, spec, .. } => {
                    (*comm, *spec) = (slot(*comm), specs[*spec as usize]);
                }
            }
            let stream = stream_mut(&mut kind);
            *stream = StreamId(stream_of[usize::from(stream.0)]);
            builder.push(kind, op.dimension, labels[op.label as usize]);
        }
        for source in 0..program.ops.len() as u32 {
            for &target in program.requires.of(source) {
                builder.requires(base + target, base + source);
            }
            for &target in program.irequires.of(source) {
                builder.irequires(base + target, base + source);
            }
        }
    }
    Ok(builder.finish()?)
}

fn stream_mut(kind: &mut OpKind) -> &mut StreamId {
    match kind {
        OpKind::Calc { stream, .. }
        | OpKind::Send { stream, .. }
        | OpKind::Receive { stream, .. }
        | OpKind::Collective { stream, .. } => stream,
    }
}

/// Streams of a program, in order.
fn streams(program: &Program) -> Vec<u8> {
    let mut used = [false; 256];
    for op in &program.ops {
        used[usize::from(stream_mut(&mut op.kind.clone()).0)] = true;
    }
    (0..=255).filter(|&stream| used[usize::from(stream)]).collect()
}

/// New tags of each workload: the first keeps its own, the others get the lowest that are free.
fn tags(parts: &[Part]) -> Vec<BTreeMap<u64, u64>> {
    let own = |part: &Part| -> BTreeMap<u64, u64> {
        let ops = part.workload.programs.iter().flat_map(|program| &program.ops);
        ops.filter_map(|op| match op.kind {
            OpKind::Send { tag, .. } | OpKind::Receive { tag: Some(tag), .. } => Some((tag.0, tag.0)),
            _ => None,
        })
        .collect()
    };
    let mut all: Vec<BTreeMap<u64, u64>> = parts.iter().map(own).collect();
    let first: Vec<u64> = all.first().map(|tags| tags.keys().copied().collect()).unwrap_or_default();
    let mut free = (0u64..).filter(|tag| first.binary_search(tag).is_err());
    for tags in all.iter_mut().skip(1) {
        for tag in tags.values_mut() {
            *tag = free.next().unwrap_or(u64::MAX);
        }
    }
    all
}

/// Tags of receives of any tag, which would take messages of the others; none where there is no such receive.
fn settle(job: usize, workload: &Workload) -> Result<Option<Settled>, SharedError> {
    let any = |op: &crate::Operation| matches!(op.kind, OpKind::Receive { tag: None, .. });
    if !workload.programs.iter().any(|program| program.ops.iter().any(any)) {
        return Ok(None);
    }
    let matcher = Matcher::new(workload);
    let mut settled = Settled::default();
    for rank in 0..workload.ranks() as u32 {
        for receive in matcher.receives(RankId(rank)) {
            if receive.tag.is_some() {
                continue;
            }
            let operation = receive.operation;
            let send = receive.send.ok_or(SharedError::Unmatched { job, rank, operation })?;
            let tag = matcher.incoming(RankId(rank))[send as usize].tag;
            settled.insert((rank, operation), tag);
        }
    }
    Ok(Some(settled))
}
