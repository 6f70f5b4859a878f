//! Why a run stopped: what each rank still waits for.

use windtunnel_kernel::{Id, RankId, Time};

use super::collective::Slot;
use super::{Replay, name_tag};
use crate::program::{CommSlot, OpKind};

/// An operation that was submitted and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckOperation {
    /// Rank.
    pub rank: RankId,
    /// Index in the rank's program.
    pub operation: u32,
    /// Its label, empty if it has none.
    pub label: String,
    /// What it waits for.
    pub waits_for: String,
}

/// Members named in full; more are counted.
const NAMED: usize = 8;

pub(super) fn find(replay: &Replay) -> Vec<StuckOperation> {
    let workload = &replay.prepared.workload;
    let mut stuck = Vec::new();
    for (rank, state) in replay.ranks.iter().enumerate().filter(|(_, state)| state.remaining > 0) {
        let rank = RankId::from_index(rank);
        let program = workload.program(rank);
        for (operation, op) in (0u32..).zip(&state.ops) {
            if op.left > 0 || op.finish != Time::NEVER {
                continue;
            }
            let ops = &program.ops[operation as usize];
            stuck.push(StuckOperation {
                rank,
                operation,
                label: program.labels.get(ops.label as usize).cloned().unwrap_or_default(),
                waits_for: waits_for(replay, rank, operation, &ops.kind),
            });
        }
    }
    stuck
}

/// The send `operation` of `rank`, whose message has arrived and is not received.
pub(super) fn send(replay: &Replay, rank: RankId, operation: u32) -> Option<StuckOperation> {
    let program = replay.prepared.workload.program(rank);
    let op = program.ops.get(operation as usize)?;
    Some(StuckOperation {
        rank,
        operation,
        label: program.labels.get(op.label as usize).cloned().unwrap_or_default(),
        waits_for: waits_for(replay, rank, operation, &op.kind),
    })
}

fn waits_for(replay: &Replay, rank: RankId, operation: u32, kind: &OpKind) -> String {
    let workload = &replay.prepared.workload;
    match *kind {
        OpKind::Calc { stream, .. } => format!("stream {}", stream.0),
        OpKind::Send { peer, tag, .. } => {
            let to = workload.resolve(rank, peer);
            format!("a receive by rank {to} with {}", name_tag(Some(tag)))
        }
        OpKind::Receive { peer, tag, .. } => {
            let from = peer.map(|peer| workload.resolve(rank, peer));
            let from = from.map_or_else(|| "any rank".to_owned(), |from| format!("rank {from}"));
            format!("a message from {from} with {}", name_tag(tag))
        }
        OpKind::Collective { comm, sequence, .. } => {
            let missing = missing_members(replay, rank, comm, sequence);
            let group = &workload.communicators[workload.binding(rank, comm).communicator as usize];
            let what = format!("collective {sequence} of `{}`", group.name);
            if missing.is_empty() {
                let active = |slot: &&Slot| slot.active && slot.rank == rank && slot.op == operation;
                replay.collectives.slots.iter().find(active).map_or_else(
                    || format!("the end of {what}"),
                    |slot| format!("{what}: {}", rounds(replay, slot)),
                )
            } else {
                format!("{} in {what}", name_members(&missing))
            }
        }
    }
}

/// Messages of the rounds under way.
fn rounds(replay: &Replay, slot: &Slot) -> String {
    let members = &replay.prepared.workload.communicators[slot.communicator as usize].ranks;
    let list = |peers: &[(u32, u64)]| {
        let names: Vec<String> = peers.iter().map(|&(peer, _)| members[peer as usize].to_string()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let plan = &replay.prepared.plans[slot.plan as usize].plan;
    let describe = |(number, round): &(u32, crate::collectives::Round)| {
        match plan.meeting(slot.index, *number) {
            Some(ring) if ring.ring => {
                let members: Vec<(u32, u64)> = ring.members().map(|member| (member, 0)).collect();
                return format!("round {number} (the ring of {})", list(&members));
            }
            Some(_) => return format!("round {number} (the sum, from switches)"),
            None => {}
        }
        format!("round {number} (from {}; to {})", list(&round.receives), list(&round.sends))
    };
    let waits = replay.collectives.waits_for(&replay.prepared, slot);
    waits.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// Members that have not reached the collective.
fn missing_members(replay: &Replay, rank: RankId, comm: CommSlot, sequence: u32) -> Vec<RankId> {
    let workload = &replay.prepared.workload;
    let communicator = workload.binding(rank, comm).communicator;
    let begun = replay.ranks[rank.index()].begun;
    let mut missing = Vec::new();
    for &member in &workload.communicators[communicator as usize].ranks {
        let state = &replay.ranks[member.index()];
        if state.begun > begun {
            continue;
        }
        let is_it = |kind: &OpKind| match *kind {
            OpKind::Collective { comm, sequence: number, .. } => {
                number == sequence && workload.binding(member, comm).communicator == communicator
            }
            _ => false,
        };
        let op = workload.program(member).ops.iter().position(|op| is_it(&op.kind));
        let arrived = state.begun == begun
            && op.is_some_and(|op| state.ops.get(op).is_some_and(|state| state.left == 0));
        if !arrived {
            missing.push(member);
        }
    }
    missing
}

fn name_members(members: &[RankId]) -> String {
    let shown: Vec<String> = members.iter().take(NAMED).map(RankId::to_string).collect();
    let noun = if members.len() == 1 { "rank" } else { "ranks" };
    let more = match members.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{noun} {}{more}", shown.join(", "))
}
