//! What NCCL's profiler plugins have in common: records of single operations, each of a rank of a communicator, become programs.
//!
//! A plugin knows communicators, not the job: which rank is whose is found by process ([`communicators`]). It has no computation either:
//! what lies between the end of one operation of a rank and the start of the next stands for it, where times were recorded.
//! Messages of one group are under way at once; collectives of a communicator follow one another.

mod communicators;
mod records;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::program::HOST_STREAM;

use crate::coverage::{Coverage, Treatment};
use crate::draft::{Call, Draft, RankDraft, Work};
use crate::error::ImportError;
use crate::input::Input;
use crate::kineto::kind_of;
pub(crate) use records::{Record, Records};

/// Makes the ranks of a job of its records.
///
/// # Errors
/// [`ImportError`] where the records do not say whose rank is whose.
pub(crate) fn assemble(
    records: &Records,
    inputs: &[Input],
    draft: &mut Draft,
    coverage: &mut Coverage,
) -> Result<(), ImportError> {
    let job = communicators::Job::of(records, &draft.source, coverage)?;
    draft.world = Some(job.world);
    let mut by_rank: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
    for record in &records.list {
        match job.rank(record) {
            Some(rank) => by_rank.entry(rank).or_default().push(record),
            None => coverage.count(
                &format!("collective: {}", records.text(record.what)),
                Treatment::Dropped,
                communicators::WHY,
                record.bytes,
                record.length,
            ),
        }
    }
    let mut surplus = surplus(records, &job, &by_rank);
    for (rank, mut list) in by_rank {
        list.sort_by_key(|record| record.order);
        let file = &inputs[list[0].file as usize].name;
        let program = program(&list, records, &job, &mut surplus, draft, coverage);
        draft.ranks.insert(rank, program.of_file(file));
    }
    Ok(())
}

/// Messages whose other ends are not recorded, of a pair of ranks of a communicator: by (communicator, own rank, other, whether
/// the own side sends) how many. Plugins keep the last of what they saw, so the first are those.
type Surplus = FxHashMap<(usize, u32, u32, bool), u64>;

fn surplus(records: &Records, job: &communicators::Job, by_rank: &BTreeMap<u32, Vec<&Record>>) -> Surplus {
    let mut seen = Surplus::default();
    for (&rank, list) in by_rank {
        for record in list {
            let Some((sends, peer)) = message(records, record) else { continue };
            let Some((communicator, members)) = job.members(record) else { continue };
            let Some(&peer) = members.get(peer as usize) else { continue };
            // Those of ranks that were not recorded are told apart later.
            if peer != rank && by_rank.contains_key(&peer) {
                *seen.entry((communicator, rank, peer, sends)).or_default() += 1;
            }
        }
    }
    let other = |&(communicator, rank, peer, sends): &(usize, u32, u32, bool)| {
        seen.get(&(communicator, peer, rank, !sends)).copied().unwrap_or(0)
    };
    let more = seen.iter().map(|(key, &count)| (*key, count.saturating_sub(other(key))));
    more.filter(|&(_, count)| count > 0).collect()
}

/// Whether a record is a message that its rank sends, or one that it takes, and the other rank in the communicator.
fn message(records: &Records, record: &Record) -> Option<(bool, u32)> {
    let sends = match records.text(record.what) {
        "Send" => true,
        "Recv" => false,
        _ => return None,
    };
    Some((sends, record.peer?))
}

/// What of a rank is under way: by communicator its last operations, and all whose ends nothing waits for yet.
#[derive(Default)]
struct Under {
    last: BTreeMap<usize, (Vec<u32>, i64)>,
    tails: Vec<(i64, u32)>,
    /// By communicator the group whose messages are under way, and what they wait for.
    group: BTreeMap<usize, (u32, Vec<u32>)>,
}

impl Under {
    /// What an operation of a communicator that began at `start` waits for, and when the last of that ended.
    fn before(&mut self, communicator: usize, start: Option<i64>) -> (Vec<u32>, Option<i64>) {
        let own = self.last.get(&communicator);
        let Some(start) = start else { return (own.map(|own| own.0.clone()).unwrap_or_default(), None) };
        // Of other communicators only what had ended: collectives of several may be under way beside each other.
        let mut before: Vec<(i64, u32)> = self.tails.iter().copied().filter(|tail| tail.0 <= start).collect();
        self.tails.retain(|tail| tail.0 > start);
        if let Some((nodes, end)) = own {
            let ended = before.len();
            for &node in nodes {
                if before[..ended].iter().all(|tail| tail.1 != node) {
                    before.push((*end, node));
                }
            }
        }
        let ended = before.iter().map(|tail| tail.0).filter(|&end| end > i64::MIN).max();
        (before.into_iter().map(|tail| tail.1).collect(), ended)
    }

    /// What a message of a group waits for that is not the first of it.
    fn with(&self, communicator: usize, group: Option<u32>) -> Option<Vec<u32>> {
        let (known, before) = self.group.get(&communicator)?;
        (Some(*known) == group).then(|| before.clone())
    }

    /// Adds an operation; `beside`: it is under way with the last ones.
    fn push(&mut self, communicator: usize, node: u32, end: Option<i64>, beside: bool) {
        let own = self.last.entry(communicator).or_insert((Vec::new(), i64::MIN));
        if !beside {
            *own = (Vec::new(), i64::MIN);
        }
        own.0.push(node);
        own.1 = own.1.max(end.unwrap_or(i64::MIN));
        self.tails.extend(end.map(|end| (end, node)));
    }
}

/// How an operation is counted: its kind, verdict and reason, and bytes.
type Counted = (String, Treatment, &'static str, u64);

/// One rank's records in order.
fn program(
    list: &[&Record],
    records: &Records,
    job: &communicators::Job,
    surplus: &mut Surplus,
    draft: &mut Draft,
    coverage: &mut Coverage,
) -> RankDraft {
    let mut rank = RankDraft::new();
    let mut under = Under::default();
    for record in list {
        let Some((communicator, members)) = job.members(record) else { continue };
        let Some((work, counted)) = work(record, records, (communicator, members), surplus, draft, &mut rank)
        else {
            coverage.count(
                records.text(record.what),
                Treatment::Dropped,
                "not modelled",
                record.bytes,
                record.length,
            );
            continue;
        };
        let label = rank.label(records.text(record.what));
        let start = record.span.map(|span| span.0);
        let is_message = message(records, record).is_some();
        let known = under.with(communicator, record.group).filter(|_| is_message);
        let beside = known.is_some();
        let before = known.unwrap_or_else(|| {
            let (before, ended) = under.before(communicator, start);
            match (ended, start) {
                (Some(clock), Some(start)) if start > clock => {
                    let gap = start.saturating_sub(clock).unsigned_abs();
                    let why = "taken for computation";
                    coverage.count("gap between collectives", Treatment::Approximated, why, 0, gap);
                    let compute = rank.label("compute");
                    vec![rank.calc(gap, StreamId(0), compute, &before)]
                }
                _ => before,
            }
        });
        // Around the host's.
        let place = (1 + communicator).min(200) as u8;
        let stream = StreamId(place + u8::from(place >= HOST_STREAM.0));
        let node = rank.push(work, stream, label, Dimension::Other, &before);
        let (kind, treatment, why, bytes) = counted;
        rank.account(node, (&kind, treatment, why), bytes, record.length, coverage);
        under.push(communicator, node, record.span.map(|span| span.1), beside);
        match record.group.filter(|_| is_message) {
            Some(group) if !beside => {
                under.group.insert(communicator, (group, before));
            }
            Some(_) => {}
            None => {
                under.group.remove(&communicator);
            }
        }
    }
    rank
}

/// What a record does and how it is counted; `None`: it is nothing that a workload has.
fn work(
    record: &Record,
    records: &Records,
    (communicator, members): (usize, &[u32]),
    surplus: &mut Surplus,
    draft: &mut Draft,
    rank: &mut RankDraft,
) -> Option<(Work, Counted)> {
    let what = records.text(record.what);
    let stays = Work::Calc(Span::from_ns(record.length));
    let (treatment, why) = record.verdict.unwrap_or((Treatment::Mapped, ""));
    if let Some((sends, peer)) = message(records, record) {
        let kind = if sends { "send" } else { "receive" };
        let (own, peer) = (*members.get(record.rank as usize)?, *members.get(peer as usize)?);
        let counted = |treatment, why| (kind.to_owned(), treatment, why, record.bytes);
        if peer == own {
            let why = "to itself: no message, its recorded time stays";
            return Some((stays, counted(Treatment::Approximated, why)));
        }
        if let Some(left) = surplus.get_mut(&(communicator, own, peer, sends)).filter(|left| **left > 0) {
            *left -= 1;
            let why = "its other end is not recorded: its recorded time stays";
            return Some((stays, counted(Treatment::Approximated, why)));
        }
        let tag = communicator as u64;
        let work =
            if sends { Work::Send(peer, record.bytes, tag) } else { Work::Receive(Some(peer), Some(tag)) };
        return Some((work, counted(treatment, why)));
    }
    let root = record.root.unwrap_or(0);
    let (kind, rooted) = match kind_of(what)? {
        CollectiveKind::Broadcast { .. } => (CollectiveKind::Broadcast { root }, true),
        CollectiveKind::Reduce { .. } => (CollectiveKind::Reduce { root }, true),
        kind => (kind, false),
    };
    if rooted && record.root.is_some_and(|root| root as usize >= members.len()) {
        return None;
    }
    let bytes = match kind {
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => {
            record.bytes.saturating_mul(members.len() as u64)
        }
        _ => record.bytes,
    };
    let (treatment, why) = if rooted && record.root.is_none() {
        (Treatment::Guessed, "its root is not recorded: 0")
    } else {
        (treatment, why)
    };
    let group = draft.group(records.text(record.communicator), members, Dimension::Other);
    rank.calls.push(Call {
        group,
        kind,
        bytes,
        splits: None,
        sequence: record.number,
        nanoseconds: record.length,
        exact: true,
        came: None,
    });
    let counted = (format!("collective: {}", kind.name()), treatment, why, bytes);
    Some((Work::Call(rank.calls.len() as u32 - 1), counted))
}
