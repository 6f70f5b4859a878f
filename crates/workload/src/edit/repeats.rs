//! Iterations of a workload that marks none: where its operations repeat.
//!
//! Two operations are alike where kind, label, bytes and other end are: durations and tags differ from iteration to iteration, and
//! labels that only one operation has. The period of a rank is the shortest whose whole repetitions cover the most of it; they have
//! to cover more than half, so that two equal operations in a row are no iterations. What an iteration repeats itself, such as its
//! layers, covers less than the iterations do. Where the run of a rank is longer than whole repetitions, they begin at its begin, or
//! end where the rank ends.

use rustc_hash::FxHashMap;
use windtunnel_kernel::RankId;

use super::slice::{SliceError, cut};
use crate::goal::Matcher;
use crate::{OpKind, Peer, Program, Workload};

/// What repeats on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeats {
    /// Operations before.
    pub before: usize,
    /// Operations of an iteration.
    pub period: usize,
    /// Iterations.
    pub count: usize,
    /// Operations behind.
    pub behind: usize,
}

/// What the workload repeats on each distinct program, as often on all; no entry for one without operations.
///
/// # Errors
/// [`SliceError`] where a rank repeats nothing, or ranks disagree.
pub fn repeats(workload: &Workload) -> Result<Vec<Option<Repeats>>, SliceError> {
    let mut found: Vec<Option<Repeats>> = vec![None; workload.programs.len()];
    let mut least: Option<(u32, usize)> = None;
    let mut seen: Vec<(u32, usize)> = Vec::new();
    for rank in 0..workload.ranks() as u32 {
        let index = workload.program_of[rank as usize] as usize;
        let program = &workload.programs[index];
        if found[index].is_some() || program.ops.is_empty() {
            continue;
        }
        let here = period(&symbols(program)).ok_or(SliceError::NoRepetition { rank })?;
        if least.is_none_or(|(_, count)| here.count < count) {
            least = Some((rank, here.count));
        }
        seen.push((rank, here.count));
        found[index] = Some(here);
    }
    let Some((first, count)) = least else { return Err(SliceError::NoRepetition { rank: 0 }) };
    // A rank may see the parts of an iteration alike, as one does that has nothing of its begin and end.
    if let Some(&(rank, other)) = seen.iter().find(|(_, other)| other % count != 0) {
        return Err(SliceError::Disagree { first, count, rank, other });
    }
    for here in found.iter_mut().flatten() {
        here.period *= here.count / count;
        here.count = count;
    }
    Ok(found)
}

/// Cuts the iterations from `first` to `last` out, counted from 0; returns them, how many collectives were left out, and what
/// repeats on the first rank that does anything.
///
/// # Errors
/// [`SliceError`] where nothing repeats, ranks disagree, there is no such iteration, or messages lie across the cut.
pub fn slice_repeats(
    workload: &Workload,
    first: usize,
    last: usize,
) -> Result<(Workload, u64, Repeats), SliceError> {
    let found = repeats(workload)?;
    let mut own = workload.program_of.iter().filter_map(|&program| found[program as usize]);
    let Some(told) = own.next() else { return Err(SliceError::NoRepetition { rank: 0 }) };
    if last < first || last >= told.count {
        return Err(SliceError::NoIteration { first, last, count: told.count });
    }
    let range =
        |here: &Repeats| (here.before + first * here.period, here.before + (last + 1) * here.period - 1);
    let kept: Vec<Option<(usize, usize)>> = found.iter().map(|here| here.as_ref().map(range)).collect();
    let (cut, left_out) = cut(workload, &kept);
    let matcher = Matcher::new(&cut);
    for rank in (0..cut.ranks() as u32).map(RankId) {
        let receives = matcher.receives(rank);
        let taken = receives.iter().filter(|receive| receive.send.is_some()).count();
        if taken < receives.len() || taken < matcher.incoming(rank).len() {
            return Err(SliceError::Across { rank: rank.0 });
        }
    }
    Ok((cut, left_out, told))
}

/// A number for each operation, equal where they are alike.
fn symbols(program: &Program) -> Vec<u32> {
    let mut known = FxHashMap::default();
    let other = |peer: Peer| match peer {
        Peer::Rank(rank) => (u64::from(u16::MAX) + 1, u64::from(rank.0)),
        Peer::Member(slot, index) => (u64::from(slot.0), u64::from(index)),
    };
    let nobody = (u64::MAX, 0);
    let mut uses = vec![0u32; program.labels.len()];
    program.ops.iter().for_each(|op| uses[op.label as usize] += 1);
    program
        .ops
        .iter()
        .map(|op| {
            let (kind, bytes, with) = match op.kind {
                OpKind::Calc { .. } => ("compute", 0, nobody),
                OpKind::Send { peer, bytes, .. } => ("send", bytes.get(), other(peer)),
                OpKind::Receive { peer, .. } => ("receive", 0, peer.map_or(nobody, other)),
                OpKind::Collective { comm, spec, .. } => {
                    let spec = &program.specs[spec as usize];
                    (spec.kind.name(), spec.bytes.get(), (u64::from(comm.0), 0))
                }
            };
            // What only one operation is called is its own name, such as its id in a workload written by hand.
            let label = if uses[op.label as usize] > 1 { op.label } else { u32::MAX };
            let next = known.len() as u32;
            *known.entry((kind, label, bytes, with)).or_insert(next)
        })
        .collect()
}

/// What repeats in `sequence`, if it covers more than half of it: then it holds the middle, and a period on either side of the
/// middle is an element like it.
fn period(sequence: &[u32]) -> Option<Repeats> {
    let (length, middle) = (sequence.len(), sequence.len() / 2);
    let mut candidates: Vec<usize> = (0..length)
        .filter(|&place| place != middle && sequence[place] == sequence[middle])
        .map(|place| place.abs_diff(middle))
        .collect();
    candidates.sort_unstable();
    candidates.dedup();
    let mut best: Option<(usize, usize, Repeats)> = None;
    for period in candidates {
        // A longer period is another only if it covers more than the whole run of the shorter one.
        if best.is_some_and(|(from, to, _)| to - from == length) || period > length / 2 {
            break;
        }
        let alike = |place: usize| sequence[place] == sequence[place + period];
        for anchor in [middle.checked_sub(period), Some(middle)].into_iter().flatten() {
            if anchor + period >= length || !alike(anchor) {
                continue;
            }
            let from = (0..anchor).rev().take_while(|&place| alike(place)).last().unwrap_or(anchor);
            let to = (anchor..length - period).take_while(|&place| alike(place)).last().unwrap_or(anchor)
                + period
                + 1;
            let count = (to - from) / period;
            let covered = count * period;
            let most = best.map_or(length / 2, |(from, to, _)| to - from);
            if count >= 2 && covered > most {
                let before = if from > 0 && to == length { to - covered } else { from };
                let behind = length - before - covered;
                best = Some((from, to, Repeats { before, period, count, behind }));
            }
        }
    }
    best.map(|(_, _, found)| found)
}

#[cfg(test)]
mod tests {
    use super::{Repeats, period};

    fn found(text: &str) -> Option<(usize, usize, usize, usize)> {
        let sequence: Vec<u32> = text.chars().map(u32::from).collect();
        period(&sequence).map(|Repeats { before, period, count, behind }| (before, period, count, behind))
    }

    #[test]
    fn the_shortest_that_covers_the_most() {
        assert_eq!(found("abcabcabc"), Some((0, 3, 3, 0)));
        assert_eq!(found("aaaaaaa"), Some((0, 1, 7, 0)));
        // Layers within iterations, a prologue, an epilogue.
        assert_eq!(found("xyzabbbbcabbbbcabbbbcw"), Some((3, 6, 3, 1)));
        // Half an iteration before or behind.
        assert_eq!(found("cdabcdabcd"), Some((0, 4, 2, 2)));
        assert_eq!(found("xcdabcdabcd"), Some((3, 4, 2, 0)));
        for text in ["", "a", "ab", "abcdefg", "aabcdefgh", "abcdxyzabcd"] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
