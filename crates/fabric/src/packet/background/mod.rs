//! Traffic that nobody waits for: flows of drawn sizes that begin at drawn times at a set load.
//!
//! Every NIC begins flows as a Poisson process, each on a queue pair of its own with the transport of the jobs. The load is the
//! share of each NIC's rate that the flows' packets take on the wire, headers included, sent again or not counted once:
//! flows begin at load × rate / mean bytes of a flow. Draws belong to the NIC: whatever else happens, it begins the
//! same flows at the same times.
//!
//! A run does not go on for background traffic alone: see [`PacketNetwork`](super::PacketNetwork).

mod sizes;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windtunnel_kernel::{Bytes, RandomStream, Span, Time};
use windtunnel_topology::Topology;

pub use self::sizes::{Sizes, SizesError};
use super::error::PacketError;
use super::settings::PacketSettings;
use crate::account::CompletionTimes;

windtunnel_kernel::named! {
    /// To whom a NIC sends background traffic.
    #[derive(Default, Hash)]
    pub enum Partners: "pairs of background traffic" {
        #[default]
        Uniform = "uniform", "the NIC of its number in any other host";
        /// One that has none sends nothing.
        Rack = "rack", "a NIC of another host on the same leaf switch";
    }
}

/// Traffic of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Background {
    /// Sizes of flows.
    pub sizes: Sizes,
    /// Share of each NIC's rate, above 0 and below 1.
    pub load: f64,
    /// To whom.
    pub partners: Partners,
    /// First and last instant at which flows begin.
    pub between: (Time, Time),
}

impl Background {
    /// The same, for a network whose time zero is at `start`.
    #[must_use]
    pub fn since(mut self, start: Time) -> Self {
        let (first, last) = self.between;
        let shift = |at: Time| Time::from_ps(at.ps().saturating_sub(start.ps()));
        // What would have ended before never begins.
        self.between = match last {
            Time::NEVER => (shift(first), last),
            last if last < start => (Time::from_ps(1), Time::ZERO),
            last => (shift(first), shift(last)),
        };
        self
    }

    /// # Errors
    /// [`PacketError`] for a load that is none.
    pub fn check(&self) -> Result<(), PacketError> {
        if self.load > 0.0 && self.load < 1.0 {
            return Ok(());
        }
        let expected = "a number above 0, below 1";
        Err(PacketError::Share { name: "background.load", found: self.load, expected })
    }
}

/// A flow that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub at: Time,
    pub from: u32,
    pub to: u32,
    pub bytes: Bytes,
    /// Which flow of its NIC and kind.
    pub number: u32,
    pub kind: u32,
}

/// What background traffic came to.
#[derive(Clone, Debug, Default)]
pub struct BackgroundUse {
    /// Flows begun, and their packets' bytes on the wire, once each.
    pub begun: u64,
    /// See above.
    pub wire: u64,
    /// Payload that arrived.
    pub bytes: u64,
    /// Completion times.
    pub completion: CompletionTimes,
    /// Rates of the NICs that send, summed.
    pub rate: u64,
    /// Up to when flows were begun.
    pub until: Time,
}

/// Begins flows in the order of time.
#[derive(Debug)]
pub(super) struct Generator {
    kinds: Vec<Kind>,
    /// When the next flow begins: time, kind, place of the NIC.
    next: BinaryHeap<Reverse<(u64, u32, u32)>>,
    pub account: BackgroundUse,
    payload: u64,
    header: u64,
}

#[derive(Debug)]
struct Kind {
    background: Background,
    sources: Vec<Source>,
}

/// A NIC that begins flows.
#[derive(Debug)]
struct Source {
    nic: u32,
    stream: RandomStream,
    /// Mean time between two of its flows, in picoseconds.
    every: f64,
    begun: u32,
}

impl Generator {
    /// Nothing begun; `None` without traffic.
    pub(super) fn new(topology: &Topology, settings: &PacketSettings) -> Option<Self> {
        if settings.background.is_empty() {
            return None;
        }
        let (payload, header) = (settings.payload(), settings.header.get());
        let mut generator = Self {
            kinds: Vec::new(),
            next: BinaryHeap::new(),
            account: BackgroundUse::default(),
            payload,
            header,
        };
        for (kind, background) in (0..).zip(&settings.background) {
            let mut sources = Vec::new();
            for nic in (0..topology.nics()).filter(|&nic| partners(topology, background.partners, nic) > 0) {
                let planes = 0..topology.planes();
                let rate: u64 =
                    planes.map(|plane| topology.link(topology.nic_link(nic, plane)).rate.bps()).sum();
                let wire = background.sizes.mean_wire(payload, header);
                let every = wire * 8e12 / (rate as f64 * background.load);
                let entity = u64::from(kind) << 32 | u64::from(nic);
                let stream = RandomStream::new(settings.seed, "background", entity);
                sources.push(Source { nic, stream, every, begun: 0 });
                generator.account.rate += if kind == 0 { rate } else { 0 };
            }
            for (place, source) in (0..).zip(&mut sources) {
                if let Some(at) = source.next(background.between.0, background.between.1) {
                    generator.next.push(Reverse((at, kind, place)));
                }
            }
            generator.kinds.push(Kind { background: background.clone(), sources });
        }
        Some(generator)
    }

    /// The next flow that begins before `horizon`.
    pub(super) fn begin(&mut self, topology: &Topology, horizon: Time) -> Option<Begin> {
        self.account.until = horizon;
        let &Reverse((at, kind, place)) = self.next.peek()?;
        if at >= horizon.ps() {
            return None;
        }
        self.next.pop();
        let Kind { background, sources } = &mut self.kinds[kind as usize];
        let source = &mut sources[place as usize];
        let count = partners(topology, background.partners, source.nic);
        let to = partner(topology, background.partners, source.nic, source.stream.below(count.into()) as u32);
        let bytes = background.sizes.at(source.stream.uniform());
        let number = source.begun;
        source.begun += 1;
        if let Some(at) = source.next(Time::from_ps(at), background.between.1) {
            self.next.push(Reverse((at, kind, place)));
        }
        self.account.begun += 1;
        self.account.wire += bytes + self.header * bytes.div_ceil(self.payload);
        Some(Begin { at: Time::from_ps(at), from: source.nic, to, bytes: Bytes::new(bytes), number, kind })
    }

    /// A flow has arrived.
    pub(super) fn arrived(&mut self, bytes: Bytes, time: Span) {
        self.account.bytes += bytes.get();
        self.account.completion.add(time);
    }
}

impl Source {
    /// When its next flow after `from` begins, if that is not after `last`.
    fn next(&mut self, from: Time, last: Time) -> Option<u64> {
        let wait = (self.stream.exponential() * self.every).round() as u64;
        let at = from.ps().saturating_add(wait);
        (at <= last.ps()).then_some(at)
    }
}

/// How many NICs a NIC may send to.
fn partners(topology: &Topology, partners: Partners, nic: u32) -> u32 {
    match partners {
        Partners::Uniform => topology.hosts() - 1,
        Partners::Rack => on_leaf(topology, nic).count() as u32,
    }
}

/// The one of number `place` of them.
fn partner(topology: &Topology, partners: Partners, nic: u32, place: u32) -> u32 {
    match partners {
        Partners::Uniform => {
            let each = topology.nics_per_host();
            let host = nic / each;
            (place + u32::from(place >= host)) * each + nic % each
        }
        Partners::Rack => on_leaf(topology, nic).nth(place as usize).expect("a place among those counted"),
    }
}

/// NICs of other hosts on the leaf of a NIC's first plane, in the order of the leaf's ports.
fn on_leaf(topology: &Topology, nic: u32) -> impl Iterator<Item = u32> + '_ {
    let (leaf, _) = topology.attachment(nic, 0);
    let each = topology.nics_per_host();
    let on_port = move |port| match topology.peer(leaf, port)? {
        windtunnel_topology::Peer::Nic { nic, .. } => Some(nic),
        windtunnel_topology::Peer::Switch { .. } => None,
    };
    (0..topology.ports(leaf)).filter_map(on_port).filter(move |&other| other / each != nic / each)
}
