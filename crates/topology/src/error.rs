//! What can be wrong with a topology.

use windtunnel_kernel::{BitRate, Span};

/// Why a spec describes no topology. [`TopologyError::path`] is the place in the spec, [`TopologyError::hint`] a way
/// out where there is one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TopologyError {
    /// A size or a rate that must be at least 1 is zero.
    #[error("expected `{path}` to be at least 1, found 0")]
    Zero {
        /// Where.
        path: String,
    },
    /// NICs are neither a multiple nor a divisor of GPUs.
    #[error("expected the NICs of a host to be a multiple or a divisor of its {gpus} GPUs, found {nics}")]
    Nics {
        /// GPUs of a host.
        gpus: u32,
        /// NICs of a host.
        nics: u32,
    },
    /// The scale-up domain is neither part of a host nor several whole hosts.
    #[error(
        "expected a scale-up domain size that divides the {gpus} GPUs of a host or is a multiple of them, found {size}"
    )]
    ScaleUp {
        /// GPUs of a host.
        gpus: u32,
        /// Size of the domain.
        size: u32,
    },
    /// An oversubscription that is no ratio.
    #[error("expected a positive oversubscription in tier {tier}, found {found}")]
    Oversubscription {
        /// Which.
        tier: usize,
        /// What was given.
        found: f64,
    },
    /// An oversubscription of the top tier, which has no uplinks.
    #[error("expected no oversubscription in tier {tier}, the top tier has no uplinks, found {found}")]
    TopOversubscription {
        /// Which.
        tier: usize,
        /// What was given.
        found: f64,
    },
    /// The uplinks that the oversubscription asks for are not a whole number.
    #[error(
        "expected a whole number of uplinks in tier {tier}, found {uplinks}: {ports_down} ports of {down} over \
         {oversubscription} times {up}", down = gbps(*rate_down), up = gbps(*rate_up)
    )]
    Uplinks {
        /// Which.
        tier: usize,
        /// The quotient.
        uplinks: f64,
        /// Ports towards the hosts.
        ports_down: u32,
        /// Their rate.
        rate_down: BitRate,
        /// Down over up.
        oversubscription: f64,
        /// Rate of an uplink.
        rate_up: BitRate,
    },
    /// Parallel links between a NIC and a leaf.
    #[error("expected a bundle of 1 in tier 0, found {found}")]
    NicBundle {
        /// What was given.
        found: u32,
    },
    /// The bundle does not divide the ports it takes.
    #[error("expected a bundle in tier {tier} that divides the {ports} {side}, found {bundle}")]
    Bundle {
        /// Which.
        tier: usize,
        /// `ports_down of the tier` or `uplinks of the tier below`.
        side: &'static str,
        /// How many.
        ports: u32,
        /// What was given.
        bundle: u32,
    },
    /// The rate of a NIC is not a whole number of bit/s on each plane.
    #[error("expected planes that divide the NIC rate of {rate} bit/s, found {planes}", rate = rate.bps())]
    Planes {
        /// Rate of a NIC.
        rate: BitRate,
        /// What was given.
        planes: u32,
    },
    /// A leaf cannot hold the NICs of a single host.
    #[error("expected a leaf with a port for each of the {nics} NICs of a host, found {ports_down} ports")]
    SmallLeaf {
        /// NICs of a host.
        nics: u32,
        /// Ports of a leaf.
        ports_down: u32,
    },
    /// There are fewer leaves than rails.
    #[error("expected room for a leaf for each of the {rails} rails, found room for {leaves}")]
    Rails {
        /// NICs of a host.
        rails: u32,
        /// Leaves that fit.
        leaves: u64,
    },
    /// More hosts than ports.
    #[error("expected at most {fit} hosts, found {hosts}")]
    TooManyHosts {
        /// What was given.
        hosts: u32,
        /// How many fit.
        fit: u64,
    },
    /// Beyond the ids there are.
    #[error("expected a topology of fewer than {limit} {what}, found {found}")]
    TooLarge {
        /// `endpoints`, `switches`, `links`, `tiers` or `dimensions`.
        what: &'static str,
        /// How many ids there are.
        limit: u64,
        /// How many, the largest representable if even more.
        found: u64,
    },
    /// An explicit graph is at fault.
    #[error("{0}")]
    Graph(#[from] crate::graph::GraphError),
    /// Delays that exceed network time.
    #[error(
        "expected paths of less than 200 days, found more in tier {tier}: cables of {length_mm} mm, switches of {delay}"
    )]
    Latency {
        /// The tier that exceeds it.
        tier: usize,
        /// Of its cables.
        length_mm: u64,
        /// Of its switches.
        delay: Span,
    },
    /// More groups of a dragonfly than the global cables of one reach.
    #[error(
        "expected at most {limit} groups, found {groups}: {holders} {holder} of {global_links} global links a group",
        limit = u64::from(*holders) * u64::from(*global_links) + 1
    )]
    TooManyGroups {
        /// What was given.
        groups: u32,
        /// `routers` or `spines`: what the global cables of a group are on.
        holder: &'static str,
        /// How many of them a group has.
        holders: u32,
        /// Global cables of each.
        global_links: u32,
    },
    /// Something about one building of several.
    #[error("building `{name}`: {error}")]
    Building {
        /// Which.
        index: usize,
        /// Its name.
        name: String,
        /// What.
        error: Box<TopologyError>,
    },
    /// Two buildings of one name.
    #[error("expected buildings of different names, found `{name}` for both {other} and {index}")]
    BuildingName {
        /// The second.
        index: usize,
        /// The first.
        other: usize,
        /// Of both.
        name: String,
    },
    /// Cables of a building to itself, or to one that there is not.
    #[error(
        "expected cables between two of the {buildings} buildings, numbered from 0, found {} and {}", between[0],
        between[1]
    )]
    CrossBetween {
        /// Of the entry.
        index: usize,
        /// What was given.
        between: [u32; 2],
        /// How many there are.
        buildings: usize,
    },
    /// Two entries for a pair of buildings.
    #[error("expected one entry for a pair of buildings, found cross[{other}] and cross[{index}]")]
    CrossTwice {
        /// The second.
        index: usize,
        /// The first.
        other: usize,
    },
    /// Buildings without a way between them.
    #[error("expected cables on some way from building `{from}` to `{to}`, found none")]
    NotJoined {
        /// From it.
        from: String,
        /// To it.
        to: String,
    },
    /// Cables that arrive at top switches from which none leads on.
    #[error(
        "expected cables on to building `{to}` from all {arriving} top switches of `{through}` that those of `{from}` \
         lead to, found some from {leaving}"
    )]
    Transit {
        /// The cables that arrive.
        entry: usize,
        /// Where they come from.
        from: String,
        /// Where they lead.
        through: String,
        /// Where packets must go from there.
        to: String,
        /// Top switches that they lead to.
        arriving: u32,
        /// Top switches with a cable on.
        leaving: u32,
    },
    /// Rails where all NICs of a host hang on one router.
    #[error("expected no rails where all NICs of a host hang on its router, found `host.rails: true`")]
    DirectRails,
    /// A share of lost packets that is no share.
    #[error("expected `{path}` to be from 0 to 1, found {found}")]
    Loss {
        /// Where.
        path: String,
        /// What was given.
        found: f64,
    },
    /// A size below the smallest that makes sense.
    #[error("expected `{path}` to be at least {least}, found {found}")]
    Least {
        /// Where.
        path: String,
        /// The smallest.
        least: u32,
        /// What was given.
        found: u32,
    },
    /// Several hosts where each host forwards itself.
    #[error("expected one host for each {node}, found {found}")]
    HostsPerNode {
        /// What forwards: `server`, `accelerator`.
        node: &'static str,
        /// What was given.
        found: u32,
    },
    /// Sizes whose hosts or links are more than there are ids.
    #[error("expected fewer than 2^31 hosts, GPUs and NICs and fewer than 2^32 links, found {found} hosts")]
    Oversize {
        /// The size that could be smaller.
        path: String,
        /// Hosts, the largest representable if even more.
        found: u64,
        /// The largest valid size, the others being what they are.
        fit: u32,
    },
    /// Delays that exceed network time.
    #[error(
        "expected paths of less than 200 days, found more: `{path}` has cables of {length_mm} mm, {hop} a hop"
    )]
    LongPaths {
        /// Where it is exceeded.
        path: String,
        /// Of a cable.
        length_mm: u64,
        /// Cable and switch, the longest representable if even more.
        hop: Span,
    },
}

impl TopologyError {
    /// The place in the spec, as a path below the topology: `tiers[1].ports_down`.
    pub fn path(&self) -> String {
        match self {
            Self::Zero { path }
            | Self::Loss { path, .. }
            | Self::Least { path, .. }
            | Self::Oversize { path, .. }
            | Self::LongPaths { path, .. } => path.clone(),
            Self::TooManyGroups { .. } => "groups".to_owned(),
            Self::TooLarge { what: "global links of a group", .. } => "global_links".to_owned(),
            Self::Building { index, error, .. } => match error.path() {
                // Hosts are alike everywhere.
                path if path.starts_with("host.") => path,
                path => format!("buildings[{index}].{path}"),
            },
            Self::BuildingName { index, .. } => format!("buildings[{index}].name"),
            Self::CrossBetween { index, .. } | Self::CrossTwice { index, .. } => {
                format!("cross[{index}].between")
            }
            Self::NotJoined { .. } => "cross".to_owned(),
            Self::Transit { entry, .. } => format!("cross[{entry}].count"),
            Self::HostsPerNode { .. } => "hosts_per_router".to_owned(),
            Self::Nics { .. } => "host.nics".to_owned(),
            Self::ScaleUp { .. } => "host.scale_up.size".to_owned(),
            Self::Oversubscription { tier, .. }
            | Self::TopOversubscription { tier, .. }
            | Self::Uplinks { tier, .. } => format!("tiers[{tier}].oversubscription"),
            Self::NicBundle { .. } => "tiers[0].bundle".to_owned(),
            Self::Bundle { tier, .. } => format!("tiers[{tier}].bundle"),
            Self::Planes { .. } => "planes".to_owned(),
            Self::SmallLeaf { .. } => "tiers[0].ports_down".to_owned(),
            Self::Rails { .. } | Self::DirectRails => "host.rails".to_owned(),
            Self::TooLarge { what: what @ ("tiers" | "dimensions" | "buildings"), .. } => (*what).to_owned(),
            Self::TooManyHosts { .. } | Self::TooLarge { .. } => "hosts".to_owned(),
            Self::Latency { tier, .. } => format!("tiers[{tier}].length"),
            Self::Graph(error) => error.place(),
        }
    }

    /// A way out.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Uplinks { uplinks, ports_down, rate_down, rate_up, .. } => {
                let whole = uplinks.round().max(1.0);
                let ratio = f64::from(*ports_down) * rate_down.bps() as f64 / (whole * rate_up.bps() as f64);
                format!("an oversubscription of {ratio} gives {whole} uplinks")
            }
            Self::TopOversubscription { .. } => {
                "give it to the tier below, whose uplinks lead to the top".to_owned()
            }
            Self::NicBundle { .. } => {
                "several NICs are `host.nics`, several ports of a NIC are `planes`".to_owned()
            }
            Self::Nics { gpus, .. } => {
                format!("{gpus} gives every GPU its own NIC, 1 shares one among all")
            }
            Self::ScaleUp { gpus, .. } => {
                format!("{gpus} joins all GPUs of a host, 1 leaves them without a scale-up network")
            }
            Self::SmallLeaf { nics, .. } => {
                format!("set `ports_down` to {nics} or more, or spread the NICs with `host.rails: true`")
            }
            Self::Rails { rails, .. } => format!(
                "rails meet only above the leaves: add a tier with `ports_down` of {rails} or more, or set `host.rails: \
                 false`"
            ),
            Self::TooManyHosts { .. } => {
                "raise `ports_down` of a tier (above tier 0 in multiples of its bundle), or add a tier"
                    .to_owned()
            }
            Self::Bundle { .. } => "1 is a single link".to_owned(),
            Self::TooManyGroups { groups, holders, .. } => {
                let enough = (groups - 1).div_ceil(*holders);
                format!("`global_links: {enough}` reaches {groups} groups")
            }
            Self::Building { error, .. } => return error.hint(),
            Self::CrossTwice { .. } => "add up the counts of the two".to_owned(),
            Self::NotJoined { .. } => {
                "join them, or both to a third building, by an entry of `cross`".to_owned()
            }
            Self::Transit { from, through, to, arriving, .. } => format!(
                "give `{through}` at least {arriving} cables to the next building on the way to `{to}`, or join `{from}` \
                 and `{to}`"
            ),
            Self::DirectRails => "leave `host.rails` out".to_owned(),
            Self::HostsPerNode { node, .. } => {
                format!("every host is {} {node}: give it more `gpus` or `nics` instead", article(node))
            }
            Self::Oversize { path, fit, .. } => format!("`{path}: {fit}` is the largest that fits"),
            Self::Graph(error) => return error.hint(),
            Self::Planes { rate, planes } => {
                let divides = |planes: &u32| rate.bps().is_multiple_of(u64::from(*planes));
                let below = (1..*planes).rev().find(divides);
                let above = (*planes..planes.saturating_mul(2)).find(divides);
                match (below, above) {
                    (Some(below), Some(above)) => format!("{below} and {above} do"),
                    (Some(only), None) | (None, Some(only)) => format!("{only} does"),
                    (None, None) => return None,
                }
            }
            Self::Zero { .. }
            | Self::Oversubscription { .. }
            | Self::TooLarge { .. }
            | Self::Loss { .. }
            | Self::Least { .. }
            | Self::LongPaths { .. }
            | Self::BuildingName { .. }
            | Self::CrossBetween { .. }
            | Self::Latency { .. } => return None,
        })
    }
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

fn gbps(rate: BitRate) -> String {
    format!("{} Gbps", rate.bps() as f64 / 1e9)
}
