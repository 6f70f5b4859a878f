//! Checks how hosts differ from their sheets, and finds the links that run slowly.

use std::ops::Range;

use windtunnel_cluster::variation::Noise;
use windtunnel_kernel::{EndpointId, NicId, Span};
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::settings::SpeedPlan;
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

/// How hosts differ from their sheets.
#[derive(Default)]
pub(super) struct Uneven {
    /// GPUs of another speed.
    pub speeds: Vec<SpeedPlan>,
    /// Hosts of slow NICs.
    pub nics: Vec<Range<u32>>,
    /// Links of these, with the part of their rate that is left.
    pub links: Vec<(LinkId, f64)>,
}

impl Uneven {
    /// The speed of each GPU from the start on; none where all run as their sheet says. What changes later is not in it.
    pub(super) fn by_gpu(&self, topology: &Topology) -> Vec<f64> {
        let per_host = topology.endpoints_per_host();
        let rules = || self.speeds.iter().filter(|rule| rule.from.is_none_or(|from| from == Span::ZERO));
        if rules().all(|rule| rule.speed == 1.0) {
            return Vec::new();
        }
        let mut found = vec![1.0; topology.endpoints() as usize];
        for rule in rules() {
            for host in rule.hosts.clone() {
                for gpu in rule.gpu.map_or(0..per_host, |gpu| gpu..gpu + 1) {
                    found[(host * per_host + gpu) as usize] *= rule.speed;
                }
            }
        }
        found
    }
}

/// The hosts of a building of `topology`, or host number `host`; all if neither is named.
fn hosts(
    building: Option<&str>,
    host: Option<u32>,
    topology: &Topology,
    place: &str,
) -> Result<Range<u32>, InputError> {
    let all = topology.hosts();
    let Some(name) = building else {
        return match host {
            Some(host) if host >= all => {
                let message = format!("there are {all} hosts, counted from 0, found {host}");
                Err(InputError::new(format!("{place}.host"), message))
            }
            Some(host) => Ok(host..host + 1),
            None => Ok(0..all),
        };
    };
    let at = format!("{place}.building");
    if host.is_some() {
        let error = InputError::new(at, "expected `building` or `host`, found both");
        return Err(error.hint("hosts are counted over all buildings, so a host needs no building"));
    }
    let per_host = topology.endpoints_per_host();
    let of = |host: u32| topology.building_name(topology.nic(EndpointId(host * per_host), NicId(0)));
    let known: Vec<&str> = {
        let mut names: Vec<&str> = (0..all).filter_map(of).collect();
        names.dedup();
        names
    };
    if !known.contains(&name) {
        let error = InputError::new(at, format!("no building `{name}`"));
        return Err(match nearest(name, known.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None if known.is_empty() => error.hint("only a topology of `regions` has buildings"),
            None => error.hint(format!("there are `{}`", known.join("`, `"))),
        });
    }
    // Hosts are numbered building by building.
    let first = (0..all).find(|&host| of(host) == Some(name)).unwrap_or(0);
    let count = (first..all).take_while(|&host| of(host) == Some(name)).count() as u32;
    Ok(first..first + count)
}

/// Checks the rules' numbers, and says whom they are for.
///
/// # Errors
/// [`InputError`] for a building, host, GPU or NIC that does not exist, or a factor that is not positive.
pub(super) fn check(variation: &Variation, topology: &Topology, source: &str) -> Result<Uneven, InputError> {
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
    let mut found = Uneven::default();
    for (index, rule) in variation.speeds.iter().enumerate() {
        let place = format!("{source}: variation.speeds[{index}]");
        let hosts = hosts(rule.building.as_deref(), rule.host, topology, &place)?;
        below(format!("{place}.gpu"), "GPUs a host", rule.gpu, per_host)?;
        positive(format!("{place}.speed"), rule.speed)?;
        let from = rule.from.map(|from| from.0);
        found.speeds.push(SpeedPlan { hosts, gpu: rule.gpu, speed: rule.speed, from });
    }
    let nics = per_host * topology.nics_per_endpoint();
    for (index, rule) in variation.nics.iter().enumerate() {
        let place = format!("{source}: variation.nics[{index}]");
        let hosts = hosts(rule.building.as_deref(), rule.host, topology, &place)?;
        below(format!("{place}.nic"), "NICs a host", rule.nic, nics)?;
        if !(rule.rate > 0.0 && rule.rate <= 1.0) {
            let message =
                format!("expected a part of the NIC's rate, above 0 and at most 1, found {}", rule.rate);
            return Err(InputError::new(format!("{place}.rate"), message));
        }
        for host in hosts.clone() {
            for nic in rule.nic.map_or(0..nics, |nic| nic..nic + 1) {
                let endpoint = EndpointId(host * per_host + nic / topology.nics_per_endpoint());
                let links = nic_links(topology, endpoint, NicId((nic % topology.nics_per_endpoint()) as u8));
                found.links.extend(links.into_iter().map(|link| (link, rule.rate)));
            }
        }
        found.nics.push(hosts);
    }
    found.links.sort_by_key(|&(link, _)| link);
    found.links.dedup();
    Ok(found)
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
