//! Data-parallel exchanges of a pass: what it gathers and what leaves in it, in buckets or unit by unit.

use smallvec::SmallVec;
use windtunnel_kernel::Bytes;

use super::fluid::{Leaving, Part};
use super::pass::{Tolls, Walk};
use crate::collectives::CollectiveKind;
use crate::generate::{ChunkWork, Layout, Role};

/// What a data-parallel exchange under way costs a stretch of a pass, and it the exchange, for each picosecond of the stretch: both
/// meet on links where the stretch waits for exchanges of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Meeting {
    /// By how much the stretch is longer.
    pub longer: f64,
    /// For how long the other does nothing.
    pub held: f64,
}

/// A stretch of a pass, and what happens at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub span: f64,
    pub meeting: Meeting,
    pub then: Point,
}

/// What happens in a pass beside its computations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Point {
    /// Parameters are read from here on: what gathering them takes, dense and expert.
    Enter([Part; 2]),
    /// Gradients are complete.
    Leave(Leaving),
    /// The pass ends.
    End,
}

/// Parameters that are gathered once a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Dense and expert ones.
    pub parts: [Part; 2],
    /// What of the first forward pass comes after them.
    pub after: f64,
}

/// Buckets of parameters that a step gathers once.
pub(super) fn buckets(
    layout: &Layout,
    work: &ChunkWork,
    entered: &[(f64, SmallVec<[u32; 2]>)],
    end: f64,
    tolls: &dyn Tolls,
) -> Vec<Bucket> {
    let mut found: Vec<([Bytes; 2], f64)> = Vec::new();
    for (at, units) in entered {
        let open = found.last().is_some_and(|([dense, expert], _)| *dense + *expert < layout.bucket_bytes);
        if !open {
            found.push(([Bytes(0); 2], end - at));
        }
        let (bytes, _) = found.last_mut().expect("one is open");
        add(bytes, units, [&work.parameter_bytes, &work.expert_parameter_bytes]);
    }
    let bucket = |(bytes, after)| Bucket { parts: gather(bytes, tolls), after };
    found.into_iter().map(bucket).collect()
}

/// Adds what `units` have of dense and expert `sizes`.
pub(super) fn add(bytes: &mut [Bytes; 2], units: &[u32], sizes: [&[Bytes]; 2]) {
    for &unit in units {
        for (sum, sizes) in bytes.iter_mut().zip(sizes) {
            *sum += sizes.get(unit as usize).copied().unwrap_or_default();
        }
    }
}

pub(super) fn gather(bytes: [Bytes; 2], tolls: &dyn Tolls) -> [Part; 2] {
    let of = |role, bytes| tolls.part(role, CollectiveKind::AllGather, bytes);
    [of(Role::Shard(0), bytes[0]), of(Role::ExpertShard(0), bytes[1])]
}

/// What reducing a bucket takes inside replicas, and across them.
pub(super) fn reduction(layout: &Layout, bytes: [Bytes; 2], at: f64, tolls: &dyn Tolls) -> Leaving {
    let kind = if layout.zero == 0 { CollectiveKind::AllReduce } else { CollectiveKind::ReduceScatter };
    let replicas = u64::from(layout.cp) * u64::from(layout.dp) / u64::from(layout.replicate);
    let mut leaving = Leaving { at, ..Leaving::default() };
    let shards = [replicas * u64::from(layout.ep), replicas];
    for (number, role) in [Role::Shard(0), Role::ExpertShard(0)].into_iter().enumerate() {
        leaving.parts[number] = tolls.part(role, kind, bytes[number]);
        if layout.replicate > 1 && bytes[number].0 > 0 {
            let shard = Bytes(bytes[number].0.div_ceil(shards[number].max(1)));
            leaving.across[number] = tolls.part(Role::Replicate, CollectiveKind::AllReduce, shard);
        }
    }
    leaving
}

/// What leaves in buckets during a pass that ends at `end`, counted from its end.
pub(super) fn reductions(
    layout: &Layout,
    work: &ChunkWork,
    left: &[(f64, SmallVec<[u32; 2]>)],
    end: f64,
    tolls: &dyn Tolls,
) -> Vec<Leaving> {
    let mut found = Vec::new();
    let mut bytes = [Bytes(0); 2];
    for (at, units) in left {
        add(&mut bytes, units, [&work.gradient_bytes, &work.expert_gradient_bytes]);
        let all = bytes[0] + bytes[1];
        let full = layout.overlap_gradients && (layout.zero == 3 || all >= layout.bucket_bytes);
        if full && all.0 > 0 {
            found.push(reduction(layout, std::mem::take(&mut bytes), at - end, tolls));
        }
    }
    if (bytes[0] + bytes[1]).0 > 0 {
        found.push(reduction(layout, bytes, 0.0, tolls));
    }
    found
}

/// When the last of `leaving` is reduced, from the start of a pass that ends at `end`, and what that takes in all, alone on its links.
pub(super) fn alone(leaving: &[Leaving], end: f64) -> (f64, f64) {
    let (mut inside, mut across, mut all) = (0.0f64, 0.0f64, [0.0; 2]);
    for leaving in leaving {
        let sum = |parts: [Part; 2]| parts[0].alone() + parts[1].alone();
        let (own, other) = (sum(leaving.parts), sum(leaving.across));
        inside = inside.max(end + leaving.at) + own;
        across = across.max(inside) + other;
        all = [all[0] + own, all[1] + other];
    }
    (inside.max(across), all[0].max(all[1]))
}

/// The stretches of a pass that has been walked.
pub(super) fn stretches(
    layout: &Layout,
    work: &ChunkWork,
    walk: &Walk<'_>,
    end: f64,
    tolls: &dyn Tolls,
) -> Vec<Stretch> {
    let mut found: Vec<(f64, [f64; 3], Point)> = Vec::with_capacity(walk.entered.len() + walk.left.len() + 1);
    let sizes = |units: &[u32], sizes: [&[Bytes]; 2]| {
        let mut bytes = [Bytes(0); 2];
        add(&mut bytes, units, sizes);
        bytes
    };
    for (mark, inside) in walk.entered.iter().zip(&walk.inside[0]) {
        let bytes = sizes(&mark.1, [&work.parameter_bytes, &work.expert_parameter_bytes]);
        found.push((mark.0, *inside, Point::Enter(gather(bytes, tolls))));
    }
    for (mark, inside) in walk.left.iter().zip(&walk.inside[1]) {
        let bytes = sizes(&mark.1, [&work.gradient_bytes, &work.expert_gradient_bytes]);
        found.push((mark.0, *inside, Point::Leave(reduction(layout, bytes, 0.0, tolls))));
    }
    // What is left at an instant was entered before the next is.
    found.sort_by(|a, b| {
        let order = |point: &Point| u8::from(matches!(point, Point::Enter(_)));
        a.0.total_cmp(&b.0).then(order(&a.2).cmp(&order(&b.2)))
    });
    found.push((end, walk.stood(), Point::End));
    let rates = [Role::Tp, Role::Cp, Role::Ep].map(|role| tolls.beside(role));
    let (mut before, mut waited) = (0.0, [0.0; 3]);
    found
        .into_iter()
        .map(|(at, inside, then)| {
            let span = at - std::mem::replace(&mut before, at);
            let mut meeting = Meeting::default();
            for ((inside, waited), [own, other]) in inside.iter().zip(&waited).zip(rates) {
                let share = if span > 0.0 { ((inside - waited) / span).min(1.0) } else { 0.0 };
                meeting.longer += share * (1.0 / own - 1.0);
                meeting.held += share * (1.0 - other) / own;
            }
            waited = inside;
            Stretch { span, meeting, then }
        })
        .collect()
}
