//! What networks observed, as rows and summary figures.

use windtunnel_fabric::packet::{PortReport, QueueSample};
use windtunnel_fabric::{FlowRecord, LinkBytes, LinkUsage};
use windtunnel_kernel::Span;
use windtunnel_topology::{LinkId, LinkTier, PathClass, Topology};
use windtunnel_workload::Dimension;

use super::clock::Origin;
use super::summary::LinkLoad;
use crate::table::{Batch, Column};

/// Links named in the summary.
const MOST_LOADED: usize = 8;

/// Links beyond scale-up domains that carried anything from `from` to `until`, in order, with their mean bytes per second. What was
/// carried before is known by bins, so a bin that `from` cuts is taken to be even.
pub(crate) fn rates(carried: &LinkBytes, topology: &Topology, from: Span, until: Span) -> Vec<(u32, f64)> {
    let inside =
        |link: LinkId| matches!(topology.link(link).tier, LinkTier::ScaleUpOut | LinkTier::ScaleUpIn);
    let seconds = (until - from).seconds();
    let outside = carried.links.iter().filter(|link| !inside(link.link));
    let rate = |link: &LinkUsage| {
        let bytes = if from == Span::ZERO {
            link.bytes
        } else {
            link.bytes - before(link, carried.width, from, until)
        };
        (link.link.0, if seconds > 0.0 { bytes / seconds } else { 0.0 })
    };
    // Rounding leaves dust of a link that carried all of it before.
    let any = |&(_, rate): &(u32, f64)| from == Span::ZERO || rate > 1.0;
    outside.map(rate).filter(any).collect()
}

/// Bytes that a link carried before `from`, of a run until `until`, from bins of `width`.
fn before(link: &LinkUsage, width: Span, from: Span, until: Span) -> f64 {
    let (cut, begin) = ((from.ps() / width.ps()) as usize, from.ps() / width.ps() * width.ps());
    let whole: f64 = link.bins.iter().take(cut).sum();
    let length = width.ps().min(until.ps().saturating_sub(begin)).max(1);
    let part = (from.ps() - begin) as f64 / length as f64;
    whole + link.bins.get(cut).map_or(0.0, |bytes| bytes * part.min(1.0))
}

/// Links that carried anything during an episode of `span`: their rows, and the most loaded ones outside hosts.
pub(crate) fn links(
    carried: &LinkBytes,
    topology: &Topology,
    episode: u32,
    span: Span,
) -> (Batch, Vec<LinkLoad>) {
    let (bin_span, usage) = (carried.width, carried.links.as_slice());
    let seconds = span.seconds();
    let width = usage.iter().map(|link| link.bins.len()).max().unwrap_or(0);
    let capacity = |bits: u64, seconds: f64| bits as f64 / 8.0 * seconds;
    let mut loads = Vec::with_capacity(usage.len());
    let mut bins = Vec::with_capacity(usage.len() * width);
    let mut peaks = Vec::with_capacity(usage.len());
    for link in usage {
        let known = topology.link(link.link);
        let full = capacity(known.rate.bps(), bin_span.seconds());
        let before = bins.len();
        bins.extend(link.bins.iter().map(|bytes| bytes / full));
        bins.resize(before + width, 0.0);
        peaks.push(bins[before..].iter().copied().fold(0.0, f64::max));
        loads.push(LinkLoad {
            name: topology.link_name(link.link),
            tier: known.tier.name().into_owned(),
            utilisation: if seconds > 0.0 { link.bytes / capacity(known.rate.bps(), seconds) } else { 0.0 },
            bytes: link.bytes.round() as u64,
        });
    }
    let n = usage.len();
    let batch = Batch::default()
        .with("episode", Column::U32(vec![episode; n]))
        .with("link", Column::U32(usage.iter().map(|link| link.link.0).collect()))
        .with("name", Column::Text(loads.iter().map(|load| load.name.clone()).collect()))
        .with("tier", Column::Text(loads.iter().map(|load| load.tier.clone()).collect()))
        .with("rate_bps", Column::U64(usage.iter().map(|link| topology.link(link.link).rate.bps()).collect()))
        .with("bytes", Column::U64(loads.iter().map(|load| load.bytes).collect()))
        .with("utilisation", Column::F64(loads.iter().map(|load| load.utilisation).collect()))
        .with("peak_utilisation", Column::F64(peaks))
        .with("bin_span_ps", Column::U64(vec![bin_span.ps(); n]))
        .with("utilisation_bins", Column::F64List { values: bins, width });
    loads.retain(|load| !load.tier.starts_with("scale-up"));
    // Stable: links of equal load stay in link order.
    loads.sort_by(|a, b| b.utilisation.total_cmp(&a.utilisation));
    loads.truncate(MOST_LOADED);
    (batch, loads)
}

/// Ports that sent anything during an episode of `span`: their rows, and the most loaded ones.
pub(crate) fn ports(
    reports: &[PortReport],
    topology: &Topology,
    episode: u32,
    span: Span,
) -> (Batch, Vec<LinkLoad>) {
    let seconds = span.seconds();
    let load = |report: &PortReport| {
        let known = topology.link(report.link);
        let full = known.rate.bps() as f64 / 8.0 * seconds;
        LinkLoad {
            name: topology.link_name(report.link),
            tier: known.tier.name().into_owned(),
            utilisation: if full > 0.0 { report.bytes as f64 / full } else { 0.0 },
            bytes: report.bytes,
        }
    };
    let mut loads: Vec<LinkLoad> = reports.iter().map(load).collect();
    let u64s = |of: &dyn Fn(&PortReport) -> u64| Column::U64(reports.iter().map(of).collect());
    let batch = Batch::default()
        .with("episode", Column::U32(vec![episode; reports.len()]))
        .with("link", Column::U32(reports.iter().map(|report| report.link.0).collect()))
        .with("name", Column::Text(loads.iter().map(|load| load.name.clone()).collect()))
        .with("tier", Column::Text(loads.iter().map(|load| load.tier.clone()).collect()))
        .with("rate_bps", u64s(&|report| topology.link(report.link).rate.bps()))
        .with("bytes", u64s(&|report| report.bytes))
        .with("utilisation", Column::F64(loads.iter().map(|load| load.utilisation).collect()))
        // One bin: what a port carried is counted, not when.
        .with("peak_utilisation", Column::F64(loads.iter().map(|load| load.utilisation).collect()))
        .with("bin_span_ps", Column::U64(vec![span.ps(); reports.len()]))
        .with(
            "utilisation_bins",
            Column::F64List { values: loads.iter().map(|load| load.utilisation).collect(), width: 1 },
        )
        .with("data_packets", u64s(&|report| report.data_packets))
        .with("control_packets", u64s(&|report| report.control_packets))
        .with("ecn_marked", u64s(&|report| report.marks))
        .with("packets_dropped", u64s(&|report| report.drops))
        .with("queue_max_bytes", u64s(&|report| report.max_depth))
        .with("queue_mean_bytes", Column::F64(reports.iter().map(|report| report.mean_depth).collect()))
        .with("queueing_ps", u64s(&|report| report.queueing.ps()))
        .with("pauses", u64s(&|report| report.pauses))
        .with("paused_ps", u64s(&|report| report.paused.ps()))
        .with("watchdog_dropped", u64s(&|report| report.watchdog_drops))
        .with("packets_trimmed", u64s(&|report| report.trims));
    // Stable: links of equal load stay in link order.
    loads.sort_by(|a, b| b.utilisation.total_cmp(&a.utilisation));
    loads.truncate(MOST_LOADED);
    (batch, loads)
}

/// Rows of queues over time, taken every `every`.
pub(crate) fn queues(samples: &[QueueSample], topology: &Topology, every: Span, origin: Origin) -> Batch {
    let mut links: Vec<u32> = samples.iter().map(|sample| sample.link.0).collect();
    links.sort_unstable();
    links.dedup();
    let names: Vec<String> = links.iter().map(|&link| topology.link_name(LinkId(link))).collect();
    let code = |sample: &QueueSample| links.partition_point(|&link| link < sample.link.0) as u32;
    let full = |sample: &QueueSample| topology.link(sample.link).rate.bps() as f64 / 8.0 * every.seconds();
    let u64s = |of: &dyn Fn(&QueueSample) -> u64| Column::U64(samples.iter().map(of).collect());
    let tiers: Vec<String> =
        links.iter().map(|&link| topology.link(LinkId(link)).tier.name().into_owned()).collect();
    let utilisation = samples.iter().map(|sample| sample.sent as f64 / full(sample)).collect();
    Batch::default()
        .with("time_ps", u64s(&|sample| origin.ps + sample.at.ps()))
        .with("link", Column::U32(samples.iter().map(|sample| sample.link.0).collect()))
        .with("name", Column::coded(names.iter().map(String::as_str), samples.iter().map(code)))
        .with("tier", Column::coded(tiers.iter().map(String::as_str), samples.iter().map(code)))
        .with("queue_bytes", u64s(&|sample| u64::from(sample.bytes)))
        .with("bytes", u64s(&|sample| sample.sent))
        .with("utilisation", Column::F64(utilisation))
        .with("origin_s", Column::U64(vec![origin.seconds(); samples.len()]))
}

/// How much fuller the fullest of a switch's ports upwards is than they are on average, for the switch and tier where
/// that is most; `None` where no switch has several that carried anything. Fluid flows cut over all paths fill them alike.
pub(crate) fn unevenness(reports: &[PortReport], topology: &Topology) -> Option<f64> {
    // Links of a switch and tier: how many, their sum and maximum, by number of the switch.
    let mut groups: std::collections::BTreeMap<(u32, u8), (u64, u64, u64)> =
        std::collections::BTreeMap::new();
    for report in reports {
        let (LinkTier::Up(tier), Some((switch, _))) =
            (topology.link(report.link).tier, topology.link_source(report.link))
        else {
            continue;
        };
        let (count, sum, most) = groups.entry((switch.0, tier)).or_default();
        (*count, *sum, *most) = (*count + 1, *sum + report.bytes, report.bytes.max(*most));
    }
    let several = groups.into_values().filter(|(count, sum, _)| *count > 1 && *sum > 0);
    several.map(|(count, sum, most)| most as f64 * count as f64 / sum as f64 - 1.0).max_by(f64::total_cmp)
}

/// Place of a traffic class among the names of dimensions.
fn dimension(class: u8) -> u32 {
    Dimension::ALL.get(usize::from(class)).copied().unwrap_or_default() as u32
}

/// Rows of what arrived; at message fidelity every one is a message of two ends, and `edges` is left out.
pub(crate) fn flows(records: &[FlowRecord], origin: Origin, edges: bool) -> Batch {
    let u32s = |of: &dyn Fn(&FlowRecord) -> u32| Column::U32(records.iter().map(of).collect());
    let u64s = |of: &dyn Fn(&FlowRecord) -> u64| Column::U64(records.iter().map(of).collect());
    let dimensions = Dimension::ALL.map(Dimension::name);
    let paths = PathClass::ALL.map(PathClass::name);
    let mut batch = Batch::default()
        .with("source", u32s(&|record| record.source.0))
        .with("destination", u32s(&|record| record.destination.0));
    if edges {
        batch = batch.with("edges", u32s(&|record| record.edges));
    }
    batch
        .with("bytes", u64s(&|record| record.bytes.get()))
        .with("start_ps", u64s(&|record| origin.ps + record.start.ps()))
        .with("finish_ps", u64s(&|record| origin.ps + record.finish.ps()))
        .with("dimension", Column::coded(dimensions, records.iter().map(|record| dimension(record.class))))
        .with("path", Column::coded(paths, records.iter().map(|record| record.path as u32)))
        .with("hops", u32s(&|record| u32::from(record.hops)))
        .with("origin_s", Column::U64(vec![origin.seconds(); records.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four bins of 10 ps, the last of which the end cuts: what came before 25 ps is no part of the rate.
    #[test]
    fn what_was_carried_before_is_left_out() {
        let link = LinkUsage { link: LinkId(3), bytes: 85.0, bins: vec![40.0, 0.0, 30.0, 15.0] };
        let told =
            [(0, 0.0), (5, 20.0), (10, 40.0), (20, 40.0), (25, 55.0), (30, 70.0), (33, 77.5), (36, 85.0)];
        for (from, expected) in told {
            assert_eq!(
                before(&link, Span::from_ps(10), Span::from_ps(from), Span::from_ps(36)),
                expected,
                "{from}"
            );
        }
    }
}
