//! Meters that color packets where they enter the fabric: by what their NIC has sent of a queue's traffic.
//!
//! The single-rate meter of RFC 2697 and the two-rate one of RFC 2698, both in their color-aware form; a packet whose class
//! has no color is green before, which makes them color-blind. The switch that a NIC is cabled to meters each data packet as it
//! joins a queue; from there on it carries its color.
//!
//! Tokens are kept exactly: a byte is 8·10^12 units, of which a rate adds one for each bit per second and picosecond.

use windtunnel_kernel::{BitRate, Bytes};

use super::packets::NONE;
use super::queue_settings::{Color, Meter};

/// Units of a byte.
const BYTE: u128 = 8_000_000_000_000;

/// Tokens of a meter at one port: those of the committed rate, and those of the excess burst or the peak rate.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    at: u64,
    tokens: [u128; 2],
}

/// The meters of all queues at all NIC ports; empty where no queue has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Meters {
    /// By queue.
    rules: Vec<Option<Meter>>,
    /// By NIC port, then queue.
    buckets: Vec<Buckets>,
}

impl Meters {
    pub(super) fn new(rules: Vec<Option<Meter>>, nic_ports: usize) -> Self {
        if rules.iter().all(Option::is_none) {
            return Self::default();
        }
        let full = |rule: &Option<Meter>| Buckets { at: 0, tokens: rule.map_or([0; 2], depths) };
        let buckets = (0..nic_ports).flat_map(|_| rules.iter().map(full)).collect();
        Self { rules, buckets }
    }

    /// The color of a packet of `wire` bytes that came by `upstream` at `now` and joins `queue`, where that is metered.
    #[inline]
    pub(super) fn color(&mut self, upstream: u32, queue: usize, wire: u16, now: u64, before: Color) -> Color {
        if self.rules.is_empty() || upstream == NONE {
            return before;
        }
        let place = upstream as usize * self.rules.len() + queue;
        match (self.rules[queue], self.buckets.get_mut(place)) {
            (Some(meter), Some(buckets)) => buckets.color(&meter, wire, now, before),
            _ => before,
        }
    }
}

/// What both buckets hold when they are full.
fn depths(meter: Meter) -> [u128; 2] {
    let of = |bytes: Bytes| u128::from(bytes.get()) * BYTE;
    match meter {
        Meter::SingleRate { cbs, ebs, .. } => [of(cbs), of(ebs)],
        Meter::TwoRate { cbs, pbs, .. } => [of(cbs), of(pbs)],
    }
}

impl Buckets {
    fn color(&mut self, meter: &Meter, wire: u16, now: u64, before: Color) -> Color {
        let passed = u128::from(now - std::mem::replace(&mut self.at, now));
        let come = |rate: BitRate| u128::from(rate.bps()) * passed;
        let [most, other] = depths(*meter);
        let [committed, second] = &mut self.tokens;
        let wire = u128::from(wire) * BYTE;
        match *meter {
            Meter::SingleRate { cir, .. } => {
                *committed += come(cir);
                // What the first bucket does not take goes to the second.
                *second = other.min(*second + committed.saturating_sub(most));
                *committed = most.min(*committed);
                if before == Color::Green && *committed >= wire {
                    *committed -= wire;
                    Color::Green
                } else if before <= Color::Yellow && *second >= wire {
                    *second -= wire;
                    Color::Yellow
                } else {
                    Color::Red
                }
            }
            Meter::TwoRate { cir, pir, .. } => {
                *committed = most.min(*committed + come(cir));
                *second = other.min(*second + come(pir));
                if before == Color::Red || *second < wire {
                    return Color::Red;
                }
                *second -= wire;
                if before == Color::Yellow || *committed < wire {
                    return Color::Yellow;
                }
                *committed -= wire;
                Color::Green
            }
        }
    }
}
