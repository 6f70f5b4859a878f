//! Collectives that run as one coupled group, from their last member's arrival on.

use windtunnel_fabric::{Fabric, Ticket};
use windtunnel_kernel::{Bytes, EndpointId, Span, Time};
use windtunnel_workload::collectives::Rings;
use windtunnel_workload::machine::{Join, Meet};

use super::exchanges::Course;
use super::running::{Running, ShardJob};
use super::ticket::COUPLED;
use crate::coupler::{Group, Member};

/// A coupled group whose last member has come, or somebody who comes to one that is decided as they come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Complete {
    pub run: u32,
    pub start: Time,
    pub what: Coupled,
}

/// What its members have come for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coupled {
    /// A collective as one group.
    Join(Join),
    /// A reduction by switches, or a ring of two levels.
    Meet(Meet),
    /// An exchange that may be one group: a member has come, the last one or not.
    Came(Join),
    /// An exchange that goes message by message by now.
    Late(Member),
}

/// Arrivals further apart than this part of a group's own time make `auto` run it by steps, see
/// [`Shard::keep_rings_coupled`](super::Shard::keep_rings_coupled) for the exception.
const SPREAD: f64 = 0.05;

/// Hands a complete group to the fabric; `false` if its members came too far apart for one group.
pub(super) fn start_group<F: Fabric>(
    fabric: &mut F,
    running: &mut Running,
    job: usize,
    complete: Complete,
    join: Join,
    rings: bool,
) -> bool {
    let Complete { run, start, .. } = complete;
    let Running { job: ShardJob { workload, placement, simulated, .. }, replay, coupler, .. } = running;
    let ranks = &workload.communicators[join.communicator as usize].ranks;
    let place = |index: u32| placement[ranks[index as usize].0 as usize];
    let group = coupler.group(join.communicator, replay.plan_number(&join), |same| {
        let plan = replay.plan(&join);
        let shape = (plan.algorithm(), plan.kind());
        let Some(coupled) = plan.coupled() else {
            let bytes = plan.exchange().expect("a replay joins only collectives that have a coupled form");
            let id = same(shape).unwrap_or_else(|| {
                let members: Vec<_> = (0..ranks.len() as u32).map(place).collect();
                fabric.prepare_exchange(&members, replay.collective_entropy(join.communicator))
            });
            let (bytes, steps) = (Bytes::new(bytes), 1);
            let span = fabric.coupled_span(id, bytes, steps);
            return Group { id, shape, bytes, steps, before: Span::ZERO, span, forced: true };
        };
        let id = same(shape).unwrap_or_else(|| {
            let edges: Vec<_> =
                coupled.edges.iter().map(|&(from, to, weight)| (place(from), place(to), weight)).collect();
            fabric.prepare_coupled(&edges, replay.collective_entropy(join.communicator))
        });
        let (bytes, steps) = (Bytes::new(coupled.bytes), coupled.steps);
        let path = fabric.coupled_span(id, Bytes::new(1), steps);
        let before = Span::from_ps(plan.before().ps().saturating_sub(path.ps()));
        Group {
            id,
            shape,
            bytes,
            steps,
            before,
            span: before + fabric.coupled_span(id, bytes, steps),
            forced: replay.is_forced(&join),
        }
    });
    let spread = start - coupler.first_arrival(run);
    let ring = group.shape.0.rings() != Rings::None;
    let kept = group.forced || (rings && ring);
    if spread > group.span.scaled(SPREAD) && !kept && simulated.is_empty() {
        return false;
    }
    let ticket = Ticket(COUPLED | (job as u64) << 32 | u64::from(run));
    let start = start + group.before;
    fabric.start_coupled(start, place(0), ticket, group.id, group.bytes, group.steps, join.dimension as u8);
    true
}

/// What becomes of an exchange to which a member has come; one that is to go as a whole has been handed to the fabric.
pub(super) fn ask<F: Fabric>(
    fabric: &mut F,
    running: &mut Running,
    job: usize,
    complete: Complete,
    join: &Join,
) -> Course {
    let Running { job: ShardJob { workload, placement, .. }, replay, coupler, exchanges, .. } = running;
    let ranks = &workload.communicators[join.communicator as usize].ranks;
    let place = |index: u32| placement[ranks[index as usize].0 as usize];
    let members = coupler.members(complete.run);
    let course = exchanges.came(fabric, (replay, join), complete.run, members, place);
    if let Course::Whole(group, bytes) = course {
        let ticket = Ticket(COUPLED | (job as u64) << 32 | u64::from(complete.run));
        fabric.start_coupled(complete.start, place(0), ticket, group, bytes, 1, join.dimension as u8);
    }
    course
}

/// Hands a reduction by switches, or a ring of two levels, to the fabric, however far apart its members come: the last one's vector
/// has to go all the way, and the switches hold no more than a few segments of the others' before it; for rings see
/// [`Shard::keep_rings_coupled`](super::Shard::keep_rings_coupled).
pub(super) fn start_meeting<F: Fabric>(
    fabric: &mut F,
    running: &mut Running,
    job: usize,
    complete: Complete,
    meet: &Meet,
) {
    let Running { job: ShardJob { workload, placement, .. }, replay, coupler, .. } = running;
    let ranks = &workload.communicators[meet.communicator as usize].ranks;
    let meeting = meet.meeting;
    let place = |index: u32| placement[ranks[index as usize].0 as usize];
    let group = coupler.met((meet.communicator, meeting.first, meeting.stride, meeting.ring), || {
        let members: Vec<EndpointId> = meeting.members().map(place).collect();
        let entropy = replay.collective_entropy(meet.communicator);
        if !meeting.ring {
            return fabric.prepare_reduction(&members, entropy.wrapping_add(meeting.first));
        }
        // Of a domain's switch that sums, too, every member's link carries the same each way.
        let next = members.iter().cycle().skip(1);
        let edges: Vec<_> = members.iter().zip(next).map(|(&from, &to)| (from, to, 1)).collect();
        fabric.prepare_coupled(&edges, entropy)
    });
    let ticket = Ticket(COUPLED | (job as u64) << 32 | u64::from(complete.run));
    let (leader, class) = (place(meeting.first), meet.dimension as u8);
    fabric.start_coupled(
        complete.start,
        leader,
        ticket,
        group,
        Bytes::new(meeting.bytes),
        meeting.steps,
        class,
    );
}
