//! Queue pairs to look at and packets to capture, by name.

use windtunnel_fabric::packet::{CaptureSettings, WatchSettings};
use windtunnel_plan::error::InputError;
use windtunnel_topology::{Names, Topology};

use super::impair;
use crate::schema::{Fidelity, PairRule, Scenario};

/// Pairs of NICs that one scenario may name: each is looked for whenever a queue pair is opened.
const MOST_PAIRS: usize = 1_024;

/// What is to be looked at, as the engine takes it.
#[derive(Clone, Debug, Default)]
pub struct Watching {
    /// `results.queue_pairs`.
    pub watch: Option<WatchSettings>,
    /// `results.packets`.
    pub capture: Option<CaptureSettings>,
}

/// # Errors
/// [`InputError`] for a NIC or link that there is not, a period too short, nothing to capture, and fidelities without packets.
pub(super) fn watching(
    scenario: &Scenario,
    topology: &Topology,
    source: &str,
) -> Result<Watching, InputError> {
    let results = &scenario.results;
    let mut watching = Watching::default();
    if let Some(asked) = &results.queue_pairs {
        let place = format!("{source}: results.queue_pairs");
        let (every, least) = (asked.every.0, WatchSettings::LEAST);
        if every < least {
            let message =
                format!("too short, found {} ps, expected at least {} ns", every.ps(), least.ps() / 1_000);
            return Err(InputError::new(format!("{place}.every"), message)
                .hint("a packet of 64 B takes 1.28 ns at 400 Gbps; `1 us` shows what a round trip does"));
        }
        if asked.pairs.is_empty() {
            return Err(InputError::new(format!("{place}.pairs"), "expected at least one pair, found none")
                .hint("such as `[{from: host0/nic0, to: host1/nic0}]`"));
        }
        let pairs = pairs(&asked.pairs, topology, &format!("{place}.pairs"))?;
        needs_packets(scenario, &place)?;
        watching.watch = Some(WatchSettings { every, pairs });
    }
    if let Some(asked) = &results.packets {
        let place = format!("{source}: results.packets");
        if asked.limit == 0 {
            return Err(InputError::new(format!("{place}.limit"), "expected at least 1 packet, found 0"));
        }
        let pairs = pairs(&asked.pairs, topology, &format!("{place}.pairs"))?;
        let links = match &asked.on {
            Some(on) => impair::links(on, topology, |number| format!("{place}.on{number}"))?,
            None => Vec::new(),
        };
        if pairs.is_empty() && links.is_empty() {
            return Err(InputError::new(place, "expected `pairs` or `on`, found neither")
                .hint("`pairs: [{from: host0/nic0, to: host1/nic0}]` or `on: leaf0 -> host1/nic0`"));
        }
        needs_packets(scenario, &place)?;
        watching.capture = Some(CaptureSettings { pairs, links, limit: asked.limit });
    }
    Ok(watching)
}

/// Refuses what shows no packets. It is asked last: a wrong value is told as one at every fidelity.
fn needs_packets(scenario: &Scenario, place: &str) -> Result<(), InputError> {
    if scenario.fidelity != Fidelity::Packet {
        let message = format!("needs packets to look at, found `fidelity: {}`", scenario.fidelity.name());
        return Err(InputError::new(place, message).hint("`fidelity: packet`"));
    }
    if scenario.network.backend.is_some() {
        return Err(InputError::new(
            place,
            "needs packets to look at, found `network.backend`, which shows none",
        ));
    }
    Ok(())
}

fn pairs(rules: &[PairRule], topology: &Topology, place: &str) -> Result<Vec<[u32; 2]>, InputError> {
    if rules.len() > MOST_PAIRS {
        let message = format!("expected at most {MOST_PAIRS} pairs, found {}", rules.len());
        return Err(InputError::new(place, message));
    }
    let names = Names::new(topology);
    let nic = |index: usize, key: &str, name: &str| {
        names.nic(name.trim()).ok_or_else(|| {
            let (hosts, nics) = (topology.hosts(), topology.nics_per_host());
            InputError::new(format!("{place}[{index}].{key}"), format!("no NIC `{name}`"))
                .hint(format!("there are {hosts} hosts with {nics} each, such as `host0/nic0`"))
        })
    };
    let mut found = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let (from, to) = (nic(index, "from", &rule.from)?, nic(index, "to", &rule.to)?);
        if from == to {
            let message = format!("`from` and `to` are the same NIC: `{}`", rule.from.trim());
            return Err(InputError::new(format!("{place}[{index}]"), message));
        }
        found.push([from, to]);
    }
    Ok(found)
}
