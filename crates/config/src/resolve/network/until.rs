//! When flows that are still under way are given up.

use windtunnel_kernel::Span;
use windtunnel_plan::error::InputError;
use windtunnel_plan::settings::Fidelity;

use crate::schema::{Jobs, Scenario};

/// What the scenario's job of flows says; `foreign` tells whether the network is one of the program's own.
///
/// # Errors
/// [`InputError`] where there are no packets, other jobs, or more than one iteration.
pub(super) fn until(scenario: &Scenario, foreign: bool, source: &str) -> Result<Option<Span>, InputError> {
    let asks = |workload: &Option<crate::schema::WorkloadSource>| {
        workload.as_ref().and_then(|workload| workload.flows.as_ref()).and_then(|flows| flows.until)
    };
    let jobs = match &scenario.jobs {
        Jobs::List(jobs) => jobs,
        Jobs::Source(jobs) => {
            let found = jobs
                .workloads
                .iter()
                .any(|kind| kind.workload.flows.as_ref().is_some_and(|flows| flows.until.is_some()));
            if found {
                let message =
                    "expected a list of one job: what is under way at that time is given up, whose it is";
                return Err(InputError::new(format!("{source}: jobs.workloads"), message)
                    .hint("leave `flows.until` out"));
            }
            return Ok(None);
        }
    };
    let Some((index, until)) =
        (0..).zip(jobs).find_map(|(index, job): (usize, _)| Some((index, asks(&job.workload)?)))
    else {
        return Ok(None);
    };
    let place = format!("{source}: jobs[{index}].workload.flows.until");
    let refused = |message: String| Err(InputError::new(place.clone(), message));
    if scenario.fidelity != Fidelity::Packet || foreign {
        return refused(format!(
            "needs `fidelity: packet` and the packets that come along, found `{}`",
            scenario.fidelity.name()
        ));
    }
    if jobs.len() > 1 || jobs[index].iterations != 1 {
        return refused(format!(
            "expected one job of one iteration, found {} jobs, and {} iterations of this one",
            jobs.len(),
            jobs[index].iterations
        ));
    }
    if until.0 == Span::ZERO {
        return refused("expected more than 0".to_owned());
    }
    Ok(Some(until.0))
}
