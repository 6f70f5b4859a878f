//! Why a simulation cannot go on, in words for people: a broken model, pauses that wait for one another, a pair that nothing joins.

use windtunnel_fabric::Trouble;
use windtunnel_fabric::reroute::CutOff;
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, Why};
use windtunnel_topology::{Detour, LinkId, Node};

/// What is said of `trouble`; `None` where the rest of the network goes on.
pub(crate) fn trouble_failure(plan: &Plan, trouble: &Trouble) -> Option<Failure> {
    match trouble {
        Trouble::Fault(words) => Some(Failure::Run(Why::Model, words.clone())),
        Trouble::PauseCycle(cycle) => Some(cycle_failure(plan, cycle)),
        Trouble::SilentPair(pair) => Some(silent_failure(plan, *pair)),
        Trouble::LostForGood => None,
    }
}

/// What is said of a pair that nothing joins.
pub(crate) fn cut_off_failure(plan: &Plan, pair: CutOff) -> Failure {
    let topology = &plan.fabric.topology;
    let name = |endpoint| topology.node_name(Node::Gpu(endpoint));
    let (from, to) = (name(pair.from), name(pair.to));
    let hint = match plan.fabric.detour {
        Detour::Forbid => "`detour: allow` takes any way there is, or let less fail".to_owned(),
        Detour::Allow => "no way is left at all: let less fail".to_owned(),
    };
    Failure::Run(
        Why::CutOff,
        format!("no path from `{from}` to `{to}` is left by what has `failed`\n\nhint: {hint}"),
    )
}

/// Links named of a cycle of pauses.
const LINKS: usize = 12;

fn cycle_failure(plan: &Plan, cycle: &[LinkId]) -> Failure {
    let topology = &plan.fabric.topology;
    let line = |&link: &LinkId| format!("\n  {}", topology.link_name(link));
    let lines: String = cycle.iter().take(LINKS).map(line).collect();
    let more = cycle.len().saturating_sub(LINKS);
    let more = if more > 0 { format!("\n  … and {more} more") } else { String::new() };
    Failure::Run(
        Why::PauseCycle,
        format!(
            "the run cannot go on: {} links are paused by `pfc`, each until the next one moves, the last until the first \
         does{lines}{more}\n\nhint: a routing without cycles (up and down in a tree, virtual queues in a ring) has no \
         such pauses; `pfc: {{watchdog: 100 ms}}` drops what waits too long",
            cycle.len()
        ),
    )
}

fn silent_failure(plan: &Plan, [from, to]: [u32; 2]) -> Failure {
    let topology = &plan.fabric.topology;
    let (from, to) = (topology.node_name(Node::Nic(from)), topology.node_name(Node::Nic(to)));
    Failure::Run(
        Why::Silent,
        format!(
            "the run cannot go on: a queue pair from `{from}` to `{to}` has heard nothing for 64 time-outs in a row\n\nhint: \
         is a link on its way down for good (`impairments.down` without `until`), or does one lose everything?"
        ),
    )
}
