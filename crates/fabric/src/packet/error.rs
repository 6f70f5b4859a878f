//! What is refused of the [settings](super::settings), and why there is no packet network then.

use windtunnel_kernel::{BitRate, Bytes};

use super::queue_settings::MOST_QUEUES;
use super::timeline::MOST_PORTS;
use super::watch_settings::WatchSettings;

/// Largest packet: sizes are kept in 16 bits.
pub(super) const LARGEST: u64 = u16::MAX as u64;

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
    #[error("`{key}` is 0, but transport `{transport}` needs acknowledgements")]
    Unanswered {
        /// Its name.
        transport: &'static str,
        /// The setting.
        key: &'static str,
    },
    /// A transport that cannot do without packets that are taken in any order.
    #[error("`{transport}` sends what its receiver grants, and takes up what was lost by itself")]
    Mends {
        /// Its name.
        transport: &'static str,
    },
    /// A transport that counts what it grants, which parity is not part of.
    #[error("`{transport}` sends what its receiver grants, which knows of no parity")]
    Coded {
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
    /// Queue pairs that are looked at all the time.
    #[error("`queue_pairs.every` is too short, expected at least {} ns", WatchSettings::LEAST.ps() / 1000)]
    Watching,
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
