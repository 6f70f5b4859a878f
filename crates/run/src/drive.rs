//! Driving a shard to its end on the executor, watched: progress, cancellation, and the rows of messages as they end.

use windtunnel_fabric::{Fabric, Network};
use windtunnel_kernel::executor::{Control, End, Sequential};
use windtunnel_kernel::{Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, Why};
use windtunnel_plan::settings::{Fidelity, FlowsTable};

use super::clock::Origin;
use super::stage::Stage;
use super::usage;
use super::watched::Watched;
use crate::table::ProgressSink;

/// Rows of flows that `results.flows: auto` writes.
const AUTO_FLOWS: u64 = 1 << 20;

/// How driving a shard ended.
pub(crate) enum Outcome {
    /// No event is left, or enough was seen.
    Dry,
    /// The progress sink stopped it.
    Cancelled,
    /// It cannot go on, for that reason.
    Failed(Failure),
}

/// Counts the rows of flows or messages, which are taken off the network while the run goes.
pub(crate) struct FlowRows {
    written: u64,
    limit: u64,
}

impl FlowRows {
    pub(crate) fn of(plan: &Plan, written: u64) -> Self {
        let limit = match plan.results.flows {
            FlowsTable::Auto => AUTO_FLOWS,
            FlowsTable::All => u64::MAX,
            FlowsTable::None => 0,
        };
        Self { written, limit }
    }

    /// Rows so far.
    pub(crate) const fn written(&self) -> u64 {
        self.written
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
pub(crate) struct Watch<'a> {
    /// What is run.
    pub plan: &'a Plan,
    /// Start of the episode.
    pub origin: Origin,
    /// Events of the episodes before.
    pub events_before: u64,
}

/// Runs a stage's shard to its end on the sequential executor, watched by `progress`.
pub(crate) fn drive(
    stage: &mut Stage<'_>,
    watch: &Watch<'_>,
    progress: &mut dyn ProgressSink,
    flows: &mut FlowRows,
) -> Outcome {
    let &Watch { plan, origin, events_before } = watch;
    let topology = &plan.fabric.topology;
    let messages = plan.fidelity == Fidelity::Message;
    let table = if messages { "messages" } else { "flows" };
    let (mut records, mut samples) = (Vec::new(), Vec::new());
    let mut seen = Watched::default();
    let mut pace = Pace::new();
    loop {
        // The executor hands back the shard between slices, so that its observations can be taken off it.
        let mut slices = 0;
        let shard = std::slice::from_mut(&mut stage.shard);
        let run = Sequential::run(shard, Span::ZERO, Time::NEVER, |_| {
            slices += 1;
            if slices < SLICES { Control::Continue } else { Control::Cancel }
        });
        let ended = match run {
            Ok(outcome) => outcome.end == End::Idle,
            // The shard is the only process, so it is nobody else's fault.
            Err(error) => return Outcome::Failed(Failure::Run(Why::Defect, error.to_string())),
        };
        let mut cancelled = false;
        let shard = &mut stage.shard;
        if !ended && pace.due() {
            let simulated = origin.seconds() as f64
                + (Span::from_ps(origin.ps) + Span::from_ps(shard.fabric().now().ps())).seconds();
            let fraction = shard.progress();
            let events = events_before + shard.fabric().events() + shard.fabric().network().events();
            cancelled = !progress.progress(Some(fraction), simulated, events);
        }
        let last = ended || cancelled;
        let network = shard.fabric_mut().network_mut();
        network.take_records(&mut records);
        if plan.results.queues.is_some() {
            network.take_samples(&mut samples);
        }
        seen.take(plan, network);
        if flows.due(&mut records, last) {
            shard.observer_mut().rows(table, usage::flows(&records, origin, !messages));
            records.clear();
        }
        if let Some(every) = plan.results.queues.filter(|_| samples.len() >= 1 << 16 || last) {
            shard.observer_mut().rows("queues", usage::queues(&samples, topology, every, origin));
            samples.clear();
        }
        for (table, rows) in seen.due(topology, origin, last) {
            shard.observer_mut().rows(table, rows);
        }
        if let Some(failure) = shard.observer_mut().failure() {
            return Outcome::Failed(Failure::sink(failure.to_owned()));
        }
        if let Some(fault) = shard.fabric().network().fault() {
            return Outcome::Failed(Failure::Run(Why::Model, fault.to_owned()));
        }
        if ended || stage.cut_off().is_some() {
            return Outcome::Dry;
        }
        if cancelled {
            return Outcome::Cancelled;
        }
    }
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
