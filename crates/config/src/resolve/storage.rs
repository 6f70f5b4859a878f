//! Hosts that hold data, and what it takes a job to load its own from them.
//!
//! A job of n GPUs whose data are on hosts of S NICs reads them in *requests*: of each, every NIC sends an equal part and every
//! GPU gets one, so that laying both parts over one line gives at most n + S - 1 flows. A GPU asks for the next request as the
//! one before comes in, so that two are under way and links do not stand idle meanwhile; the flows of a job keep step by
//! that, as the stripes of a file do. As operations this is a workload whose iterations are the requests.
//!
//! Where no network is simulated, a load takes what goes over the wire over the slower of what its storage hosts send and its
//! GPUs take in, whoever else loads: the closed form of one job alone whose paths share nothing inside the fabric.

use std::sync::Arc;

use windtunnel_kernel::{EndpointId, NicId};
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::load::Load;
use windtunnel_topology::{LinkId, Topology};

use crate::schema::upkeep::DataRule;
use crate::schema::{Fidelity, Scenario};

/// The hosts that hold data.
#[derive(Clone, Debug)]
pub struct StoragePlan {
    /// Which, in ascending order.
    pub hosts: Vec<u32>,
    /// Links from their NICs that disks do not fill, with the part of their rate that they do.
    pub slow: Vec<(LinkId, f64)>,
    /// One GPU of each of their NICs.
    sources: Vec<EndpointId>,
    request: u64,
    /// Bits per second that one host sends, and that one NIC takes in.
    host_rate: u128,
    nic_rate: u128,
    /// How many NICs as many GPUs of one host have as there are places here.
    nics: Vec<u32>,
    mtu: u64,
    header: u64,
    /// Whether loads are flows.
    flows: bool,
}

/// Checks `cluster.storage`; `None` if there is none.
///
/// # Errors
/// [`InputError`] for hosts that there are not, or that leave none to compute.
pub fn storage(
    scenario: &Scenario,
    topology: &Topology,
    source: &str,
    evidence: &mut EvidenceList,
) -> Result<Option<StoragePlan>, InputError> {
    let Some(written) = &scenario.cluster.storage else { return Ok(None) };
    let at = |key: &str| format!("{source}: cluster.storage.{key}");
    let mut hosts = Vec::with_capacity(written.hosts.len());
    for (index, name) in written.hosts.iter().enumerate() {
        let place = at(&format!("hosts[{index}]"));
        let host = host(name, topology, &place)?;
        if hosts.contains(&host) {
            return Err(InputError::new(place, format!("`{name}` is named twice")));
        }
        hosts.push(host);
    }
    hosts.sort_unstable();
    if hosts.is_empty() {
        return Err(InputError::new(at("hosts"), "expected at least 1 host, found none"));
    }
    let spares = scenario.cluster.spares.as_ref().map_or(0, |spares| spares.hosts);
    let kept = hosts.len() as u64 + u64::from(spares);
    if kept >= u64::from(topology.hosts()) {
        let message =
            format!("{kept} of {} hosts hold data or are spares, and none is left", topology.hosts());
        return Err(InputError::new(at("hosts"), message));
    }
    let (per_host, domain) = (topology.endpoints_per_host(), topology.scale_up_size());
    let together = (domain / per_host.max(1)).max(1);
    for &host in &hosts {
        let first = host / together * together;
        if let Some(other) = (first..first + together).find(|other| hosts.binary_search(other).is_err()) {
            let message = format!("`host{host}` shares a scale-up domain with `host{other}`, which computes");
            return Err(InputError::new(at("hosts"), message)
                .hint(format!("name all {together} hosts of a domain, or none")));
        }
    }
    if written.request.0.get() == 0 {
        return Err(InputError::new(at("request"), "expected a size above 0, found 0"));
    }
    // GPUs of a host may share NICs.
    let first = |gpu: u32| topology.nic(EndpointId(gpu), NicId(0));
    let is_first = |gpu: &u32| (gpu / per_host * per_host..*gpu).all(|other| first(other) != first(*gpu));
    let gpus = |host: &u32| host * per_host..(host + 1) * per_host;
    let sources: Vec<u32> = hosts.iter().flat_map(gpus).filter(is_first).collect();
    let nics: Vec<u32> = (0..=per_host).map(|gpus| (0..gpus).filter(is_first).count() as u32).collect();
    let out = |gpu: u32| (0..topology.planes()).map(move |plane| topology.nic_link(first(gpu), plane));
    let nic_rate = out(0).map(|link| u128::from(topology.link(link).rate.bps())).sum::<u128>();
    let full = nic_rate * u128::from(nics[per_host as usize]);
    let given = written.rate.map(|rate| u128::from(rate.0.bps()));
    if given == Some(0) {
        return Err(InputError::new(at("rate"), "expected a rate above 0, found 0"));
    }
    let host_rate = given.map_or(full, |given| given.min(full));
    let slow = if host_rate < full {
        let part = host_rate as f64 / full as f64;
        sources.iter().flat_map(|&gpu| out(gpu)).map(|link| (link, part)).collect()
    } else {
        Vec::new()
    };
    let kind = if given.is_some() { "given" } else { "inferred" };
    let rate = if given.is_some() { "the scenario's rate" } else { "as fast as their NICs send" };
    evidence.add("storage hosts", kind, rate);
    let flows = scenario.fidelity != Fidelity::Job;
    if !flows {
        let source = "bytes over the slower of storage hosts and GPUs, whoever else loads";
        evidence.add("data loading", "inferred", source);
    }
    Ok(Some(StoragePlan {
        slow,
        sources: sources.into_iter().map(EndpointId).collect(),
        request: written.request.0.get(),
        host_rate,
        nic_rate,
        nics,
        hosts,
        mtu: scenario.network.mtu.0.get(),
        header: scenario.network.header.0.get(),
        flows,
    }))
}

/// The host of a name.
fn host(name: &str, topology: &Topology, place: &str) -> Result<u32, InputError> {
    let digits =
        name.strip_prefix("host").filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
    let host = digits.and_then(|digits| digits.parse::<u32>().ok());
    host.filter(|&host| host < topology.hosts()).ok_or_else(|| {
        let error = InputError::new(place, format!("no host `{name}`"));
        let known: Vec<String> = (0..topology.hosts()).map(|host| format!("host{host}")).collect();
        match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("expected `host0` to `host{}`", topology.hosts() - 1)),
        }
    })
}

impl StoragePlan {
    /// The hosts that `rule` names, all if it names none; `place` is the rule's.
    ///
    /// # Errors
    /// [`InputError`] for a host that there is not, or that holds no data.
    pub fn named(&self, rule: &DataRule, topology: &Topology, place: &str) -> Result<Vec<u32>, InputError> {
        let Some(from) = &rule.from else { return Ok(self.hosts.clone()) };
        let mut hosts = Vec::with_capacity(from.len());
        for (index, name) in from.iter().enumerate() {
            let at = format!("{place}.from[{index}]");
            let host = host(name, topology, &at)?;
            if self.hosts.binary_search(&host).is_err() {
                let message = format!("`{name}` computes and holds no data");
                let known: Vec<String> = self.hosts.iter().map(|host| format!("`host{host}`")).collect();
                let known = format!("`cluster.storage.hosts` are {}", known.join(", "));
                return Err(InputError::new(at, message).hint(known));
            }
            if hosts.contains(&host) {
                return Err(InputError::new(at, format!("`{name}` is named twice")));
            }
            hosts.push(host);
        }
        if hosts.is_empty() {
            return Err(InputError::new(format!("{place}.from"), "expected at least 1 host, found none"));
        }
        hosts.sort_unstable();
        Ok(hosts)
    }

    /// Nanoseconds in which `bytes` come from `hosts` to `gpus` GPUs, on as few hosts as take them, where nothing else is in the
    /// way; rounded up.
    pub fn alone(&self, bytes: u64, hosts: usize, gpus: u32) -> Option<u64> {
        let packets = bytes.div_ceil(self.mtu - self.header);
        let wire = u128::from(bytes) + u128::from(packets) * u128::from(self.header);
        let per_host = self.nics.len() as u32 - 1;
        let whole = u128::from(gpus / per_host) * u128::from(self.nics[per_host as usize]);
        let nics = whole + u128::from(self.nics[(gpus % per_host) as usize]);
        let rate = (self.host_rate * hosts as u128).min(self.nic_rate * nics);
        let ns = (wire * 8_000_000_000).div_ceil(rate.max(1));
        u64::try_from(ns).ok().filter(|&ns| ns < u64::MAX / 100)
    }

    /// What a job of `gpus` GPUs loads, `bytes` in all; `None` where loads are no flows.
    pub fn load(&self, bytes: u64, hosts: &[u32], gpus: u32) -> Option<Load> {
        if !self.flows || bytes == 0 {
            return None;
        }
        let per_host = self.nics.len() as u32 - 1;
        let of = |gpu: &&EndpointId| hosts.binary_search(&(gpu.0 / per_host)).is_ok();
        let storage: Arc<[EndpointId]> = self.sources.iter().filter(of).copied().collect();
        let whole = u128::from(gpus) * u128::from(self.request);
        let requests = u128::from(bytes).div_ceil(whole) as u64;
        Some(Load::new(bytes, requests, gpus, storage))
    }
}
