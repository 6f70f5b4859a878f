//! What may be asked of a topology.

use serde::Deserialize;
use serde_json::Value;
use windtunnel_config::schema::{EcmpKeys, Name};
use windtunnel_fabric::balancers::Balancing;
use windtunnel_kernel::EndpointId;
use windtunnel_plan::error::InputError;
use windtunnel_topology::{Detour, LoadBalancer, Topology};

/// A request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Request {
    /// `link:NAME`, `switch:NAME`, or a name alone.
    pub(super) fail: Vec<String>,
    /// Instead of what the file says.
    pub(super) detour: Option<Name<Detour>>,
    /// Whether all know of `fail`, or the neighbours only.
    pub(super) repair: Repair,
    /// Instead of what the file says.
    pub(super) weighted: Option<bool>,
    /// Paths of flows.
    pub(super) paths: Option<Vec<PathQuery>>,
    /// All equally good paths of pairs.
    pub(super) ecmp: Option<Vec<PairQuery>>,
    /// What switches hash by.
    pub(super) hash: EcmpKeys,
    /// Whether to check.
    pub(super) check: Option<CheckQuery>,
    /// Whether to look at cables, distances and diversity, and to price it.
    pub(super) analyse: bool,
    /// Whether to price it alone: what it is built from is counted once, and no paths are followed.
    pub(super) price: bool,
    /// Whether to describe a drawing.
    pub(super) draw: bool,
    /// Format to write the topology in.
    pub(super) export: Option<String>,
}

/// Who knows of what has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Repair {
    /// Everybody.
    #[default]
    Converged,
    /// The switches at both ends.
    Local,
}

impl Repair {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Local => "local",
        }
    }
}

/// A flow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PathQuery {
    pub(super) from: Value,
    pub(super) to: Value,
    #[serde(default)]
    pub(super) nic: u8,
    #[serde(default)]
    pub(super) entropy: u32,
    #[serde(default)]
    pub(super) balancer: Name<&'static Balancing>,
    #[serde(default)]
    pub(super) seed: u64,
}

impl PathQuery {
    /// What flows take the load balancer for.
    pub(super) const fn balancer(&self) -> LoadBalancer {
        self.balancer.0.flows
    }
}

/// A pair.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairQuery {
    pub(super) from: Value,
    pub(super) to: Value,
    #[serde(default)]
    pub(super) nic: u8,
}

/// Whether, and how far.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum CheckQuery {
    /// `true`, `false`.
    Whether(bool),
    /// `{pairs: 10000}`.
    Limits {
        #[serde(default)]
        pairs: Option<u64>,
    },
}

/// Pairs of switches up to which all are checked.
const PAIRS: u64 = 10_000;

impl CheckQuery {
    /// Pairs to be checked; `None` if nothing is to be.
    pub(super) fn pairs(&self) -> Option<u64> {
        match self {
            Self::Whether(false) => None,
            Self::Whether(true) => Some(PAIRS),
            Self::Limits { pairs } => Some(pairs.unwrap_or(PAIRS)),
        }
    }
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// [`InputError`] for what is none.
    pub(super) fn parse(text: &str) -> Result<Self, InputError> {
        serde_json::from_str(text).map_err(|error| InputError::new("the request", error.to_string()))
    }
}

/// The GPU that `host3/gpu1`, `host3` (its first) or a number names; `key` is its place for messages.
///
/// # Errors
/// [`InputError`] for what names none.
pub(super) fn endpoint(value: &Value, key: &str, topology: &Topology) -> Result<EndpointId, InputError> {
    let (hosts, gpus) = (topology.hosts(), topology.endpoints_per_host());
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    if let Ok(number) = text.parse::<u64>() {
        let all = u64::from(topology.endpoints());
        return if number < all {
            Ok(EndpointId(number as u32))
        } else {
            let message = format!("there are {all} GPUs, counted from 0, found {number}");
            Err(InputError::new(key, message))
        };
    }
    let (host, gpu) = text.split_once('/').map_or((text.as_str(), None), |(host, gpu)| (host, Some(gpu)));
    let number = |text: &str, prefix: &str| text.strip_prefix(prefix)?.parse::<u32>().ok();
    let unreadable = || {
        let hint =
            format!("`host3/gpu1`, `host3` (its first GPU) or a number below {}", topology.endpoints());
        InputError::new(key, format!("no GPU `{text}`")).hint(hint)
    };
    let host = number(host, "host").ok_or_else(unreadable)?;
    let gpu = gpu.map_or(Some(0), |gpu| number(gpu, "gpu")).ok_or_else(unreadable)?;
    if host >= hosts {
        let message = format!("there are {hosts} hosts, counted from 0, found `{text}`");
        return Err(InputError::new(key, message).hint(format!("the last is `host{}`", hosts - 1)));
    }
    if gpu >= gpus {
        let message = format!("a host has {gpus} GPUs, counted from 0, found `{text}`");
        return Err(InputError::new(key, message).hint(format!("the last is `host{host}/gpu{}`", gpus - 1)));
    }
    Ok(EndpointId(host * gpus + gpu))
}
