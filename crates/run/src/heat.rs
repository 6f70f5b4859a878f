//! How loaded links were over the calendar, and for how long jobs were slowed by paths that they share.
//!
//! A job's use of a link is its mean over the simulated part of an episode, taken to last as long as the episode. Bins are
//! of equal length, and two become one when they run out.
//!
//! **Congestion.** A job is congested while its iterations take more than 1% longer than on an ideal fabric, where only
//! NICs are shared: it cannot fill the bandwidth between its hosts and their leaves, because something behind them is
//! narrower. If it is so alone on the fabric too, its own flows meet; else the newest job of its group caused it.

use std::collections::BTreeMap;

use windtunnel_cluster::calendar::EpisodeJob;
use windtunnel_plan::jobs::JobPlan;
use windtunnel_topology::{LinkId, Topology};

use super::ideal::IdealTimes;
use super::memo::mean;
use super::periods::{Cause, Period, Periods};
use super::recorder::Iteration;
use super::subscriber::{Event, Known, Over, Subscriber};
use super::summary::LinkLoad;
use crate::table::{Batch, Column};

/// Bins at most.
const BINS: usize = 128;
/// Length of a bin at first, in nanoseconds.
const FIRST: u64 = 1_000_000;
/// Links named in the summary.
const MOST_LOADED: usize = 8;
/// Links written at most, the most used first.
const LINKS: usize = 512;

/// Bytes that links carried over time.
#[derive(Debug)]
pub(crate) struct Heat {
    width: u64,
    /// Bytes by bin of each link that carried any.
    links: BTreeMap<u32, Vec<f64>>,
    end: u64,
}

impl Default for Heat {
    fn default() -> Self {
        Self { width: FIRST, links: BTreeMap::new(), end: 0 }
    }
}

impl Subscriber for Heat {
    fn hear(&mut self, event: &Event<'_>) {
        if let Event::Over(over) = event {
            self.add(over.used, over.from, over.until);
        }
    }
}

impl Heat {
    /// `usage`, links with bytes per second, from `from` to `until` nanoseconds.
    fn add(&mut self, usage: &[(u32, f64)], from: u64, until: u64) {
        while until > self.width.saturating_mul(BINS as u64) {
            self.width = self.width.saturating_mul(2);
            for bins in self.links.values_mut() {
                *bins = bins.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        self.end = self.end.max(until);
        for &(link, rate) in usage {
            let bins = self.links.entry(link).or_default();
            let mut at = from;
            while at < until {
                let index = (at / self.width) as usize;
                let next = until.min((index as u64 + 1) * self.width);
                if bins.len() <= index {
                    bins.resize(index + 1, 0.0);
                }
                bins[index] += rate * (next - at) as f64 / 1e9;
                at = next;
            }
        }
    }

    /// The most used links as the summary names them.
    pub(crate) fn most_loaded(&self, topology: &Topology) -> Vec<LinkLoad> {
        let load = |(utilisation, bytes, link): (f64, f64, LinkId)| LinkLoad {
            name: topology.link_name(link),
            tier: topology.link(link).tier.name().into_owned(),
            utilisation,
            bytes: bytes.round() as u64,
        };
        self.most(topology).into_iter().take(MOST_LOADED).map(load).collect()
    }

    /// The most used links: (mean utilisation from 0 to the end, bytes, link), first the most.
    fn most(&self, topology: &Topology) -> Vec<(f64, f64, LinkId)> {
        let seconds = self.end as f64 / 1e9;
        let of = |(&link, bins): (&u32, &Vec<f64>)| {
            let bytes: f64 = bins.iter().sum();
            let full = topology.link(LinkId(link)).rate.bps() as f64 / 8.0 * seconds;
            (bytes / full, bytes, LinkId(link))
        };
        let mut links: Vec<_> = self.links.iter().map(of).collect();
        // Stable: equal ones stay in link order.
        links.sort_by(|a, b| b.0.total_cmp(&a.0));
        links
    }

    /// Rows of the table `heat`: utilisation of the most used links in each bin.
    pub(crate) fn rows(&self, topology: &Topology) -> Batch {
        let mut links: Vec<LinkId> =
            self.most(topology).into_iter().take(LINKS).map(|(.., link)| link).collect();
        links.sort_unstable();
        // A run that was stopped in its first episode has no time over which links carried anything.
        let width = self.links.values().map(Vec::len).max().unwrap_or(0).max(1);
        let mut values = Vec::with_capacity(links.len() * width);
        for link in &links {
            let rate = topology.link(*link).rate.bps() as f64 / 8.0;
            let bins = &self.links[&link.0];
            values.extend((0..width as u64).map(|bin| {
                let (from, until) = (bin * self.width, self.end.min((bin + 1) * self.width));
                let full = rate * until.saturating_sub(from) as f64 / 1e9;
                bins.get(bin as usize).map_or(0.0, |bytes| bytes / full)
            }));
        }
        let n = links.len();
        Batch::default()
            .with("link", Column::U32(links.iter().map(|link| link.0).collect()))
            .with("name", Column::Text(links.iter().map(|&link| topology.link_name(link)).collect()))
            .with(
                "tier",
                Column::Text(
                    links.iter().map(|&link| topology.link(link).tier.name().into_owned()).collect(),
                ),
            )
            .with("bin_span_s", Column::F64(vec![self.width as f64 / 1e9; n]))
            .with("utilisation_bins", Column::F64List { values, width })
    }
}

/// Longer iterations than this part of the ideal are congestion.
const CONGESTED: f64 = 1.01;

/// Periods of congestion.
pub(crate) struct Congestion<'a> {
    ideal: &'a IdealTimes<'a>,
    /// Jobs that are congested in the episodes that go on: why, and how much slower they are.
    under_way: BTreeMap<u32, Vec<(usize, Cause, f64)>>,
    periods: Periods,
}

impl<'a> Congestion<'a> {
    /// None so far.
    pub(crate) fn new(ideal: &'a IdealTimes<'a>) -> Self {
        Self { ideal, under_way: BTreeMap::new(), periods: Periods::default() }
    }

    /// Whether a job is congested that does these iterations in an episode; why, and how much slower it is.
    fn one(&self, known: &Known<'_>, job: &EpisodeJob, seen: &[Iteration]) -> Option<(usize, Cause, f64)> {
        if job.loading {
            return None;
        }
        let ideal = self.ideal.of_job_on(job.job, job.placement.len())?.ps() as f64;
        // What a rerun goes through again was with others.
        let redone = known.entered_ps.map_or(0, |entered_ps| {
            seen.partition_point(|one| one.start_ps < entered_ps).min(seen.len().saturating_sub(1))
        });
        let slowdown = mean(&seen[redone..])? / ideal;
        if slowdown <= CONGESTED {
            return None;
        }
        // No slower than alone on the fabric: the others have no part in it.
        let alone = (known.alone)(job.job).is_some_and(|alone| slowdown * ideal <= alone * CONGESTED);
        let newest = known.jobs.last().map_or(job.job, |newest| newest.job);
        let cause = if known.jobs.len() == 1 || alone { Cause::Own } else { Cause::Job(newest) };
        Some((job.job, cause, slowdown))
    }

    /// All periods by their beginning.
    pub(crate) fn into_periods(self) -> Vec<Period> {
        self.periods.into_sorted()
    }
}

impl Subscriber for Congestion<'_> {
    fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Known(known) => {
                let all = known.jobs.iter().zip(known.iterations);
                let congested = all.filter_map(|(job, seen)| self.one(known, job, seen)).collect();
                self.under_way.insert(known.number, congested);
            }
            Event::Over(over) => {
                let Over { number, from, until, .. } = **over;
                for (job, cause, slowdown) in self.under_way.remove(&number).unwrap_or_default() {
                    self.periods.add(Period { job, from, until, cause, slowdown });
                }
            }
        }
    }
}

/// Rows of the table `congestion`.
pub(crate) fn congestion_rows(periods: &[Period], plans: &[JobPlan]) -> Batch {
    let seconds = |of: &dyn Fn(&Period) -> u64| {
        Column::F64(periods.iter().map(|period| of(period) as f64 / 1e9).collect())
    };
    let name = |job: usize| plans[job].name.clone();
    let cause = |period: &Period| match period.cause {
        Cause::Own => name(period.job),
        Cause::Job(job) => name(job),
    };
    Batch::default()
        .with("job", Column::Text(periods.iter().map(|period| name(period.job)).collect()))
        .with("from_s", seconds(&|period| period.from))
        .with("until_s", seconds(&|period| period.until))
        .with("cause", Column::Text(periods.iter().map(cause).collect()))
        .with("slowdown", Column::F64(periods.iter().map(|period| period.slowdown).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_when_bins_are_merged() {
        let mut heat = Heat::default();
        let mut bytes = 0.0;
        for step in 0..400u64 {
            let (from, until) = (step * 1_700_000, (step + 1) * 1_700_000);
            heat.add(&[(3, 1e9 * (step % 5) as f64)], from, until);
            bytes += 1_700_000.0 * (step % 5) as f64;
        }
        let kept: f64 = heat.links[&3].iter().sum();
        assert!((kept / bytes - 1.0).abs() < 1e-9, "{kept} {bytes}");
        assert!(heat.links[&3].len() <= BINS);
    }

    #[test]
    fn a_period_goes_on_across_episodes_and_a_new_cause_of_a_job_that_met_itself_begins_another() {
        let mut congestion = Periods::default();
        let period = |from, until, cause| Period { job: 1, from, until, cause, slowdown: 1.2 };
        congestion.add(period(0, 10, Cause::Own));
        congestion.add(period(10, 20, Cause::Job(2)));
        congestion.add(period(20, 30, Cause::Job(3)));
        congestion.add(period(40, 50, Cause::Own));
        let periods: Vec<_> = congestion.into_sorted().iter().map(|p| (p.from, p.until, p.cause)).collect();
        assert_eq!(periods, [(0, 10, Cause::Own), (10, 30, Cause::Job(2)), (40, 50, Cause::Own)]);
    }
}
