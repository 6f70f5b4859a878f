//! What the packet model is told, and what is refused.

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{BitRate, Bytes, Span};
use windtunnel_topology::{LinkId, LinkTier, numbered};

use super::background::Background;
use super::impair::Impairments;
use super::queue_settings::{self, Color, Discipline, MOST_QUEUES, PfcSettings, Pull, QueueSettings};
use super::timeline::PORT_BITS;
use super::transport::{Endpoint, Feature, Need, Recovery, Uses};
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

    /// Whether packets carry path numbers.
    pub(super) const fn numbers(self) -> bool {
        matches!(self, Self::Spray { .. } | Self::Source { .. } | Self::Reps { .. })
    }

    /// Whether packets of a queue pair take many paths at a time.
    pub const fn spreads(self) -> bool {
        matches!(self, Self::Spray { .. } | Self::Source { .. } | Self::Adaptive | Self::Reps { .. })
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

windtunnel_kernel::named! {
    /// Where a packet is marked.
    #[derive(Default, Hash)]
    pub enum MarkAt: "place of marks" {
        #[default]
        Enqueue = "enqueue", "as it joins the queue, by what it finds";
        Dequeue = "dequeue", "as its transmission begins, by what it leaves behind";
    }
}

/// RED on the instantaneous queue. Sizes are those of a port of `rate` and grow in proportion for others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcnSettings {
    /// The port's rate that the sizes are for.
    pub rate: BitRate,
    /// No packet is marked up to here.
    pub kmin: Bytes,
    /// Every packet is marked above.
    pub kmax: Bytes,
    /// Probability at `kmax`, 0 to 1.
    pub pmax: f64,
    /// Where.
    pub at: MarkAt,
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
    /// Queue pairs over which each message is cut into equal parts, each with its own path number; 1 cuts nothing.
    pub queue_pairs: u32,
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
    /// How often queues are looked at; never if left out.
    pub sample_every: Option<Span>,
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
            queue_pairs: 1,
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
            sample_every: None,
            records: false,
            parallel: ParallelSettings::default(),
        }
    }
}

/// Largest packet: sizes are kept in 16 bits.
const LARGEST: u64 = u16::MAX as u64;

/// Ports of NICs and switches together that events can name.
pub const MOST_PORTS: usize = 1 << PORT_BITS;

/// Why there is no packet network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PacketError {
    /// No room for payload.
    #[error("`mtu` is {} B, expected more than `header`: {} B", mtu.get(), header.get())]
    Mtu {
        /// The packet.
        mtu: Bytes,
        /// Its header.
        header: Bytes,
    },
    /// More ports than events can name.
    #[error("the fabric has {found} ports, expected fewer than {MOST_PORTS}")]
    Ports {
        /// Their number.
        found: usize,
    },
    /// A size beyond what a packet can have.
    #[error("`{name}` is {} B, expected 1 B to {LARGEST} B", found.get())]
    Size {
        /// The setting.
        name: &'static str,
        /// Its value.
        found: Bytes,
    },
    /// Marking that begins after it has reached its end.
    #[error("`ecn.kmin` is {} B, expected at most `ecn.kmax`: {} B", kmin.get(), kmax.get())]
    Ecn {
        /// Start.
        kmin: Bytes,
        /// End.
        kmax: Bytes,
    },
    /// Sizes for a port without a rate.
    #[error("`{name}.rate` is 0 bps, expected more")]
    ThresholdRate {
        /// The setting.
        name: &'static str,
    },
    /// A share that is none.
    #[error("`{name}` is {found}, expected {expected}")]
    Share {
        /// The setting.
        name: &'static str,
        /// Its value.
        found: f64,
        /// What would do.
        expected: &'static str,
    },
    /// Reserves that leave no shared part.
    #[error("`buffers[{tier}]` reserves {} B for each of {ports} ports, expected less than its size: {} B", reserve.get(), size.get())]
    Reserve {
        /// Tier of the switch.
        tier: u8,
        /// Ports of the switch.
        ports: u32,
        /// For each.
        reserve: Bytes,
        /// Of all.
        size: Bytes,
    },
    /// More queues than a packet can name.
    #[error("`queues` has {found} entries, expected at most {MOST_QUEUES}")]
    Queues {
        /// Their number.
        found: usize,
    },
    /// A queue that would never have its turn.
    #[error("`queues[{index}].weight` is 0, expected at least 1")]
    Weight {
        /// Place of the queue.
        index: usize,
    },
    /// A queue that may never send.
    #[error("`queues[{index}].rate` is 0 bps, expected more")]
    ShaperRate {
        /// Place of the queue.
        index: usize,
    },
    /// A bucket in which no full packet fits.
    #[error("`queues[{index}].burst` is {} B, expected at least `mtu`: {} B", burst.get(), mtu.get())]
    Burst {
        /// Place of the queue.
        index: usize,
        /// The bucket.
        burst: Bytes,
        /// A full packet.
        mtu: Bytes,
    },
    /// Thresholds of a queue in the wrong order.
    #[error("`{name}` of queue {index}: `kmin` is {} B, expected at most `kmax`: {} B", kmin.get(), kmax.get())]
    Profile {
        /// The setting.
        name: &'static str,
        /// Place of the queue.
        index: usize,
        /// Start.
        kmin: Bytes,
        /// End.
        kmax: Bytes,
    },
    /// A profile that drops every full packet at some port, whatever waits there.
    #[error(
        "`queues[{index}].red.kmax` comes to {} B at ports of {} Gbps, where all above is dropped, expected at least `mtu`: {} B",
        kmax.get(), rate.bps() as f64 / 1e9, mtu.get()
    )]
    DropsAll {
        /// Place of the queue.
        index: usize,
        /// What its `kmax` is at the port.
        kmax: Bytes,
        /// The port's rate.
        rate: BitRate,
        /// A full packet.
        mtu: Bytes,
    },
    /// A meter that lets nothing pass.
    #[error("`queues[{index}].meter.cir` is 0 bps, expected more")]
    MeterRate {
        /// Place of the queue.
        index: usize,
    },
    /// A peak below what is committed.
    #[error("`queues[{index}].meter.pir` is {} bps, expected at least `cir`: {} bps", pir.bps(), cir.bps())]
    PeakRate {
        /// Place of the queue.
        index: usize,
        /// The peak rate.
        pir: BitRate,
        /// The committed rate.
        cir: BitRate,
    },
    /// A bucket in which no full packet fits.
    #[error("`queues[{index}].meter.{name}` is {} B, expected at least `mtu`: {} B", burst.get(), mtu.get())]
    MeterBurst {
        /// The burst.
        name: &'static str,
        /// Place of the queue.
        index: usize,
        /// Its size.
        burst: Bytes,
        /// A full packet.
        mtu: Bytes,
    },
    /// Classes that there are not.
    #[error("`pull` goes by queues, but `queues` is empty")]
    PullWithoutQueues,
    /// A class of a queue that there is not.
    #[error("class {class} goes to queue {queue}, expected one of {known} from 0 on")]
    NoQueue {
        /// The class.
        class: usize,
        /// Its queue.
        queue: u8,
        /// Number of queues.
        known: usize,
    },
    /// Pauses of nothing.
    #[error("`pfc` pauses lossless queues, but no queue is lossless")]
    NothingLossless,
    /// A share of a buffer without limit.
    #[error("`pfc.alpha` is a share of the free buffer, but `buffers` sets no size")]
    NoBuffer,
    /// An offset below nothing.
    #[error("`pfc.xon_offset` is {} B, expected at most `pfc.xoff`: {} B", offset.get(), xoff.get())]
    XonOffset {
        /// The offset.
        offset: Bytes,
        /// From here.
        xoff: Bytes,
    },
    /// A resume before the pause.
    #[error("`pfc.xon` is {} B, expected at most `pfc.xoff`: {} B", xon.get(), xoff.get())]
    Xon {
        /// Resume.
        xon: Bytes,
        /// Pause.
        xoff: Bytes,
    },
    /// Every packet would pause.
    #[error("`pfc.xoff` is {} B, expected at least `mtu`: {} B", xoff.get(), mtu.get())]
    XoffBelowPacket {
        /// Pause.
        xoff: Bytes,
        /// A full packet.
        mtu: Bytes,
    },
    /// A pause that never comes.
    #[error("`pfc.xoff` is {} B, expected at most what `buffers[{tier}]` shares beside reserves and headroom: {} B", xoff.get(), shared.get())]
    Xoff {
        /// Tier of the switch.
        tier: u8,
        /// Pause.
        xoff: Bytes,
        /// What is shared.
        shared: Bytes,
    },
    /// More set aside than there is.
    #[error("`buffers[{tier}]` keeps {} B aside, {} B of headroom for each of {ports} ports and reserves, expected less than the {} B that it shares", aside.get(), each.get(), size.get())]
    Headroom {
        /// Tier of the switch.
        tier: u8,
        /// Ingresses of the switch.
        ports: u32,
        /// Headroom of one, on average.
        each: Bytes,
        /// All that is set aside.
        aside: Bytes,
        /// What was shared before.
        size: Bytes,
    },
    /// A queue in which no packet fits.
    #[error("`trimming.queue` is {} B, expected at least `mtu`: {} B", queue.get(), mtu.get())]
    Trimming {
        /// The queue.
        queue: Bytes,
        /// A packet.
        mtu: Bytes,
    },
    /// A transport whose signal no switch gives.
    #[error("transport `{transport}` needs `{key}`, which is not set")]
    Needs {
        /// Its name.
        transport: &'static str,
        /// The setting.
        key: &'static str,
    },
    /// A transport that would wait for ever.
    #[error("`ack_every` is 0, but transport `{transport}` needs acknowledgements")]
    Unanswered {
        /// Its name.
        transport: &'static str,
    },
    /// A transport that cannot do without packets that are taken in any order.
    #[error("`{transport}` sends what its receiver grants, and takes up what was lost by itself")]
    Mends {
        /// Its name.
        transport: &'static str,
    },
    /// No queue pair to send on.
    #[error("`queue_pairs` is 0, expected at least 1")]
    QueuePairs,
    /// No packet could be sent.
    #[error("`in_flight` is 0, expected at least 1 packet")]
    InFlight,
    /// A dispatcher that cannot work so.
    #[error("transport `{transport}`: {found}")]
    Dispatch {
        /// Its name.
        transport: &'static str,
        /// What was found and what was expected.
        found: String,
    },
    /// Samples without end at one instant.
    #[error("`queues` is 0, expected a time between samples above 0")]
    Sampling,
    /// Paths worked out ahead on links that may go down.
    #[error(
        "links go down in mid-run, but `destination_modulo` has one path for each pair; expected another balancer"
    )]
    Moving,
    /// A number of paths that cannot be permuted by a mask.
    #[error("`paths` is {found}, expected a power of two from 1 to 65536")]
    Paths {
        /// The number.
        found: u32,
    },
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
        if self.ack_every == 0 && (recovery != Recovery::None || endpoint.is_answered()) {
            return Err(PacketError::Unanswered { transport: E::NAME });
        }
        let credit = <E::Uses as Uses>::Credit::ask(|| ()).is_some();
        if credit && matches!(recovery, Recovery::None | Recovery::GoBackN) {
            return Err(PacketError::Mends { transport: E::NAME });
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

    /// Packets of a message.
    pub fn packets(&self, bytes: Bytes) -> u64 {
        bytes.get().max(1).div_ceil(self.payload())
    }
}
