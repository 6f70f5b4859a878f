//! Checks how hosts differ from their sheets, and finds the links that run slowly.

use windtunnel_cluster::variation::Noise;
use windtunnel_kernel::{EndpointId, NicId};
use windtunnel_plan::error::InputError;
use windtunnel_topology::{LinkId, Topology};

use crate::schema::{Fidelity, NoiseName, Scenario, Variation};

/// The noise of computations.
///
/// # Errors
/// [`InputError`] for a coefficient or samples out of range.
pub(super) fn noise(variation: &Variation, source: &str) -> Result<Noise, InputError> {
    let Some(noise) = &variation.kernel_noise else { return Ok(Noise::None) };
    let place = format!("{source}: variation.kernel_noise");
    if noise.distribution == NoiseName::Measured {
        let positive = noise.samples.iter().all(|sample| *sample > 0.0 && sample.is_finite());
        if noise.samples.is_empty() || !positive {
            return Err(InputError::new(
                format!("{place}.samples"),
                "expected positive samples to draw from",
            ));
        }
        return Ok(Noise::measured(&noise.samples));
    }
    if !(0.0..=1.0).contains(&noise.cv) {
        let found = format!("expected a coefficient of variation from 0 to 1, found {}", noise.cv);
        return Err(InputError::new(format!("{place}.cv"), found));
    }
    Ok(match noise.distribution {
        _ if noise.cv == 0.0 => Noise::None,
        NoiseName::Normal => Noise::Normal(noise.cv),
        _ => Noise::Lognormal(noise.cv),
    })
}

/// Checks the rules' numbers and returns the slow NICs' links with the part of their rate that is left.
///
/// # Errors
/// [`InputError`] for a host, GPU or NIC that does not exist, or a factor that is not positive.
pub(super) fn check(
    variation: &Variation,
    topology: &Topology,
    source: &str,
) -> Result<Vec<(LinkId, f64)>, InputError> {
    let per_host = topology.endpoints_per_host();
    let below = |place: String, what: &str, found: Option<u32>, limit: u32| match found {
        Some(found) if found >= limit => {
            Err(InputError::new(place, format!("there are {limit} {what}, counted from 0, found {found}")))
        }
        _ => Ok(()),
    };
    let positive = |place: String, factor: f64| {
        if factor > 0.0 && factor.is_finite() {
            Ok(())
        } else {
            Err(InputError::new(place, format!("expected a positive factor, found {factor}")))
        }
    };
    for (index, rule) in variation.speeds.iter().enumerate() {
        let place = format!("{source}: variation.speeds[{index}]");
        below(format!("{place}.host"), "hosts", rule.host, topology.hosts())?;
        below(format!("{place}.gpu"), "GPUs a host", rule.gpu, per_host)?;
        positive(format!("{place}.speed"), rule.speed)?;
    }
    let mut slow = Vec::new();
    let nics = per_host * topology.nics_per_endpoint();
    for (index, rule) in variation.nics.iter().enumerate() {
        let place = format!("{source}: variation.nics[{index}]");
        below(format!("{place}.host"), "hosts", rule.host, topology.hosts())?;
        below(format!("{place}.nic"), "NICs a host", rule.nic, nics)?;
        if !(rule.rate > 0.0 && rule.rate <= 1.0) {
            let message =
                format!("expected a part of the NIC's rate, above 0 and at most 1, found {}", rule.rate);
            return Err(InputError::new(format!("{place}.rate"), message));
        }
        for host in rule.host.map_or(0..topology.hosts(), |host| host..host + 1) {
            for nic in rule.nic.map_or(0..nics, |nic| nic..nic + 1) {
                let endpoint = EndpointId(host * per_host + nic / topology.nics_per_endpoint());
                let links = nic_links(topology, endpoint, NicId((nic % topology.nics_per_endpoint()) as u8));
                slow.extend(links.into_iter().map(|link| (link, rule.rate)));
            }
        }
    }
    slow.sort_by_key(|&(link, _)| link);
    slow.dedup();
    Ok(slow)
}

/// # Errors
/// [`InputError`] for slow NICs where one set of constants says how fast all are.
pub(super) fn check_constants(scenario: &Scenario, source: &str) -> Result<(), InputError> {
    let one_set = scenario.fidelity == Fidelity::Message && scenario.network.loggops.is_some();
    if !one_set || scenario.variation.nics.is_empty() {
        return Ok(());
    }
    let message = "`network.loggops` is one set of constants for all pairs, in which no NIC is slow";
    Err(InputError::new(format!("{source}: variation.nics"), message).hint("leave one of the two out"))
}

/// The links up from a NIC and down to it, on every plane.
fn nic_links(topology: &Topology, endpoint: EndpointId, nic: NicId) -> Vec<LinkId> {
    let nic = topology.nic(endpoint, nic);
    let up = (0..topology.planes()).map(|plane| topology.nic_link(nic, plane));
    up.flat_map(|link| [link, topology.reverse(link)]).collect()
}
