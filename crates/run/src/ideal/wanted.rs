//! Whether a job is simulated on an ideal fabric, which is a question of what that costs.

use windtunnel_plan::Plan;
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::settings::Fidelity;
use windtunnel_workload::OpKind;
use windtunnel_workload::collectives::{self, Form};

/// Messages up to which a job that trains no model is compared unless the scenario says otherwise: below it the second
/// simulation goes unnoticed, above it the traffic is the experiment and would be simulated twice.
const FEW: u64 = 1 << 12;

/// Whether `job_plan` is simulated on an ideal fabric: always at job fidelity, which knows nothing else; otherwise as
/// `results.ideal` says, or if that is left out, where it costs little or several jobs need it to draw their phases.
pub(super) fn wanted(plan: &Plan, job_plan: &JobPlan) -> bool {
    if job_plan.duration.is_some() {
        return false;
    }
    if plan.fidelity == Fidelity::Job {
        return true;
    }
    let default = || job_plan.model.is_some() || plan.jobs.len() > 1 || messages(job_plan) <= FEW;
    plan.results.ideal.unwrap_or_else(default)
}

/// Messages of an iteration; a coupled collective counts as one per member. Counts no further than [`FEW`].
fn messages(job_plan: &JobPlan) -> u64 {
    counted_messages(job_plan).0
}

/// Whether all that an iteration sends is few messages, and nothing of it runs coupled.
pub(super) fn goes_by_few_messages(job_plan: &JobPlan) -> bool {
    matches!(counted_messages(job_plan), (..=FEW, false))
}

/// [`messages`], and whether any collective may run coupled, of those looked at.
fn counted_messages(job_plan: &JobPlan) -> (u64, bool) {
    let workload = &job_plan.work.workload;
    let of_program = |program: u32| {
        let program = &workload.programs[program as usize];
        program.ops.iter().filter(|op| matches!(op.kind, OpKind::Send { .. })).count() as u64
    };
    let (mut sum, mut couples) = (0, false);
    for &program in &workload.program_of {
        sum += of_program(program);
        if sum > FEW {
            return (sum, couples);
        }
    }
    for group in &workload.communicators {
        let Some(&first) = group.ranks.first() else { continue };
        let (program, members) = (workload.program(first), group.ranks.len() as u64);
        for op in &program.ops {
            let OpKind::Collective { comm, spec, .. } = op.kind else { continue };
            let of = &workload.communicators[workload.binding(first, comm).communicator as usize];
            if !std::ptr::eq(of, group) {
                continue;
            }
            let spec = &program.specs[spec as usize];
            // One that cannot be planned is told by the run.
            let Ok(steps) = collectives::Plan::new(spec, members as u32) else { continue };
            let coupled = steps.coupled().is_some() && spec.form != Form::Steps;
            couples |= coupled;
            let each = if coupled || steps.is_empty() {
                1
            } else {
                u64::from(steps.lanes()) * u64::from(steps.rounds(0))
            };
            sum += members * each;
            if sum > FEW {
                return (sum, couples);
            }
        }
    }
    (sum, couples)
}
