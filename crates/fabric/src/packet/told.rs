//! What all processes of a network together have to tell: sums of what each [engine](super::engine) counts.

use windtunnel_kernel::Span;
use windtunnel_kernel::digest::EventDigest;
use windtunnel_topology::LinkId;

use super::counters::Counters;
use super::desks::Delivery;
use super::engines::{Engines, Parts};
use super::reorder::Reordering;
use super::statistics::{PauseCounters, PortCounters, PortReport};
use super::transport::{Tally, Transport};

impl<T: Transport> Engines<T> {
    /// See [`Engine::is_hopeless`](super::Engine::is_hopeless).
    pub fn is_hopeless(&self) -> bool {
        let mut hopeless = false;
        self.look(|engine| hopeless |= engine.is_hopeless());
        hopeless
    }

    /// See [`Engine::has_lost_for_good`](super::Engine::has_lost_for_good).
    pub fn has_lost_for_good(&self) -> bool {
        let mut lost = false;
        self.look(|engine| lost |= engine.has_lost_for_good());
        lost
    }

    /// See [`Engine::silent_pair`](super::Engine::silent_pair); of several the one with the lowest NICs.
    pub fn silent_pair(&self) -> Option<[u32; 2]> {
        let mut first: Option<[u32; 2]> = None;
        self.look(|engine| {
            if let Some(pair) = engine.silent_pair() {
                first = Some(first.map_or(pair, |known| known.min(pair)));
            }
        });
        first
    }

    /// See [`Engine::reordering`](super::Engine::reordering).
    pub fn reordering(&self) -> Reordering {
        let mut sum = Reordering::default();
        self.look(|engine| sum.merge(&engine.reordering()));
        sum
    }

    /// See [`Engine::paused`](super::Engine::paused).
    pub fn paused(&self) -> Span {
        let mut sum = Span::ZERO;
        if let Parts::Many(many) = &self.parts {
            many.agree();
        }
        self.look(|engine| sum += engine.paused());
        sum
    }

    /// See [`Engine::pause_cycle`](super::Engine::pause_cycle).
    pub fn pause_cycle(&self) -> Vec<LinkId> {
        let mut cycle = Vec::new();
        self.look(|engine| cycle.append(&mut engine.pause_cycle()));
        cycle
    }

    /// Totals so far.
    pub fn totals(&self) -> Counters {
        let mut totals = Counters::default();
        self.look(|engine| totals.add(&engine.totals()));
        totals
    }

    /// What dispatchers counted; `None` where there are none.
    pub fn tally(&self) -> Option<Tally> {
        let mut sum: Option<Tally> = None;
        self.look(|engine| {
            if let Some(tally) = engine.tally() {
                sum.get_or_insert_default().merge(&tally);
            }
        });
        sum
    }

    /// What arrived, by intervals of 10 µs; empty where there is no dispatcher.
    pub fn deliveries(&self) -> Vec<Delivery> {
        let mut sum: Vec<Delivery> = Vec::new();
        self.look(|engine| {
            let deliveries = engine.deliveries().unwrap_or_default();
            sum.resize(sum.len().max(deliveries.len()), Delivery::default());
            for (sum, more) in sum.iter_mut().zip(deliveries) {
                sum.add(more);
            }
        });
        sum
    }

    /// Packets that went from one process to another so far.
    pub fn crossings(&self) -> u64 {
        let mut sum = 0;
        self.look(|engine| sum += engine.crossing.as_ref().map_or(0, |crossing| crossing.left));
        sum
    }

    /// Packets in the network, but for those that have just left a process.
    pub fn packets_live(&self) -> u32 {
        let mut live = 0;
        self.look(|engine| live += engine.packets_live());
        live
    }

    /// Data packets and control packets sent over a link, over all links.
    pub fn packet_hops(&self) -> (u64, u64) {
        let mut hops = (0, 0);
        self.look(|engine| {
            let (data, control) = engine.packet_hops();
            hops = (hops.0 + data, hops.1 + control);
        });
        hops
    }

    /// Sum over data packets of the time between joining a queue and the start of transmission.
    pub fn queueing(&self) -> Span {
        let mut sum = Span::ZERO;
        self.look(|engine| sum += engine.queueing());
        sum
    }

    /// What each port with traffic saw until the last [`Self::catch_up`] or event, by link.
    pub fn port_reports(&self) -> Vec<PortReport> {
        match &self.parts {
            Parts::One(engine) => engine.port_reports(),
            Parts::Many(many) => {
                many.agree();
                let mut sums: Vec<(PortCounters, PauseCounters)> = Vec::new();
                many.each(|engine| {
                    sums.resize(engine.fabric.ports.len(), (PortCounters::NEW, PauseCounters::default()));
                    for (p, (counters, pauses)) in (0..).zip(&mut sums) {
                        counters.add(&engine.counted(p));
                        pauses.add(engine.paused_at(p));
                    }
                });
                many.crew.process(0).reports_of(|port| sums[port as usize])
            }
        }
    }

    /// Messages that have not arrived: the caller's names, in no order that means anything.
    pub fn unfinished(&self) -> Vec<u64> {
        let mut tokens = Vec::new();
        self.look(|engine| tokens.append(&mut engine.unfinished()));
        tokens
    }

    /// Keeps a digest of the events of `focus`'s span from now on.
    pub fn keep_digest(&mut self, focus: &EventDigest) {
        self.each(|engine| engine.account.keep_digest(focus));
    }

    /// The digest kept, of all processes.
    pub fn digest(&self) -> Option<EventDigest> {
        let mut sum: Option<EventDigest> = None;
        self.look(|engine| match (&mut sum, engine.account.digest()) {
            (Some(sum), Some(own)) => sum.merge(own),
            (none @ None, Some(own)) => *none = Some(own.clone()),
            (_, None) => {}
        });
        sum
    }
}
