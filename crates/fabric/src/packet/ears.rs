//! Who listens to what happens: a digest of events, queue pairs that are watched, and packets that are captured.
//!
//! An engine has ears only where somebody asked for one of the three, and it asks for its ears where it would ask for a digest: a run
//! without them does nothing more than before. What they are told stands in [`hear`](super::hear).
//!
//! **Life cycle.** Every process hears of each queue pair that is opened and gives those that matter numbers, the same in all. What a
//! process sees of a pair (its sending half, its receiving half, ports of its path, losses) is kept until the instant of a sample, and
//! leaves as a [`Part`] if it has changed. [`PairSeries`](super::pair_series::PairSeries) joins the parts of all processes.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::Time;
use windtunnel_kernel::digest::EventDigest;
use windtunnel_topology::LinkId;

use super::fabric::Fabric;
use super::packets::{Kind, Packet, flag};
use super::settings::PacketSettings;

/// What became of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It reached the far end of the link.
    Passed,
    /// It was dropped at the port of the link, or lost on its cable.
    Dropped,
    /// Its payload was cut at the port of the link: the sizes are those before.
    Trimmed,
}

impl Fate {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Passed, Self::Dropped, Self::Trimmed];

    /// As tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Dropped => "dropped",
            Self::Trimmed => "trimmed",
        }
    }
}

/// A packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// When it was handed on at the far end (with cut-through: its header), or dropped or trimmed.
    pub at: Time,
    /// Where.
    pub link: LinkId,
    /// What became of it there.
    pub fate: Fate,
    /// What it is.
    pub kind: &'static str,
    /// Number of its queue pair by the order of opening; `None` of a reduction in the network.
    pub pair: Option<u32>,
    /// NICs that it comes from and goes to.
    pub nics: Option<[u32; 2]>,
    /// Of data its place in the queue pair; of an acknowledgement the next packet expected.
    pub sequence: u32,
    /// Bytes on the wire.
    pub bytes: u16,
    /// Path number.
    pub path: u16,
    /// Congestion experienced.
    pub marked: bool,
    /// Data queue.
    pub queue: u8,
}

/// A record before its link and queue pair are looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub at: u64,
    pub port: u32,
    pub fate: Fate,
    pub pair: Option<u32>,
    pub nics: Option<[u32; 2]>,
    pub packet: Facts,
}

/// What is kept of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub kind: Kind,
    pub sequence: u32,
    pub wire: u16,
    pub path: u16,
    pub flags: u8,
    pub queue: u8,
}

impl Facts {
    pub(super) fn of(packet: &Packet) -> Self {
        let Packet { kind, sequence, wire, path, flags, queue, .. } = *packet;
        Self { kind, sequence, wire, path, flags, queue }
    }
}

impl Record {
    /// With its `link`.
    pub(super) fn on(self, link: LinkId) -> CapturedPacket {
        let Facts { kind, sequence, wire, path, flags, queue } = self.packet;
        CapturedPacket {
            at: Time::from_ps(self.at),
            link,
            fate: self.fate,
            kind: kind.name(),
            pair: self.pair,
            nics: self.nics,
            sequence,
            bytes: wire,
            path,
            marked: flags & flag::MARKED != 0,
            // Of a dispatcher's packet the line; its notes carry their kind above.
            queue: queue & 7,
        }
    }

    /// Records of one instant in an order that knows nothing of processes.
    pub(super) fn order(&self) -> impl Ord + use<> {
        (self.at, self.port, self.fate, self.pair, self.packet.sequence, self.packet.kind as u8)
    }
}

/// What is known of a queue pair that is watched or captured.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted {
    /// NIC ports, sender and receiver.
    pub ports: [u32; 2],
    pub nics: [u32; 2],
    pub homes: [u32; 2],
    pub sender: u32,
    pub receiver: u32,
    /// Whether its packets are captured wherever they are.
    pub captured: bool,
    /// Whether it is looked at.
    pub watched: bool,
    /// Its places may be others' by now.
    pub closed: bool,
    /// Ports of its path at switches that this process owns; `None` where packets take several paths.
    pub path: Option<Vec<u32>>,
    pub seen: Seen,
    pub told: Seen,
}

/// What a process has seen of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub sender: Sent,
    pub receiver: Received,
    /// Wire bytes of data that were lost here.
    pub lost: u64,
    /// Bytes held by ports of its path here.
    pub queue: Option<u64>,
}

/// A sending half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub window: Option<u64>,
    pub rate: Option<u64>,
    /// What it takes to be in flight, where it is told of arrivals.
    pub in_flight: Option<u64>,
    /// Bytes on the wire that it has sent.
    pub bytes: u64,
    /// Of the last acknowledgement, and smoothed.
    pub rtt: Option<u64>,
    pub smoothed: Option<u64>,
    pub active: bool,
}

/// A receiving half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Wire bytes that have arrived, copies included.
    pub arrived: u64,
    /// Payload that had not arrived before.
    pub delivered: u64,
    /// From the first bit of the last data packet at its sender's port to its last bit here.
    pub delay: Option<u64>,
}

/// What a process tells of a queue pair at an instant; `None` what it has nothing new of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub at: u64,
    pub pair: u32,
    pub process: u32,
    pub nics: [u32; 2],
    pub sender: Option<Sent>,
    pub receiver: Option<Received>,
    pub lost: u64,
    pub queue: Option<u64>,
}

/// Queue pairs that are watched or captured.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    watched: Vec<[u32; 2]>,
    captured: Vec<[u32; 2]>,
    /// Every queue pair may be on a link that is captured.
    all: bool,
    opened: u32,
    pub noted: BTreeMap<u32, Noted>,
    /// By process and place of the half that a packet goes to, and whether that is the sending one.
    halves: FxHashMap<(u32, u32, bool), u32>,
    /// Not yet taken.
    pub parts: Vec<Part>,
}

impl Pairs {
    /// Notes a queue pair between these NICs if anybody wants to know of it; its number then.
    pub(super) fn note(&mut self, mut pair: Noted) {
        pair.captured = self.captured.contains(&pair.nics);
        pair.watched = self.watched.contains(&pair.nics);
        if !(pair.captured || pair.watched || self.all) {
            return;
        }
        let number = self.opened;
        self.opened += 1;
        self.halves.insert((pair.homes[0], pair.sender, true), number);
        self.halves.insert((pair.homes[1], pair.receiver, false), number);
        self.noted.insert(number, pair);
    }

    /// The pair whose sending half has this place in this process has closed. One that is watched is told of once more.
    pub(super) fn close(&mut self, [home, sender]: [u32; 2]) {
        let Some(number) = self.halves.remove(&(home, sender, true)) else { return };
        let Some(pair) = self.noted.get_mut(&number) else { return };
        self.halves.remove(&(pair.homes[1], pair.receiver, false));
        pair.closed = true;
        if !pair.watched {
            self.noted.remove(&number);
        }
    }

    /// The number of the queue pair of a packet that goes to this half.
    pub(super) fn of(&self, half: (u32, u32, bool)) -> Option<u32> {
        self.halves.get(&half).copied()
    }
}

/// Packets that are captured.
#[derive(Clone, Debug)]
pub(super) struct Capture {
    /// By port; empty where no link is captured.
    pub links: Vec<bool>,
    pub limit: u64,
    /// Records kept so far, and packets of which none was.
    pub kept: u64,
    pub left_out: u64,
    pub records: Vec<Record>,
}

impl Capture {
    pub(super) fn take(&mut self, record: Record) {
        if self.kept == self.limit {
            self.left_out += 1;
        } else {
            self.kept += 1;
            self.records.push(record);
        }
    }
}

/// See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct Ears {
    pub digest: Option<EventDigest>,
    pub pairs: Option<Pairs>,
    pub capture: Option<Capture>,
}

impl Ears {
    /// As the settings ask; none if they do not.
    pub(super) fn new(settings: &PacketSettings, fabric: &Fabric) -> Option<Box<Self>> {
        let (watch, capture) = (settings.watch.as_ref(), settings.capture.as_ref());
        if watch.is_none() && capture.is_none() {
            return None;
        }
        let links = capture.map_or(&[][..], |capture| &capture.links);
        let pairs = Pairs {
            watched: watch.map_or_else(Vec::new, |watch| watch.pairs.clone()),
            captured: capture.map_or_else(Vec::new, |capture| capture.pairs.clone()),
            all: !links.is_empty(),
            opened: 0,
            noted: BTreeMap::new(),
            halves: FxHashMap::default(),
            parts: Vec::new(),
        };
        let capture = capture.map(|capture| {
            let mut on = vec![false; if links.is_empty() { 0 } else { fabric.ports.len() }];
            for port in links.iter().filter_map(|&link| fabric.port_of(link)) {
                on[port as usize] = true;
            }
            Capture { links: on, limit: capture.limit, kept: 0, left_out: 0, records: Vec::new() }
        });
        Some(Box::new(Self { digest: None, pairs: Some(pairs), capture }))
    }
}
