//! Pauses in numbers: when an ingress is paused and resumed, and which pauses wait for one another.
//!
//! [`pfc`](super::pfc) pauses and resumes.

use std::collections::{BTreeMap, BTreeSet};

use super::buffer::share;
use super::queue_settings::{PfcSettings, Xon};

/// Pauses in numbers.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    pub settings: PfcSettings,
    pub xoff: Limit,
    /// Headroom by upstream port.
    pub headroom: Vec<u32>,
    /// Ports that wait for one another, once there are such.
    pub cycle: Vec<(u32, u8)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Bytes(u64),
    /// α in units of 2^-16.
    Share(u64),
}

impl Guard {
    /// What an ingress may hold in the shared part, with `free` bytes there.
    pub(super) fn xoff(&self, free: u64) -> u64 {
        match self.xoff {
            Limit::Bytes(bytes) => bytes,
            Limit::Share(alpha) => share(free, alpha),
        }
    }

    /// What it may hold when it is resumed.
    pub(super) fn xon(&self, free: u64) -> u64 {
        match self.settings.xon {
            Xon::At(bytes) => bytes.get().min(self.xoff(free)),
            Xon::Below(offset) => self.xoff(free).saturating_sub(offset.get()),
        }
    }
}

/// Bytes of one queue that came by one port and are held at its far end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ingress {
    pub shared: u32,
    pub headroom: u32,
    pub paused: bool,
}

/// A pause or resume to be sent to an upstream port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub upstream: u32,
    pub queue: u8,
    pub pause: bool,
}

/// A port and one of its queues.
pub(super) type Paused = (u32, u8);

/// What is known of pauses. What several processes know may be put together.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    pub guard: Option<Guard>,
    /// Queues that are paused, and bytes that wait there by where they came from; with the switch that they are at.
    pub waits: BTreeMap<Paused, (u32, BTreeMap<Paused, u64>)>,
    /// Ingresses that have paused their sender: switch, size of its shared part, what it holds.
    pub held: BTreeMap<Paused, (u32, u64, Ingress)>,
}

impl Pauses {
    /// Adds what another process knows.
    pub(super) fn add(&mut self, other: Self) {
        self.guard = self.guard.take().or(other.guard);
        self.waits.extend(other.waits);
        self.held.extend(other.held);
    }

    /// Ports (with their queue) each of which is paused until the next one has sent what it holds, and the last until the
    /// first has; empty if every pause can end.
    ///
    /// The largest set of paused ports is sought whose pauses would stay if everything else had been sent: what an ingress
    /// holds in queues of the set keeps it above xon.
    pub(super) fn cycle(&self) -> Vec<Paused> {
        let Some(guard) = &self.guard else { return Vec::new() };
        let mut stuck: BTreeSet<Paused> =
            self.waits.keys().copied().filter(|port| self.held.contains_key(port)).collect();
        loop {
            // What would still be held, by ingress and by switch.
            let mut left: BTreeMap<Paused, u64> = BTreeMap::new();
            let mut used: BTreeMap<u32, u64> = BTreeMap::new();
            for (switch, came) in
                self.waits.iter().filter(|(at, _)| stuck.contains(at)).map(|(_, found)| found)
            {
                for (&by, &bytes) in came {
                    *left.entry(by).or_default() += bytes;
                    *used.entry(*switch).or_default() += bytes;
                }
            }
            let before = stuck.len();
            stuck.retain(|port| {
                let (Some(&left), Some(&(switch, shared, ingress))) = (left.get(port), self.held.get(port))
                else {
                    return false;
                };
                let gone = u64::from(ingress.shared + ingress.headroom).saturating_sub(left);
                let headroom = u64::from(ingress.headroom).saturating_sub(gone);
                let free = shared.saturating_sub(used.get(&switch).copied().unwrap_or(0));
                headroom > 0 || left > guard.xon(free)
            });
            if stuck.len() == before {
                break;
            }
        }
        // Follow from any of them what it waits for until one comes again.
        let Some(&first) = stuck.first() else { return Vec::new() };
        let mut way = vec![first];
        loop {
            let last = way[way.len() - 1];
            let mut found =
                self.waits.iter().filter(|(at, (_, came))| stuck.contains(at) && came.contains_key(&last));
            let Some((&next, _)) = found.next() else { return way };
            if let Some(place) = way.iter().position(|&seen| seen == next) {
                return way.split_off(place);
            }
            way.push(next);
        }
    }
}
