//! On which GPUs pipeline ranks lie, where these differ: in kind, or in speed from what their sheet says.
//!
//! Replicas work through equal batches, so the slowest GPU of a pipeline rank sets its pace, and the others wait for it. Which kind is
//! the slowest depends on what it computes; what its exchanges take, on where the groups of that kind are.

use windtunnel_kernel::{EndpointId, RankId};
use windtunnel_plan::kinds::GpuKinds;
use windtunnel_workload::generate::Grid;

/// GPUs of one kind among those of a pipeline rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group {
    pub kind: u8,
    /// Of the slowest of them, relative to its sheet.
    pub speed: f64,
    /// How many there are.
    pub gpus: f64,
    /// Sum of what each takes, as a multiple of what the sheet says.
    pub times: f64,
}

/// GPUs of each of `pp` pipeline ranks by kind, where rank r lies on GPU r; none where all are alike and run as their sheet says.
pub(super) fn groups(pp: u32, grid: &Grid, speeds: &[f64], gpus: &GpuKinds) -> Vec<Vec<Group>> {
    if speeds.is_empty() && !gpus.differ() {
        return Vec::new();
    }
    let mut found: Vec<Vec<Group>> = vec![Vec::new(); pp as usize];
    for rank in 0..grid.ranks() {
        let (kind, speed) = (gpus.of(EndpointId(rank)), speeds.get(rank as usize).copied().unwrap_or(1.0));
        let of = &mut found[grid.coordinates(RankId(rank)).pp as usize];
        let at = of.iter().position(|group| group.kind == kind).unwrap_or_else(|| {
            of.push(Group { kind, speed, gpus: 0.0, times: 0.0 });
            of.len() - 1
        });
        let group = &mut of[at];
        group.speed = group.speed.min(speed);
        group.gpus += 1.0;
        group.times += 1.0 / speed;
    }
    found
}

/// By how much of their time the GPUs of a pipeline rank wait for its slowest, where `of_kind` says what a kind takes at the speed of
/// its sheet.
pub(super) fn waits(groups: &[Group], of_kind: impl Fn(u8) -> f64) -> f64 {
    let slowest =
        groups.iter().map(|group| of_kind(group.kind) / group.speed).fold(f64::MIN_POSITIVE, f64::max);
    let all: f64 = groups.iter().map(|group| group.gpus).sum();
    let waits = |group: &Group| group.gpus - group.times * of_kind(group.kind) / slowest;
    groups.iter().map(waits).sum::<f64>() / all.max(1.0)
}

/// Where a stage lies: on which kinds of GPUs, bit k for kind k, and on which of them it takes longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lie {
    pub kinds: u64,
    pub slowest: u8,
}

impl Lie {
    /// The kinds of a pipeline rank's GPUs.
    pub(super) fn kinds_of(groups: &[Group]) -> u64 {
        groups.iter().fold(0, |set, group| set | 1 << group.kind)
    }

    /// Those that stages of pipeline ranks may have; none where GPUs are of one kind.
    pub(super) fn all(ranks: &[Vec<Group>], gpus: &GpuKinds) -> Vec<Self> {
        let mut found = Vec::new();
        if !gpus.differ() {
            return found;
        }
        for groups in ranks {
            let kinds = Self::kinds_of(groups);
            for group in groups {
                let lie = Self { kinds, slowest: group.kind };
                if !found.contains(&lie) {
                    found.push(lie);
                }
            }
        }
        found
    }

    /// Whether a group is one of pipeline ranks that lie so, with a member of the slowest kind.
    pub(super) fn has(self, members: &[RankId], grid: &Grid, ranks: &[Vec<Group>], gpus: &GpuKinds) -> bool {
        let within =
            |rank: &RankId| Self::kinds_of(&ranks[grid.coordinates(*rank).pp as usize]) == self.kinds;
        members.first().is_some_and(within)
            && members.iter().any(|rank| gpus.of(EndpointId(rank.0)) == self.slowest)
    }
}
