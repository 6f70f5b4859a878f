//! What is kept of a run's simulations: counters, iterations, and what their networks saw.

use windtunnel_fabric::{Delivered, Observations, Work};
use windtunnel_kernel::{CalendarTime, Span};
use windtunnel_plan::Plan;

use super::RunOptions;
use super::recorder::Iteration;
use super::summary::{FlowSummary, NetworkSummary};
use super::usage;
use crate::table::Batch;

/// What episodes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Simulations.
    pub simulated: u64,
    /// Solves of the max-min system.
    pub solves: u64,
    /// Flows: messages, coupled groups, and the flows of exchanges.
    pub flows: u64,
}

/// What is kept of a run's episodes.
pub(crate) struct Record {
    /// Iterations by job.
    pub iterations: Vec<Vec<Iteration>>,
    /// First start of each job.
    pub started: Vec<Option<CalendarTime>>,
    /// Events handled.
    pub events: u64,
    /// Data packets and control packets sent over a link.
    pub packet_hops: Option<(u64, u64)>,
    /// Most replicas that one simulated replica stood for.
    pub fold: u64,
    /// How far the simulation came.
    pub simulated_ns: u64,
    /// Counters.
    pub network: NetworkSummary,
    /// Completion times of the last episode.
    pub flows: FlowSummary,
    /// What it cost.
    pub counts: Counts,
}

impl Record {
    /// Of `jobs`, empty.
    pub(crate) fn new(jobs: usize) -> Self {
        Self {
            iterations: vec![Vec::new(); jobs],
            started: vec![None; jobs],
            events: 0,
            packet_hops: None,
            fold: 1,
            simulated_ns: 0,
            network: NetworkSummary::default(),
            flows: FlowSummary::default(),
            counts: Counts::default(),
        }
    }

    /// Adds what a simulation at flow fidelity, recorded apart, came to.
    pub(crate) fn add(&mut self, other: Self) {
        let sum = |kept: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *kept = Some(kept.unwrap_or(0) + more);
            }
        };
        self.events += other.events;
        self.fold = self.fold.max(other.fold);
        self.simulated_ns = self.simulated_ns.max(other.simulated_ns);
        self.counts.simulated += other.counts.simulated;
        self.counts.solves += other.counts.solves;
        self.counts.flows += other.counts.flows;
        self.flows = other.flows;
        let (network, more) = (&mut self.network, other.network);
        sum(&mut network.simulated_messages, more.simulated_messages);
        sum(&mut network.simulated_bytes, more.simulated_bytes);
        if let Some(exchanges) = &more.exchanges {
            network.add_exchanges(exchanges);
        }
        network.links_most_loaded = more.links_most_loaded;
        if more.detoured_pairs > network.detoured_pairs {
            (network.detoured_pairs, network.detoured) = (more.detoured_pairs, more.detoured);
        }
    }
}

impl Record {
    /// Adds what the network of an episode of `span` carried; rows of its links. Of flows they are told only if `loads`.
    pub(crate) fn add_traffic(
        &mut self,
        seen: &Observations,
        plan: &Plan,
        episode: u32,
        span: Span,
        loads: bool,
    ) -> Batch {
        let topology = &plan.fabric.topology;
        if let Some(packets) = &seen.packets {
            self.network.add_packets(&packets.totals, packets.queueing);
            self.network.add_reordering(&packets.reordering);
            self.network.add_pauses(&packets.ports, topology);
            self.network.uncaptured += packets.uncaptured;
            if let Some(tally) = &packets.tally {
                self.network.add_tally(tally, &packets.deliveries);
            }
            if let Some(background) = &packets.background {
                self.network.add_background(background);
            }
            if plan.network.spreads() {
                self.network.path_unevenness = usage::unevenness(&packets.ports, topology);
            }
            let (links, most) = usage::ports(&packets.ports, topology, episode, span);
            self.network.links_most_loaded = most;
            return links;
        }
        let Some(carried) = seen.links.as_ref().filter(|_| loads) else { return Batch::default() };
        let (links, most) = usage::links(carried, topology, episode, span);
        self.network.links_most_loaded = most;
        links
    }

    /// Adds what is known once nothing of the episode is left to simulate: what it took, and what arrived.
    pub(crate) fn add_end(&mut self, seen: &Observations, options: &RunOptions) {
        let Work { events, packet_hops, solves, flows, digest } = &seen.work;
        if let (Some(digests), Some(digest)) = (&options.digests, digest) {
            digests.lock().expect("no holder panics").found.push(digest.clone());
        }
        if let Some((data, control)) = packet_hops {
            let before = self.packet_hops.unwrap_or_default();
            self.packet_hops = Some((before.0 + data, before.1 + control));
        }
        self.events += events;
        self.counts.solves += solves;
        self.counts.flows += flows;
        if let Some(delivered) = &seen.delivered {
            self.add_delivered(delivered);
        }
    }

    /// Adds the messages of a network, and keeps their completion times.
    fn add_delivered(&mut self, Delivered { times, messages, bytes }: &Delivered) {
        let seconds = |span: Option<Span>| span.map(Span::seconds);
        self.flows = FlowSummary {
            count: times.count(),
            fct_mean_s: times.mean_seconds(),
            fct_p50_s: seconds(times.percentile(50)),
            fct_p99_s: seconds(times.percentile(99)),
            fct_max_s: seconds(times.max()),
        };
        let network = &mut self.network;
        network.simulated_messages = Some(network.simulated_messages.unwrap_or(0) + messages);
        network.simulated_bytes = Some(network.simulated_bytes.unwrap_or(0) + bytes);
    }
}
