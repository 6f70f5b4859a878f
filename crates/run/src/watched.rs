//! Queue pairs over time and captured packets, as rows.

use std::collections::BTreeMap;

use windtunnel_fabric::Network;
use windtunnel_fabric::packet::{CapturedPacket, Fate, PairSample};
use windtunnel_kernel::Span;
use windtunnel_plan::Plan;
use windtunnel_topology::{LinkId, Topology};

use super::clock::Origin;
use crate::table::{Batch, Column};

/// Rows from which on they are written before the run ends.
const MANY: usize = 1 << 16;

/// What was seen and is not yet written.
#[derive(Default)]
pub(crate) struct Watched {
    pairs: Vec<PairSample>,
    packets: Vec<CapturedPacket>,
}

impl Watched {
    /// Takes off the network what the plan asks for.
    pub(crate) fn take(&mut self, plan: &Plan, network: &mut dyn Network) {
        if plan.results.queue_pairs {
            network.take_pair_samples(&mut self.pairs);
        }
        if plan.results.packets {
            network.take_captured(&mut self.packets);
        }
    }

    /// Tables of which rows are to be written now: there are many, or these are the last.
    pub(crate) fn due(
        &mut self,
        topology: &Topology,
        origin: Origin,
        last: bool,
    ) -> Vec<(&'static str, Batch)> {
        let mut due = Vec::new();
        if self.pairs.len() >= MANY || last && !self.pairs.is_empty() {
            due.push(("queue_pairs", queue_pairs(&self.pairs, topology, origin)));
            self.pairs.clear();
        }
        if self.packets.len() >= MANY || last && !self.packets.is_empty() {
            due.push(("packets", packets(&self.packets, topology, origin)));
            self.packets.clear();
        }
        due
    }
}

fn nic_name(nic: u32, topology: &Topology) -> String {
    let each = topology.nics_per_host();
    format!("host{}/nic{}", nic / each, nic % each)
}

/// A name for each row, of few that are distinct.
fn coded<T: Copy + Ord>(rows: &[T], name: impl Fn(T) -> String) -> Column {
    let mut all = rows.to_vec();
    all.sort_unstable();
    all.dedup();
    let codes = rows.iter().map(|row| all.partition_point(|one| one < row) as u32).collect();
    Column::Coded { names: all.iter().map(|&one| name(one)).collect(), codes }
}

fn queue_pairs(rows: &[PairSample], topology: &Topology, origin: Origin) -> Batch {
    let u64s = |of: &dyn Fn(&PairSample) -> u64| Column::U64(rows.iter().map(of).collect());
    let sparse = |of: &dyn Fn(&PairSample) -> Option<u64>| Column::sparse(rows.iter().map(of));
    let nic = |side: usize| {
        let nics: Vec<u32> = rows.iter().map(|row| row.nics[side]).collect();
        coded(&nics, |nic| nic_name(nic, topology))
    };
    Batch::default()
        .with("time_ps", u64s(&|row| origin.ps + row.at.ps()))
        .with("queue_pair", Column::U32(rows.iter().map(|row| row.pair).collect()))
        .with("source", nic(0))
        .with("destination", nic(1))
        .with("window_bytes", sparse(&|row| row.window))
        .with("rate_bps", sparse(&|row| row.rate))
        .with("in_flight_bytes", u64s(&|row| row.in_flight))
        .with("rtt_ps", sparse(&|row| row.rtt.map(Span::ps)))
        .with("smoothed_rtt_ps", sparse(&|row| row.smoothed.map(Span::ps)))
        .with("one_way_ps", sparse(&|row| row.delay.map(Span::ps)))
        .with("queue_bytes", sparse(&|row| row.queue))
        .with("sent_bytes", u64s(&|row| row.sent))
        .with("delivered_bytes", u64s(&|row| row.delivered))
        .with("origin_s", Column::U64(vec![origin.seconds(); rows.len()]))
}

fn packets(rows: &[CapturedPacket], topology: &Topology, origin: Origin) -> Batch {
    let links: Vec<LinkId> = rows.iter().map(|row| row.link).collect();
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    for nic in rows.iter().filter_map(|row| row.nics).flatten() {
        names.entry(nic).or_insert_with(|| nic_name(nic, topology));
    }
    let nic =
        |side: usize| Column::known(rows.iter().map(|row| row.nics.map(|nics| names[&nics[side]].as_str())));
    let kinds: Vec<&'static str> = rows.iter().map(|row| row.kind).collect();
    let u32s = |of: &dyn Fn(&CapturedPacket) -> u32| Column::U32(rows.iter().map(of).collect());
    Batch::default()
        .with("time_ps", Column::U64(rows.iter().map(|row| origin.ps + row.at.ps()).collect()))
        .with("link", u32s(&|row| row.link.0))
        .with("name", coded(&links, |link| topology.link_name(link)))
        .with("fate", Column::coded(Fate::ALL.map(Fate::name), rows.iter().map(|row| row.fate as u32)))
        .with("kind", coded(&kinds, str::to_owned))
        .with("queue_pair", Column::sparse(rows.iter().map(|row| row.pair.map(u64::from))))
        .with("source", nic(0))
        .with("destination", nic(1))
        .with("sequence", u32s(&|row| row.sequence))
        .with("bytes", u32s(&|row| u32::from(row.bytes)))
        .with("path", u32s(&|row| u32::from(row.path)))
        .with("marked", u32s(&|row| u32::from(row.marked)))
        .with("queue", u32s(&|row| u32::from(row.queue)))
        .with("origin_s", Column::U64(vec![origin.seconds(); rows.len()]))
}
