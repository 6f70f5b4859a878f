//! All-reduces by switches: whether there are any that sum, and a tree of them.

use windtunnel_fabric::reduction::ReductionSettings;
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_workload::collectives::Plan;
use windtunnel_workload::{OpKind, Workload};

use super::JobPlan;
use crate::schema::{Network, Scenario};

/// What switches can sum, by the scenario's keys.
///
/// # Errors
/// [`InputError`] for no reductions at once, no rate, and slots that leave a reduction none.
pub fn settings(network: &Network, source: &str) -> Result<ReductionSettings, InputError> {
    let at = |key: &str| format!("{source}: network.reduction.{key}");
    let Some(given) = &network.reduction else { return Ok(ReductionSettings::default()) };
    if given.operations == 0 {
        return Err(InputError::new(at("operations"), "expected at least 1 reduction at once, found 0"));
    }
    if given.rate.is_some_and(|rate| rate.0.bps() == 0) {
        return Err(InputError::new(at("rate"), "expected a rate above 0 bps, found 0 bps"));
    }
    if given.slots < given.operations {
        let message = format!(
            "{} slots leave none for each of {} reductions: expected at least as many slots",
            given.slots, given.operations
        );
        return Err(InputError::new(at("slots"), message));
    }
    Ok(ReductionSettings {
        slots: given.slots,
        operations: given.operations,
        latency: given.latency.0,
        rate: given.rate.map(|rate| rate.0),
    })
}

/// Checks that there are switches for the all-reduces that ask for them.
///
/// # Errors
/// [`InputError`] for switches that do not sum, and shapes without a tree of them.
pub fn check(
    scenario: &Scenario,
    settings: &ReductionSettings,
    fabric: &FabricParts,
    plans: &[JobPlan],
    source: &str,
    evidence: &mut EvidenceList,
) -> Result<(), InputError> {
    let at = |key: &str| format!("{source}: {key}");
    for plan in plans {
        let Some((inside, between)) = asked(plan) else { continue };
        if inside && !fabric.scale_up_reduces {
            let message = format!(
                "job `{}` has an all-reduce by `in_network` inside a scale-up domain, whose switches do not sum",
                plan.name
            );
            return Err(InputError::new(at("topology.host.scale_up.reduction"), message).hint(
                "set it to `true`, name a `gpu` whose sheet says so, such as `H100-SXM`, or use `ring`",
            ));
        }
        if between {
            between_hosts(scenario, fabric, plan, source)?;
            let line = format!(
                "{} slots for {} reductions at once, {} ns",
                settings.slots,
                settings.operations,
                settings.latency.ps() / 1_000
            );
            evidence.add("in-network reduction", "given", &line);
        }
    }
    Ok(())
}

fn between_hosts(
    scenario: &Scenario,
    fabric: &FabricParts,
    plan: &JobPlan,
    source: &str,
) -> Result<(), InputError> {
    let at = |key: &str| format!("{source}: {key}");
    let who = format!("job `{}` has an all-reduce by `in_network`", plan.name);
    if scenario.network.reduction.is_none() {
        return Err(InputError::new(at("network.reduction"), format!("{who}, but switches do not sum"))
            .hint("set `network.reduction: {}`, or use `ring` or `hierarchical`"));
    }
    let shape = fabric.topology.shape_name();
    if shape != "clos" {
        let message = format!("{who}, which needs a tree of switches, found shape `{shape}`");
        return Err(InputError::new(at("topology.shape"), message)
            .hint("expected `clos` or `fat-tree`, or use `ring` or `hierarchical`"));
    }
    if scenario.network.backend.is_some() {
        let message = format!("{who}, of which a model of one's own is not told");
        return Err(InputError::new(at("network.backend"), message).hint("use `ring` or `hierarchical`"));
    }
    Ok(())
}

/// Whether a job's all-reduces ask switches of scale-up domains to sum, and those of the fabric; `None` if it has none.
fn asked(plan: &JobPlan) -> Option<(bool, bool)> {
    plan.works()
        .filter_map(|work| asked_by(&work.workload))
        .reduce(|all, one| (all.0 || one.0, all.1 || one.1))
}

/// The same of one number of ranks.
fn asked_by(workload: &Workload) -> Option<(bool, bool)> {
    let wants = |spec: &windtunnel_workload::collectives::CollectiveSpec| spec.algorithm.sums();
    if !workload.programs.iter().any(|program| program.specs.iter().any(wants)) {
        return None;
    }
    let mut found = (false, false);
    for group in &workload.communicators {
        let Some(&first) = group.ranks.first() else { continue };
        let program = workload.program(first);
        for op in &program.ops {
            let OpKind::Collective { comm, spec, .. } = op.kind else { continue };
            let of = &workload.communicators[workload.binding(first, comm).communicator as usize];
            let spec = &program.specs[spec as usize];
            if !std::ptr::eq(of, group) || !wants(spec) {
                continue;
            }
            // One that cannot be planned is told by the run.
            let Ok(plan) = Plan::new(spec, group.ranks.len() as u32) else { continue };
            let meets = (0..plan.rounds(0)).find_map(|round| plan.meeting(0, round));
            if let Some(meeting) = meets.filter(|_| !plan.is_empty()) {
                if meeting.ring { found.0 = true } else { found.1 = true }
            }
        }
    }
    Some(found)
}
