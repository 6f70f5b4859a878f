//! Whether a job is also simulated on an ideal fabric, for comparison.

use windtunnel_workload::OpKind;
use windtunnel_workload::collectives::{Form, Plan};

use crate::assemble::{Assembled, JobPlan};
use crate::schema::Fidelity;

/// Messages up to which a job that trains no model is compared unless the scenario says otherwise: below it the second
/// simulation goes unnoticed, above it the traffic is the experiment and would be simulated twice.
const FEW: u64 = 1 << 12;

/// Whether `plan` is simulated on an ideal fabric: always at job fidelity, which knows nothing else; otherwise as
/// `results.ideal` says, or if that is left out, where it costs little or several jobs need it to draw their phases.
pub fn wanted(assembled: &Assembled, plan: &JobPlan) -> bool {
    if plan.duration.is_some() {
        return false;
    }
    if assembled.scenario.fidelity == Fidelity::Job {
        return true;
    }
    let default = || plan.model.is_some() || assembled.jobs.len() > 1 || messages(plan) <= FEW;
    assembled.scenario.results.ideal.unwrap_or_else(default)
}

/// Messages of an iteration; a coupled collective counts as one per member. Counts no further than [`FEW`].
fn messages(plan: &JobPlan) -> u64 {
    let workload = &plan.workload;
    let of_program = |program: u32| {
        let program = &workload.programs[program as usize];
        program.ops.iter().filter(|op| matches!(op.kind, OpKind::Send { .. })).count() as u64
    };
    let mut sum = 0;
    for &program in &workload.program_of {
        sum += of_program(program);
        if sum > FEW {
            return sum;
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
            let Ok(plan) = Plan::new(spec, members as u32) else { continue };
            let coupled = plan.coupled().is_some() && spec.form != Form::Steps;
            let each = if coupled || plan.is_empty() {
                1
            } else {
                u64::from(plan.lanes()) * u64::from(plan.rounds(0))
            };
            sum += members * each;
            if sum > FEW {
                return sum;
            }
        }
    }
    sum
}
