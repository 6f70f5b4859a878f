//! Queue pairs over time: what each process saw of them, joined to rows.
//!
//! A process tells of a queue pair at an instant only what has changed since the last. A row has the newest of everything, so rows do not
//! depend on who lives where: sums over processes are of whole numbers.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Span, Time};

use super::ears::{Part, Received, Sent};

/// A queue pair at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairSample {
    /// When.
    pub at: Time,
    /// Its number, by the order of opening among those that are noted.
    pub pair: u32,
    /// Sending and receiving NIC.
    pub nics: [u32; 2],
    /// Bytes that may be in flight; `None` under a transport without a window.
    pub window: Option<u64>,
    /// Its pace in bit/s; `None` while it has none, be it that its transport never has.
    pub rate: Option<u64>,
    /// Bytes on the wire sent and not known to have arrived. Under a dispatcher, or where nothing is acknowledged: not arrived nor lost.
    pub in_flight: u64,
    /// From the transmission of a data packet to its acknowledgement: the last, and smoothed with gain 1/8. `None` before the first, and
    /// where nothing is acknowledged packet by packet.
    pub rtt: Option<Span>,
    /// See `rtt`.
    pub smoothed: Option<Span>,
    /// From the first bit of a data packet at its sender's port to its last bit at the receiver, of the last that arrived.
    pub delay: Option<Span>,
    /// Bytes held by the switches' ports of its path together; `None` where packets take several paths.
    pub queue: Option<u64>,
    /// Bytes on the wire that it has sent, copies included.
    pub sent: u64,
    /// Payload that has arrived, copies not counted.
    pub delivered: u64,
}

/// What is known of a queue pair.
#[derive(Clone, Debug, Default)]
struct Known {
    sender: Sent,
    receiver: Received,
    lost: FxHashMap<u32, u64>,
    queue: BTreeMap<u32, Option<u64>>,
}

/// Joins the parts. See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct PairSeries {
    known: BTreeMap<u32, Known>,
}

impl PairSeries {
    /// Appends the rows of `parts`, which are of later instants than any before.
    pub(super) fn join(&mut self, mut parts: Vec<Part>, samples: &mut Vec<PairSample>) {
        parts.sort_by_key(|part| (part.at, part.pair, part.process));
        for one in parts.chunk_by(|a, b| (a.at, a.pair) == (b.at, b.pair)) {
            let Part { at, pair, nics, .. } = one[0];
            let known = self.known.entry(pair).or_default();
            for part in one {
                known.sender = part.sender.unwrap_or(known.sender);
                known.receiver = part.receiver.unwrap_or(known.receiver);
                known.lost.insert(part.process, part.lost);
                known.queue.insert(part.process, part.queue);
            }
            if one.iter().all(|part| part.sender.is_none() && part.receiver.is_none()) {
                continue;
            }
            let Known { sender, receiver, lost, queue } = known;
            let gone = receiver.arrived + lost.values().sum::<u64>();
            samples.push(PairSample {
                at: Time::from_ps(at),
                pair,
                nics,
                window: sender.window,
                rate: sender.rate,
                in_flight: sender.in_flight.unwrap_or_else(|| sender.bytes.saturating_sub(gone)),
                rtt: sender.rtt.map(Span::from_ps),
                smoothed: sender.smoothed.map(Span::from_ps),
                delay: receiver.delay.map(Span::from_ps),
                queue: queue.values().copied().sum(),
                sent: sender.bytes,
                delivered: receiver.delivered,
            });
        }
    }
}
