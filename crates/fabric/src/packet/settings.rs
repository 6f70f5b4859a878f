//! What the packet model is told, and what is refused.

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{BitRate, Bytes, Span};
use windtunnel_topology::{LinkId, LinkTier, numbered};

use super::background::Background;
use super::error::{LARGEST, PacketError};
use super::impair::Impairments;
use super::marks::EcnSettings;
use super::queue_settings::{self, Color, Discipline, PfcSettings, Pull, QueueSettings};
use super::transport::{Endpoint, Feature, Need, Recovery, Uses};
use super::watch_settings::{CaptureSettings, WatchSettings};
use crate::coding::{self, Coding};
use crate::reduction::ReductionSettings;
use crate::wire;

windtunnel_kernel::named! {
    /// When a switch may pass a packet on.
    #[derive(Default, Hash)]
    pub enum Forwarding: "forwarding" {
        #[default]
        StoreAndForward = "store_and_forward", "once its last bit is in";
        CutThrough = "cut_through", "once its header is in, where no port of the switch is faster than the one it came by";
    }
}

/// How the packets of a queue pair are spread over equal paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balancer {
    /// One path per queue pair: a hash at every switch.
    #[default]
    Ecmp,
    /// One path per queue pair, by the destination's number (D-mod-k).
    DestinationModulo,
    /// Every packet takes the next of so many path numbers (a power of two), in an order that changes each round: every
    /// switch hashes the number along with the flow.
    Spray {
        /// Path numbers, 1 to 65,536.
        paths: u32,
    },
    /// Every switch draws a new path for packets of a flow that come more than `gap` after the ones before (LetFlow).
    Flowlet {
        /// Pause that ends a flowlet.
        gap: Span,
    },
    /// Every packet takes the equal-cost port with the fewest bytes, at every switch.
    Adaptive,
    /// Every packet takes the next of the equal-cost ports, at every switch, by a turn of each port that packets come by.
    RoundRobin,
    /// As `Spray`, and the number names the path: so many in a row as a switch has ports up take each of them once.
    Source {
        /// Path numbers, 1 to 65,536.
        paths: u32,
    },
    /// Every packet takes a path number whose acknowledgement came unmarked, the oldest first, else a drawn one (REPS).
    Reps {
        /// Path numbers, 1 to 65,536.
        paths: u32,
    },
}

impl Balancer {
    /// Whether all packets of a queue pair take the path that its opening found.
    pub const fn is_fixed(self) -> bool {
        matches!(self, Self::Ecmp | Self::DestinationModulo)
    }

    /// What switches choose by for a packet of a flow that takes path number `path`.
    #[inline]
    pub(super) fn path_hash(self, hash: u64, path: u16) -> u64 {
        match self {
            Self::Source { .. } => numbered(hash, path),
            _ => combine(hash, u64::from(path)),
        }
    }

    /// Whether a switch looks at all its equal-cost ports for each packet.
    pub(super) const fn sees_ports(self) -> bool {
        matches!(self, Self::Adaptive | Self::RoundRobin)
    }

    /// Whether packets carry path numbers.
    pub const fn numbers(self) -> bool {
        matches!(self, Self::Spray { .. } | Self::Source { .. } | Self::Reps { .. })
    }

    /// Whether packets of a queue pair take many paths at a time.
    pub const fn spreads(self) -> bool {
        matches!(
            self,
            Self::Spray { .. } | Self::Source { .. } | Self::Adaptive | Self::RoundRobin | Self::Reps { .. }
        )
    }
}

/// A path that a host has chosen: all links from a NIC to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenRoute {
    /// Sender, counted over all hosts.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// From the link that leaves the sender to the one that enters the receiver.
    pub links: Vec<LinkId>,
}

/// The shared buffer of a switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferSettings {
    /// All of it.
    pub size: Bytes,
    /// Dynamic threshold: a port may hold up to `alpha` times what is free of the shared part, beyond its reserve.
    pub alpha: f64,
    /// Kept for each port alone.
    pub reserve: Bytes,
}

/// Trimming: a data packet for which a switch has no room is cut to its header, which waits among control packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimSettings {
    /// Bytes of data that a port may hold; `None`: what the shared buffer refuses is trimmed.
    pub queue: Option<Bytes>,
    /// The port's rate that they are for, in proportion to which other ports hold more or less; `None`: all hold the same.
    pub rate: Option<BitRate>,
}

/// Over how many threads and processes a network is spread. No result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParallelSettings {
    /// Threads, at least 1; one thread has one process unless told otherwise.
    pub threads: usize,
    /// Processes at most; as many as threads if not set.
    pub processes: Option<usize>,
    /// ζ: what a shorter cable joins shares a process. Chosen from the cables if not set.
    pub threshold: Option<Span>,
}

impl Default for ParallelSettings {
    /// One thread, one process.
    fn default() -> Self {
        Self { threads: 1, processes: None, threshold: None }
    }
}

/// How packets behave.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketSettings {
    /// Seed of every choice and draw.
    pub seed: u64,
    /// Size of a full packet, its header included.
    pub mtu: Bytes,
    /// Header of a data packet.
    pub header: Bytes,
    /// Size of a control packet.
    pub control: Bytes,
    /// Data packets of a queue pair that one acknowledgement answers; 0: none is sent.
    pub ack_every: u32,
    /// How switches pass packets on.
    pub forwarding: Forwarding,
    /// Choice among equal-cost paths.
    pub balancer: Balancer,
    /// Paths that hosts have chosen, before any balancer: queue pairs between two NICs with several take them in turn, and
    /// the links back where the way back has none of its own.
    pub routes: Vec<ChosenRoute>,
    /// Shared buffers by tier from the hosts up; the last one holds for all tiers above. Empty: no limit.
    pub buffers: Vec<BufferSettings>,
    /// Marking; none without.
    pub ecn: Option<EcnSettings>,
    /// Where the links stand whose queues mark; empty: wherever switches are.
    pub ecn_on: Vec<LinkTier>,
    /// Trimming; without, packets that find no room are dropped.
    pub trimming: Option<TrimSettings>,
    /// Whether switches write into packets that ask for it what each hop looks like (in-band telemetry).
    pub telemetry: bool,
    /// Parity packets that follow those of data.
    pub coding: Option<Coding>,
    /// Queue pairs over which each message is cut into equal parts, each with its own path number; 1 cuts nothing.
    pub queue_pairs: u32,
    /// NICs of its GPU over which a message spreads, each with queue pairs of its own; at least 1.
    pub nics: u8,
    /// Packets from the first not acknowledged to the last sent that a queue pair may have; `u32::MAX`: no limit.
    pub in_flight: u32,
    /// Latency of both NICs of a path together, added to a message's arrival.
    pub nic_latency: Span,
    /// Links that run at a part of their rate; one named twice at the product.
    pub slow_links: Vec<(LinkId, f64)>,
    /// Data queues of every port; empty: one.
    pub queues: Vec<QueueSettings>,
    /// Which of them goes next among equal priorities.
    pub discipline: Discipline,
    /// The queue of a message's traffic class; 0 for those beyond the list.
    pub classes: Vec<u8>,
    /// The color of a message's traffic class; green for those beyond the list.
    pub colors: Vec<Color>,
    /// Which queue pair of a NIC port goes next.
    pub pull: Pull,
    /// What switches can sum.
    pub reduction: ReductionSettings,
    /// Pauses of lossless queues; none without.
    pub pfc: Option<PfcSettings>,
    /// What goes wrong.
    pub impairments: Impairments,
    /// Traffic that nobody waits for.
    pub background: Vec<Background>,
    /// When messages that are still under way are given up and told as if they had arrived; never if left out.
    pub until: Option<Span>,
    /// How often queues are looked at; never if left out.
    pub sample_every: Option<Span>,
    /// Queue pairs that are looked at over time.
    pub watch: Option<WatchSettings>,
    /// Packets of which a record is kept.
    pub capture: Option<CaptureSettings>,
    /// Keep a record of each message.
    pub records: bool,
    /// Threads.
    pub parallel: ParallelSettings,
}

impl Default for PacketSettings {
    /// [Packets](wire) as usual, ECMP, no limit of buffers, no marking.
    fn default() -> Self {
        Self {
            seed: 0,
            mtu: wire::MTU,
            header: wire::HEADER,
            control: wire::CONTROL,
            ack_every: wire::ACK_EVERY,
            forwarding: Forwarding::default(),
            balancer: Balancer::default(),
            routes: Vec::new(),
            buffers: Vec::new(),
            ecn: None,
            ecn_on: Vec::new(),
            trimming: None,
            telemetry: false,
            coding: None,
            queue_pairs: 1,
            nics: 1,
            in_flight: u32::MAX,
            nic_latency: Span::ZERO,
            slow_links: Vec::new(),
            queues: Vec::new(),
            discipline: Discipline::default(),
            classes: Vec::new(),
            colors: Vec::new(),
            pull: Pull::default(),
            reduction: ReductionSettings::default(),
            pfc: None,
            impairments: Impairments::default(),
            background: Vec::new(),
            until: None,
            sample_every: None,
            watch: None,
            capture: None,
            records: false,
            parallel: ParallelSettings::default(),
        }
    }
}

impl PacketSettings {
    /// # Errors
    /// [`PacketError`] for settings that cannot work, whatever the topology.
    pub fn check(&self) -> Result<(), PacketError> {
        let Self { mtu, header, control, .. } = *self;
        for (name, found) in [("mtu", mtu), ("control", control)] {
            if found.get() == 0 || found.get() > LARGEST {
                return Err(PacketError::Size { name, found });
            }
        }
        if self.queue_pairs == 0 {
            return Err(PacketError::QueuePairs);
        }
        if self.sample_every == Some(Span::ZERO) {
            return Err(PacketError::Sampling);
        }
        if self.watch.as_ref().is_some_and(|watch| watch.every < WatchSettings::LEAST) {
            return Err(PacketError::Watching);
        }
        if self.in_flight == 0 {
            return Err(PacketError::InFlight);
        }
        if mtu <= header {
            return Err(PacketError::Mtu { mtu, header });
        }
        if let Balancer::Spray { paths } | Balancer::Source { paths } | Balancer::Reps { paths } =
            self.balancer
            && !(paths.is_power_of_two() && paths <= 1 << 16)
        {
            return Err(PacketError::Paths { found: paths });
        }
        if let Some(EcnSettings { rate, kmin, kmax, pmax, .. }) = self.ecn {
            if rate.bps() == 0 {
                return Err(PacketError::ThresholdRate { name: "ecn" });
            }
            if kmin > kmax {
                return Err(PacketError::Ecn { kmin, kmax });
            }
            if !(0.0..=1.0).contains(&pmax) {
                return Err(PacketError::Share { name: "ecn.pmax", found: pmax, expected: "0 to 1" });
            }
        }
        if let Some(TrimSettings { queue: Some(queue), rate }) = self.trimming {
            if queue < mtu {
                return Err(PacketError::Trimming { queue, mtu });
            }
            if rate == Some(BitRate::ZERO) {
                return Err(PacketError::ThresholdRate { name: "trimming" });
            }
        }
        for &(_, part) in &self.slow_links {
            if !(part > 0.0 && part <= 1.0) {
                let expected = "a number above 0, at most 1";
                return Err(PacketError::Share { name: "slow_links", found: part, expected });
            }
        }
        self.impairments.check()?;
        self.background.iter().try_for_each(Background::check)?;
        if self.balancer == Balancer::DestinationModulo && self.impairments.moves_paths() {
            return Err(PacketError::Moving);
        }
        for buffer in &self.buffers {
            if !(buffer.alpha > 0.0 && buffer.alpha <= 1024.0) {
                let expected = "a number above 0, at most 1024";
                return Err(PacketError::Share { name: "buffers.alpha", found: buffer.alpha, expected });
            }
        }
        if self.pull != Pull::RoundRobin && self.queues.is_empty() {
            return Err(PacketError::PullWithoutQueues);
        }
        let buffered = !self.buffers.is_empty();
        queue_settings::check(&self.queues, &self.classes, self.pfc.as_ref(), mtu, buffered)
    }

    /// Whether receivers acknowledge what arrives.
    #[inline]
    pub const fn acknowledges(&self) -> bool {
        self.ack_every > 0
    }

    /// Packets from the first not acknowledged to the last sent that a queue pair may have. No limit without acknowledgements:
    /// nothing would ever be known to have arrived.
    pub(super) const fn tracked(&self) -> u32 {
        if self.acknowledges() { self.in_flight } else { u32::MAX }
    }

    /// Whether all packets of a queue pair take the path that its opening found: not where links may go down.
    pub fn has_fixed_paths(&self) -> bool {
        self.balancer.is_fixed() && !self.impairments.moves_paths()
    }

    /// # Errors
    /// [`PacketError`] where switches or receivers do not do what `endpoint` needs of them.
    pub fn check_for<E: Endpoint>(&self, endpoint: &E) -> Result<(), PacketError> {
        let needs = |key| Err(PacketError::Needs { transport: E::NAME, key });
        for need in endpoint.needs() {
            match need {
                Need::Trimming if self.trimming.is_none() => return needs("trimming"),
                Need::Trimming => {}
            }
        }
        if !self.telemetry && <E::Uses as Uses>::Telemetry::ask(|| ()).is_some() {
            return needs("telemetry");
        }
        let recovery = endpoint.recovery();
        if !self.acknowledges() && (recovery != Recovery::None || endpoint.is_answered()) {
            return Err(PacketError::Unanswered { transport: E::NAME, key: "ack_every" });
        }
        let credit = <E::Uses as Uses>::Credit::ask(|| ()).is_some();
        if credit && matches!(recovery, Recovery::None | Recovery::GoBackN) {
            return Err(PacketError::Mends { transport: E::NAME });
        }
        if credit && self.coding.is_some() {
            return Err(PacketError::Coded { transport: E::NAME });
        }
        Ok(())
    }

    /// Sizes of a full packet and of a control packet.
    pub(super) const fn packet_sizes(&self) -> [u16; 2] {
        [self.mtu.get() as u16, self.control.get() as u16]
    }

    /// Payload of a full packet.
    pub fn payload(&self) -> u64 {
        self.mtu.get() - self.header.get()
    }

    /// Packets of a message, its parity among them.
    pub fn packets(&self, bytes: Bytes) -> u64 {
        coding::packets(bytes.get().max(1), self.payload(), self.coding)
    }
}
