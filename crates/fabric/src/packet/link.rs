//! What all links of one make have in common: how long a packet takes, when a queue marks.

use windtunnel_kernel::{BitRate, Bytes};

use super::marks::{EcnSettings, MarkAt};
use super::settings::PacketSettings;

/// Rate, delay and marking of a link. Ports refer to one of a few of these.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinkKind {
    pub rate: BitRate,
    /// From the last bit's leaving to the far end's queue: propagation, and the pipeline of a switch there.
    pub delay: u64,
    /// Whether a packet reaches the far end's queue when its header is in.
    pub cut_through: bool,
    /// Share of packets lost, as a threshold of 64 random bits; 0 for none.
    pub loss: u64,
    /// Whether packets may be lost on the cable at all.
    pub fragile: bool,
    /// Picoseconds a byte where that is whole, else 0.
    per_byte: u64,
    /// A full packet and what it takes, for rates whose byte is not whole picoseconds.
    full: (u16, u64),
    control: (u16, u64),
    /// Bytes that must be in before a cut-through.
    header: u16,
    pub ecn: Marking,
    /// Bytes above which a data packet may be marked as it joins the queue.
    pub mark_above: u32,
    /// Whether its queue drops early: those of switches do.
    pub of_switch: bool,
    /// Whether it marks.
    pub ecn_allowed: bool,
    /// Bytes of data beyond which a port trims.
    pub trim: u32,
}

/// Thresholds in bytes of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marking {
    pub kmin: u32,
    pub kmax: u32,
    /// Probability above kmin, in 2^-48 a byte.
    slope: u64,
    pub at_dequeue: bool,
}

impl Marking {
    /// Never.
    pub(super) const OFF: Self = Self { kmin: u32::MAX, kmax: u32::MAX, slope: 0, at_dequeue: false };

    pub(super) fn new(ecn: &EcnSettings, rate: BitRate) -> Self {
        let scale = |size: Bytes| {
            let scaled = u128::from(size.get()) * u128::from(rate.bps()) / u128::from(ecn.rate.bps().max(1));
            u32::try_from(scaled).unwrap_or(u32::MAX - 1)
        };
        let (kmin, kmax) = (scale(ecn.kmin), scale(ecn.kmax));
        let span = f64::from(kmax.saturating_sub(kmin).max(1));
        let slope = (ecn.pmax * 281_474_976_710_656.0 / span) as u64;
        Self { kmin, kmax, slope, at_dequeue: ecn.at == MarkAt::Dequeue }
    }

    /// Whether a queue of `depth` bytes marks; `draw` gives 32 random bits.
    #[inline]
    pub(super) fn marks(&self, depth: u32, draw: impl FnOnce() -> u32) -> bool {
        depth > self.kmin
            && (depth > self.kmax || u64::from(draw()) << 16 < self.slope * u64::from(depth - self.kmin))
    }
}

/// What a [`LinkKind`] is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkFacts {
    pub rate: BitRate,
    pub delay: u64,
    pub cut_through: bool,
    pub loss: f64,
    /// Whether its queue trims and drops early: those of switches do.
    pub of_switch: bool,
    /// Whether it marks: those of switches do, but for tiers that are left out.
    pub marks: bool,
    /// Whether an impairment may lose packets.
    pub impaired: bool,
}

impl LinkKind {
    pub(super) fn new(facts: &LinkFacts, settings: &PacketSettings) -> Self {
        let PacketSettings { mtu, control, header, ecn, trimming, .. } = settings;
        let exact = |bytes: Bytes| facts.rate.serialise(bytes).ps();
        let whole = 8_000_000_000_000 % facts.rate.bps() == 0;
        let ecn = ecn.as_ref().filter(|_| facts.marks);
        let ecn = ecn.map_or(Marking::OFF, |ecn| Marking::new(ecn, facts.rate));
        // A port that trims every packet would pass nothing on.
        let trim = trimming.filter(|_| facts.of_switch).and_then(|trimming| {
            let queue = u128::from(trimming.queue?.get());
            let scaled = |rate: BitRate| {
                (queue * u128::from(facts.rate.bps()) / u128::from(rate.bps().max(1))).max(mtu.get().into())
            };
            Some(u32::try_from(trimming.rate.map_or(queue, scaled)).unwrap_or(u32::MAX))
        });
        Self {
            rate: facts.rate,
            delay: facts.delay,
            cut_through: facts.cut_through,
            loss: (facts.loss * 18_446_744_073_709_551_615.0) as u64,
            fragile: facts.impaired || facts.loss > 0.0,
            per_byte: if whole { 8_000_000_000_000 / facts.rate.bps() } else { 0 },
            full: (mtu.get() as u16, exact(*mtu)),
            control: (control.get() as u16, exact(*control)),
            header: header.get() as u16,
            of_switch: facts.of_switch,
            ecn_allowed: facts.marks,
            mark_above: if ecn.at_dequeue { u32::MAX } else { ecn.kmin },
            ecn,
            trim: trim.unwrap_or(u32::MAX),
        }
    }

    /// ceil(wire · 8 · 10^12 / rate) picoseconds.
    #[inline]
    pub(super) fn serialise(&self, wire: u16) -> u64 {
        if self.per_byte != 0 {
            return u64::from(wire) * self.per_byte;
        }
        self.looked_up(wire)
    }

    fn looked_up(&self, wire: u16) -> u64 {
        if wire == self.full.0 {
            self.full.1
        } else if wire == self.control.0 {
            self.control.1
        } else {
            self.rate.serialise(Bytes::new(u64::from(wire))).ps()
        }
    }

    /// When a packet whose transmission begins at `start` and ends at `end` is at the far end's queue.
    #[inline]
    pub(super) fn reaches(&self, start: u64, end: u64, wire: u16) -> u64 {
        if self.cut_through {
            start + self.serialise(wire.min(self.header)) + self.delay
        } else {
            end + self.delay
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(rate: BitRate, ecn: Option<&EcnSettings>) -> LinkKind {
        let facts = LinkFacts {
            rate,
            delay: 0,
            cut_through: false,
            loss: 0.0,
            of_switch: true,
            marks: true,
            impaired: false,
        };
        LinkKind::new(&facts, &PacketSettings { ecn: ecn.copied(), ..PacketSettings::default() })
    }

    #[test]
    fn serialisation_is_exact_at_any_rate() {
        for rate in [
            BitRate::from_gbps(400),
            BitRate::from_bps(3),
            BitRate::from_bps(123_456_789_123),
            BitRate::from_gbps(1_600),
        ] {
            for wire in [1, 64, 65, 4_159, 4_160, u16::MAX] {
                assert_eq!(
                    kind(rate, None).serialise(wire),
                    rate.serialise(Bytes::new(u64::from(wire))).ps()
                );
            }
        }
    }

    #[test]
    fn marking_begins_above_kmin_and_is_certain_above_kmax() {
        let rate = BitRate::from_gbps(100);
        let ecn = EcnSettings {
            rate,
            kmin: Bytes::new(1_000),
            kmax: Bytes::new(3_000),
            pmax: 0.5,
            at: MarkAt::Enqueue,
        };
        let double = kind(BitRate::from_gbps(200), Some(&ecn)).ecn;
        assert!(!double.marks(2_000, || 0) && double.marks(2_001, || 0), "thresholds double with the rate");
        assert!(double.marks(6_001, || u32::MAX) && !double.marks(6_000, || u32::MAX));
        // Half way: a quarter.
        assert!(double.marks(4_000, || (1 << 30) - 2) && !double.marks(4_000, || (1 << 30) + 1));
    }
}
