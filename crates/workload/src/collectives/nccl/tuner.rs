//! NCCL's estimate of every algorithm and protocol, and its choice.

use smallvec::SmallVec;

use super::prior::{self, Hop};
use super::{Algorithm, Architecture, Communicator, Function, NcclError, Protocol};

/// What the tuner takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Protocol.
    pub protocol: Protocol,
    /// Channels over which the data are spread.
    pub channels: u32,
}

/// What the tuner believes of an algorithm and a protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Microseconds before bytes count.
    pub latency: f64,
    /// GB/s of the collective's size.
    pub bandwidth: f64,
}

/// An algorithm and a protocol, and what the tuner believes of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    algorithm: Algorithm,
    protocol: Protocol,
    of: Estimate,
}

/// All that the tuner may take for a function; it does not depend on the size.
pub(super) type Beliefs = SmallVec<[Belief; 12]>;

/// `GB/s` of a channel on the links of a generation, by which the search counts channels.
fn link_of(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Volta | Architecture::Ampere => 20.0,
        Architecture::Hopper => 20.6,
        Architecture::Blackwell => 40.1,
    }
}

impl Communicator<'_> {
    /// Steps of a ring of all ranks, and how many of them cross the network.
    pub(super) fn ring_steps(&self, function: Function) -> (u32, u32) {
        let (n, domains) = (self.layout.members(), self.layout.domains);
        match function {
            Function::AllReduce => (2 * (n - 1), 2 * (domains - 1)),
            Function::AllGather | Function::ReduceScatter => (n - 1, domains - 1),
            _ => (n, if domains > 1 { domains } else { 0 }),
        }
    }

    /// Payload that the ranks of a domain send over its scale-up links, bytes per second and GPU.
    pub(super) fn scale_up(&self) -> f64 {
        let hardware = self.hardware;
        match hardware.scale_up_ranks {
            Some(ranks) if self.layout.ranks > ranks => hardware.host_link,
            _ => hardware.scale_up,
        }
    }

    /// Whether scale-up links join the ranks of a domain; PCIe does otherwise.
    pub(super) fn linked(&self) -> bool {
        self.hardware.scale_up_ranks.is_none_or(|ranks| self.layout.ranks <= ranks)
    }

    /// NIC rate that the ranks of a domain share, bytes per second: all of a full domain, else those nearest to its
    /// ranks.
    pub(super) fn network(&self) -> f64 {
        let (nics, uplink) = (self.nics(), self.hardware.uplink);
        if uplink > 0.0 { nics.min(uplink) } else { nics }
    }

    /// The same, whatever the fabric carries.
    pub(super) fn nics(&self) -> f64 {
        let hardware = self.hardware;
        let share = f64::from(self.layout.ranks * hardware.nics) / f64::from(hardware.gpus.max(1));
        hardware.nic * share.clamp(1.0, f64::from(hardware.nics.max(1)))
    }

    /// Channels that the search and the settings allow: two for each NIC, four from Hopper on where a domain has fewer
    /// than 8 ranks (`connect.cc`); inside a domain two for each link's worth of bandwidth.
    pub(super) fn channels(&self) -> u32 {
        let hardware = self.hardware;
        let found = if self.layout.domains > 1 {
            let used = (self.nics() / hardware.nic).round() as u32;
            let newer = matches!(hardware.architecture, Architecture::Hopper | Architecture::Blackwell);
            used * if newer && self.layout.ranks < 8 && !self.settings.cross_nic { 4 } else { 2 }
        } else {
            let links = self.scale_up() / (link_of(hardware.architecture) * 1e9);
            (2.0 * links.max(1.0)).round() as u32
        };
        let channels = found.clamp(2, 32).max(self.settings.channels_least.unwrap_or(1));
        channels.min(self.settings.channels_most.unwrap_or(64)).max(1)
    }

    /// What the search finds between hosts: channels before they are doubled, and GB/s of each. One channel for each NIC
    /// that ranks use, two of half the speed where that leaves few fast ones (`ncclTopoDupChannels`). It asks the NICs,
    /// not the fabric.
    fn searched(&self) -> (f64, f64) {
        let hardware = self.hardware;
        let nics = (self.nics() / hardware.nic).round().max(1.0);
        let most = if hardware.channel_speed > 0.0 { hardware.channel_speed } else { hardware.nic };
        let speed = prior::speed(hardware.architecture, most / 1e9);
        let newer = hardware.architecture > Architecture::Ampere;
        if speed < 25.0 || newer && speed < 50.0 && nics > 4.0 {
            (nics, speed)
        } else {
            (2.0 * nics, speed / 2.0)
        }
    }

    /// How many of a ring's steps the tuner believes to cross the network.
    fn believed_crossing(&self, function: Function) -> u32 {
        let (_, crossing) = self.ring_steps(function);
        let one_more =
            function == Function::AllReduce && self.layout.domains > 1 && !self.settings.version.since(23, 0);
        if one_more { crossing + 2 } else { crossing }
    }

    /// Microseconds that a step of a ring takes at least where it leaves the host: what a proxy needs to post a message,
    /// three of Simple's (`getNetOverhead`, since 2.18).
    fn posting(&self, protocol: Protocol) -> f64 {
        if !self.settings.version.since(18, 0) {
            return 0.0;
        }
        let one = if self.hardware.amd { 2.0 } else { 1.0 };
        if protocol == Protocol::Simple { 3.0 * one } else { one }
    }

    fn allowed(&self, function: Function, algorithm: Algorithm, protocol: Protocol) -> bool {
        let (hardware, domains, settings) = (self.hardware, self.layout.domains, self.settings);
        let enough = self.layout.members() > 2;
        let fits = match algorithm {
            Algorithm::Ring => true,
            Algorithm::Tree => function == Function::AllReduce,
            Algorithm::Pat => {
                matches!(function, Function::AllGather | Function::ReduceScatter)
                    && protocol == Protocol::Simple
                    && settings.version.since(23, 0)
                    && self.layout.ranks == 1
                    && domains > 1
            }
            Algorithm::Nvls => {
                // Of sums at first, since 2.19 of the others, too.
                let known = match function {
                    Function::AllReduce => settings.version.since(17, 0),
                    Function::AllGather | Function::ReduceScatter => settings.version.since(19, 0),
                    _ => false,
                };
                protocol == Protocol::Simple
                    && settings.nvls
                    && hardware.scale_up_sums
                    && self.linked()
                    && enough
                    && self.layout.ranks > 1
                    && domains == 1
                    && known
            }
            Algorithm::NvlsTree => {
                protocol == Protocol::Simple
                    && settings.nvls
                    && settings.version.since(18, 0)
                    && hardware.scale_up_sums
                    && self.linked()
                    && self.layout.ranks > 2
                    && domains > 1
                    && function == Function::AllReduce
            }
            Algorithm::CollnetDirect | Algorithm::CollnetChain => {
                protocol == Protocol::Simple
                    && settings.collnet
                    && hardware.network_sums
                    && domains > 1
                    && function == Function::AllReduce
            }
            Algorithm::PointToPoint => false,
        };
        let tried = settings.version.since(18, 0) || hardware.architecture <= Architecture::Ampere;
        let ll128 = protocol != Protocol::LL128
            || settings.protocols_given
            || tried && self.linked() && (domains == 1 || hardware.ll128_between);
        fits && ll128 && settings.allows(algorithm) && settings.allows_protocol(protocol)
    }

    /// The tuner's latency and bandwidth; `None` where the combination is not to be had.
    pub fn estimate(&self, function: Function, algorithm: Algorithm, protocol: Protocol) -> Option<Estimate> {
        if !self.allowed(function, algorithm, protocol) {
            return None;
        }
        let (architecture, domains) = (self.hardware.architecture, self.layout.domains);
        let (members, ranks) = (f64::from(self.layout.members()), f64::from(self.layout.ranks));
        let version = self.settings.version;
        let several = domains > 1;
        let inside = self.scale_up() / 1e9;
        // A tree of two hosts crosses the network once each way; from Hopper on the search counts that.
        let twice = algorithm != Algorithm::Ring
            && domains == 2
            && matches!(architecture, Architecture::Hopper | Architecture::Blackwell);
        let (channels, speed) = if several { self.searched() } else { (f64::from(self.channels()), inside) };
        let between = channels * speed * if twice { 2.0 } else { 1.0 };
        let bus = if several { inside.min(between) } else { inside };
        // The first tables ended with Ampere's.
        let bus =
            if architecture == Architecture::Ampere && !version.since(18, 0) { bus.min(235.0) } else { bus };
        let steps = self.ring_steps(function).0;
        let crossing = self.believed_crossing(function);
        let at = protocol as usize;
        let ratio = match algorithm {
            Algorithm::Ring => members / f64::from(steps),
            Algorithm::Nvls | Algorithm::Pat => 1.0,
            _ => 0.5,
        };
        let ll_most = prior::ll_most(architecture, self.hardware.amd, domains, version);
        // A domain's only GPU has no second one to balance its tree.
        let simple = several && (ranks < 2.0 || self.hardware.simple_trees) && version.since(18, 3);
        let simple_tree = if simple { 0.85 } else { 1.0 };
        let bus = match (algorithm, protocol) {
            (Algorithm::Ring, Protocol::LL) => {
                let sums = matches!(function, Function::AllReduce | Function::Reduce);
                (bus * prior::ring_ll_share(version, several, sums)).min(ll_most)
            }
            (Algorithm::Ring, Protocol::LL128) => {
                let factor = if ranks < 2.0 && !version.since(23, 0) { 0.7 } else { 0.92 };
                (bus * factor).min(channels * prior::ring_ll128_per_channel(architecture, version))
            }
            (Algorithm::Tree, _) => {
                let tree =
                    (bus * 0.92).min(channels * prior::tree_per_channel(architecture, domains, version));
                let tree = match protocol {
                    Protocol::LL => (tree / 3.8).min(ll_most),
                    Protocol::LL128 => {
                        let factor = if domains == 1 { 7.0 / 9.0 } else { 120.0 / 128.0 };
                        let most = prior::tree_ll128_per_channel(architecture, domains, version);
                        (tree * factor).min(channels * most)
                    }
                    Protocol::Simple => tree,
                };
                tree * simple_tree
            }
            (Algorithm::Nvls, _) => {
                let whole = inside * prior::nvls_efficiency(architecture);
                if function == Function::AllReduce { whole * (ranks - 1.0) / ranks } else { whole }
            }
            (Algorithm::NvlsTree, _) => {
                (inside * prior::nvls_efficiency(architecture) * 2.0).min(between * 0.92)
            }
            (Algorithm::CollnetDirect | Algorithm::CollnetChain, _) => 2.0 * bus * 0.9,
            (Algorithm::Pat, _) => bus * 0.85,
            _ => bus,
        };
        let hw = |hop| prior::hop(hop, algorithm, version)[at];
        let intra = hw(if self.linked() { Hop::NvLink } else { Hop::Pci });
        // Before the tuner knew what posting costs it believed steps of LL to be slower where they leave the host.
        let early = several && protocol == Protocol::LL && !version.since(18, 0);
        let intra = if early { 1.8 * intra } else { intra };
        // One rank a domain hides no hop behind the others': the network latency of trees counts.
        let inter = match algorithm {
            Algorithm::Ring if self.layout.ranks == 1 && version.since(23, 0) => {
                prior::hop(Hop::Net, Algorithm::Tree, version)[at]
            }
            _ => hw(Hop::Net),
        };
        let levels = f64::from(domains.max(1).ilog2());
        let hops = match algorithm {
            Algorithm::Ring if matches!(function, Function::Broadcast | Function::Reduce) => {
                f64::from(steps) * if domains > 1 { inter } else { intra }
            }
            Algorithm::Ring => {
                let posting = if domains > 1 { self.posting(protocol) } else { 0.0 };
                f64::from(steps - crossing) * intra.max(posting) + f64::from(crossing) * inter
            }
            Algorithm::Tree => 2.0 * ((ranks - 1.0) * intra + levels * inter),
            Algorithm::Nvls => intra,
            Algorithm::NvlsTree => intra + 2.0 * levels * inter,
            Algorithm::Pat => levels * inter / 3.5 + members * 2.8,
            _ => 2.0 * ((ranks - 1.0).min(1.0) * intra) + inter,
        };
        Some(Estimate { latency: prior::base(algorithm, version)[at] + hops, bandwidth: bus * ratio })
    }

    /// What the tuner believes `bytes` take, microseconds.
    #[cfg(test)]
    pub(super) fn estimated(
        &self,
        function: Function,
        choice: (Algorithm, Protocol),
        bytes: u64,
    ) -> Option<f64> {
        let (algorithm, protocol) = choice;
        let believed = Belief { algorithm, protocol, of: self.estimate(function, algorithm, protocol)? };
        Some(self.believed(function, believed, bytes))
    }

    /// What the tuner believes `bytes` take by one of its [`Beliefs`], microseconds.
    fn believed(&self, function: Function, belief: Belief, bytes: u64) -> f64 {
        let Belief { algorithm, protocol, of: Estimate { mut latency, mut bandwidth } } = belief;
        if algorithm == Algorithm::Tree {
            bandwidth *= prior::tree_correction(protocol, bytes);
        }
        let (version, members) = (self.settings.version, self.layout.members());
        let long = if version.since(18, 0) {
            bytes / u64::from(self.channels() * members) >= 64
        } else {
            bytes >= 4096 * u64::from(members)
        };
        let plateau = algorithm == Algorithm::Ring
            && protocol == Protocol::Simple
            && self.layout.domains > 1
            && function == Function::AllReduce
            && long;
        if plateau {
            latency *= match self.hardware.architecture {
                _ if !version.since(17, 0) => 1.9,
                Architecture::Volta => 1.9,
                Architecture::Ampere if !version.since(18, 0) => 1.9,
                _ if !version.since(18, 0) => 1.5,
                _ => 1.4,
            };
        }
        latency + bytes as f64 / (1e3 * bandwidth)
    }

    /// All that the tuner may take for a function, and what it believes of it.
    pub(super) fn beliefs(&self, function: Function) -> Beliefs {
        let mut beliefs = Beliefs::new();
        for algorithm in Algorithm::ALL {
            for protocol in Protocol::ALL {
                if let Some(of) = self.estimate(function, algorithm, protocol) {
                    beliefs.push(Belief { algorithm, protocol, of });
                }
            }
        }
        beliefs
    }

    /// The algorithm and protocol of `beliefs` that the tuner believes to be the fastest for `bytes`, the first in
    /// NCCL's order of equal ones.
    pub(super) fn fastest(
        &self,
        function: Function,
        beliefs: &Beliefs,
        bytes: u64,
    ) -> Option<(Algorithm, Protocol)> {
        let mut best: Option<(f64, Algorithm, Protocol)> = None;
        for &belief in beliefs {
            let time = self.believed(function, belief, bytes);
            if best.is_none_or(|(least, ..)| time < least) {
                best = Some((time, belief.algorithm, belief.protocol));
            }
        }
        best.map(|(_, algorithm, protocol)| (algorithm, protocol))
    }

    /// What NCCL takes for `bytes`.
    ///
    /// # Errors
    /// [`NcclError`] where the settings leave nothing.
    pub fn choose(&self, function: Function, bytes: u64) -> Result<Choice, NcclError> {
        if matches!(function, Function::AllToAll | Function::SendReceive) {
            return Ok(Choice {
                algorithm: Algorithm::PointToPoint,
                protocol: Protocol::Simple,
                channels: self.channels(),
            });
        }
        let (algorithm, protocol) =
            self.fastest(function, &self.beliefs(function), bytes).ok_or(NcclError::NothingLeft {
                function,
                ranks: self.layout.members(),
                domains: self.layout.domains,
            })?;
        Ok(Choice { algorithm, protocol, channels: self.channels_of(algorithm, protocol, bytes) })
    }

    /// Channels of an algorithm and a protocol for `bytes`; all where nothing is chosen.
    pub(super) fn channels_of(&self, algorithm: Algorithm, protocol: Protocol, bytes: u64) -> u32 {
        match algorithm {
            Algorithm::PointToPoint => self.channels(),
            Algorithm::Nvls | Algorithm::NvlsTree => self.channels_of_sums(),
            _ => self.channels_for(algorithm, protocol, bytes),
        }
    }

    /// Channels of sums in NVLink's switches, whatever the bytes (`transport/nvls.cc`, `NVLS_NCHANNELS_…`): on Blackwell fewer inside one
    /// domain, since 2.27.
    fn channels_of_sums(&self) -> u32 {
        let settings = self.settings;
        let found = match self.hardware.architecture {
            Architecture::Blackwell if self.layout.domains == 1 && settings.version.since(27, 0) => 24,
            Architecture::Blackwell => 32,
            _ => 16,
        };
        found.min(settings.channels_most.unwrap_or(64)).max(settings.channels_least.unwrap_or(1)).max(1)
    }

    /// Channels used for `bytes`: NCCL takes fewer where a thread would have too little to do (`enqueue.cc`: thresholds
    /// of 8 bytes a thread for LL and LL128, 64 for Simple; a ring of LL 8 for each rank).
    fn channels_for(&self, algorithm: Algorithm, protocol: Protocol, bytes: u64) -> u32 {
        let (threads, threshold) = match protocol {
            Protocol::LL => {
                (512, if algorithm == Algorithm::Ring { 8 * u64::from(self.layout.members()) } else { 8 })
            }
            Protocol::LL128 => (640, 8),
            Protocol::Simple => (512, 64),
        };
        let most = self.channels();
        let least = self.settings.channels_least.unwrap_or(1).min(most);
        (bytes.div_ceil(threads * threshold).min(u64::from(most)) as u32).max(least).max(1)
    }
}
