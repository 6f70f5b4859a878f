//! Collectives as the messages they consist of, for forms that know messages alone (GOAL).
//!
//! A collective becomes a computation of no length where it begins, its rounds, and one where it ends. Lanes go beside each
//! other; round r of a lane waits for all rounds up to r − depth, as in a replay by steps ([`crate::collectives`]). The tag
//! numbers the collective and the lane, so that messages of different collectives cannot be taken for one another.

use smallvec::SmallVec;
use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag};

use crate::collectives::nccl::NcclError;
use crate::collectives::{CollectiveError, CollectiveSpec, MAX_LANES, Plan, Round};
use crate::program::ProgramError;
use crate::{OpKind, Peer, Program, ProgramBuilder, Workload};

/// Tags from here on belong to collectives.
const FIRST_TAG: u64 = 1 << 30;
/// How many tags there are before they begin anew.
const TAGS: u64 = (1 << 31) + (1 << 30) - 2;

/// Why a workload cannot be told in messages.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LowerError {
    /// A collective has no plan.
    #[error("rank {rank}, operation {operation}: {error}")]
    Collective {
        /// Where.
        rank: u32,
        /// Its operation.
        operation: u32,
        /// Why.
        error: CollectiveError,
    },
    /// NCCL's settings leave no way.
    #[error("rank {rank}, operation {operation}: {error}")]
    Nccl {
        /// Where.
        rank: u32,
        /// Its operation.
        operation: u32,
        /// Why.
        error: NcclError,
    },
    /// What came out has a cycle.
    #[error("rank {rank}: {error}")]
    Program {
        /// Where.
        rank: u32,
        /// Why.
        error: ProgramError,
    },
}

/// `workload` with every collective as messages: of the algorithm that `choose` leaves in a specification.
///
/// # Errors
/// [`LowerError`] for a collective that its algorithm does not compute.
pub fn to_messages(
    workload: &Workload,
    choose: impl Fn(&mut CollectiveSpec),
) -> Result<Workload, LowerError> {
    let mut programs = Vec::with_capacity(workload.ranks());
    for rank in (0..workload.ranks() as u32).map(RankId) {
        programs.push(lower(workload, rank, &choose)?);
    }
    Ok(Workload::from_programs(programs))
}

fn lower(
    workload: &Workload,
    rank: RankId,
    choose: &impl Fn(&mut CollectiveSpec),
) -> Result<Program, LowerError> {
    let program = workload.program(rank);
    let mut builder = ProgramBuilder::new();
    let labels: Vec<u32> = program.labels.iter().map(|label| builder.label(label)).collect();
    // Where an operation's prerequisites go, and what its dependents wait for.
    let mut begin = Vec::with_capacity(program.ops.len());
    let mut end = Vec::with_capacity(program.ops.len());
    for (operation, op) in (0u32..).zip(&program.ops) {
        let label = labels[op.label as usize];
        let OpKind::Collective { comm, spec, sequence, stream } = op.kind else {
            let index = builder.push(op.kind, op.dimension, label);
            begin.push(index);
            end.push(index);
            continue;
        };
        let binding = workload.binding(rank, comm);
        let members = &workload.communicators[binding.communicator as usize].ranks;
        let mut spec = program.specs[spec as usize].clone();
        spec.library = None;
        choose(&mut spec);
        let plan = Plan::new(&spec, members.len() as u32).map_err(|error| LowerError::Collective {
            rank: rank.0,
            operation,
            error,
        })?;
        let number =
            u64::from(binding.communicator).wrapping_mul(0x9E37_79B9).wrapping_add(u64::from(sequence));
        let tag =
            |lane: u32| Tag(FIRST_TAG + (number.wrapping_mul(u64::from(MAX_LANES)) + u64::from(lane)) % TAGS);
        let first = builder.push(OpKind::Calc { duration: Span::ZERO, stream }, op.dimension, label);
        let mut parts = Parts::new(&mut builder, members, stream, op.dimension, label);
        for lane in 0..plan.lanes() {
            parts.lane(&plan, binding.index, lane, tag(lane), first);
        }
        let ends = parts.ends;
        let last = builder.push(OpKind::Calc { duration: Span::ZERO, stream }, op.dimension, label);
        builder.requires(last, first);
        for part in ends {
            builder.requires(last, part);
        }
        begin.push(first);
        end.push(last);
    }
    for source in 0..program.ops.len() as u32 {
        for &target in program.requires.of(source) {
            builder.requires(begin[target as usize], end[source as usize]);
        }
        for &target in program.irequires.of(source) {
            builder.irequires(begin[target as usize], begin[source as usize]);
        }
    }
    builder.finish().map_err(|error| LowerError::Program { rank: rank.0, error })
}

/// The messages of one collective of one rank.
pub(crate) struct Parts<'a> {
    builder: &'a mut ProgramBuilder,
    members: &'a [RankId],
    stream: StreamId,
    dimension: crate::Dimension,
    label: u32,
    /// What the end waits for.
    pub(crate) ends: Vec<u32>,
    /// Of the receives, in order.
    pub(crate) sizes: Vec<u64>,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(
        builder: &'a mut ProgramBuilder,
        members: &'a [RankId],
        stream: StreamId,
        dimension: crate::Dimension,
        label: u32,
    ) -> Self {
        Self { builder, members, stream, dimension, label, ends: Vec::new(), sizes: Vec::new() }
    }

    pub(crate) fn lane(&mut self, plan: &Plan, index: u32, lane: u32, tag: Tag, first: u32) {
        let (rounds, depth) = (plan.rounds(lane), plan.depth(lane).max(1));
        let mut round = Round::new();
        // What has to be done before a round may begin: the ends of the rounds behind the window, one node each.
        let mut done: Vec<SmallVec<[u32; 4]>> = Vec::new();
        for number in 0..rounds {
            plan.round(index, lane, number, &mut round);
            let waits: SmallVec<[u32; 4]> = match number.checked_sub(depth) {
                None => SmallVec::from_slice(&[first]),
                Some(before) => done[before as usize].clone(),
            };
            let mut ops: SmallVec<[u32; 4]> = SmallVec::new();
            for &(from, bytes) in &round.receives {
                self.sizes.push(bytes);
                let peer = Some(Peer::Rank(self.members[from as usize]));
                ops.push(self.push(OpKind::Receive { peer, tag: Some(tag), stream: self.stream }, &waits));
            }
            for &(to, bytes) in &round.sends {
                let peer = Peer::Rank(self.members[to as usize]);
                let nic = NicId(0);
                ops.push(self.push(
                    OpKind::Send { peer, bytes: Bytes::new(bytes), tag, stream: self.stream, nic },
                    &waits,
                ));
            }
            let more = number + depth < rounds;
            if !more {
                self.ends.extend_from_slice(&ops);
            }
            // A round is done when it and all before it are; one node stands for many.
            let mut so_far = ops;
            if so_far.is_empty() {
                so_far.extend_from_slice(&waits);
            }
            if more
                && depth > 1
                && let Some(before) = done.last()
            {
                so_far.extend_from_slice(before);
            }
            if more && so_far.len() > 3 {
                let join = self.push(OpKind::Calc { duration: Span::ZERO, stream: self.stream }, &so_far);
                so_far = SmallVec::from_slice(&[join]);
            }
            done.push(so_far);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::{Algorithm, CollectiveKind};
    use crate::program::{Binding, Communicator};
    use crate::{CommSlot, Dimension};

    fn workload(kind: CollectiveKind, n: u32, bytes: u64, algorithm: Algorithm) -> Workload {
        let mut builder = ProgramBuilder::new();
        let mut spec = CollectiveSpec::new(kind, Bytes::new(bytes));
        spec.algorithm = algorithm;
        spec.outstanding = 2;
        let before = builder.calc(Span::from_ps(5), StreamId(0), 0);
        let op = builder.collective(CommSlot(0), spec, Dimension::Other, StreamId(1), 0);
        let after = builder.calc(Span::from_ps(7), StreamId(0), 0);
        builder.requires(op, before);
        builder.requires(after, op);
        let mut workload = Workload { programs: vec![builder.finish().unwrap()], ..Workload::default() };
        workload
            .communicators
            .push(Communicator { name: String::new(), ranks: (0..n).map(RankId).collect() });
        for index in 0..n {
            workload.add_rank(0, &[Binding { communicator: 0, index }]);
        }
        workload
    }

    #[test]
    fn every_message_has_its_partner_and_the_bytes_are_those_of_the_plan() {
        for n in [2, 3, 4, 5, 8, 9] {
            for (kind, algorithm) in [
                (CollectiveKind::AllReduce, Algorithm::Ring),
                (CollectiveKind::AllReduce, Algorithm::Auto),
                (CollectiveKind::AllReduce, Algorithm::DoubleBinaryTree),
                (CollectiveKind::AllGather, Algorithm::Pat),
                (CollectiveKind::AllToAll, Algorithm::Direct),
                (CollectiveKind::Broadcast { root: 1 }, Algorithm::Auto),
                (CollectiveKind::Barrier, Algorithm::Auto),
            ] {
                let whole = workload(kind, n, 1_000_003, algorithm);
                let messages = to_messages(&whole, |_| {}).unwrap();
                let check = crate::goal::check(&messages);
                assert!(check.is_complete(), "{kind:?} {algorithm:?} of {n}: {:?}", check.unmatched);
                let sent: u64 = messages
                    .programs
                    .iter()
                    .flat_map(|program| &program.ops)
                    .filter_map(|op| {
                        if let OpKind::Send { bytes, .. } = op.kind { Some(bytes.get()) } else { None }
                    })
                    .sum();
                let plan = Plan::new(&whole.programs[0].specs[0], n).unwrap();
                let mut expected = 0;
                let mut round = Round::new();
                for (index, lane) in (0..n).flat_map(|index| (0..plan.lanes()).map(move |lane| (index, lane)))
                {
                    for number in 0..plan.rounds(lane) {
                        plan.round(index, lane, number, &mut round);
                        expected += round.sends.iter().map(|(_, bytes)| bytes).sum::<u64>();
                    }
                }
                assert_eq!(sent, expected, "{kind:?} {algorithm:?} of {n}");
            }
        }
    }
}
