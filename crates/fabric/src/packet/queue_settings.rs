//! What is told of data queues and of pauses.

use windtunnel_kernel::{BitRate, Bytes, Span};

use super::error::PacketError;
use super::marks::EcnSettings;
use crate::wire;

/// Data queues of a port at most: a packet carries its queue in 3 bits, as Ethernet carries a priority.
pub const MOST_QUEUES: usize = 8;

windtunnel_kernel::named! {
    /// Which of the data queues of equal priority that may send goes next.
    #[derive(Default, Hash)]
    pub enum Discipline: "discipline" {
        #[default]
        Fifo = "fifo", "the queue whose first packet came first";
        Strict = "strict", "the queue listed first";
        WeightedRoundRobin = "wrr", "turns of `weight` packets";
        /// What is left of a turn is kept while packets wait. Shreedhar and Varghese, "Efficient fair queueing using deficit round
        /// robin", SIGCOMM 1995.
        DeficitRoundRobin = "dwrr", "turns of `weight` full packets' bytes (deficit round robin)";
    }
}

/// A token bucket: no more than `burst` + `rate` × t bytes begin in any time t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// Bytes on the wire per second, in bits.
    pub rate: BitRate,
    /// Depth of the bucket; at least a full packet.
    pub burst: Bytes,
}

/// RED for packets that are not marked but dropped: sizes as in [`EcnSettings`].
pub type DropProfile = EcnSettings;

windtunnel_kernel::named! {
    /// How much a packet is worth when queues grow (RFC 2697, 2698; the drop precedence of RFC 2597).
    #[derive(Default, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Color: "color" {
        #[default]
        Green = "green", "dropped last";
        Yellow = "yellow", "dropped before";
        Red = "red", "dropped first";
    }
}

impl Color {
    /// How many there are.
    pub const COUNT: usize = 3;
}

/// What packets of one color meet in a queue in the place of what the others do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColorProfile {
    /// Its marking; that of the queue without.
    pub ecn: Option<EcnSettings>,
    /// Its drops at random; those of the queue without.
    pub red: Option<DropProfile>,
}

/// Gives packets of a queue their colors by what each NIC has sent of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// RFC 2697: green within the committed burst, yellow within the excess burst, which fills with what is left over.
    SingleRate {
        /// Committed rate.
        cir: BitRate,
        /// Committed burst.
        cbs: Bytes,
        /// Excess burst.
        ebs: Bytes,
    },
    /// RFC 2698: red beyond the peak rate, yellow beyond the committed one.
    TwoRate {
        /// Committed rate.
        cir: BitRate,
        /// Committed burst.
        cbs: Bytes,
        /// Peak rate.
        pir: BitRate,
        /// Peak burst.
        pbs: Bytes,
    },
}

windtunnel_kernel::named! {
    /// Whose packet a NIC port takes next, of the queue pairs that may send.
    #[derive(Default, Hash)]
    pub enum Pull: "pull" {
        #[default]
        RoundRobin = "round_robin", "queue pairs in turn";
        /// The queue pairs of each queue go in turn.
        Strict = "strict", "those of the queue with the highest `priority`; of equal priority in turns of `weight` packets";
        /// The queue pairs of each queue go in turn.
        Weighted = "wrr", "those of all queues in turns of `weight` packets";
    }
}

/// One data queue of every port.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// Queues of higher priority go first.
    pub priority: u8,
    /// Share among queues of equal priority, at least 1.
    pub weight: u32,
    /// Limit of its rate.
    pub shaper: Option<Shaper>,
    /// Bytes kept for it: at each port, of a lossless queue at each ingress.
    pub reserve: Bytes,
    /// Its own dynamic threshold; that of the buffer without.
    pub alpha: Option<f64>,
    /// Whether [`PfcSettings`] pause it.
    pub lossless: bool,
    /// Its own marking; [`PacketSettings::ecn`](super::PacketSettings::ecn) without.
    pub ecn: Option<EcnSettings>,
    /// Drops at random as the queue grows (WRED), for traffic that does not heed marks.
    pub red: Option<DropProfile>,
    /// What differs for packets of a color: green, yellow, red.
    pub colors: [ColorProfile; Color::COUNT],
    /// Colors its packets; without, they keep that of their class.
    pub meter: Option<Meter>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            priority: 0,
            weight: 1,
            shaper: None,
            reserve: Bytes::ZERO,
            alpha: None,
            lossless: true,
            ecn: None,
            red: None,
            colors: [ColorProfile::default(); Color::COUNT],
            meter: None,
        }
    }
}

/// What an ingress may hold before it is paused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Xoff {
    /// So many bytes.
    Static(Bytes),
    /// So many times what is free of the shared buffer.
    Dynamic(f64),
}

/// When an ingress is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xon {
    /// When it holds no more than this.
    At(Bytes),
    /// When it holds this much less than xoff.
    Below(Bytes),
}

/// Priority flow control (IEEE 802.1Qbb, now 802.1Q clause 36) of the lossless queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PfcSettings {
    /// A packet that an ingress has no room for up to here goes to its headroom, and the sender is paused.
    pub xoff: Xoff,
    /// When it goes on.
    pub xon: Xon,
    /// Room of each ingress for what is under way when it pauses its sender; sized from its cable without.
    pub headroom: Option<Bytes>,
    /// From a pause frame's arrival to the last start of a packet that it stops, beside the pipeline there.
    pub response: Span,
    /// Size of a pause frame.
    pub frame: Bytes,
    /// A queue paused for so long drops what waits and comes, until it is resumed.
    pub watchdog: Option<Span>,
    /// A queue paused for so long has it looked up whether its pause can end.
    pub patience: Span,
}

impl PfcSettings {
    /// For packets of `mtu` on the wire: xoff at 1/8 of what is free (as the switch model of HPCC, Li et al., SIGCOMM 2019,
    /// has it), xon two packets below, headroom by the cable.
    pub const fn of(mtu: Bytes) -> Self {
        Self {
            xoff: Xoff::Dynamic(0.125),
            xon: Xon::Below(Bytes::new(2 * mtu.get())),
            headroom: None,
            response: Span::ZERO,
            frame: Bytes::new(64),
            watchdog: None,
            patience: Span::from_us(1_000),
        }
    }
}

impl Default for PfcSettings {
    /// For packets as large as scenarios have them where they say no size.
    fn default() -> Self {
        Self::of(wire::MTU)
    }
}

/// Headroom of a link whose sender is paused from the other end: bytes that may come, from the packet that crosses xoff
/// on, before the pause has its effect.
///
/// The pause frame waits for a full packet that has just begun on its way back, and for the frames of other classes; it is
/// sent, propagates, and is heeded; the sender may have begun a full packet at that instant; all that is then on the cable
/// comes too. With rates equal in both directions that is 2 × propagation × rate, response, pause frame, a packet at each
/// end and the packet that crossed. IEEE 802.1Qbb-2011, the informative annex on buffer requirements; Zhu et al.,
/// "Congestion control for large-scale RDMA deployments" (DCQCN), SIGCOMM 2015, section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PauseLoop {
    /// Of the sender paused.
    pub rate: BitRate,
    /// From its last bit's leaving to the queue.
    pub delay: u64,
    /// The way of the pause frame: waiting for a packet, frames of all lossless classes, delay, response.
    pub back: u64,
}

impl PauseLoop {
    pub(super) fn headroom(self, mtu: Bytes) -> u64 {
        let bits = u128::from(self.delay + self.back) * u128::from(self.rate.bps());
        bits.div_ceil(8_000_000_000_000) as u64 + 2 * mtu.get()
    }
}

/// # Errors
/// [`PacketError`] for queues or pauses that cannot work, whatever the topology.
pub(super) fn check(
    queues: &[QueueSettings],
    classes: &[u8],
    pfc: Option<&PfcSettings>,
    mtu: Bytes,
    buffered: bool,
) -> Result<(), PacketError> {
    if queues.len() > MOST_QUEUES {
        return Err(PacketError::Queues { found: queues.len() });
    }
    for (index, queue) in queues.iter().enumerate() {
        if queue.weight == 0 {
            return Err(PacketError::Weight { index });
        }
        if let Some(Shaper { rate, burst }) = queue.shaper {
            if rate.bps() == 0 {
                return Err(PacketError::ShaperRate { index });
            }
            if burst < mtu {
                return Err(PacketError::Burst { index, burst, mtu });
            }
        }
        if let Some(alpha) = queue.alpha
            && !(alpha > 0.0 && alpha <= 1_024.0)
        {
            let expected = "a number above 0, at most 1024";
            return Err(PacketError::Share { name: "queues.alpha", found: alpha, expected });
        }
        check_meter(index, queue.meter.as_ref(), mtu)?;
        let own = [("queues.ecn", &queue.ecn), ("queues.red", &queue.red)];
        let by_color = queue
            .colors
            .iter()
            .flat_map(|color| [("queues.colors.ecn", &color.ecn), ("queues.colors.red", &color.red)]);
        for (name, profile) in own.into_iter().chain(by_color) {
            let Some(EcnSettings { rate, kmin, kmax, pmax, .. }) = *profile else { continue };
            if rate.bps() == 0 {
                return Err(PacketError::ThresholdRate { name });
            }
            if kmin > kmax {
                return Err(PacketError::Profile { name, index, kmin, kmax });
            }
            if !(0.0..=1.0).contains(&pmax) {
                return Err(PacketError::Share { name, found: pmax, expected: "a `pmax` of 0 to 1" });
            }
        }
    }
    let known = queues.len().max(1);
    if let Some((class, &queue)) = classes.iter().enumerate().find(|(_, queue)| usize::from(**queue) >= known)
    {
        return Err(PacketError::NoQueue { class, queue, known });
    }
    let Some(pfc) = pfc else { return Ok(()) };
    if !queues.is_empty() && queues.iter().all(|queue| !queue.lossless) {
        return Err(PacketError::NothingLossless);
    }
    if pfc.frame.get() == 0 || pfc.frame.get() > u64::from(u16::MAX) {
        return Err(PacketError::Size { name: "pfc.frame", found: pfc.frame });
    }
    match pfc.xoff {
        Xoff::Dynamic(alpha) => {
            if !(alpha > 0.0 && alpha <= 1_024.0) {
                let expected = "a number above 0, at most 1024";
                return Err(PacketError::Share { name: "pfc.alpha", found: alpha, expected });
            }
            if !buffered {
                return Err(PacketError::NoBuffer);
            }
        }
        Xoff::Static(xoff) => {
            let xon = match pfc.xon {
                Xon::At(xon) => xon,
                Xon::Below(offset) if offset <= xoff => xoff - offset,
                Xon::Below(offset) => return Err(PacketError::XonOffset { offset, xoff }),
            };
            if xon > xoff {
                return Err(PacketError::Xon { xon, xoff });
            }
            if xoff < mtu {
                return Err(PacketError::XoffBelowPacket { xoff, mtu });
            }
        }
    }
    Ok(())
}

/// # Errors
/// [`PacketError`] for a meter that could never let a packet be green.
fn check_meter(index: usize, meter: Option<&Meter>, mtu: Bytes) -> Result<(), PacketError> {
    let Some(&meter) = meter else { return Ok(()) };
    let (cbs, cir) = match meter {
        Meter::SingleRate { cir, cbs, .. } => (cbs, cir),
        Meter::TwoRate { cir, cbs, pir, pbs } => {
            if pir < cir {
                return Err(PacketError::PeakRate { index, pir, cir });
            }
            if pbs < mtu {
                return Err(PacketError::MeterBurst { name: "pbs", index, burst: pbs, mtu });
            }
            (cbs, cir)
        }
    };
    if cir.bps() == 0 {
        return Err(PacketError::MeterRate { index });
    }
    if cbs < mtu {
        return Err(PacketError::MeterBurst { name: "cbs", index, burst: cbs, mtu });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The terms of the derivation added up: 100 m (500 ns) each way at 400 Gbps, packets of 4,160 B, a frame of 64 B.
    #[test]
    fn headroom_is_the_sum_of_its_terms() {
        let rate = BitRate::from_gbps(400);
        let (cable, packet, frame) = (500_000, 83_200, 1_280);
        let pause = PauseLoop { rate, delay: cable, back: packet + frame + cable };
        // 50 B a nanosecond.
        assert_eq!(pause.headroom(Bytes::new(4_160)), 2 * 500 * 50 + 3 * 4_160 + 64);
    }
}
