//! What the jobs of a run sent, from their workloads and the iterations that they did: the same at every fidelity, whatever of it
//! was simulated, and how.

use rustc_hash::FxHashMap;
use windtunnel_cluster::calendar::JobHistory;
use windtunnel_plan::Plan;
use windtunnel_workload::Workload;
use windtunnel_workload::collectives::Traffic;

use super::recorder::Iteration;

/// Part of `traffic` in `work` iterations of 2^-64, to the nearest message and byte.
fn part(traffic: Traffic, work: u128) -> Traffic {
    let (whole, rest) = (work >> 64, (work & u128::from(u64::MAX)) as f64 / (1_u128 << 64) as f64);
    let of = |count: u128| count * whole + (count as f64 * rest).round() as u128;
    Traffic { messages: of(traffic.messages), bytes: of(traffic.bytes) }
}

/// What jobs sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Payload {
    /// In the iterations that count and the loads over the network; of a job that has not ended, of its last iteration the part
    /// that was done.
    pub kept: Traffic,
    /// In what interruptions undid.
    pub undone: Traffic,
}

/// What all jobs sent. Of a run that was stopped the calendar has not heard of what was simulated last: `seen` has its iterations, by
/// job.
pub(crate) fn of(plan: &Plan, histories: &[JobHistory], seen: Option<&[Vec<Iteration>]>) -> Payload {
    // Jobs share workloads.
    let mut known: FxHashMap<*const Workload, Traffic> = FxHashMap::default();
    let mut each = |workload: &Workload| *known.entry(workload).or_insert_with(|| workload.traffic());
    let mut sum = Payload::default();
    for (job, (job_plan, history)) in plan.jobs.iter().zip(histories).enumerate() {
        for (gpus, work) in history.done.parts() {
            sum.kept = sum.kept + part(each(&job_plan.work_of(gpus).workload), work);
        }
        for (gpus, work) in history.undone.parts() {
            sum.undone = sum.undone + part(each(&job_plan.work_of(gpus).workload), work);
        }
        for (gpus, work) in history.loaded.parts() {
            if let Some(load) = &job_plan.work_of(gpus).load {
                sum.kept = sum.kept + part(each(&load.workload), work);
            }
        }
        if let Some(seen) = seen {
            let weights: f64 = seen[job].iter().map(|iteration| iteration.weight).sum();
            let known = history.done.total() + history.undone.total();
            let more = ((weights * (1_u128 << 64) as f64) as u128).saturating_sub(known);
            sum.kept = sum.kept + part(each(&job_plan.work.workload), more);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_iteration_are_parts_of_its_messages() {
        let one = Traffic { messages: 10, bytes: 1000 };
        let of = |work| (part(one, work).messages, part(one, work).bytes);
        assert_eq!(of(3 << 64), (30, 3000));
        // A job that has ended has done all but a remnant of a rounding.
        assert_eq!(of((3 << 64) - 1), (30, 3000));
        assert_eq!(of((3 << 64) + (1 << 63)), (35, 3500));
    }
}
