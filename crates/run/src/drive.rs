//! Driving a shard to its end on the executor, watched: progress, cancellation, and the rows of messages as they end.

use windtunnel_backend::BackendNetwork;
use windtunnel_cluster::shard::Shard;
use windtunnel_fabric::Fabric;
use windtunnel_fabric::flow::{CompletionTimes, FlowNetwork, FlowRecord};
use windtunnel_fabric::host::Host;
use windtunnel_fabric::message::{Account, Latency};
use windtunnel_fabric::packet::PacketModel;
use windtunnel_fabric::reroute::CutOff;
use windtunnel_kernel::executor::{Control, End, Sequential};
use windtunnel_kernel::{Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::settings::FlowsTable;
use windtunnel_topology::Topology;

use super::clock::Origin;
use super::recorder::Recorder;
use super::usage;
use crate::table::ProgressSink;

/// Rows of flows that `results.flows: auto` writes.
const AUTO_FLOWS: u64 = 1 << 20;

/// A fabric of any fidelity, and what it lets itself be asked.
pub trait Observed: Fabric {
    /// The flow network behind the hosts, if that is the fidelity.
    fn flow_network(&mut self) -> Option<&mut FlowNetwork> {
        None
    }
    /// The packet network behind the hosts, if that is the fidelity.
    fn packet_network(&mut self) -> Option<&mut dyn PacketModel> {
        None
    }
    /// Appends the records of flows kept since the last call; `false` if this fidelity has none.
    fn take_flow_records(&mut self, records: &mut Vec<FlowRecord>) -> bool {
        let Some(network) = self.flow_network() else { return false };
        network.take_records(records);
        true
    }
    /// The account of messages, at message fidelity.
    fn account(&mut self) -> Option<&mut Account> {
        None
    }
    /// What went wrong inside the network: the run cannot go on.
    fn fault(&self) -> Option<&str> {
        None
    }
    /// Completion times, messages and payload bytes so far.
    fn delivered(&mut self) -> Option<(&CompletionTimes, u64, u64)>;
}

impl Observed for Host<FlowNetwork> {
    fn flow_network(&mut self) -> Option<&mut FlowNetwork> {
        Some(self.network_mut())
    }

    fn delivered(&mut self) -> Option<(&CompletionTimes, u64, u64)> {
        let flow = self.network();
        Some((flow.completion_times(), flow.messages(), flow.bytes_delivered()))
    }
}

impl Observed for Host<Box<dyn PacketModel>> {
    fn packet_network(&mut self) -> Option<&mut dyn PacketModel> {
        Some(&mut **self.network_mut())
    }

    fn take_flow_records(&mut self, records: &mut Vec<FlowRecord>) -> bool {
        self.network_mut().take_records(records);
        true
    }

    fn fault(&self) -> Option<&str> {
        self.network().fault()
    }

    fn delivered(&mut self) -> Option<(&CompletionTimes, u64, u64)> {
        let packet = self.network();
        Some((packet.completion_times(), packet.messages(), packet.bytes_delivered()))
    }
}

impl Observed for Host<BackendNetwork> {
    fn take_flow_records(&mut self, records: &mut Vec<FlowRecord>) -> bool {
        self.network_mut().take_records(records);
        true
    }

    fn fault(&self) -> Option<&str> {
        self.network().fault()
    }

    fn delivered(&mut self) -> Option<(&CompletionTimes, u64, u64)> {
        let model = self.network();
        Some((model.completion_times(), model.messages(), model.bytes_delivered()))
    }
}

impl Observed for Host<Latency> {
    fn account(&mut self) -> Option<&mut Account> {
        self.network_mut().account_mut()
    }

    fn delivered(&mut self) -> Option<(&CompletionTimes, u64, u64)> {
        let account = self.account()?;
        Some((account.completion_times(), account.messages(), account.bytes_delivered()))
    }
}

/// How driving a shard ended.
pub enum Outcome {
    /// No event is left, or enough was seen.
    Dry,
    /// The progress sink stopped it.
    Cancelled,
    /// The executor or the sink did.
    Failed(String),
}

/// Counts the rows of flows or messages, which are taken off the network while the run goes.
pub struct FlowRows {
    written: u64,
    limit: u64,
}

impl FlowRows {
    pub fn of(plan: &Plan, written: u64) -> Self {
        let limit = match plan.results.flows {
            FlowsTable::Auto => AUTO_FLOWS,
            FlowsTable::All => u64::MAX,
            FlowsTable::None => 0,
        };
        Self { written, limit }
    }

    /// Whether `records`, cut to the room there is, are to be written now: there are many, or these are the last.
    fn due<R>(&mut self, records: &mut Vec<R>, last: bool) -> bool {
        let room = self.limit.saturating_sub(self.written).min(records.len() as u64);
        records.truncate(room as usize);
        let due = !records.is_empty() && (records.len() >= 1 << 16 || last);
        if due {
            self.written += records.len() as u64;
        }
        due
    }
}

/// What driving needs to know of the run around it.
pub struct Watch<'a> {
    /// Start of the episode.
    pub origin: Origin,
    /// Events of the episodes before.
    pub events_before: u64,
    /// The fabric's shape.
    pub topology: &'a Topology,
    /// How often queues are sampled, if they are.
    pub sample_every: Option<Span>,
    /// A pair that nothing joins, once there is one: the run cannot go on.
    pub cut_off: &'a dyn Fn() -> Option<CutOff>,
}

/// Runs the shard to its end on the sequential executor, watched by `progress`; returns the rows of flows written too.
pub fn drive<F: Observed>(
    shard: &mut Shard<'_, F, Recorder<'_>>,
    watch: &Watch<'_>,
    progress: &mut dyn ProgressSink,
    mut flows: FlowRows,
) -> (Outcome, u64) {
    let &Watch { origin, events_before, topology, sample_every, cut_off } = watch;
    let already = flows.written;
    let (mut records, mut messages, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    let mut pace = Pace::new();
    let outcome = loop {
        // The executor hands back the shard between slices, so that its observations can be taken off it.
        let mut slices = 0;
        let run = Sequential::run(std::slice::from_mut(shard), Span::ZERO, Time::NEVER, |_| {
            slices += 1;
            if slices < SLICES { Control::Continue } else { Control::Cancel }
        });
        let ended = match run {
            Ok(outcome) => outcome.end == End::Idle,
            Err(error) => break Outcome::Failed(error.to_string()),
        };
        let mut cancelled = false;
        if !ended && pace.due() {
            let simulated =
                origin.seconds() as f64 + (Span(origin.ps) + Span(shard.fabric().now().0)).seconds();
            let fraction = shard.progress();
            let packets = shard.fabric_mut().packet_network().map_or(0, |packet| packet.totals().events);
            let events = events_before + shard.fabric().events() + packets;
            cancelled = !progress.progress(Some(fraction), simulated, events);
        }
        let last = ended || cancelled;
        if shard.fabric_mut().take_flow_records(&mut records) && flows.due(&mut records, last) {
            shard.observer_mut().rows("flows", usage::flows(&records, origin));
            records.clear();
        }
        if let (Some(every), Some(network)) = (sample_every, shard.fabric_mut().packet_network()) {
            network.take_samples(&mut samples);
            if samples.len() >= 1 << 16 || last {
                shard.observer_mut().rows("queues", usage::queues(&samples, topology, every, origin));
                samples.clear();
            }
        }
        if let Some(account) = shard.fabric_mut().account() {
            account.take_records(&mut messages);
            if flows.due(&mut messages, last) {
                shard.observer_mut().rows("messages", usage::messages(&messages, topology, origin));
                messages.clear();
            }
        }
        if let Some(failure) = shard.observer_mut().failure() {
            break Outcome::Failed(failure.to_owned());
        }
        if let Some(fault) = shard.fabric().fault() {
            break Outcome::Failed(fault.to_owned());
        }
        if ended || cut_off().is_some() {
            break Outcome::Dry;
        }
        if cancelled {
            break Outcome::Cancelled;
        }
    };
    (outcome, flows.written - already)
}

/// Slices that the executor runs between two looks at the clock.
const SLICES: u32 = 4;

/// Lets something happen a few times a second.
pub struct Pace {
    next: std::time::Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    const EVERY: std::time::Duration = std::time::Duration::from_millis(200);

    #[allow(
        clippy::disallowed_methods,
        reason = "progress is told by the wall clock; no result depends on it"
    )]
    /// Due from now on.
    pub fn new() -> Self {
        Self { next: std::time::Instant::now() + Self::EVERY }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "progress is told by the wall clock; no result depends on it"
    )]
    /// Whether it is time to tell again; if so, the next time is later.
    pub fn due(&mut self) -> bool {
        let now = std::time::Instant::now();
        let due = now >= self.next;
        if due {
            self.next = now + Self::EVERY;
        }
        due
    }
}
