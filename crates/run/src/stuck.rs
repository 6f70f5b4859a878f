//! What is said of a run that ended before its jobs did.

use windtunnel_fabric::packet::PortReport;
use windtunnel_fabric::{Observations, Trouble};
use windtunnel_kernel::{Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, Why};
use windtunnel_workload::replay::StuckOperation;

/// Stuck operations named in a message.
const NAMED: usize = 10;

/// Ports named of those that dropped packets.
const PORTS: usize = 5;

/// Packets that were dropped and that nothing sends again.
pub(crate) struct Lost {
    transport: String,
    packets: u64,
    /// Names of the ports and what each dropped, the worst first.
    ports: Vec<(String, u64)>,
    /// Of `packets` those that a cable lost or that met a link that was down, and those that a watchdog dropped.
    on_links: u64,
    by_watchdog: u64,
}

impl Lost {
    /// Of what a network saw: `None` where whatever is lost is sent again, or nothing that a job waits for was.
    pub(crate) fn of(plan: &Plan, seen: &Observations) -> Option<Self> {
        let packets = seen.packets.as_ref().filter(|_| seen.trouble == Some(Trouble::LostForGood))?;
        let totals = &packets.totals;
        let topology = &plan.fabric.topology;
        let mut reports: Vec<PortReport> = packets.ports.clone();
        reports.retain(|report| report.drops > 0);
        // Stable: ports that dropped equally stay in the order of their links.
        reports.sort_by_key(|report| std::cmp::Reverse(report.drops));
        let name = |report: &PortReport| (topology.link_name(report.link), report.drops);
        Some(Self {
            transport: plan.network.packet.transport.name.clone(),
            packets: totals.drops,
            on_links: totals.corrupted + totals.link_down,
            by_watchdog: reports.iter().map(|report| report.watchdog_drops).sum(),
            ports: reports.iter().map(name).collect(),
        })
    }

    fn lines(&self) -> String {
        let line = |(port, drops): &(String, u64)| format!("\n  {drops} at `{port}`");
        let lines: String = self.ports.iter().take(PORTS).map(line).collect();
        match self.ports.len().saturating_sub(PORTS) {
            0 => lines,
            1 => lines + "\n  … and 1 more port",
            more => lines + &format!("\n  … and {more} more ports"),
        }
    }

    fn hint(&self) -> String {
        let mut ways = vec!["a transport that sends again what is lost (`network.transport: dctcp`)"];
        if self.on_links > 0 {
            ways.push("links that lose nothing (`loss`, `impairments`)");
        }
        if self.by_watchdog > 0 {
            ways.push("a longer `pfc.watchdog`");
        }
        if self.packets > self.on_links + self.by_watchdog {
            ways.push("larger `network.buffers`");
        }
        ways.join(", or ")
    }
}

/// What is said when no event is left and jobs are not done: `stuck` has their operations, `jobs` their names, `beyond` is
/// whether something would end after the horizon, and `lost` what a packet network dropped for good.
pub(crate) fn stuck_failure(
    jobs: &[&str],
    stuck: &[(usize, Vec<StuckOperation>)],
    beyond: bool,
    lost: Option<&Lost>,
) -> Failure {
    let count: usize = stuck.iter().map(|(_, operations)| operations.len()).sum();
    let all =
        stuck.iter().flat_map(|(job, operations)| operations.iter().map(move |operation| (*job, operation)));
    let line = |(job, operation): (usize, &StuckOperation)| {
        let label =
            if operation.label.is_empty() { String::new() } else { format!(" `{}`", operation.label) };
        let (rank, index, waits_for) = (operation.rank, operation.operation, &operation.waits_for);
        format!("\n  job `{}`, rank {rank}, operation {index}{label} waits for {waits_for}", jobs[job])
    };
    let lines: String = all.take(NAMED).map(line).collect();
    let more = if count > NAMED { format!("\n  … and {} more", count - NAMED) } else { String::new() };
    let (plural, wait) = if count == 1 { ("", "waits") } else { ("s", "wait") };
    if beyond {
        let text = format!(
            "the run would go on for more than {} days of network time, the longest that a network is followed: \
             {count} operation{plural} {wait} for something that ends later{lines}{more}\n\nhint: is a rate or a size \
             mistyped (`1 Kbps` for `1 Gbps`)? A job as long as this one has to be cut into iterations",
            Time::HORIZON.ps() / Span::from_us(86_400_000_000).ps()
        );
        Failure::Run(Why::Horizon, text)
    } else if let Some(lost) = lost {
        let (packets, were) = if lost.packets == 1 { ("packet", "was") } else { ("packets", "were") };
        let text = format!(
            "the run ended, but {count} operation{plural} {wait} for what was lost: {} {packets} {were} dropped, and \
             transport `{}` sends nothing again{}\nso these never end:{lines}{more}\n\nhint: {}",
            lost.packets,
            lost.transport,
            lost.lines(),
            lost.hint()
        );
        Failure::Run(Why::Lost, text)
    } else {
        let text = format!(
            "the run ended, but {count} operation{plural} {wait} for something that never comes{lines}{more}\n\nhint: \
             every receive needs a send of the same tag from the same rank, and the other way round"
        );
        Failure::Run(Why::Stuck, text)
    }
}
